//! The labels of the metrics.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;

use super::series::{Labels, OTHER};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct OfProcessor {
    pub(crate) processor: Arc<str>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct OfKind {
    pub(super) processor: Arc<str>,
    pub(super) kind: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct Ended {
    pub(super) processor: Arc<str>,
    pub(super) kind: String,
    pub(super) result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct NotSkipped {
    pub(super) processor: Arc<str>,
    pub(super) reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct Keys {
    pub(super) processor: Arc<str>,
    pub(super) state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct Trapped {
    pub(super) processor: Arc<str>,
    pub(super) reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct LibraryCall {
    pub(super) processor: Arc<str>,
    pub(super) result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct OfVerb {
    pub(super) processor: Arc<str>,
    pub(super) kind: String,
    pub(super) verb: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct Denied {
    pub(super) processor: Arc<str>,
    pub(super) verb: String,
    pub(super) kind: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct LookedUp {
    pub(super) result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct Compiled {
    pub(super) result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct Stored {
    pub(super) kind: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct OfHook {
    pub(super) processor: Arc<str>,
    pub(super) hook: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct Answered {
    pub(super) processor: Arc<str>,
    pub(super) hook: String,
    pub(super) result: &'static str,
}

// === impl Labels ===

impl Labels for OfProcessor {
    fn processor(&self) -> &Arc<str> {
        &self.processor
    }

    fn other(self) -> Self {
        self
    }
}

impl Labels for NotSkipped {
    fn processor(&self) -> &Arc<str> {
        &self.processor
    }

    fn other(self) -> Self {
        self
    }
}

impl Labels for Trapped {
    fn processor(&self) -> &Arc<str> {
        &self.processor
    }

    fn other(self) -> Self {
        self
    }
}

impl Labels for LibraryCall {
    fn processor(&self) -> &Arc<str> {
        &self.processor
    }

    fn other(self) -> Self {
        self
    }
}

impl Labels for OfKind {
    fn processor(&self) -> &Arc<str> {
        &self.processor
    }

    fn other(self) -> Self {
        Self { kind: OTHER.to_owned(), ..self }
    }
}

impl Labels for Ended {
    fn processor(&self) -> &Arc<str> {
        &self.processor
    }

    fn other(self) -> Self {
        Self { kind: OTHER.to_owned(), ..self }
    }
}

impl Labels for OfVerb {
    fn processor(&self) -> &Arc<str> {
        &self.processor
    }

    fn other(self) -> Self {
        Self { kind: OTHER.to_owned(), ..self }
    }
}

impl Labels for Denied {
    fn processor(&self) -> &Arc<str> {
        &self.processor
    }

    fn other(self) -> Self {
        Self { kind: OTHER.to_owned(), ..self }
    }
}

impl Labels for OfHook {
    fn processor(&self) -> &Arc<str> {
        &self.processor
    }

    fn other(self) -> Self {
        Self { hook: OTHER.to_owned(), ..self }
    }
}

impl Labels for Answered {
    fn processor(&self) -> &Arc<str> {
        &self.processor
    }

    fn other(self) -> Self {
        Self { hook: OTHER.to_owned(), ..self }
    }
}
