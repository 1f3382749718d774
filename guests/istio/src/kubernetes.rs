//! The parts of Kubernetes' kinds that the rules look at.

use std::collections::BTreeMap;

use mortise_sdk::{Object, object::Metadata};
use serde::Deserialize;
use serde_json::Value;

use crate::quantity::{self, Quantity};

macro_rules! objects {
    ($($kind:ident: $group:literal $version:literal),* $(,)?) => {
        $(impl Object for $kind {
            const GROUP: &'static str = $group;
            const VERSION: &'static str = $version;
            const KIND: &'static str = stringify!($kind);
        })*
    };
}

objects!(Node: "" "v1", Pod: "" "v1", Service: "" "v1", ReplicaSet: "apps" "v1");

/// A Node, reduced to what tells its size and its provider.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Node {
    /// The metadata of the Node.
    pub metadata: Metadata,
    /// The spec of the Node.
    pub spec: NodeSpec,
    /// The status of the Node.
    pub status: NodeStatus,
}

/// The spec of a Node.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// The id of the machine at its provider.
    #[serde(rename = "providerID")]
    pub provider_id: String,
}

/// The status of a Node.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeStatus {
    /// The resources of the Node.
    pub capacity: Amounts,
    /// The software of the Node.
    pub node_info: NodeInfo,
}

/// The software of a Node.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeInfo {
    /// The version of the kubelet.
    pub kubelet_version: String,
    /// The name and version of the operating system.
    pub os_image: String,
}

/// Amounts of resources by name.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Amounts(BTreeMap<String, Value>);

/// A Pod, reduced to what decides on restarts.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// The metadata of the Pod.
    pub metadata: Metadata,
    /// The spec of the Pod.
    pub spec: PodSpec,
    /// The status of the Pod.
    pub status: PodStatus,
}

/// The spec of a Pod.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    /// The containers.
    pub containers: Vec<Container>,
    /// The init containers, among them native sidecars.
    pub init_containers: Vec<Container>,
}

/// A container of a Pod.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Container {
    /// The name of the container.
    pub name: String,
    /// The reference of the image.
    pub image: String,
    /// The resources of the container.
    pub resources: ContainerResources,
}

/// The resources of a container.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ContainerResources {
    /// The most that the container gets.
    pub limits: Amounts,
    /// The resources that the container is sure of.
    pub requests: Amounts,
}

/// The status of a Pod.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodStatus {
    /// The phase, such as `Running`.
    pub phase: String,
    /// The conditions of the Pod.
    pub conditions: Vec<PodCondition>,
}

/// A condition of a Pod.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodCondition {
    /// The status: `True`, `False` or `Unknown`.
    pub status: String,
}

/// A Service, reduced to its metadata and its ports.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Service {
    /// The metadata of the Service.
    pub metadata: Metadata,
    /// The spec of the Service.
    pub spec: ServiceSpec,
}

/// The spec of a Service.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ServiceSpec {
    /// The ports of the Service.
    pub ports: Vec<ServicePort>,
}

/// A port of a Service.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServicePort {
    /// The name of the port.
    pub name: String,
    /// The port of the Pods, a number or a name.
    pub target_port: Value,
}

/// A `ReplicaSet`, reduced to its owners and its replicas.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ReplicaSet {
    /// The metadata of the `ReplicaSet`.
    pub metadata: Metadata,
    /// The status of the `ReplicaSet`.
    pub status: ReplicaSetStatus,
}

/// The status of a `ReplicaSet`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ReplicaSetStatus {
    /// The number of replicas.
    pub replicas: i64,
    /// The number of replicas that are ready.
    pub ready_replicas: i64,
}

// === impl Amounts ===

impl Amounts {
    /// Returns the amount of a resource; nothing if it is not there.
    ///
    /// # Errors
    ///
    /// Fails if the amount is no quantity.
    pub fn get(&self, resource: &str) -> Result<Quantity, quantity::Error> {
        match self.0.get(resource) {
            None => Ok(Quantity::ZERO),
            Some(Value::String(text)) => Quantity::parse(text),
            Some(other) => Quantity::parse(&other.to_string()),
        }
    }
}

impl Pod {
    /// Returns all containers: the ordinary ones, then the init containers.
    pub fn all_containers(&self) -> impl Iterator<Item = &Container> {
        self.spec.containers.iter().chain(&self.spec.init_containers)
    }

    /// Returns the namespace of the Pod.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Returns the value of an annotation; "" if it is not there.
    pub fn annotation(&self, key: &str) -> &str {
        self.metadata.annotations.get(key).map(String::as_str).unwrap_or_default()
    }
}
