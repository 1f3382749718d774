//! The kinds that the host owns, as Kubernetes objects: data and conversions only. `crds/mortise.dev` is made from them.

pub mod definition;
mod processor;
mod schema;

pub use processor::{
    Condition, Counts, HeldFinalizer, LastFailure, Limits, Mode, Module, ModuleStatus, OnDelete,
    Processor, ProcessorSpec, ProcessorStatus, Reconciled, SecretReference, Verification,
};

/// The finalizer of a Processor that has been put to work: what it left on other objects has to be seen to first.
pub const FINALIZER: &str = "mortise.dev/processor";

/// On a `ServiceAccount`, as a label or an annotation: the Processor that may act as it. `*`, which no label can hold, stands for every
/// one of the namespace.
pub const CONSENT: &str = "mortise.dev/processor";
