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
