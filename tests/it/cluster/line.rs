//! The line between a host in its own process and an API server: it records requests, and it can be
//! blocked.

mod asked;
mod tls;

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::Request,
    response::{IntoResponse as _, Response},
    serve::Listener,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::{Stream, StreamExt as _, stream};
use http::{
    Method, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER, TRANSFER_ENCODING},
};
use kube::{Client, Config, config::AuthInfo};
use mortise_tests::cluster::Cluster;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::watch as latest,
    task::JoinHandle,
    time::{Instant, timeout},
};

use self::{asked::Asked, tls::Tls};
use super::program::TIMEOUT;

/// The error of a watch whose resourceVersion is too old, in a stream or as an answer.
const GONE: &[u8] = br#""code":410"#;

/// A line. Nothing passes it any more after it is dropped.
pub(super) struct Line {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// The state for new requests.
    current: latest::Sender<Arc<Shared>>,
    serving: JoinHandle<()>,
}

struct Shared {
    client: Client,
    /// The path of the object whose writes are recorded; `None`: all for a processor are.
    object: Option<String>,
    way: latest::Sender<Way>,
    /// Counts how often all open watches were ended.
    cuts: latest::Sender<u64>,
    noted: latest::Sender<u64>,
    notes: Mutex<Notes>,
}

/// The treatment of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Requests are carried out and answered.
    Open,
    /// Requests, answers and watch events wait; the sender hears nothing.
    Blocked,
    /// Only requests for Leases wait.
    LeasesBlocked,
    /// Requests are answered with 429 and a Retry-After of this many seconds.
    Busy(u64),
}

#[derive(Default)]
struct Notes {
    writes: Vec<Write>,
    leases: Vec<Write>,
    /// The number of writes after which the line is blocked.
    last_write: Option<usize>,
    /// Requests answered with 429, and their times.
    busy: Vec<(Instant, Method, String)>,
    /// Requests that were repeated too early after such an answer.
    impatient: Vec<String>,
    gone: usize,
}

/// A write that the API server has carried out.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) method: Method,
    pub(super) path: String,
    /// The time at which the request was sent.
    pub(super) sent: Instant,
    /// The resourceVersion of the answer, which gives its order among the writes of all hosts;
    /// `None` if the object is gone.
    pub(super) version: Option<u64>,
}

// === impl Line ===

impl Line {
    pub(super) async fn to(cluster: &Cluster) -> Self {
        Self::ending_after(cluster, None).await
    }

    /// Creates a line that is blocked after this many writes of a processor, before the answer to
    /// the last one.
    pub(super) async fn ending_after(cluster: &Cluster, last_write: Option<usize>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        // An administrator's rights: the host's requests name the account that they impersonate.
        let config = cluster.config().await.unwrap();
        Self::between(listener, config, Notes { last_write, ..Notes::default() })
    }

    /// Creates a line for kubeconfigs: its connections speak TLS, and requests keep their
    /// credentials. Returns its `cluster` in such a kubeconfig, too.
    pub(super) async fn of_kubeconfig(cluster: &Cluster) -> (Self, Value) {
        let (listener, authority) = Tls::bind().await;
        let mut config = cluster.config().await.unwrap();
        config.auth_info = AuthInfo::default();
        let line = Self::between(listener, config, Notes::default());
        let cluster = json!({
            "server": format!("https://{}", line.address), "tls-server-name": tls::NAME,
            "certificate-authority-data": STANDARD.encode(authority),
        });
        (line, cluster)
    }

