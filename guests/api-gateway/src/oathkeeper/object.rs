//! The builders of Oathkeeper's objects, without the module's label and the disclaimer.

use api_gateway_module::MODULE_NAMESPACE;
use serde_json::{Value, json};

use super::{ACCOUNT, BINDING, CONFIGURATION, KEYS, NAME, ROLE, VERBS};

pub(super) const API: &str = "ory-oathkeeper-api";
pub(super) const METRICS: &str = "ory-oathkeeper-maester-metrics";
pub(super) const PROXY: &str = "ory-oathkeeper-proxy";
/// Oathkeeper's configuration, with `{domain}` for the domain of the cluster.
const TEXT: &str = include_str!("configuration.yaml");

/// Returns the labels by which the Pods are found.
pub(super) fn selector() -> Value {
    json!({"app.kubernetes.io/instance": "ory", "app.kubernetes.io/name": "oathkeeper"})
}

/// Returns the objects that come before the Secret with keys.
pub(super) fn before_keys() -> [Value; 4] {
    let access = "rbac.authorization.k8s.io";
    [
        json!({
            "apiVersion": "security.istio.io/v1beta1", "kind": "PeerAuthentication",
            "metadata": {"name": METRICS, "namespace": MODULE_NAMESPACE},
            "spec": {
                "selector": {"matchLabels": selector()},
                "portLevelMtls": {"8080": {"mode": "PERMISSIVE"}},
            },
        }),
        account(ACCOUNT),
        json!({
            "apiVersion": format!("{access}/v1"), "kind": "ClusterRole", "metadata": {"name": ROLE},
            "rules": [{
                "apiGroups": ["oathkeeper.ory.sh"], "resources": ["rules"], "verbs": VERBS,
            }],
        }),
        json!({
            "apiVersion": format!("{access}/v1"), "kind": "ClusterRoleBinding",
            "metadata": {"name": BINDING},
            "roleRef": {"apiGroup": access, "kind": "ClusterRole", "name": ROLE},
            "subjects": [{
                "kind": "ServiceAccount", "name": ACCOUNT, "namespace": MODULE_NAMESPACE,
            }],
        }),
    ]
}

fn account(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": MODULE_NAMESPACE},
    })
}

/// Returns the Secret with the keys that sign tokens.
pub(super) fn keys(keys: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": KEYS, "namespace": MODULE_NAMESPACE},
        "stringData": {"jwks.json": keys},
    })
}

/// Returns the `ConfigMap` with Oathkeeper's configuration.
pub(super) fn configuration(domain: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": CONFIGURATION, "namespace": MODULE_NAMESPACE,
            "labels": {"app": "oathkeeper", "app.kubernetes.io/name": "oathkeeper"},
        },
        "data": {"config.yaml": TEXT.replace("{domain}", domain)},
    })
}

/// Returns the autoscaler of a large cluster.
pub(super) fn autoscaler() -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": 80});
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {
            "name": NAME, "namespace": MODULE_NAMESPACE,
            "labels": {
                "app": "oathkeeper",
                "app.kubernetes.io/instance": "ory",
                "app.kubernetes.io/name": "oathkeeper",
            },
        },
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME},
            "minReplicas": 3,
            "maxReplicas": 10,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        },
    })
}

/// Returns the objects between the autoscaler and the Deployment.
pub(super) fn after_keys() -> [Value; 4] {
    let port = |name: &str, port: u16, target: Value| json!({"name": name, "port": port, "protocol": "TCP", "targetPort": target});
    let component = |component: &str| {
        json!({
            "app": "oathkeeper",
            "app.kubernetes.io/component": component,
            "app.kubernetes.io/instance": "ory",
            "app.kubernetes.io/name": "oathkeeper",
        })
    };
    let api = [port("http", 4456, json!("http-api"))];
    let proxy =
        [port("http", 4455, json!("http-proxy")), port("tcp-status-port", 15020, json!(15020))];
    let metrics = [port("http-metrics", 8080, json!(8080))];
    let of_metrics = json!({
        "app.kubernetes.io/instance": "ory",
        "app.kubernetes.io/name": "oathkeeper-maester",
        "mode": "sidecar",
    });
    let mut metrics = service(METRICS, &of_metrics, &metrics);
    if let Some(metadata) = metrics.get_mut("metadata").and_then(Value::as_object_mut) {
        let annotations = json!({
            "prometheus.io/port": "8080",
            "prometheus.io/scheme": "http",
            "prometheus.io/scrape": "true",
        });
        metadata.insert("annotations".to_owned(), annotations);
    }
    [
        account(NAME),
        service(API, &component("api"), &api),
        metrics,
        service(PROXY, &component("proxy"), &proxy),
    ]
}

fn service(name: &str, labels: &Value, ports: &[Value]) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": MODULE_NAMESPACE, "labels": labels},
        "spec": {"type": "ClusterIP", "selector": selector(), "ports": ports},
    })
}

/// Returns the budget of disruptions.
pub(super) fn budget() -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": NAME, "namespace": MODULE_NAMESPACE},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": selector()}},
    })
}
