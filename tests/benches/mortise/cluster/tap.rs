//! What a host asks of the API server: counted by verb, and its writes kept as they were sent.

use std::{collections::BTreeMap, mem, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Uri};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use tower::BoxError;

/// A client, and what was sent with it. Clones are the same.
#[derive(Clone)]
pub(super) struct Tap(Arc<Inner>);

struct Inner {
    client: Client,
    record: bool,
    counts: Mutex<BTreeMap<&'static str, u64>>,
    recorded: Mutex<Vec<Recorded>>,
}

/// A write as it was sent.
#[derive(Clone)]
pub(super) struct Recorded {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

// === impl Tap ===

impl Tap {
    pub(super) fn new(client: Client, record: bool) -> Self {
        let (counts, recorded) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Inner { client, record, counts, recorded }))
    }

    /// The client that is listened to.
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
        let (head, body) = request.into_parts();
        let body: Bytes = body.collect_bytes().await?;
        let verb = verb(&head.method, &head.uri);
        *self.0.counts.lock().entry(verb).or_default() += 1;
        let is_write = head.method != Method::GET && !head.uri.path().contains("reviews");
        if self.0.record && is_write {
            self.0.recorded.lock().push(Recorded {
                method: head.method.clone(),
                uri: head.uri.clone(),
                headers: head.headers.clone(),
                body: String::from_utf8(body.to_vec())?,
            });
        }
        Ok(self.0.client.send(Request::from_parts(head, Body::from(body))).await?)
    }

    /// Begins to count anew.
    pub(super) fn forget(&self) {
        self.0.counts.lock().clear();
    }

    pub(super) fn counts(&self) -> String {
        let counts = self.0.counts.lock();
        let counts: Vec<String> =
            counts.iter().map(|(verb, count)| format!("{verb} {count}")).collect();
        counts.join(", ")
    }

    /// The writes, in the order in which they were sent.
    pub(super) fn take_recorded(&self) -> Vec<Recorded> {
        mem::take(&mut *self.0.recorded.lock())
    }
}

/// What a request does, as the metrics of the API server call it, but that an access review is one.
fn verb(method: &Method, uri: &Uri) -> &'static str {
    let query = uri.query().unwrap_or_default();
    match *method {
        _ if uri.path().contains("reviews") => "review",
        Method::GET if query.contains("watch=") => "watch",
        Method::GET => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "other",
    }
}
