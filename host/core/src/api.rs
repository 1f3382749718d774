//! Requests to an API server and their answers, as values, and the trait that sends them.

use std::{fmt, sync::Arc, time::Duration};

use futures::{
    FutureExt as _,
    future::{self, BoxFuture},
};
use serde_json::Value;

use crate::{
    contract::{Kind, ObjectRef, bounds::text::shortened, display_kind},
    resource::Resource,
};

/// The reason of a write that was not sent because the host does not hold its Lease.
const LEASE_NOT_HELD: &str = "LeaseNotHeld";

/// The reason of a request that was not sent because its cluster is another one by now.
pub const MOVED: &str = "Moved";

/// The messages of a 500 that a retry does not help against: an apply does not fit the schema; an
/// object is too large for etcd, or for a message to etcd.
const LASTING: [&str; 3] = [
    "failed to create typed patch object",
    "etcdserver: request is too large",
    "trying to send message larger than max",
];

/// The bytes that are kept of a refusal's message; fewer characters of a body that is not the API
/// server's own.
const MAX_MESSAGE_BYTES: usize = 8192;
const MAX_FOREIGN_MESSAGE_CHARACTERS: usize = 1000;
/// The number of causes that are kept of a refusal.
const MAX_CAUSES: usize = 64;
/// The bytes that are kept of a reason, and of each other text of a cause. Kubernetes' own have
/// fewer: a webhook, or another cluster, sends any.
const MAX_REASON_BYTES: usize = 128;
const MAX_CAUSE_BYTES: usize = 1024;

/// The HTTP method of a request, and the content type of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
    Delete,
    Apply,
    JsonPatch,
    MergePatch,
}

/// A request to the API server.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The name of the cluster that it is sent to; empty for the one that the host runs in.
    pub cluster: Arc<str>,
    /// The method and the content type.
    pub method: Method,
    /// The path, with the query.
    pub path: String,
    /// The JSON of the body.
    pub body: Option<Value>,
    /// True if only metadata is asked for.
    pub metadata_only: bool,
    /// True if a 404 is retried, since the server may not serve a new kind yet.
    pub retry_not_found: bool,
}

/// A 2xx answer.
#[derive(Debug)]
pub struct Answer {
    /// True if the answer's status is 201.
    pub created: bool,
    /// The JSON of the answer.
    pub body: Value,
}

/// A refused request, or one without an answer (`code` 0).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// The status code; 0 without an answer.
    pub code: u16,
    pub reason: String,
    pub message: String,
    pub causes: Vec<Cause>,
    /// The time that the server asked to wait.
    pub retry_after: Option<Duration>,
}

/// An entry of `details.causes`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    pub reason: String,
    pub field: String,
    pub message: String,
}

/// The API servers that are written to, with the rights of one account: a request names its
/// cluster, as a kind does.
pub trait Api: fmt::Debug + Send + Sync {
    /// Returns the same API servers for one run that begins now: its writes are refused as
    /// [`Refusal::moved`] once a cluster is another one than at the begin. `None` if none can be.
    fn pinned(&self) -> Option<Arc<dyn Api>> {
        None
    }

    /// Returns whether writes are sent now: this host holds its Lease, or needs none.
    fn is_leading(&self) -> bool;

    /// Sends a request. A request that the server is too busy to answer is tried again.
    fn send<'a>(&'a self, outgoing: &'a Outgoing) -> BoxFuture<'a, Result<Answer, Refusal>>;

    /// Fails unless the account of another cluster is known to have the right to a verb on the
    /// objects of a kind in a namespace; asks the cluster if necessary. At home the API server
    /// decides when a request is sent.
    fn permitted<'a>(
        &'a self,
        _kind: &'a Kind,
        _verb: &'static str,
        _namespace: &'a str,
    ) -> BoxFuture<'a, Result<(), Refusal>> {
        future::ready(Ok(())).boxed()
    }

    /// Returns the resource of a kind; `None` if the server does not serve the kind.
    fn resolve<'a>(
        &'a self,
        kind: &'a Kind,
    ) -> BoxFuture<'a, Result<Option<Arc<Resource>>, Unavailable>>;

    /// Drops the cached resources of a kind's group: its `CustomResourceDefinition` has changed.
    fn forget(&self, kind: &Kind);

    /// Waits until a `CustomResourceDefinition` is established, or its names are refused.
    fn established<'a>(
        &'a self,
        definition: &'a ObjectRef,
    ) -> BoxFuture<'a, Result<(), NotEstablished>>;
}

/// The reason why a `CustomResourceDefinition` is not established.
#[derive(Debug)]
pub enum NotEstablished {
    /// The server refused its names, with this message.
    Refused(String),
    /// The server did not establish it within this time.
    Late(Duration),
    /// The definition could not be watched.
    Unwatched {
        /// The error in words.
        message: String,
        /// The server's message, if it answered with 403.
        forbidden: Option<String>,
    },
}

/// The error of a failed discovery of a kind.
#[derive(Debug, thiserror::Error)]
#[error("could not ask the cluster whether it serves {}: {message}", display_kind(kind))]
pub struct Unavailable {
    pub kind: Kind,
    pub message: String,
}

// === impl Method ===

