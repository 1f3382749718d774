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

#[cfg(test)]
mod tests {
    use futures::future::ready;
    use parking_lot::Mutex;

    use super::*;

    const HOME: &str = "home.example";

    /// A network of one name beside that of home, whose addresses are the next ones at each look.
    #[derive(Default)]
    struct InMemory {
        looks: Mutex<Vec<&'static [&'static str]>>,
        opened: Mutex<Vec<String>>,
    }

    impl Network for InMemory {
        fn addresses<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, Error>> {
            let all = match host {
                HOME => vec!["10.0.0.1".parse().unwrap(), "fd12::1".parse().unwrap()],
                _ => match host.parse() {
                    Ok(ip) => vec![ip],
                    Err(_) => {
                        self.looks.lock().remove(0).iter().map(|ip| ip.parse().unwrap()).collect()
                    }
                },
            };
            ready(Ok(all)).boxed()
        }

        fn open(&self, to: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Stream>>> {
            self.opened.lock().push(to.to_string());
            ready(Ok(Box::new(tokio::io::duplex(1).0) as Box<dyn Stream>)).boxed()
        }
    }

    /// A case, a server, the addresses of its name at each look, and where connections are opened.
    type Case =
        (&'static str, &'static str, &'static [&'static [&'static str]], &'static [&'static str]);

    const PROVIDER: &str = "https://p.example:6443";
    const OPENED: &[&str] = &["10.0.0.7:6443"];
    const CASES: [Case; 12] = [
        ("private", PROVIDER, &[&["10.0.0.7"]], OPENED),
        ("a good and a bad address", PROVIDER, &[&["10.0.0.7", "169.254.169.254"]], &[]),
        ("a bad and a good address", PROVIDER, &[&["127.0.0.1", "10.0.0.7"]], &[]),
        ("this machine at the second look", PROVIDER, &[&["10.0.0.7"], &["127.0.0.1"]], OPENED),
        ("metadata at the second look", PROVIDER, &[&["10.0.0.7"], &["fd00:ec2::254"]], OPENED),
        ("home at the second look", PROVIDER, &[&["10.0.0.7"], &["10.0.0.1"]], OPENED),
        ("home by another name", PROVIDER, &[&["10.0.0.1"]], &[]),
        ("home as one of two addresses", PROVIDER, &[&["10.0.0.7", "fd12::1"]], &[]),
        ("home in a mapped form", PROVIDER, &[&["::ffff:10.0.0.1"]], &[]),
        ("home by its address", "https://10.0.0.1:6443", &[&[]], &[]),
        (
            "another port of an address of home",
            "https://p.example:6444",
            &[&["10.0.0.1"]],
            &["10.0.0.1:6444"],
        ),
        ("an address itself", "https://127.0.0.1:6443", &[&[]], &["127.0.0.1:6443"]),
    ];

    #[test]
    fn other_clusters_are_connected_to_at_checked_addresses_and_never_at_home() {
        // As in `cluster/remote.rs`.
        let policy = Policy { literal: true, ..Policy::default() };
        let reach = Reach { policy, never: Home::parse(&format!("https://{HOME}:6443")) };
        for (case, server, looks, opened) in CASES {
            let network = InMemory { looks: Mutex::new(looks.to_vec()), ..InMemory::default() };
            let to = Address::parse(server).unwrap();
            for _ in looks {
                let result = reach.open(&network, &to).now_or_never().unwrap();
                if let Err(error) = result {
                    let is_refused =
                        matches!(error, Error::Refused { .. } | Error::Loopback { .. });
                    assert!(is_refused, "{case}: {error}");
                }
            }
            assert_eq!(*network.opened.lock(), opened, "{case}");
        }
    }
}
