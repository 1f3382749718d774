//! The order within `apply`.

use crate::contract::Kind;

/// A group of objects that are applied together: every object of a class is tried before the next
/// class begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Namespaces.
    Namespace,
    /// `CustomResourceDefinition`s, until they are established.
    Definition,
    /// Roles, bindings and `ServiceAccount`s.
    Access,
    /// Objects that workloads read when they start.
    Configuration,
    /// Objects that run pods.
    Workload,
    /// Every other kind.
    Other,
}

impl Class {
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
