//! The line between a host, which is a process of its own, and an API server: what goes over it is noted, and it can be cut.

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
};
use futures::{Stream, StreamExt as _, stream};
use http::{
    Method, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER, TRANSFER_ENCODING},
};
use kube::Client;
use mortise_tests::cluster::Cluster;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::watch as latest,
    task::JoinHandle,
    time::{Instant, timeout},
};

use super::program::GUARD;

/// The error of a watch whose resourceVersion is too old, in a stream or as an answer.
const GONE: &[u8] = br#""code":410"#;

/// A line. Nothing goes over it any more when it is dropped.
pub(super) struct Line {
    address: SocketAddr,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

struct Shared {
    /// With an administrator's rights: what the host sends names whom it acts for.
    client: Client,
    way: latest::Sender<Way>,
    /// How often all open watches were ended.
    cuts: latest::Sender<u64>,
    noted: latest::Sender<u64>,
    notes: Mutex<Notes>,
}

/// How requests fare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// They are carried out and answered.
    Open,
    /// They wait, and so do answers and what is watched; who asks hears nothing.
    Blocked,
    /// So do only those that are about a Lease.
    LeasesBlocked,
    /// They are answered with 429 and a Retry-After of so many seconds.
    Busy(u64),
}

#[derive(Default)]
struct Notes {
    writes: Vec<Write>,
    leases: Vec<Write>,
    /// After so many writes nothing goes through any more.
    last_write: Option<usize>,
    /// When and what was answered with 429.
    busy: Vec<(Instant, Method, String)>,
    /// What was sent too early after such an answer.
    impatient: Vec<String>,
    gone: usize,
}

/// A write that the API server has carried out.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) method: Method,
    pub(super) path: String,
    /// When it was sent.
    pub(super) sent: Instant,
    /// The resourceVersion of the answer: where it stands among all writes of all hosts. None of what is gone.
    pub(super) version: Option<u64>,
}

/// What is to be known of a request.
struct Asked {
    method: Method,
    path: String,
    sent: Instant,
    is_watch: bool,
}

// === impl Line ===

impl Line {
    pub(super) async fn to(cluster: &Cluster) -> Self {
        Self::ending_after(cluster, None).await
    }

    /// One over which nothing goes any more after so many writes of a processor: the answer to the last one is not told.
    pub(super) async fn ending_after(cluster: &Cluster, last_write: Option<usize>) -> Self {
        let mut config = cluster.config().await.unwrap();
        // What is refused, the host is to hear.
        config.default_retry = false;
        let notes = Notes { last_write, ..Notes::default() };
        let shared = Arc::new(Shared {
            client: Client::try_from(config).unwrap(),
            way: latest::Sender::new(Way::Open),
            cuts: latest::Sender::new(0),
            noted: latest::Sender::new(0),
            notes: Mutex::new(notes),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let carrying = Arc::clone(&shared);
        let router = Router::new().fallback(move |request| carry(Arc::clone(&carrying), request));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, shared, serving }
    }

    /// Writes a kubeconfig for it into a folder.
    pub(super) fn kubeconfig(&self, folder: &Path) -> PathBuf {
        let server = format!("http://{}", self.address);
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "line",
            "clusters": [{"name": "line", "cluster": {"server": server}}],
            "users": [{"name": "line", "user": {}}],
            "contexts": [{"name": "line", "context": {"cluster": "line", "user": "line"}}],
        });
        let path = folder.join(format!("kubeconfig-{}", self.address.port()));
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    /// From now on requests fare so.
    pub(super) fn set(&self, way: Way) {
        self.shared.way.send_replace(way);
    }

    /// Ends all open watches, in the middle of whatever they tell.
    pub(super) fn cut_watches(&self) {
        self.shared.cuts.send_modify(|count| *count += 1);
    }

    /// What was written for a processor, in the order of the answers. Events do not count: each host tells them anew.
    pub(super) fn writes(&self) -> Vec<Write> {
        self.shared.notes.lock().unwrap().writes.clone()
    }

