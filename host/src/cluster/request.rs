//! A request to the API server and its answer, with retries while the server is busy or down.

use std::{
    fmt::{self, Write},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, StatusCode, header};
use kube::client::Body;
use serde_json::Value;
use tokio::time;

use super::{Cluster, guarded::Most, own::NotOwn};
use crate::chain;

/// The reason of a write that was not sent because the host does not hold its Lease.
const LEASE_NOT_HELD: &str = "LeaseNotHeld";

/// The messages of a 500 that the API server would repeat: an apply does not fit the schema; an
/// object is too large for etcd, or for a message to etcd.
const LASTING: [&str; 3] = [
    "failed to create typed patch object",
    "etcdserver: request is too large",
    "trying to send message larger than max",
];

/// The number of characters that are kept of a refusal's message; fewer of a body that is not the
/// API server's own.
const MESSAGE: usize = 8192;
const MESSAGE_OF_NONE: usize = 1000;
/// The number of causes that are kept of a refusal.
const CAUSES: usize = 64;

/// The retries and time limits of requests.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The highest number of attempts, the first one included.
    pub attempts: u32,
    /// The wait after the first attempt if the server names none. It doubles each time.
    pub first_wait: Duration,
    /// The longest wait. A request for which the server asks for a longer wait is not retried here:
    /// its sender comes back later.
    pub longest_wait: Duration,
    /// The time limit for an answer.
    pub answer: Duration,
    /// The time limit for a `CustomResourceDefinition` to be established.
    pub established: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            attempts: 5,
            first_wait: Duration::from_millis(200),
            longest_wait: Duration::from_secs(10),
            answer: Duration::from_secs(30),
            established: Duration::from_secs(30),
        }
    }
}

/// The HTTP method of a request, and the content type of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Post,
    Delete,
    Apply,
    JsonPatch,
    MergePatch,
}

/// A request to the API server.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    /// The path, with the query.
    pub(crate) path: String,
    pub(crate) body: Option<Value>,
    /// True if only metadata is asked for.
    pub(crate) metadata_only: bool,
    /// True if a 404 is retried, since the server may not serve a new kind yet.
    pub(crate) retry_not_found: bool,
}

/// A 2xx answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) created: bool,
    pub(crate) body: Value,
}

/// A refused request, or one without an answer (`code` 0).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: u16,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) causes: Vec<Cause>,
    pub(crate) retry_after: Option<Duration>,
}

/// An entry of `details.causes`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) reason: String,
    pub(crate) field: String,
    pub(crate) message: String,
}

// === impl Outgoing ===

impl Outgoing {
    pub(crate) fn new(method: Method, path: String, body: Option<Value>) -> Self {
        Self { method, path, body, metadata_only: false, retry_not_found: false }
    }

    pub(crate) fn get(path: String) -> Self {
        Self::new(Method::Get, path, None)
    }

    /// Returns whether the request changes something. Reviews are posted, but change nothing.
    fn is_write(&self) -> bool {
        let reviews = ["/apis/authentication.k8s.io/", "/apis/authorization.k8s.io/"];
        let is_review = reviews.iter().any(|group| self.path.starts_with(group));
        self.method != Method::Get && !is_review
    }

    fn to_http(&self) -> Result<Request<Body>, http::Error> {
        let (method, content_type) = match self.method {
            Method::Get => (http::Method::GET, None),
            Method::Post => (http::Method::POST, Some("application/json")),
            Method::Delete => (http::Method::DELETE, Some("application/json")),
            Method::Apply => (http::Method::PATCH, Some("application/apply-patch+yaml")),
            Method::JsonPatch => (http::Method::PATCH, Some("application/json-patch+json")),
            Method::MergePatch => (http::Method::PATCH, Some("application/merge-patch+json")),
        };
        let accept = if self.metadata_only {
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
        } else {
            "application/json"
        };
        let mut request =
            Request::builder().method(method).uri(&self.path).header(header::ACCEPT, accept);
        if let (Some(content_type), Some(_)) = (content_type, &self.body) {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        request.body(
            self.body
                .as_ref()
                .map_or_else(Body::empty, |body| Body::from(body.to_string().into_bytes())),
        )
    }
}

// === impl Cluster ===

impl Cluster {
    /// Sends a request, and retries it after a 429, a 5xx or no answer, as long as the policy
    /// allows.
    pub(crate) async fn send(&self, outgoing: &Outgoing) -> Result<Answer, Refusal> {
        let mut wait = self.policy.first_wait;
        let mut attempt = 1;
        loop {
            let refusal = match self.send_once(outgoing).await {
                Ok(answer) => return Ok(answer),
                Err(refusal) => refusal,
            };
            let may_pass =
                refusal.is_passing() || (outgoing.retry_not_found && refusal.code == 404);
            let asked = refusal.retry_after.unwrap_or(wait.min(self.policy.longest_wait));
            let is_long = asked > self.policy.longest_wait;
            if attempt >= self.policy.attempts || !may_pass || is_long {
                return Err(refusal);
            }
            tracing::debug!(path = outgoing.path, attempt, %refusal, wait = ?asked, "trying again");
            time::sleep(asked).await;
            wait = wait.saturating_mul(2);
            attempt += 1;
        }
    }

