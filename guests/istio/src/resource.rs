//! The objects that the module adds to Istio's own.

mod autoscaler;
mod network_policy;

use mortise_sdk::Object as _;
use serde_json::{Value, json};

use crate::{
    api::{ISTIO_NAMESPACE, Istio},
    kubernetes::Service,
};

/// The annotation that tells people not to change an object.
pub const DISCLAIMER: &str = "istios.operator.kyma-project.io/managed-by-disclaimer";
/// The text of the annotation.
pub const DISCLAIMER_TEXT: &str = "DO NOT EDIT - This resource is managed by Kyma.\n\
     Any modifications are discarded and the resource is reverted to the original state.";
/// The CRD without which there are no vertical autoscalers.
pub const AUTOSCALER_CRD: &str = "verticalpodautoscalers.autoscaling.k8s.io";

/// The facts that decide on the objects.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The Istio resource.
    pub istio: &'a Istio,
    /// The load balancer speaks the PROXY protocol.
    pub needs_proxy_protocol: bool,
    /// The feature that scales Istio's workloads vertically is on.
    pub control_plane_autoscalers: bool,
    /// The CRD of vertical autoscalers exists.
    pub has_autoscaler_crd: bool,
    /// Service `default/kubernetes`.
    pub api_server: Option<&'a Service>,
    /// The version of the module.
    pub version: &'a str,
}

/// The objects that should be there, and those that should not.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Objects to apply, in order.
    pub apply: Vec<Value>,
    /// Objects to delete, of which only kind, namespace and name matter.
    pub delete: Vec<Value>,
}

impl Plan {
    /// Returns the plan for a resource.
    pub fn of(input: &Input) -> Self {
        let istio = input.istio;
        let is_deleted = istio.metadata.is_deleted();
        let mut plan = Self::default();
        if !is_deleted {
            plan.apply.push(peer_authentication());
        }
        let policies = network_policy::all(api_port(input.api_server));
        plan.keep(policies, istio.spec.network_policies_enabled && !is_deleted);
        if input.has_autoscaler_crd {
            plan.keep([autoscaler::of_operator(istio)], !is_deleted);
            let is_on = input.control_plane_autoscalers && !is_deleted;
            plan.keep(autoscaler::of_control_plane(), is_on);
        }
        if !is_deleted {
            plan.keep([proxy_protocol()], input.needs_proxy_protocol);
        }
        for object in &mut plan.apply {
            let mut put = |path: &str, key: &str, value: Value| {
                if let Some(Value::Object(map)) = object.pointer_mut(path) {
                    map.insert(key.to_owned(), value);
                }
            };
            put("/metadata", "annotations", json!({DISCLAIMER: DISCLAIMER_TEXT}));
            put("/metadata/labels", "app.kubernetes.io/version", input.version.into());
        }
        plan
    }

    fn keep(&mut self, objects: impl IntoIterator<Item = Value>, are_wanted: bool) {
        if are_wanted { &mut self.apply } else { &mut self.delete }.extend(objects);
    }
}

/// Returns the port of the API server's Pods, as far as it is known.
///
/// The original takes a port with a name, and one that is not set, for port 0, which no network
/// policy may have.
fn api_port(api_server: Option<&Service>) -> i64 {
    let ports = api_server.map(|service| service.spec.ports.as_slice()).unwrap_or_default();
    let port = ports.iter().find(|port| port.name == "https");
    port.and_then(|port| port.target_port.as_i64()).filter(|port| *port != 0).unwrap_or(443)
}

/// Returns the labels of objects of the operator.
fn operator_labels() -> Value {
    labels("operator", "istio-operator")
}

fn labels(component: &str, name: &str) -> Value {
    json!({
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/instance": format!("{name}-default"),
        "app.kubernetes.io/name": name,
        "app.kubernetes.io/part-of": "istio",
        "kyma-project.io/module": "istio",
    })
}

fn peer_authentication() -> Value {
    json!({
        "apiVersion": "security.istio.io/v1",
        "kind": "PeerAuthentication",
        "metadata": {"name": "default", "namespace": ISTIO_NAMESPACE, "labels": operator_labels()},
        "spec": {"mtls": {"mode": "STRICT"}},
    })
}

fn proxy_protocol() -> Value {
    let filter =
        "type.googleapis.com/envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol";
    let value = json!({"name": "proxy_protocol", "typed_config": {"@type": filter}});
    json!({
        "apiVersion": "networking.istio.io/v1alpha3",
        "kind": "EnvoyFilter",
        "metadata": {
            "name": "proxy-protocol", "namespace": ISTIO_NAMESPACE, "labels": operator_labels(),
        },
        "spec": {
            "configPatches": [{
                "applyTo": "LISTENER_FILTER",
                "patch": {"operation": "INSERT_FIRST", "value": value},
            }],
            "workloadSelector": {"labels": {"istio": "ingressgateway"}},
        },
    })
}

fn owner(istio: &Istio) -> Value {
    json!({
        "apiVersion": Istio::kind().api_version(),
        "kind": Istio::KIND,
        "name": istio.metadata.name,
        "uid": istio.metadata.uid,
    })
}

#[cfg(test)]
mod tests;
