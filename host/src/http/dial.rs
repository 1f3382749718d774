//! Connections for kube's client: the address is checked, and the checked address is connected to.

use std::{
    io,
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
    network::{Reach, System},
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
    reach: Reach,
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
        reach: Reach,
        limit: Duration,
    ) -> Self {
        let certified = certified.map(|host| Address { host, ..to.clone() });
        Self(Arc::new(Target { to, certified, tls, reach, limit }))
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
        let stream = self.reach.open(&System, &self.to).await?;
        let certified = self.certified.as_ref().unwrap_or(&self.to);
        Ok(Dialed(TokioIo::new(tls::secure(&self.tls, certified, stream).await?)))
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
