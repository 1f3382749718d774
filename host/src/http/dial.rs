//! Connections for kube's client: the address is checked, and the checked address is connected to.

use std::{
    io,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tower::Service;

use super::{
    Error, Stream,
    address::Address,
    connect,
    resolve::{self, Policy},
    tls,
};

/// The connector to one server, whatever the URL of a request names.
#[derive(Clone)]
pub(crate) struct Dial(Arc<Target>);

struct Target {
    to: Address,
    /// The name in the server's certificate, if it is not that of the address.
    certified: Option<Address>,
    tls: TlsConnector,
    policy: Policy,
    /// A server that is never connected to, under whatever name.
    never: Option<Address>,
    limit: Duration,
}

/// An open connection.
pub(crate) struct Dialed(TokioIo<Box<dyn Stream>>);

// === impl Dial ===

impl Dial {
    pub(crate) fn new(
        to: Address,
        certified: Option<String>,
        tls: TlsConnector,
        (policy, never): (Policy, Option<Address>),
        limit: Duration,
    ) -> Self {
        let certified = certified.map(|host| Address { host, ..to.clone() });
        Self(Arc::new(Target { to, certified, tls, policy, never, limit }))
    }
}

impl Service<Uri> for Dial {
    type Response = Dialed;
    type Error = Error;
    type Future = BoxFuture<'static, Result<Dialed, Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let target = Arc::clone(&self.0);
        Box::pin(async move {
            let limit = target.limit;
            let connected = timeout(limit, target.connect()).await;
            let late = |_| Err(Error::late(&target.to.host, "no connection", limit));
            connected.unwrap_or_else(late)
        })
    }
}

// === impl Target ===

impl Target {
    async fn connect(&self) -> Result<Dialed, Error> {
        let never = self.never().await?;
        let check = |ip: IpAddr| {
            if never.contains(&ip.to_canonical()) {
                let (host, found) = (self.to.host.clone(), format!("{ip} is the home API server"));
                return Err(Error::Refused { host, found });
            }
            self.policy.check(&self.to.host, ip)
        };
        let (stream, _) = connect::open(&self.to, check).await?;
        let certified = self.certified.as_ref().unwrap_or(&self.to);
        Ok(Dialed(TokioIo::new(tls::secure(&self.tls, certified, stream).await?)))
    }

    /// Returns the addresses that are never connected to on this port.
    async fn never(&self) -> Result<Vec<IpAddr>, Error> {
        match self.never.as_ref().filter(|never| never.port == self.to.port) {
            Some(never) => {
                let all = resolve::addresses(&never.host).await?;
                Ok(all.iter().map(IpAddr::to_canonical).collect())
            }
            None => Ok(Vec::new()),
        }
    }
}

// === impl Dialed ===

impl Connection for Dialed {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Dialed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl Write for Dialed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