impl Method {
    /// Returns the HTTP method.
    pub fn verb(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Delete => "DELETE",
            Self::Apply | Self::JsonPatch | Self::MergePatch => "PATCH",
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::Get | Self::Post | Self::Delete => "application/json",
            Self::Apply => "application/apply-patch+yaml",
            Self::JsonPatch => "application/json-patch+json",
            Self::MergePatch => "application/merge-patch+json",
        }
    }
}

// === impl Outgoing ===

impl Outgoing {
    pub fn new(method: Method, path: String, body: Option<Value>) -> Self {
        let cluster = Arc::default();
        Self { cluster, method, path, body, metadata_only: false, retry_not_found: false }
    }

    pub fn get(path: String) -> Self {
        Self::new(Method::Get, path, None)
    }

    /// Returns the request, sent to this cluster.
    #[must_use]
    pub fn to(self, cluster: &Arc<str>) -> Self {
        Self { cluster: Arc::clone(cluster), ..self }
    }

    /// Returns the value of the header `Accept`.
    pub fn accept(&self) -> &'static str {
        if self.metadata_only {
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
        } else {
            "application/json"
        }
    }

    /// Returns whether the request is a write. Access and token reviews are POSTs, but not writes.
    pub fn is_write(&self) -> bool {
        let reviews = ["/apis/authentication.k8s.io/", "/apis/authorization.k8s.io/"];
        let is_review = reviews.iter().any(|group| self.path.starts_with(group));
        self.method != Method::Get && !is_review
    }
}

// === impl Refusal ===

impl Refusal {
    /// Parses a refused answer. `body` is the `Status` in it, if there is one.
    pub fn read(code: u16, retry_after: Option<u64>, body: Option<&Value>, bytes: &[u8]) -> Self {
        let text = |value: Option<&'_ Value>, key: &str, longest: usize| {
            let text = value.and_then(|value| value.get(key)?.as_str()).unwrap_or_default();
            shortened(text, longest)
        };
        let body = body.filter(|body| body.get("kind").and_then(Value::as_str) == Some("Status"));
        let causes =
            body.and_then(|body| body.pointer("/details/causes")?.as_array()).into_iter().flatten();
        let in_body = body
            .and_then(|body| body.pointer("/details/retryAfterSeconds")?.as_u64())
            .filter(|seconds| *seconds > 0);
        let message = match text(body, "message", MAX_MESSAGE_BYTES) {
            empty if empty.is_empty() => String::from_utf8_lossy(bytes)
                .trim()
                .chars()
                .take(MAX_FOREIGN_MESSAGE_CHARACTERS)
                .collect(),
            message => message,
        };
        Self {
            code,
            reason: text(body, "reason", MAX_REASON_BYTES),
            message,
            causes: causes
                .take(MAX_CAUSES)
                .map(|cause| Cause {
                    reason: text(Some(cause), "reason", MAX_REASON_BYTES),
                    field: text(Some(cause), "field", MAX_CAUSE_BYTES),
                    message: text(Some(cause), "message", MAX_CAUSE_BYTES),
                })
                .collect(),
            retry_after: retry_after.or(in_body).map(Duration::from_secs),
        }
    }

    /// Creates the refusal of a request that cannot be encoded, such as a name that is invalid in
    /// URLs, or that the host does not send. A retry does not help.
    pub fn unsendable(error: &dyn std::error::Error) -> Self {
        Self {
            code: 400,
            reason: "BadRequest".to_owned(),
            message: error.to_string(),
            ..Self::default()
        }
    }

    /// Creates the refusal of a write by a host without the Lease: another host leads, or is about
    /// to.
    pub fn not_held() -> Self {
        Self {
            reason: LEASE_NOT_HELD.to_owned(),
            message: "this host does not hold the Lease".to_owned(),
            ..Self::default()
        }
    }

    /// Creates the refusal of a write by a run that began when the name of a cluster stood for
    /// another one: what the run has read there says nothing now.
    pub fn moved(cluster: &str) -> Self {
        Self {
            reason: MOVED.to_owned(),
            message: format!(
                "the kubeconfig of cluster `{cluster}` has changed since the run began"
            ),
            ..Self::default()
        }
    }

    /// Returns whether the same request may succeed later.
    pub fn is_passing(&self) -> bool {
        match self.code {
            // A lost Lease never comes back to this host, and a former cluster not to this run.
            0 => self.reason != LEASE_NOT_HELD && self.reason != MOVED,
            // A refusal by a disruption budget does not change within moments.
            429 => !self.is_of_budget(),
            500 => !LASTING.iter().any(|of| self.message.contains(of)),
            501 | 505 => false,
            502.. => self.code < 600,
            _ => false,
        }
    }

    /// Returns whether an eviction was refused by a disruption budget. A server that is too busy
    /// answers with the same code, without a cause.
    pub fn is_of_budget(&self) -> bool {
        self.code == 429 && self.has_cause("DisruptionBudget")
    }

    pub fn has_cause(&self, reason: &str) -> bool {
        self.causes.iter().any(|cause| cause.reason == reason)
    }

    /// Returns the refusal for a log line: without the server's message, which may quote values of
    /// a Secret from the object that was sent.
    pub fn outline(&self) -> String {
        match self.code {
            0 => self.to_string(),
            code => format!("{code} {}", self.reason),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            0 if self.reason == LEASE_NOT_HELD || self.reason == MOVED => {
                formatter.write_str(&self.message)
            }
            0 => write!(formatter, "no answer: {}", self.message),
            code => write!(formatter, "{code}: {}", self.message),
        }
    }
}