    async fn send_once(&self, outgoing: &Outgoing) -> Result<Answer, Refusal> {
        let request = outgoing.to_http().map_err(|error| Refusal::unsendable(&error))?;
        if outgoing.is_write() && !self.lease.is_held() {
            return Err(Refusal::not_held());
        }
        let exchange = async {
            let (head, body) = self
                .client
                .send(request)
                .await
                .map_err(|error| Refusal::no_answer(&error))?
                .into_parts();
            let body = Most::of_answer(head.status, &outgoing.path).of(body);
            let bytes = axum::body::to_bytes(body, usize::MAX).await;
            let bytes = bytes.map_err(|error| Refusal::no_answer(&error))?;
            Ok((head, bytes))
        };
        let answered = time::timeout(self.policy.answer, exchange).await;
        let (head, bytes) = answered.unwrap_or_else(|_| {
            Err(Refusal {
                message: format!("no answer within {:?}", self.policy.answer),
                ..Refusal::default()
            })
        })?;
        read_answer(&head, &bytes)
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }
}

fn read_answer(head: &http::response::Parts, bytes: &Bytes) -> Result<Answer, Refusal> {
    let body = serde_json::from_slice::<Value>(bytes);
    if head.status.is_success() {
        let body = body.map_err(|error| Refusal {
            message: format!("the answer is not JSON: {error}"),
            ..Refusal::default()
        })?;
        return Ok(Answer { created: head.status == StatusCode::CREATED, body });
    }
    let header =
        head.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    Err(Refusal::read(head.status, header, body.ok().as_ref(), bytes))
}

// === impl Refusal ===

impl Refusal {
    fn read(
        status: StatusCode,
        retry_after: Option<u64>,
        body: Option<&Value>,
        bytes: &Bytes,
    ) -> Self {
        let text = |value: Option<&Value>, key: &str| {
            value.and_then(|value| value.get(key)?.as_str()).unwrap_or_default().to_owned()
        };
        let body = body.filter(|body| body.get("kind").and_then(Value::as_str) == Some("Status"));
        let causes =
            body.and_then(|body| body.pointer("/details/causes")?.as_array()).into_iter().flatten();
        let in_body = body
            .and_then(|body| body.pointer("/details/retryAfterSeconds")?.as_u64())
            .filter(|seconds| *seconds > 0);
        let message = match text(body, "message") {
            empty if empty.is_empty() => {
                String::from_utf8_lossy(bytes).trim().chars().take(MESSAGE_OF_NONE).collect()
            }
            message => message.chars().take(MESSAGE).collect(),
        };
        Self {
            code: status.as_u16(),
            reason: text(body, "reason"),
            message,
            causes: causes
                .take(CAUSES)
                .map(|cause| Cause {
                    reason: text(Some(cause), "reason"),
                    field: text(Some(cause), "field"),
                    message: text(Some(cause), "message"),
                })
                .collect(),
            retry_after: retry_after.or(in_body).map(Duration::from_secs),
        }
    }

    fn no_answer(error: &(dyn std::error::Error + 'static)) -> Self {
        if let Some(refused) =
            anyhow::Chain::new(error).find_map(|cause| cause.downcast_ref::<NotOwn>())
        {
            return Self::unsendable(refused);
        }
        Self { message: chain::without_repeats(error), ..Self::default() }
    }

    /// Creates the refusal of a request that cannot be encoded, as with a name that no URL can
    /// hold, or that the host does not make. A retry does not help.
    fn unsendable(error: &dyn std::error::Error) -> Self {
        Self {
            code: 400,
            reason: "BadRequest".to_owned(),
            message: error.to_string(),
            ..Self::default()
        }
    }

    /// Creates the refusal of a write by a host that may not write: another host leads, or is about
    /// to.
    fn not_held() -> Self {
        Self {
            reason: LEASE_NOT_HELD.to_owned(),
            message: "this host does not hold the Lease".to_owned(),
            ..Self::default()
        }
    }

    /// Returns whether the same request may succeed later.
    pub(crate) fn is_passing(&self) -> bool {
        match self.code {
            // A lost Lease never comes back to this host.
            0 => self.reason != LEASE_NOT_HELD,
            // A disruption budget is an answer, which does not change within a moment.
            429 => !self.has_cause("DisruptionBudget"),
            500 => !LASTING.iter().any(|of| self.message.contains(of)),
            501 | 505 => false,
            502.. => self.code < 600,
            _ => false,
        }
    }

    pub(crate) fn has_cause(&self, reason: &str) -> bool {
        self.causes.iter().any(|cause| cause.reason == reason)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            0 if self.reason == LEASE_NOT_HELD => formatter.write_str(&self.message),
            0 => write!(formatter, "no answer: {}", self.message),
            code => write!(formatter, "{code}: {}", self.message),
        }
    }
}

/// Encodes a text as part of a URL's path or query.
pub(crate) fn encoded(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' => {
                result.push(byte.into());
            }
            _ => _ = write!(result, "%{byte:02X}"),
        }
    }
    result
}
