//! The requests of a host to the API server: counted by verb, and recorded as they were sent.

use std::{collections::BTreeMap, mem, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use tower::BoxError;

/// A client that counts and records its requests. Clones share their state.
#[derive(Clone)]
pub(super) struct Tap(Arc<Inner>);

struct Inner {
    client: Client,
    counts: Mutex<BTreeMap<Verb, u64>>,
    /// The recorded requests; `None`: nothing is recorded.
    recorded: Mutex<Option<Vec<Recorded>>>,
}

/// A request as it was sent, and the status of its answer.
#[derive(Clone)]
pub(super) struct Recorded {
    pub(super) verb: Verb,
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
    pub(super) status: StatusCode,
}

/// The verb of a request, named as in the API server's metrics, except that access reviews have a
/// verb of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verb {
    Create,
    Delete,
    Get,
    Patch,
    Review,
    Update,
    Watch,
}

// === impl Tap ===

impl Tap {
    pub(super) fn new(client: Client, record: bool) -> Self {
        let (counts, recorded) = (Mutex::default(), Mutex::new(record.then(Vec::new)));
        Self(Arc::new(Inner { client, counts, recorded }))
    }

    /// Returns the client whose requests are counted.
    pub(super) fn client(&self) -> Client {
        let namespace = self.0.client.default_namespace().to_owned();
        let tap = self.clone();
        let service = tower::service_fn(move |request| {
            let tap = tap.clone();
            async move { tap.send(request).await }
        });
        Client::new(service, namespace)
    }

    async fn send(&self, request: Request<Body>) -> Result<http::Response<Body>, BoxError> {
        let verb = Verb::of(request.method(), request.uri())?;
        *self.0.counts.lock().entry(verb).or_default() += 1;
        if self.0.recorded.lock().is_none() {
            return Ok(self.0.client.send(request).await?);
        }
        let (head, body) = request.into_parts();
        let body: Bytes = body.collect_bytes().await?;
        let (method, uri, headers) = (head.method.clone(), head.uri.clone(), head.headers.clone());
        let sent = Request::from_parts(head, Body::from(body.clone()));
        let answer = self.0.client.send(sent).await?;
        let (body, status) = (String::from_utf8(body.to_vec())?, answer.status());
        if let Some(recorded) = &mut *self.0.recorded.lock() {
            recorded.push(Recorded { verb, method, uri, headers, body, status });
        }
        Ok(answer)
    }

    /// Resets the counts.
    pub(super) fn forget(&self) {
        self.0.counts.lock().clear();
    }

    /// Returns the counts by verb, as text.
    pub(super) fn counts(&self) -> String {
        let counts = self.0.counts.lock();
        let counts = counts.iter().map(|(verb, count)| format!("{} {count}", verb.name()));
        counts.collect::<Vec<_>>().join(", ")
    }

    /// Returns the recorded requests in the order of their answers, and stops recording.
    pub(super) fn take_recorded(&self) -> Vec<Recorded> {
        mem::take(&mut *self.0.recorded.lock()).unwrap_or_default()
    }
}

// === impl Verb ===

impl Verb {
    fn of(method: &Method, uri: &Uri) -> anyhow::Result<Self> {
        let query = uri.query().unwrap_or_default();
        Ok(match *method {
            _ if uri.path().contains("reviews") => Self::Review,
            Method::GET if query.contains("watch=") => Self::Watch,
            Method::GET => Self::Get,
            Method::POST => Self::Create,
            Method::PUT => Self::Update,
            Method::PATCH => Self::Patch,
            Method::DELETE => Self::Delete,
            _ => anyhow::bail!("{method} is no request of a host"),
        })
    }

    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// Returns whether a request with this verb changes an object.
    pub(super) fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::Review | Self::Watch)
    }
}
