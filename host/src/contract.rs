//! The contract's types (wit/), for the modules that know nothing of wasmtime.

pub use crate::processor::bindings::exports::mortise::host::reconciliation::{
    Action, Child, Deletion, Description, Event, EventType, Failure, Manifest, Mode, Outcome,
    Propagation, Reconciler, Request, Requeue, Retry, Verbs, WriteFailure, WriteRule,
};
pub use crate::processor::bindings::mortise::host::cluster::Page;
pub use crate::processor::bindings::mortise::host::log::Level;
pub use crate::processor::bindings::mortise::host::types::{
    Kind, Object, ObjectRef, ReadError, Selection,
};

// The generated flags can neither be hashed nor serialized, so the macro cannot derive that for all
// types. `Kind` and `ObjectRef` are keys of maps, and kinds stand in records.

impl std::hash::Hash for Kind {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (&self.group, &self.version, &self.kind).hash(state);
    }
}

impl std::hash::Hash for ObjectRef {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (&self.cluster, &self.kind, &self.namespace, &self.name).hash(state);
    }
}

/// Names the action as in a sentence: `apply of …`.
impl std::fmt::Display for Action {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(match self {
            Self::Apply => "apply",
            Self::Patch => "patch",
            Self::Evict => "eviction",
            Self::Delete => "deletion",
            Self::Prune => "pruning",
            Self::Finalize => "change of the finalizers",
            Self::Status => "status",
        })
    }
}

/// The serialized form of a kind.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(remote = "Kind")]
struct Written {
    group: String,
    version: String,
    kind: String,
}

impl serde::Serialize for Kind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Written::serialize(self, serializer)
    }
}

impl<'de> serde::Deserialize<'de> for Kind {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Written::deserialize(deserializer)
    }
}
