//! Network policies for Istio's workloads.

use serde_json::{Map, Value, json};

use crate::api::{ISTIO_NAMESPACE, MODULE_NAMESPACE};

const FROM_INGRESS: &str = "networking.kyma-project.io/from-ingressgateway";
const TO_EGRESS: &str = "networking.kyma-project.io/to-egressgateway";
const METRICS_PORTS: [i64; 3] = [15020, 15021, 15090];

/// Returns all policies, in the order in which they are applied.
pub(super) fn all(api_port: i64) -> Vec<Value> {
    let api = to_port(api_port);
    let ingress_gateway = json!({"istio": "ingressgateway"});
    let pilot = json!({"istio": "pilot"});
    vec![
        policy("istio-cni-node", json!({"k8s-app": "istio-cni-node"}))
            .egress([dns(), api.clone()])
            .build(),
        policy("istio-ingressgateway-egress", ingress_gateway.clone())
            .egress([json!({"to": [anywhere(FROM_INGRESS, "allowed")]})])
            .build(),
        policy("istio-egressgateway", json!({"istio": "egressgateway"}))
            .egress([json!({})])
            .ingress([json!({"from": [anywhere(TO_EGRESS, "allowed")]}), metrics(&METRICS_PORTS)])
            .build(),
        policy("istio-ingressgateway", ingress_gateway.clone())
            .egress([json!({"ports": tcp(&[15012]), "to": [near(&pilot)]}), dns()])
            .ingress([json!({"ports": tcp(&[8080, 8443])}), metrics(&METRICS_PORTS)])
            .build(),
        policy(
            "allow-istio-controller-manager",
            json!({"kyma-project.io/module": "istio", "app.kubernetes.io/name": "istio-operator"}),
        )
        .namespace(MODULE_NAMESPACE)
        .egress([dns(), api.clone()])
        .build(),
        policy("istio-pilot", pilot.clone())
            .egress([dns(), api])
            .ingress([
                json!({
                    "ports": tcp(&[15012]),
                    "from": [
                        anywhere("security.istio.io/tlsMode", "istio"),
                        near(&ingress_gateway),
                        near(&json!({"istio": "egressgateway"})),
                    ],
                }),
                metrics(&[15014]),
                json!({"ports": tcp(&[15017])}),
            ])
            .build(),
        policy("istio-pilot-jwks", pilot).egress([json!({"ports": tcp(&[80, 443])})]).build(),
    ]
}

struct Policy {
    name: String,
    namespace: &'static str,
    pods: Value,
    rules: Map<String, Value>,
}

fn policy(name: &str, pods: Value) -> Policy {
    let name = format!("kyma-project.io--{name}");
    Policy { name, namespace: ISTIO_NAMESPACE, pods, rules: Map::new() }
}

impl Policy {
    fn namespace(mut self, namespace: &'static str) -> Self {
        self.namespace = namespace;
        self
    }

    fn egress<const N: usize>(mut self, rules: [Value; N]) -> Self {
        self.rules.insert("egress".to_owned(), Vec::from(rules).into());
        self
    }

    fn ingress<const N: usize>(mut self, rules: [Value; N]) -> Self {
        self.rules.insert("ingress".to_owned(), Vec::from(rules).into());
        self
    }

    fn build(self) -> Value {
        let types: Vec<&str> = [("egress", "Egress"), ("ingress", "Ingress")]
            .into_iter()
            .filter(|(key, _)| self.rules.contains_key(*key))
            .map(|(_, name)| name)
            .collect();
        let mut spec = self.rules;
        spec.insert("podSelector".to_owned(), json!({"matchLabels": self.pods}));
        spec.insert("policyTypes".to_owned(), types.into());
        let labels =
            json!({"kyma-project.io/module": "istio", "kyma-project.io/managed-by": "kyma"});
        json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": self.name, "namespace": self.namespace, "labels": labels},
            "spec": spec,
        })
    }
}

fn tcp(ports: &[i64]) -> Value {
    ports.iter().map(|port| json!({"port": port, "protocol": "TCP"})).collect()
}

fn to_port(port: i64) -> Value {
    json!({"ports": tcp(&[port])})
}

fn dns() -> Value {
    json!({"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]})
}

/// Pods of all namespaces.
fn anywhere(label: &str, value: &str) -> Value {
    json!({"namespaceSelector": {}, "podSelector": {"matchLabels": {label: value}}})
}

/// Pods of the policy's own namespace.
fn near(labels: &Value) -> Value {
    json!({"podSelector": {"matchLabels": labels}})
}

/// Traffic from Pods that collect metrics.
fn metrics(ports: &[i64]) -> Value {
    let is_there = json!({"key": "kyma-project.io/module", "operator": "Exists"});
    let of_a_module =
        json!({"namespaceSelector": {}, "podSelector": {"matchExpressions": [is_there]}});
    json!({
        "ports": tcp(ports),
        "from": [
            of_a_module,
            anywhere("networking.kyma-project.io/istio-metrics", "allowed"),
            anywhere("networking.kyma-project.io/metrics-scraping", "allowed"),
        ],
    })
}
