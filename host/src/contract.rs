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

// The generated flags cannot be hashed, so the macro cannot derive it for all types; these two are keys of maps.

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
