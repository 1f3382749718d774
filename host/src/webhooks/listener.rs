//! The TLS listener, with a limit on open connections.
//!
//! A connection serves several requests in turn, since the API server reuses it. If all slots are
//! taken, the oldest idle connection is closed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hyper::{
    header::{CONNECTION, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustls::{
    ServerConfig,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{Served, Webhooks};
use crate::host::Source;

/// The maximum number of open connections.
const MAX_CONNECTIONS: usize = 512;
/// The timeout of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The idle timeout of a connection: longer than that of the API server, so that the API server
/// closes it first.
const IDLE_TIMEOUT: Duration = Duration::from_mins(5);
/// The longest header of a request, in bytes.
const MAX_HEADER_BYTES: usize = 16 * 1024;
/// The delay after a failed accept.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(500);
/// The grace period for answers in flight when the port is closed.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// The certificate that is served, looked up for each handshake.
struct Current(Source<Option<Served>>);

/// A connection that is open.
#[derive(Clone, Default)]
struct Connection {
    /// True while a request is answered.
    is_busy: Arc<AtomicBool>,
    /// Cancelled when its slot is needed.
    over: CancellationToken,
}

/// The connections that are open, the oldest first.
#[derive(Clone, Default)]
struct Open(Arc<Mutex<Vec<Connection>>>);

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
    let (open, mut answers) = (Open::default(), JoinSet::new());
    loop {
        let accepted = tokio::select! {
            () = stop.closed.cancelled() => break,
            Some(_) = answers.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let (connection, open) = (open.enter(), open.clone());
                let (webhooks, acceptor, stop) = (webhooks.clone(), acceptor.clone(), stop.clone());
                answers.spawn(async move {
                    answer(stream, &acceptor, &webhooks, &connection, &stop).await;
                    open.leave(&connection);
                });
            }
            Err(error) => {
                warn!(%error, "a connection is not accepted");
                sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
    drop(listener);
    let ended = async { while answers.join_next().await.is_some() {} };
    if timeout(SHUTDOWN_TIMEOUT, ended).await.is_err() {
        warn!("not all webhooks were answered in time");
    }
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
    acceptor: &TlsAcceptor,
    webhooks: &Webhooks,
    connection: &Connection,
    stop: &Stop,
) {
    let stream = tokio::select! {
        () = connection.over.cancelled() => return,
        () = stop.closed.cancelled() => return,
        stream = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)) => stream,
    };
    let stream = match stream {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return debug!(%error, "a connection is refused"),
        Err(_) => return debug!("a handshake did not end in time"),
    };
    let service = service_fn(async |request| {
        connection.is_busy.store(true, Ordering::Relaxed);
        let mut response = webhooks.answer(request).await;
        if stop.leaving.is_cancelled() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        connection.is_busy.store(false, Ordering::Relaxed);
        Ok::<_, std::convert::Infallible>(response)
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(IDLE_TIMEOUT).max_buf_size(MAX_HEADER_BYTES);
    let served = http.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(served);
    tokio::select! {
        // Errors of a connection are the client's concern.
        _ = &mut served => return,
        () = connection.over.cancelled() => return,
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

// === impl Open ===

impl Open {
    /// Admits a connection. If all slots are taken, closes the oldest idle one, or else the oldest
    /// one.
    fn enter(&self) -> Connection {
        let connection = Connection::default();
        let mut open = self.0.lock();
        if open.len() >= MAX_CONNECTIONS {
            let is_idle = |held: &Connection| !held.is_busy.load(Ordering::Relaxed);
            let oldest = open.iter().position(is_idle).unwrap_or(0);
            open.remove(oldest).over.cancel();
        }
        open.push(connection.clone());
        connection
    }

    fn leave(&self, connection: &Connection) {
        self.0.lock().retain(|held| !Arc::ptr_eq(&held.is_busy, &connection.is_busy));
    }
}
