//! The module's label on Istio's objects.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::predicate::MODULE_LABEL;

/// The label by which Istio's objects are told, with any value.
pub const COMPONENT_LABEL: &str = "operator.istio.io/component";

/// The kinds of Istio's objects that get the label: group, version and kind.
pub const KINDS: [(&str, &str, &str); 17] = [
    ("", "v1", "Pod"),
    ("", "v1", "Secret"),
    ("", "v1", "ConfigMap"),
    ("", "v1", "ServiceAccount"),
    ("", "v1", "Service"),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
    ("apps", "v1", "Deployment"),
    ("apps", "v1", "DaemonSet"),
    ("policy", "v1", "PodDisruptionBudget"),
    ("autoscaling", "v2", "HorizontalPodAutoscaler"),
    ("rbac.authorization.k8s.io", "v1", "Role"),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding"),
    ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration"),
    ("networking.istio.io", "v1alpha3", "EnvoyFilter"),
];

/// The objects in `istio-system` that Istio makes at run time, and that get the label too.
pub const NAMED: [(&str, &str); 5] = [
    ("ConfigMap", "istio-gateway-status-leader"),
    ("ConfigMap", "istio-ip-autoallocate"),
    ("ConfigMap", "istio-leader"),
    ("ConfigMap", "istio-namespace-controller-election"),
    ("Secret", "istio-ca-secret"),
];

/// Returns whether an object with these labels is one of Istio's.
pub fn is_of_istio(labels: &BTreeMap<String, String>) -> bool {
    labels.contains_key(COMPONENT_LABEL)
        || labels.get("istio.io/config").is_some_and(|value| value == "true")
}

/// Returns the change that labels an object of a kind; of workloads, also their Pods.
pub fn label_patch(kind: &str) -> Value {
    let metadata = json!({"labels": {MODULE_LABEL: "istio"}});
    match kind {
        "Deployment" | "DaemonSet" => {
            json!({"metadata": metadata, "spec": {"template": {"metadata": metadata}}})
        }
        _ => json!({"metadata": metadata}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_istio_are_told_by_their_labels() {
        let cases = [
            (COMPONENT_LABEL, "", true),
            ("istio.io/config", "true", true),
            ("istio.io/config", "false", false),
            ("app", "istiod", false),
        ];
        for (key, value, expected) in cases {
            let labels = [(key.to_owned(), value.to_owned())].into();
            assert_eq!(is_of_istio(&labels), expected, "{key}={value}");
        }
    }

    #[test]
    fn workloads_hand_the_label_to_their_pods() {
        for kind in ["Deployment", "DaemonSet"] {
            let patch = label_patch(kind);
            assert_eq!(patch["spec"]["template"]["metadata"], patch["metadata"], "{kind}");
        }
        assert_eq!(label_patch("Service").get("spec"), None);
    }
}
