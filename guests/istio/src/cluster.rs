//! The cluster: its size, its provider, and the settings that follow from them.

use mortise_sdk::kubernetes::ConfigMap;
use serde_json::{Map, Value, json};

use crate::{
    kubernetes::{Node, Service},
    quantity::{self, Quantity},
    yaml,
};

/// The name of the `ConfigMap` in `istio-system` that asks for a classic load balancer on AWS.
pub const ELB_DEPRECATED: &str = "elb-deprecated";
/// The name of the ingress gateway's Deployment and Service.
pub const INGRESS_GATEWAY: &str = "istio-ingressgateway";
/// The name of the `ConfigMap` in `kyma-system` that describes the network.
pub const PROVISIONING_INFO: &str = "kyma-provisioning-info";

const AWS: &str = "service.beta.kubernetes.io/aws-load-balancer-";

/// The flavour of the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// The ordinary one.
    Regular,
    /// The one that accepts experimental features.
    Experimental,
}

/// The size of a cluster, which decides on the template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Less than 5 cores, or less than 10 GB of memory.
    Evaluation,
    /// All others.
    Production,
}

/// The provider of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// Google's Kubernetes Engine.
    Gke,
    /// k3d, or k3s.
    K3d,
    /// Amazon Web Services.
    Aws,
    /// `OpenStack`.
    Openstack,
    /// Any other.
    Unknown,
}

/// The objects that describe a cluster.
#[derive(Debug, Clone, Copy, Default)]
pub struct Objects<'a> {
    /// All Nodes, in order of their names.
    pub nodes: &'a [Node],
    /// `ConfigMap` `istio-system/elb-deprecated` exists.
    pub elb_deprecated: bool,
    /// Service `istio-system/istio-ingressgateway`.
    pub gateway: Option<&'a Service>,
    /// `ConfigMap` `kyma-system/kyma-provisioning-info`.
    pub provisioning_info: Option<&'a ConfigMap>,
}

/// The facts about a cluster that decide on the installation.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    pub size: Size,
    pub provider: Provider,
    /// The cluster has IPv4 and IPv6, and the flavour is experimental.
    pub dual_stack: bool,
    /// The load balancer speaks the PROXY protocol.
    pub needs_proxy_protocol: bool,
    /// The settings that are merged over all others: an `IstioOperator` in part.
    pub overrides: Value,
}

// === impl Size ===

impl Size {
    /// Returns the name of the size.
    pub fn name(self) -> &'static str {
        match self {
            Self::Evaluation => "Evaluation",
            Self::Production => "Production",
        }
    }

    /// Returns the size of a cluster with these Nodes.
    ///
    /// # Errors
    ///
    /// Fails if a capacity is no quantity.
    pub fn of(nodes: &[Node]) -> Result<Self, quantity::Error> {
        let (mut cpu, mut memory) = (Quantity::ZERO, Quantity::ZERO);
        for node in nodes {
            cpu = cpu.plus(node.status.capacity.get("cpu")?);
            memory = memory.plus(node.status.capacity.get("memory")?);
        }
        let is_small = cpu < Quantity::of(5) || memory < Quantity::of(10_000_000_000);
        Ok(if is_small { Self::Evaluation } else { Self::Production })
    }
}

// === impl Provider ===

impl Provider {
    /// Returns the name of the provider.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gke => "GKE",
            Self::K3d => "K3d",
            Self::Aws => "AWS",
            Self::Openstack => "Openstack",
            Self::Unknown => "Unknown",
        }
    }

    /// Returns the provider of the first Node that tells one.
    pub fn of(nodes: &[Node]) -> Self {
        nodes
            .iter()
            .map(Self::of_node)
            .find(|known| *known != Self::Unknown)
            .unwrap_or(Self::Unknown)
    }

    fn of_node(node: &Node) -> Self {
        let version = &node.status.node_info.kubelet_version;
        let id = node.spec.provider_id.to_lowercase();
        if is_version(version, "-gke.") {
            Self::Gke
        } else if is_version(version, "+k3s") {
            Self::K3d
        } else if id.starts_with("aws://") {
            Self::Aws
        } else if id.starts_with("openstack://") {
            Self::Openstack
        } else {
            Self::Unknown
        }
    }
}

