//! The kinds of the objects that Istio consists of.

use istio::api::ISTIO_NAMESPACE;
use mortise_sdk::Kind;

/// The namespace of the CNI plugin on Google Kubernetes Engine.
const NODE_NAMESPACE: &str = "kube-system";

/// A place in which objects of a kind are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In no namespace.
    Cluster,
    /// In `istio-system`.
    Istio,
    /// In `istio-system`, and in `kube-system` for the CNI plugin.
    Node,
}

/// A kind of which the library makes objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    pub(crate) place: Place,
}

const fn written(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    place: Place,
) -> Written {
    Written { group, version, kind, place }
}

/// All kinds of which the library makes objects, in the order in which the original deletes them.
pub(crate) const WRITTEN: [Written; 15] = [
    written("apps", "v1", "Deployment", Place::Istio),
    written("apps", "v1", "DaemonSet", Place::Node),
    written("", "v1", "Service", Place::Istio),
    written("", "v1", "ConfigMap", Place::Node),
    written("", "v1", "ServiceAccount", Place::Node),
    written("", "v1", "ResourceQuota", Place::Node),
    written("rbac.authorization.k8s.io", "v1", "RoleBinding", Place::Istio),
    written("rbac.authorization.k8s.io", "v1", "Role", Place::Istio),
    written("policy", "v1", "PodDisruptionBudget", Place::Istio),
    written("autoscaling", "v2", "HorizontalPodAutoscaler", Place::Istio),
    written("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", Place::Cluster),
    written("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", Place::Cluster),
    written("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", Place::Cluster),
    written("rbac.authorization.k8s.io", "v1", "ClusterRole", Place::Cluster),
    written("apiextensions.k8s.io", "v1", "CustomResourceDefinition", Place::Cluster),
];

impl Written {
    pub(crate) fn kind(&self) -> Kind {
        Kind::new(self.group, self.version, self.kind)
    }

    /// Returns the namespaces in which objects are written; one `None` for objects without one.
    pub(crate) fn namespaces(&self) -> &'static [Option<&'static str>] {
        match self.place {
            Place::Cluster => &[None],
            Place::Istio => &[Some(ISTIO_NAMESPACE)],
            Place::Node => &[Some(ISTIO_NAMESPACE), Some(NODE_NAMESPACE)],
        }
    }

    /// Returns whether this is the kind of definitions, with which people's objects would go.
    pub(crate) fn is_definition(&self) -> bool {
        self.kind == "CustomResourceDefinition"
    }

    /// Returns whether an object of this kind may be written.
    pub(crate) fn holds(&self, kind: &Kind, namespace: Option<&str>) -> bool {
        self.kind() == *kind && self.namespaces().contains(&namespace)
    }
}
