//! The network below HTTP: names and connections.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use futures::{FutureExt as _, future::BoxFuture};
use tokio::net::TcpStream;

use super::{
    Error, Stream,
    address::Address,
    connect,
    resolve::{self, Policy},
};

/// Looks names up and opens connections. Tests have one in memory.
pub(crate) trait Network: Send + Sync {
    /// Returns the first IP addresses of a host.
    fn addresses<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, Error>>;

    /// Opens a connection.
    fn open(&self, to: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Stream>>>;
}

/// The network of this machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct System;

/// The address of the home API server.
#[derive(Debug, Clone)]
pub struct Home(Address);

/// The servers that may be connected to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reach {
    pub(crate) policy: Policy,
    /// The home API server, which is never connected to, under whatever name: not on its port, and
    /// not on others if only public addresses may be contacted.
    pub(crate) never: Option<Home>,
}

// === impl System ===

impl Network for System {
    fn addresses<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, Error>> {
        resolve::addresses(host).boxed()
    }

    fn open(&self, to: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Stream>>> {
        async move {
            let stream = TcpStream::connect(to).await?;
            // Requests are small, and written at once.
            let _ = stream.set_nodelay(true);
            Ok(Box::new(stream) as Box<dyn Stream>)
        }
        .boxed()
    }
}

// === impl Home ===

impl Home {
    /// Parses the URL of the home API server.
    pub fn parse(url: &str) -> Option<Self> {
        Address::parse(url).map(Self)
    }
}

// === impl Reach ===

impl Reach {
    /// Resolves the host of an address, checks each IP address, and connects to one of them.
    pub(crate) async fn open(
        &self,
        network: &dyn Network,
        to: &Address,
    ) -> Result<Box<dyn Stream>, Error> {
        let never = self.never(network, to).await?;
        let check = |ip: IpAddr| {
            if never.contains(&ip.to_canonical()) {
                let (host, found) = (to.host.clone(), format!("{ip} is the home API server"));
                return Err(Error::Refused { host, found });
            }
            self.policy.check(&to.host, ip)
        };
        Ok(connect::open(network, to, check).await?.0)
    }

    /// Returns the addresses that are never connected to on the port of an address.
    async fn never(&self, network: &dyn Network, to: &Address) -> Result<Vec<IpAddr>, Error> {
        let is_near = |never: &&Home| self.policy.public || never.0.port == to.port;
        match self.never.as_ref().filter(is_near) {
            Some(Home(never)) => {
                let all = network.addresses(&never.host).await?;
                Ok(all.iter().map(IpAddr::to_canonical).collect())
            }
            None => Ok(Vec::new()),
        }
    }
}
