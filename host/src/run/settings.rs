//! What decides how a processor runs, besides what it declares: what a Processor resource says of it.

use std::sync::Arc;

use crate::cluster::Account;

/// How a version of a processor runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The namespace of the Processor resource; part of its field managers.
    pub namespace: Arc<str>,
    /// The name of the Processor resource; none at the desk, where a processor is known as what it calls itself.
    pub name: Option<Arc<str>>,
    /// With whose rights it reads and writes; none: with the host's own.
    pub account: Option<Account>,
    /// What becomes of what it wants.
    pub mode: Mode,
    /// The field managers of a former operator, whose fields become ours.
    pub take_over: Arc<[String]>,
    /// How many calls run at once; the host's [`super::Options::concurrency`] if absent.
    pub concurrency: Option<usize>,
    /// How many runs begin in a second at most.
    pub rate: Option<u32>,
    /// What is done about the finalizers that it holds; none as long as it reconciles.
    pub ending: Option<Ending>,
}

/// What becomes of the finalizers of a processor that is to go. Objects that hold none of them are left as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The objects are reconciled as if they were being deleted.
    Finalize,
    /// They are dropped; the processor is not called.
    Release,
}

/// What becomes of what a processor wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// It is written.
    #[default]
    Reconcile,
    /// It is checked and recorded; nothing is written.
    Observe,
}

// === impl Settings ===

impl Settings {
    /// With the host's own rights and without limits, its field managers in this namespace.
    pub fn in_namespace(namespace: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: None,
            account: None,
            mode: Mode::default(),
            take_over: Arc::default(),
            concurrency: None,
            rate: None,
            ending: None,
        }
    }
}
