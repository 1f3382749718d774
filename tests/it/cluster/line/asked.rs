//! A request on a line.

use axum::extract::Request;
use http::Method;
use tokio::time::Instant;

/// The properties of a request.
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) sent: Instant,
    pub(super) is_watch: bool,
}

impl Asked {
    pub(super) fn of(request: &Request) -> Self {
        Self {
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            sent: Instant::now(),
            is_watch: request.uri().query().is_some_and(|query| query.contains("watch=")),
        }
    }

    /// Returns whether a request is a write. Reviews are not, though they use POST.
    pub(super) fn is_write(&self) -> bool {
        let reviews = ["/apis/authentication.k8s.io/", "/apis/authorization.k8s.io/"];
        let is_review = reviews.iter().any(|group| self.path.starts_with(group));
        self.method != Method::GET && !is_review
    }

    pub(super) fn is_lease(&self) -> bool {
        self.path.starts_with("/apis/coordination.k8s.io/")
    }

    /// Returns whether the path is neither that of a Processor's status nor that of an event.
    pub(super) fn is_of_processor(&self) -> bool {
        !self.path.starts_with("/apis/mortise.dev/") && !self.path.contains("/events")
    }
}
