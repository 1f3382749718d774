//! The kinds that the host owns, as Kubernetes objects: data and conversions only.
//! `crds/mortise.dev` is made from them.

pub mod definition;
mod processor;
mod schema;

pub use processor::{
    Clusters, Condition, Config, Counts, Egress, EgressCredential, EgressRate, HeldFinalizer,
    LastFailure, Library, LibraryLimits, LibraryStatus, Limits, Mode, Module, ModuleStatus,
    OnDelete, Processor, ProcessorSpec, ProcessorStatus, ReconciledKind, SecretPlace,
    SecretReference, Verification,
};

use crate::cluster::lean::MARK;

/// The finalizer of a Processor that has been put to work: its finalizers on other objects are
/// handled first.
pub const FINALIZER: &str = MARK;

/// On a `ServiceAccount`, as a label or an annotation: the Processor that may act as it. `*`, which
/// no label can hold, stands for every one of the namespace.
pub const CONSENT: &str = MARK;
