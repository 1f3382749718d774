//! The TLS listener, with a limit on open connections.
//!
//! A connection serves several requests in turn, since the API server reuses it. If all slots are
//! taken, the oldest idle connection is closed.

use std::{sync::Arc, time::Duration};

use hyper::{
    header::{CONNECTION, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::{
    ServerConfig,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::{
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{Served, Webhooks};
use crate::{
    host::Source,
    http::server::{self, MAX_HEADER_BYTES, Slot},
};

/// The maximum number of open connections.
const MAX_CONNECTIONS: usize = 512;
/// The timeout of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The idle timeout of a connection: longer than that of the API server, so that the API server
/// closes it first.
const IDLE_TIMEOUT: Duration = Duration::from_mins(5);
/// The grace period for answers in flight when the port is closed.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// The certificate that is served, looked up for each handshake.
struct Current(Source<Option<Served>>);

/// The shutdown of a listener, in two steps.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    /// Cancelled when the host starts to shut down: from then on, each answer closes its
    /// connection, so that the next request opens one to another host.
    pub leaving: CancellationToken,
    /// Cancelled when the port is to be closed.
    pub closed: CancellationToken,
}

/// Serves a listener until `stop.closed` is cancelled.
pub(super) async fn serve(
    webhooks: Webhooks,
    listener: TcpListener,
    certificate: Source<Option<Served>>,
    stop: Stop,
) -> anyhow::Result<()> {
    let acceptor = acceptor(certificate)?;
    let answer = |stream, slot| {
        let (acceptor, webhooks, stop) = (acceptor.clone(), webhooks.clone(), stop.clone());
        async move { answer(stream, &slot, &acceptor, &webhooks, &stop).await }
    };
    server::serve(listener, MAX_CONNECTIONS, &stop.closed, SHUTDOWN_TIMEOUT, answer).await;
    Ok(())
}

fn acceptor(certificate: Source<Option<Served>>) -> anyhow::Result<TlsAcceptor> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Current(certificate)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn answer(
    stream: TcpStream,
    slot: &Slot,
    acceptor: &TlsAcceptor,
    webhooks: &Webhooks,
    stop: &Stop,
) {
    let stream = tokio::select! {
        () = stop.closed.cancelled() => return,
        stream = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)) => stream,
    };
    let stream = match stream {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return debug!(%error, "a connection is refused"),
        Err(_) => return debug!("a handshake did not end in time"),
    };
    let service = service_fn(async |request| {
        slot.set_busy(true);
        let mut response = webhooks.answer(request).await;
        if stop.leaving.is_cancelled() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        slot.set_busy(false);
        Ok::<_, std::convert::Infallible>(response)
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(IDLE_TIMEOUT).max_buf_size(MAX_HEADER_BYTES);
    let served = http.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(served);
    tokio::select! {
        // Errors of a connection are the client's concern.
        _ = &mut served => return,
        () = stop.closed.cancelled() => {}
    }
    served.as_mut().graceful_shutdown();
    let _ = served.await;
}

// === impl Current ===

impl std::fmt::Debug for Current {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Current")
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        (self.0)().map(|served| served.key)
    }
}