/// Returns whether a version is `v`, three numbers, this suffix and a number.
fn is_version(version: &str, suffix: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let Some(version) = version.strip_prefix('v') else { return false };
    let Some((numbers, build)) = version.split_once(suffix) else { return false };
    let numbers: Vec<&str> = numbers.split('.').collect();
    numbers.len() == 3 && numbers.into_iter().all(is_number) && is_number(build)
}

// === impl Cluster ===

impl Cluster {
    /// Returns the facts about a cluster.
    ///
    /// # Errors
    ///
    /// Fails if a capacity is no quantity, or if the description of the network is broken.
    pub fn of(objects: &Objects, flavour: Flavour) -> Result<Self, String> {
        let size = Size::of(objects.nodes).map_err(|error| error.to_string())?;
        let provider = Provider::of(objects.nodes);
        let dual_stack = match flavour {
            Flavour::Regular => false,
            Flavour::Experimental => is_dual_stack(objects.provisioning_info)?,
        };
        let is_gardener =
            objects.nodes.iter().any(|node| node.status.node_info.os_image.contains("Garden"));
        let (needs_proxy_protocol, values) = match provider {
            Provider::Gke => (
                false,
                json!({"cni": {
                    "cniBinDir": "/home/kubernetes/bin",
                    "resourceQuotas": {"enabled": true},
                }}),
            ),
            Provider::K3d => (
                false,
                json!({"cni": {
                    "cniBinDir": "/var/lib/rancher/k3s/data/cni",
                    "cniConfDir": "/var/lib/rancher/k3s/agent/etc/cni/net.d",
                }}),
            ),
            Provider::Aws => aws(has_network_load_balancer(objects), dual_stack),
            Provider::Openstack if is_gardener => {
                (true, annotated(&[("loadbalancer.openstack.org/proxy-protocol", "v1")]))
            }
            Provider::Openstack => (true, json!({})),
            Provider::Unknown => (false, json!({})),
        };
        let overrides = json!({"spec": {"values": values}});
        Ok(Self { size, provider, dual_stack, needs_proxy_protocol, overrides })
    }
}

/// Returns whether the load balancer on AWS is, or will be, a network load balancer. A classic one
/// is kept where a former version of the original has asked for it.
fn has_network_load_balancer(objects: &Objects) -> bool {
    let is_one = |gateway: &Service| {
        let annotations = &gateway.metadata.annotations;
        annotations.get(&format!("{AWS}type")).is_some_and(|value| value == "nlb")
    };
    !objects.elb_deprecated || objects.gateway.is_some_and(is_one)
}

fn aws(is_network_load_balancer: bool, dual_stack: bool) -> (bool, Value) {
    match (is_network_load_balancer, dual_stack) {
        (true, false) => (
            false,
            annotated(&[
                (&format!("{AWS}type"), "nlb"),
                (&format!("{AWS}scheme"), "internet-facing"),
                (&format!("{AWS}nlb-target-type"), "instance"),
            ]),
        ),
        (true, true) => (
            true,
            annotated(&[
                (&format!("{AWS}type"), "external"),
                (&format!("{AWS}scheme"), "internet-facing"),
                (&format!("{AWS}nlb-target-type"), "instance"),
                (&format!("{AWS}proxy-protocol"), "*"),
            ]),
        ),
        (false, _) => (
            true,
            annotated(&[
                (&format!("{AWS}proxy-protocol"), "*"),
                (&format!("{AWS}connection-idle-timeout"), "4000"),
            ]),
        ),
    }
}

/// Returns Helm values that annotate the Service of the ingress gateway.
fn annotated(annotations: &[(&str, &str)]) -> Value {
    let annotations: Map<String, Value> =
        annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
    json!({"gateways": {INGRESS_GATEWAY: {"serviceAnnotations": annotations}}})
}

fn is_dual_stack(info: Option<&ConfigMap>) -> Result<bool, String> {
    let Some(details) = info.and_then(|info| info.data.get("details")) else { return Ok(false) };
    let details = yaml::parse(details)?;
    let kind = match &details {
        Value::Null | Value::Object(_) => {
            return Ok(details.pointer("/networkDetails/dualStackIPEnabled") == Some(&true.into()));
        }
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
    };
    Err(format!(
        "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {kind} into Go value \
         of type map[string]interface {{}}"
    ))
}

#[cfg(test)]
mod tests;
