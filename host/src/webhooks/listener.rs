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
    server::{ClientHello, NoServerSessionStorage, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::{
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{Caller, Clients, Served, Webhooks};
use crate::{
    host::Source,
    http::server::{self, MAX_HEADER_BYTES, Slot},
};

/// The maximum number of open connections.
pub(super) const MAX_CONNECTIONS: usize = 512;
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
    let config = config(certificate, webhooks.shared.clients.as_ref())?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let answer = |stream, slot| {
        let (acceptor, webhooks, stop) = (acceptor.clone(), webhooks.clone(), stop.clone());
        async move { answer(stream, &slot, &acceptor, &webhooks, &stop).await }
    };
    server::serve(listener, MAX_CONNECTIONS, &stop.closed, SHUTDOWN_TIMEOUT, answer).await;
    Ok(())
}

fn config(
    certificate: Source<Option<Served>>,
    clients: Option<&Clients>,
) -> anyhow::Result<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = match clients {
        Some(clients) => config.with_client_cert_verifier(Arc::new(clients.clone())),
        None => config.with_no_client_auth(),
    };
    let mut config = config.with_cert_resolver(Arc::new(Current(certificate)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // A resumed session would keep a certificate whose authority does not count any longer.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

async fn answer(
    stream: TcpStream,
    slot: &Slot,
    acceptor: &TlsAcceptor,
    webhooks: &Webhooks,
    stop: &Stop,
) {
    let mut authorities = webhooks.shared.clients.as_ref().map(Clients::changes);
    if let Some(authorities) = &mut authorities {
        authorities.mark_unchanged();
    }
    let stream = tokio::select! {
        () = stop.closed.cancelled() => return,
        stream = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)) => stream,
    };
    let stream = match stream {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) if is_of_certificate(&error) => {
            return warn!(caller = %slot.caller(), %error, "a client certificate is refused");
        }
        Ok(Err(error)) => return debug!(%error, "a connection is refused"),
        Err(_) => return debug!("a handshake did not end in time"),
    };
    let is_known = stream.get_ref().1.peer_certificates().is_some();
    let caller = Caller { address: slot.caller(), is_known };
    let is_outdated =
        || authorities.as_ref().is_some_and(|current| current.has_changed().unwrap_or(true));
    let service = service_fn(async |request| {
        slot.set_busy(true);
        let mut response = webhooks.answer(request, caller).await;
        if stop.leaving.is_cancelled() || is_outdated() {
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

/// Returns whether a handshake failed because of the certificate of the client.
fn is_of_certificate(error: &std::io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    matches!(error, Some(rustls::Error::InvalidCertificate(_)))
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