    fn between(
        listener: impl Listener<Addr = SocketAddr>,
        mut config: Config,
        notes: Notes,
    ) -> Self {
        // The host must get to know refusals.
        config.default_retry = false;
        let shared = Shared::new(Client::try_from(config).unwrap(), None, notes);
        let address = listener.local_addr().unwrap();
        let current = latest::Sender::new(Arc::clone(&shared));
        let carrying = current.subscribe();
        let router =
            Router::new().fallback(move |request| carry(Arc::clone(&carrying.borrow()), request));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, shared, current, serving }
    }

    /// Opens the line for new requests; those that it holds back never pass. Only the writes of the
    /// object with this path are recorded, and the line is blocked after the last of them, before
    /// its answer.
    pub(super) fn open_for(&mut self, object: &str, last_write: Option<usize>) {
        self.set(Way::Blocked);
        let notes = Notes { last_write, ..Notes::default() };
        self.shared = Shared::new(self.shared.client.clone(), Some(object.to_owned()), notes);
        self.current.send_replace(Arc::clone(&self.shared));
    }

    /// Writes a kubeconfig for the line into a folder.
    pub(super) fn kubeconfig(&self, folder: &Path) -> PathBuf {
        let server = format!("http://{}", self.address);
        let config = mortise_tests::cluster::kubeconfig(&server);
        let path = folder.join(format!("kubeconfig-{}", self.address.port()));
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    /// Sets the treatment of requests.
    pub(super) fn set(&self, way: Way) {
        self.shared.way.send_replace(way);
    }

    /// Ends all open watches, in the middle of their streams.
    pub(super) fn cut_watches(&self) {
        self.shared.cuts.send_modify(|count| *count += 1);
    }

    /// Returns the writes for a processor, in the order of the answers, without events: each host
    /// writes those anew.
    pub(super) fn writes(&self) -> Vec<Write> {
        self.shared.notes.lock().unwrap().writes.clone()
    }

    /// Returns the writes of Leases.
    pub(super) fn leases(&self) -> Vec<Write> {
        self.shared.notes.lock().unwrap().leases.clone()
    }

    /// Returns how often a watch got the error that its resourceVersion is too old.
    pub(super) fn gone(&self) -> usize {
        self.shared.notes.lock().unwrap().gone
    }

    /// Returns the number of requests answered with 429, and the writes that were repeated too
    /// early.
    pub(super) fn busy(&self) -> (usize, Vec<String>) {
        let notes = self.shared.notes.lock().unwrap();
        (notes.busy.len(), notes.impatient.clone())
    }

    /// Waits until `holds` is true of the recorded requests.
    pub(super) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let mut noted = self.shared.noted.subscribe();
        let until = async {
            while !holds(self) {
                noted.changed().await.unwrap();
            }
        };
        let waited = timeout(TIMEOUT, until).await;
        assert!(waited.is_ok(), "in vain: {what}, after {} writes", self.writes().len());
    }

    /// Returns the writes as text.
    pub(super) fn told(&self) -> String {
        let writes = self.writes();
        let told = writes.iter().map(|write| format!("\n  {} {}", write.method, write.path));
        told.collect()
    }

    /// Waits until the last write that passes has been carried out.
    pub(super) async fn ended(&self) {
        self.until("the last write", |line| *line.shared.way.borrow() == Way::Blocked).await;
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.serving.abort();
        self.set(Way::Blocked);
    }
}

// === impl Shared ===

impl Shared {
    fn new(client: Client, object: Option<String>, notes: Notes) -> Arc<Self> {
        Arc::new(Self {
            client,
            object,
            way: latest::Sender::new(Way::Open),
            cuts: latest::Sender::new(0),
            noted: latest::Sender::new(0),
            notes: Mutex::new(notes),
        })
    }

    /// Returns whether a write is one of those that are recorded, other than of Leases.
    fn records(&self, asked: &Asked) -> bool {
        match &self.object {
            Some(object) => asked.path.trim_end_matches("/status") == object,
            None => asked.is_of_processor(),
        }
    }

    /// Waits until a request or its answer may pass; the error is the number of seconds after which
    /// to try again.
    async fn passes(&self, asked: &Asked) -> Result<(), u64> {
        let mut way = self.way.subscribe();
        let is_free = |way: &Way| match way {
            Way::Open | Way::Busy(_) => true,
            Way::Blocked => false,
            Way::LeasesBlocked => !asked.is_lease(),
        };
        let way = *way.wait_for(is_free).await.unwrap();
        if let Way::Busy(seconds) = way { Err(seconds) } else { Ok(()) }
    }