    /// The writes of Leases.
    pub(super) fn leases(&self) -> Vec<Write> {
        self.shared.notes.lock().unwrap().leases.clone()
    }

    /// How often a watch was told that what it asks for is too long ago.
    pub(super) fn gone(&self) -> usize {
        self.shared.notes.lock().unwrap().gone
    }

    /// How many requests were answered with 429, and which writes came again earlier than they were told to.
    pub(super) fn busy(&self) -> (usize, Vec<String>) {
        let notes = self.shared.notes.lock().unwrap();
        (notes.busy.len(), notes.impatient.clone())
    }

    /// Waits until something holds of what went over it.
    pub(super) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let mut noted = self.shared.noted.subscribe();
        let until = async {
            while !holds(self) {
                noted.changed().await.unwrap();
            }
        };
        let waited = timeout(GUARD, until).await;
        assert!(waited.is_ok(), "in vain: {what}, after {} writes", self.writes().len());
    }

    /// The writes, for people.
    pub(super) fn told(&self) -> String {
        let writes = self.writes();
        let told = writes.iter().map(|write| format!("\n  {} {}", write.method, write.path));
        told.collect()
    }

    /// Waits until the last write that goes through has been carried out.
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
    /// Waits until a request may go through, or its answer; else with how many seconds it is to wait.
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

    /// Notes an answer; false where the host does not live to hear it.
    fn note(&self, asked: &Asked, status: StatusCode, body: &[u8]) {
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
            } else if asked.is_of_processor() {
                notes.writes.push(write);
                if notes.last_write.is_some_and(|last| notes.writes.len() >= last) {
                    self.way.send_replace(Way::Blocked);
                }
            }
        }
        drop(notes);
        self.noted.send_modify(|count| *count += 1);
    }

    fn note_busy(&self, asked: &Asked, seconds: u64) {
        let mut notes = self.notes.lock().unwrap();
        let is_same = |(_, method, path): &&(Instant, Method, String)| {
            *method == asked.method && *path == asked.path
        };
        // A watch and a list come again when kube's watcher thinks so; writes are the host's own.
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

    fn note_frame(&self, frame: &[u8]) {
        if frame.windows(GONE.len()).any(|window| window == GONE) {
            self.notes.lock().unwrap().gone += 1;
            self.noted.send_modify(|count| *count += 1);
        }
    }

    /// What a watch tells, until it is cut.
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
            shared.note_frame(&frame);
            Some((Ok(frame), Some((shared, frames, cuts, way))))
        })
    }
}

/// One request, there and back.
async fn carry(shared: Arc<Shared>, request: Request) -> Response {
    let asked = Asked::of(&request);
    if let Err(seconds) = shared.passes(&asked).await {
        shared.note_busy(&asked, seconds);
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
    shared.note(&asked, head.status, &body);
    // It goes on as one piece.
    head.headers.remove(TRANSFER_ENCODING);
    // An answer that is on its way comes, even where new requests are turned away.
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

// === impl Asked ===

impl Asked {
    fn of(request: &Request) -> Self {
        Self {
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            sent: Instant::now(),
            is_watch: request.uri().query().is_some_and(|query| query.contains("watch=")),
        }
    }

    /// Reviews are questions, though they are posted.
    fn is_write(&self) -> bool {
        let reviews = ["/apis/authentication.k8s.io/", "/apis/authorization.k8s.io/"];
        let is_review = reviews.iter().any(|group| self.path.starts_with(group));
        self.method != Method::GET && !is_review
    }

    fn is_lease(&self) -> bool {
        self.path.starts_with("/apis/coordination.k8s.io/")
    }

    /// Neither a Processor's own status nor an event.
    fn is_of_processor(&self) -> bool {
        !self.path.starts_with("/apis/mortise.dev/") && !self.path.contains("/events")
    }
}
