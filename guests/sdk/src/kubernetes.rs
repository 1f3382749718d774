//! The built-in kinds that processors meet, with the fields that they look at. What is not here is read and written as
//! a type of one's own, or as `serde_json::Value`.

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

/// A Namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Namespace {
    /// Its metadata.
    pub metadata: Metadata,
}

/// A `ConfigMap`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ConfigMap {
    /// Its metadata.
    pub metadata: Metadata,
    /// Values that are text.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<String, String>,
    /// Values that are not, in base 64.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub binary_data: BTreeMap<String, String>,
}

/// A Secret.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Secret {
    /// Its metadata.
    pub metadata: Metadata,
    /// Its values, in base 64.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<String, String>,
    /// `Opaque`, `kubernetes.io/tls`, …
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub secret_type: Option<String>,
}

/// Names the keys, never the values.
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
    /// Its metadata.
    pub metadata: Metadata,
    /// What it is.
    pub spec: ServiceSpec,
}

/// What a Service is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceSpec {
    /// The labels of the Pods behind it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub selector: BTreeMap<String, String>,
    /// Its ports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<ServicePort>,
}

/// A port of a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServicePort {
    /// Its name; may be none where it is the only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The port of the Service.
    pub port: i32,
    /// TCP, UDP or SCTP; none: TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

/// A Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// Its metadata.
    pub metadata: Metadata,
    /// What it runs.
    pub spec: PodSpec,
    /// How it is; never written by a processor.
    #[serde(skip_serializing)]
    pub status: PodStatus,
}

/// What a Pod runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    /// Its containers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<Container>,
    /// Containers that run before them, or beside them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub init_containers: Vec<Container>,
    /// Where it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
}

/// A container of a Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// What it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// How a Pod is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodStatus {
    /// Pending, Running, Succeeded, Failed or Unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
}
