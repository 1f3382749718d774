//! The built-in kinds that processors use most, each with the fields that processors use.
//!
//! A processor reads and writes other kinds, and other fields, as Rust types of its own or as
//! `serde_json::Value`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::object::{Metadata, Object};

macro_rules! core {
    ($($kind:ident),*) => {
        $(impl Object for $kind {
            const GROUP: &'static str = "";
            const VERSION: &'static str = "v1";
            const KIND: &'static str = stringify!($kind);
        })*
    };
}

core!(Namespace, ConfigMap, Secret, Service, Pod);

/// A Namespace, reduced to its metadata.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Namespace {
    /// The metadata of the Namespace.
    pub metadata: Metadata,
}

/// A `ConfigMap`, which holds values by key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ConfigMap {
    /// The metadata of the `ConfigMap`.
    pub metadata: Metadata,
    /// The values that are text, by key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<String, String>,
    /// The values that are not text, by key, in base64.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub binary_data: BTreeMap<String, String>,
}

/// A Secret. Its `Debug` output names the keys, never the values.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Secret {
    /// The metadata of the Secret.
    pub metadata: Metadata,
    /// The values by key, in base64.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<String, String>,
    /// The type, such as `Opaque` or `kubernetes.io/tls`, if any.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub secret_type: Option<String>,
}

/// Prints the keys, never the values.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keys: Vec<&String> = self.data.keys().collect();
        f.debug_struct("Secret")
            .field("metadata", &self.metadata)
            .field("data", &keys)
            .field("secret_type", &self.secret_type)
            .finish()
    }
}

/// A Service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Service {
    /// The metadata of the Service.
    pub metadata: Metadata,
    /// The Pods that the Service selects, and its ports.
    pub spec: ServiceSpec,
}

/// The spec of a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceSpec {
    /// The labels of the Pods behind the Service.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub selector: BTreeMap<String, String>,
    /// The ports of the Service.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<ServicePort>,
}

/// A port of a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServicePort {
    /// The name of the port, if any. The only port of a Service needs none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The number of the port on the Service.
    pub port: i32,
    /// The protocol: `TCP`, `UDP` or `SCTP`; `None` means TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

/// A Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// The metadata of the Pod.
    pub metadata: Metadata,
    /// The containers of the Pod, and the node on which they run.
    pub spec: PodSpec,
    /// The status of the Pod; a processor reads it and never writes it.
    #[serde(skip_serializing)]
    pub status: PodStatus,
}

/// The spec of a Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    /// The containers of the Pod, without those in `init_containers`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<Container>,
    /// Containers that run before the others or, as sidecars, beside them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub init_containers: Vec<Container>,
    /// The name of the node on which the Pod runs, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
}

/// A container of a Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Container {
    /// The name of the container within its Pod.
    pub name: String,
    /// The image that the container runs, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// The status of a Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodStatus {
    /// The phase, if any: `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
}