    /// Records an answer, and blocks the line after the last write that may pass.
    fn record(&self, asked: &Asked, status: StatusCode, body: &[u8]) {
        let mut notes = self.notes.lock().unwrap();
        notes.gone += usize::from(status == StatusCode::GONE);
        if asked.is_write() && status.is_success() {
            let answer: Value = serde_json::from_slice(body).unwrap_or_default();
            let version = answer["metadata"]["resourceVersion"].as_str();
            let version = version.and_then(|version| version.parse().ok());
            let write = Write {
                method: asked.method.clone(),
                path: asked.path.clone(),
                sent: asked.sent,
                version,
            };
            if asked.is_lease() {
                notes.leases.push(write);
            } else if self.records(asked) {
                notes.writes.push(write);
                if notes.last_write.is_some_and(|last| notes.writes.len() >= last) {
                    self.way.send_replace(Way::Blocked);
                }
            }
        }
        drop(notes);
        self.noted.send_modify(|count| *count += 1);
    }

    fn record_busy(&self, asked: &Asked, seconds: u64) {
        let mut notes = self.notes.lock().unwrap();
        let is_same = |(_, method, path): &&(Instant, Method, String)| {
            *method == asked.method && *path == asked.path
        };
        // kube's watcher decides when to repeat a watch or a list; writes are repeated by the host.
        if asked.is_write()
            && let Some((told, ..)) = notes.busy.iter().rev().find(is_same)
            && asked.sent.duration_since(*told).as_secs() < seconds
        {
            notes.impatient.push(format!("{} {}", asked.method, asked.path));
        }
        notes.busy.push((Instant::now(), asked.method.clone(), asked.path.clone()));
        drop(notes);
        self.noted.send_modify(|count| *count += 1);
    }

    fn record_frame(&self, frame: &[u8]) {
        if frame.windows(GONE.len()).any(|window| window == GONE) {
            self.notes.lock().unwrap().gone += 1;
            self.noted.send_modify(|count| *count += 1);
        }
    }

    /// Returns the stream of a watch, until it is cut.
    fn watched(self: Arc<Self>, body: Body) -> impl Stream<Item = io::Result<Bytes>> {
        let (cuts, way) = (self.cuts.subscribe(), self.way.subscribe());
        let open = Some((self, body.into_data_stream(), cuts, way));
        stream::unfold(open, async |open| {
            let (shared, mut frames, mut cuts, mut way) = open?;
            let next = async {
                let frame = frames.next().await?;
                way.wait_for(|way| *way != Way::Blocked).await.ok()?;
                Some(frame)
            };
            let frame = tokio::select! {
                biased;
                _ = cuts.changed() => return Some((Err(io::Error::other("cut")), None)),
                frame = next => frame?.map_err(io::Error::other),
            };
            let Ok(frame) = frame else { return Some((frame, None)) };
            shared.record_frame(&frame);
            Some((Ok(frame), Some((shared, frames, cuts, way))))
        })
    }
}

/// Carries a request to the API server and the answer back.
async fn carry(shared: Arc<Shared>, request: Request) -> Response {
    let asked = Asked::of(&request);
    if let Err(seconds) = shared.passes(&asked).await {
        shared.record_busy(&asked, seconds);
        return too_many(seconds);
    }
    let answer = match forward(&shared.client, request).await {
        Ok(answer) => answer,
        Err(error) => return (StatusCode::BAD_GATEWAY, error).into_response(),
    };
    let (mut head, body) = answer.into_parts();
    if asked.is_watch && head.status.is_success() {
        return Response::from_parts(head, Body::from_stream(shared.watched(body)));
    }
    let body = match to_bytes(body, usize::MAX).await {
        Ok(body) => body,
        Err(error) => return (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    };
    shared.record(&asked, head.status, &body);
    // The answer continues in one piece.
    head.headers.remove(TRANSFER_ENCODING);
    // The answer of a request that has passed arrives, even if new requests are refused.
    let _ = shared.passes(&asked).await;
    Response::from_parts(head, Body::from(body))
}

async fn forward(client: &Client, request: Request) -> Result<Response, String> {
    let (head, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.map_err(|error| error.to_string())?;
    let request = http::Request::from_parts(head, kube::client::Body::from(body.to_vec()));
    let answer = client.send(request).await.map_err(|error| format!("{error:?}"))?;
    Ok(answer.map(Body::new))
}

fn too_many(seconds: u64) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 429,
        "reason": "TooManyRequests", "message": "the server has received too many requests",
        "details": {"retryAfterSeconds": seconds},
    });
    let headers = [(RETRY_AFTER, seconds.to_string()), (CONTENT_TYPE, "application/json".into())];
    (StatusCode::TOO_MANY_REQUESTS, headers, status.to_string()).into_response()
}
