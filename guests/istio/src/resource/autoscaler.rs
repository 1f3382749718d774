//! Vertical autoscalers for the operator and for Istio's workloads.

use serde_json::{Value, json};

use super::{labels, operator_labels, owner};
use crate::api::{ISTIO_NAMESPACE, Istio, MODULE_NAMESPACE};

/// Returns the autoscaler of the operator's own Deployment.
pub(super) fn of_operator(istio: &Istio) -> Value {
    let policy = json!({
        "containerName": "manager",
        "minAllowed": {"cpu": "10m", "memory": "64Mi"},
        "maxAllowed": {"cpu": "10000m", "memory": "16Gi"},
    });
    let metadata = json!({
        "name": "istio-operator-vpa",
        "namespace": MODULE_NAMESPACE,
        "labels": operator_labels(),
        "ownerReferences": [owner(istio)],
    });
    autoscaler("Deployment", "istio-controller-manager", &metadata, &policy)
}

/// Returns the autoscalers of Istio's workloads.
pub(super) fn of_control_plane() -> [Value; 4] {
    [
        ("Deployment", "istiod", "pilot", "discovery", "512Mi"),
        ("Deployment", "istio-ingressgateway", "ingressgateway", "istio-proxy", "128Mi"),
        ("Deployment", "istio-egressgateway", "egressgateway", "istio-proxy", "128Mi"),
        ("DaemonSet", "istio-cni-node", "cni", "install-cni", "512Mi"),
    ]
    .map(|(kind, name, component, container, least)| {
        let policy = json!({
            "containerName": container,
            "controlledResources": ["memory"],
            "controlledValues": "RequestsAndLimits",
            "minAllowed": {"memory": least},
            "maxAllowed": {"memory": "16Gi"},
        });
        let metadata = json!({
            "name": format!("{name}-vpa"),
            "namespace": ISTIO_NAMESPACE,
            "labels": labels(component, name),
        });
        autoscaler(kind, name, &metadata, &policy)
    })
}

fn autoscaler(kind: &str, name: &str, metadata: &Value, policy: &Value) -> Value {
    json!({
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": metadata,
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": kind, "name": name},
            "updatePolicy": {"minReplicas": 1, "updateMode": "InPlaceOrRecreate"},
            "resourcePolicy": {"containerPolicies": [policy]},
        },
    })
}
