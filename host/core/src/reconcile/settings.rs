//! The settings of a processor that come from its Processor resource, not from its description.

use std::sync::Arc;

use crate::{grant::rights::Account, outbound::Egress};

/// The settings of a version of a processor.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The namespace of the Processor resource; part of its field managers.
    pub namespace: Arc<str>,
    /// The name of the Processor resource; `None` in the developer commands, where a processor is
    /// known by the name in its description.
    pub name: Option<Arc<str>>,
    /// The account whose rights the processor reads and writes with; `None` for the host's own
    /// rights.
    pub account: Option<Account>,
    /// The mode: whether outcomes are written.
    pub mode: Mode,
    /// The field managers of a former operator, whose fields the host takes over.
    pub take_over: Arc<[String]>,
    /// The other clusters that the processor may use.
    pub clusters: Arc<[ClusterGrant]>,
    /// The systems outside of the cluster that the processor may call.
    pub egress: Arc<[Arc<Egress>]>,
    /// The number of calls that run at once; the default of the host if `None`.
    pub concurrency: Option<usize>,
    /// The maximum number of runs that start per second, if limited.
    pub rate: Option<u32>,
    /// The action on the finalizers that the processor holds, when it is being removed; `None` as
    /// long as it reconciles.
    pub removal: Option<Removal>,
}

/// Clusters that a processor may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterGrant {
    /// The servers that kubeconfigs may name: `https://*.provider.example:6443`.
    pub servers: Vec<String>,
    /// The namespace of the Secrets with the kubeconfigs; `None`: any.
    pub namespace: Option<String>,
}

/// The action on the finalizers of a processor that is being removed. Objects that hold none of
/// them are left as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// Objects are reconciled as if they were being deleted.
    Finalize,
    /// Finalizers are dropped from the objects; the processor is not called.
    Release,
}

/// The mode of a processor: whether its outcomes are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// Outcomes are written.
    #[default]
    Reconcile,
    /// Outcomes are checked and recorded; nothing is written.
    Observe,
}

// === impl Settings ===

impl Settings {
    /// Returns settings with the host's own rights and without limits, and with field managers in
    /// this namespace.
    pub fn in_namespace(namespace: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: None,
            account: None,
            mode: Mode::default(),
            take_over: Arc::default(),
            clusters: Arc::default(),
            egress: Arc::default(),
            concurrency: None,
            rate: None,
            removal: None,
        }
    }
}
