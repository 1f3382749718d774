//! The order within `apply`.

use crate::contract::Kind;

/// What is applied together: all of one class is tried before the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Namespaces.
    Namespace,
    /// `CustomResourceDefinition`s, until they are established.
    Definition,
    /// Roles, bindings and `ServiceAccount`s.
    Access,
    /// What workloads read when they start.
    Configuration,
    /// What runs pods.
    Workload,
    /// Everything else.
    Other,
}

impl Class {
    /// The class of a kind.
    pub fn of(kind: &Kind) -> Self {
        match (kind.group.as_str(), kind.kind.as_str()) {
            ("", "Namespace") => Self::Namespace,
            ("apiextensions.k8s.io", "CustomResourceDefinition") => Self::Definition,
            ("rbac.authorization.k8s.io", _) | ("", "ServiceAccount") => Self::Access,
            (
                "",
                "ConfigMap"
                | "Secret"
                | "LimitRange"
                | "ResourceQuota"
                | "PersistentVolume"
                | "PersistentVolumeClaim",
            )
            | ("scheduling.k8s.io", "PriorityClass")
            | ("storage.k8s.io", "StorageClass") => Self::Configuration,
            ("", "Pod" | "ReplicationController")
            | ("apps", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
            | ("batch", "Job" | "CronJob") => Self::Workload,
            _ => Self::Other,
        }
    }
}
