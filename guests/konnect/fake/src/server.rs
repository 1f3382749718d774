//! The server: TLS and HTTP/1.1 around a [`Konnect`].
//!
//! A task accepts connections, a task serves each one, and all end with the [`Server`]. Beside the
//! API, paths that begin with `/_` are for people: see [`control`].

mod control;

use std::{net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use certificate::Issued;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{Answer, End, Konnect, Request};

/// The time for which the certificate is valid, and that before now.
const VALIDITY: Duration = Duration::from_hours(10 * 365 * 24);
const BEFORE: Duration = Duration::from_hours(24);
/// The most connections at once; further ones wait.
const MAX_CONNECTIONS: usize = 1_024;
/// The time for which a client may take to a handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Returns the time, in milliseconds since 1970.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;
/// Is told each request before it is answered, with the status of the answer; `None`: there is none.
pub type Observer = Arc<dyn Fn(&Request, Option<u16>) + Send + Sync>;
/// Is asked before a request is carried out, which waits for it.
pub type Gate = Arc<dyn Fn(&Request) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// The settings of a [`Server`].
#[derive(Clone)]
pub struct Options {
    /// The address to listen at; port 0 takes a free one.
    pub address: SocketAddr,
    /// The names in the certificate. Requests may name any host.
    pub hosts: Vec<String>,
    pub clock: Clock,
    pub observer: Option<Observer>,
    pub gate: Option<Gate>,
}

/// A server that runs until it is dropped.
pub struct Server {
    address: SocketAddr,
    /// The certificate of the authority, in PEM.
    authority: String,
    konnect: Arc<Mutex<Konnect>>,
    /// Ends all tasks when it is dropped.
    _tasks: JoinSet<()>,
}

/// The parts of the server that each connection shares.
#[derive(Clone)]
struct Shared {
    konnect: Arc<Mutex<Konnect>>,
    clock: Clock,
    observer: Option<Observer>,
    gate: Option<Gate>,
    /// The most bytes of a body.
    body: usize,
}

/// The request is not to be answered.
#[derive(Debug, thiserror::Error)]
#[error("the connection is closed without an answer")]
struct Closed;

// === impl Options ===

impl Default for Options {
    /// A free port of this machine, names of Konnect, and the system's clock.
    fn default() -> Self {
        let now = || u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or_default();
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            hosts: ["*.api.konghq.com", "*.api.konghq.tech", "localhost"].map(str::to_owned).into(),
            clock: Arc::new(now),
            observer: None,
            gate: None,
        }
    }
}

// === impl Server ===

impl Server {
    /// Starts a server with a new certificate.
    ///
    /// # Errors
    ///
    /// Fails if the address cannot be listened at, or if a host is no name of a server.
    pub async fn start(konnect: Konnect, options: Options) -> Result<Self> {
        let from = Duration::from_millis((options.clock)()).saturating_sub(BEFORE);
        let of = certificate::Server { hosts: &options.hosts, from, until: from + VALIDITY };
        let issued = certificate::issue::issue(&of).context("cannot make a certificate")?;
        let acceptor = acceptor(&issued)?;
        let listener = TcpListener::bind(options.address).await;
        let listener = listener.with_context(|| format!("cannot listen at {}", options.address))?;
        let address = listener.local_addr()?;
        let body = konnect.limits().body;
        let konnect = Arc::new(Mutex::new(konnect));
        let Options { clock, observer, gate, .. } = options;
        let shared = Shared { konnect: Arc::clone(&konnect), clock, observer, gate, body };
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, acceptor, shared));
        Ok(Self { address, authority: issued.authority, konnect, _tasks: tasks })
    }

    /// Returns the address that the server listens at.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the certificate of the authority that clients have to trust, in PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns the core. The server waits while it is locked.
    pub fn konnect(&self) -> &Mutex<Konnect> {
        &self.konnect
    }
}

fn acceptor(issued: &Issued) -> Result<TlsAcceptor> {
    let chain = CertificateDer::pem_slice_iter(issued.chain.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes())?;
    let provider = Arc::new(ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, shared: Shared) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        // A connection that ends before it is accepted concerns its client only.
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (acceptor, shared) = (acceptor.clone(), shared.clone());
        connections.spawn(async move {
            let handshake = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await;
            if let Ok(Ok(stream)) = handshake {
                serve(stream, shared).await;
            }
            drop(place);
        });
    }
}

/// Serves a connection to its end.
async fn serve(stream: TlsStream<TcpStream>, shared: Shared) {
    let reset = Arc::new(Mutex::new(false));
    let service = service_fn(|request| {
        let (shared, reset) = (shared.clone(), Arc::clone(&reset));
        Box::pin(async move { answer(request, &shared, &reset).await })
    });
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // Errors of a connection are its client's, or closings that a fault asks for.
    let ended = std::future::poll_fn(|context| connection.poll_without_shutdown(context)).await;
    let mut stream = connection.into_parts().io.into_inner();
    if *reset.lock() {
        // Without it, the connection is closed in order, which is not what was asked for.
        let _ = stream.get_ref().0.set_zero_linger();
    } else if ended.is_ok() {
        let _ = stream.shutdown().await;
    }
}

/// Answers a request.
async fn answer(
    request: hyper::Request<Incoming>,
    shared: &Shared,
    reset: &Mutex<bool>,
) -> Result<Response<Full<Bytes>>, Closed> {
    let Some(request) = read(request, shared.body).await else {
        return Ok(response(&Answer::empty(413)));
    };
    if let Some(answer) = control::answer(&request, shared) {
        return Ok(response(&answer));
    }
    if let Some(gate) = &shared.gate {
        gate(&request).await;
    }
    let reply = shared.konnect.lock().answer((shared.clock)(), &request);
    if let Some(observer) = &shared.observer {
        observer(&request, reply.answer().map(|answer| answer.status));
    }
    // A timer of no time takes a millisecond.
    if reply.delay > 0 {
        tokio::time::sleep(Duration::from_millis(reply.delay)).await;
    }
    match reply.end {
        End::Answer(answer) => Ok(response(&answer)),
        End::Closed { reset: is_reset, .. } => {
            *reset.lock() = is_reset;
            Err(Closed)
        }
    }
}

/// Reads a request; a body that is too large, or does not come whole, gives nothing.
async fn read(request: hyper::Request<Incoming>, most: usize) -> Option<Request> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, most).collect().await.ok()?.to_bytes().to_vec();
    let text = |name: &HeaderName| {
        head.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    };
    let token = text(&header::AUTHORIZATION).and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
    });
    let other = head.headers.iter().filter(|(name, _)| *name != header::AUTHORIZATION);
    Some(Request {
        method: head.method.to_string(),
        host: head.uri.host().map(str::to_owned).or(text(&header::HOST)).unwrap_or_default(),
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        token,
        headers: other
            .map(|(name, value)| {
                (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
            })
            .collect(),
        body,
    })
}

fn response(answer: &Answer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(answer.body.clone())));
    *response.status_mut() =
        StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in &answer.headers {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(value)) {
            response.headers_mut().append(name, value);
        }
    }
    response
}
