//! The types of the kinds of `kube-bind.io`. The CRDs are made from these types.
//!
//! Deserialization is lenient: what the API server of a provider stores is not trusted to be
//! complete.

mod claim;
mod condition;
#[cfg(not(target_family = "wasm"))]
mod crd;
mod export;
mod schema;

pub use claim::{Expression, JsonPath, LabelSelector, Named, PermissionClaim, Reference, Selector};
pub use condition::{Condition, READY, Severity, find, holds, set, summarize};
#[cfg(not(target_family = "wasm"))]
pub use crd::definitions;
pub use export::{
    BoundSchema, BoundSchemaSpec, BoundSchemaStatus, Column, Conversion, Export, ExportRequest,
    ExportRequestSpec, ExportRequestStatus, ExportSpec, ExportStatus, Names, NamespaceName,
    Resource, Scale, Subresources, Version,
};

use mortise_sdk::{Object, object::Metadata};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use schema::Free;

/// The API group of all kinds.
pub const GROUP: &str = "kube-bind.io";
/// The version of all kinds.
pub const VERSION: &str = "v1alpha2";

macro_rules! kinds {
    ($($kind:literal: $type:ty),* $(,)?) => {
        $(impl Object for $type {
            const GROUP: &'static str = GROUP;
            const VERSION: &'static str = VERSION;
            const KIND: &'static str = $kind;
        })*
    };
}

kinds! {
    "APIServiceBinding": Binding,
    "APIServiceBindingBundle": Bundle,
    "APIServiceExport": Export,
    "APIServiceExportRequest": ExportRequest,
    "APIServiceNamespace": ServiceNamespace,
    "BoundSchema": BoundSchema,
    "ClusterBinding": ClusterBinding,
}

/// Binds the export of the same name that a provider offers.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Binding {
    /// Standard object's metadata.
    #[schemars(skip)]
    pub metadata: Metadata,
    /// The provider.
    pub spec: BindingSpec,
    /// The state of the binding.
    pub status: BindingStatus,
}

/// The provider of a binding or a bundle.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["kubeconfigSecretRef"]))]
pub struct BindingSpec {
    /// The Secret with the kubeconfig of the provider's cluster. The current context must name the
    /// namespace in which the provider keeps the objects of this consumer.
    #[schemars(transform = schema::secret_immutable)]
    pub kubeconfig_secret_ref: SecretRef,
}

/// A key of a Secret.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(default)]
#[schemars(extend("required" = ["key", "name", "namespace"]))]
pub struct SecretRef {
    /// The namespace of the Secret.
    #[schemars(extend("minLength" = 1))]
    pub namespace: String,
    /// The name of the Secret.
    #[schemars(extend("minLength" = 1))]
    pub name: String,
    /// The key of the kubeconfig in the Secret.
    pub key: String,
}

/// The state of a binding.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct BindingStatus {
    /// The name of the provider for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub provider_pretty_name: String,
    /// The state in detail.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The resources that were bound.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("minItems" = 1))]
    pub bound_schemas: Vec<BoundResource>,
    /// The permission claims of the export.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub permission_claims: Vec<PermissionClaim>,
}

/// A resource of an API group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["resource"]))]
pub struct BoundResource {
    /// The API group; empty for the core group.
    #[schemars(extend("pattern" = schema::GROUP_PATTERN))]
    pub group: String,
    /// The resource in the plural.
    #[schemars(extend("pattern" = schema::RESOURCE_PATTERN))]
    pub resource: String,
}

/// Binds all exports that a provider offers.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Bundle {
    /// Standard object's metadata.
    #[schemars(skip)]
    pub metadata: Metadata,
    /// The provider.
    pub spec: BindingSpec,
    /// The state of the bundle.
    pub status: Conditions,
}

/// A status that is nothing but conditions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Conditions {
    /// The state in detail.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Gives a namespace of the consumer its namespace in the provider's cluster.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ServiceNamespace {
    /// Standard object's metadata.
    #[schemars(skip)]
    pub metadata: Metadata,
    /// Always empty.
    pub spec: Empty,
    /// The namespace in the provider's cluster.
    pub status: ServiceNamespaceStatus,
}

/// The namespace in the provider's cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ServiceNamespaceStatus {
    /// The name of the namespace; empty until it is there.
    pub namespace: String,
}

/// An object without fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Empty {}

/// The provider's side of its relation to one consumer.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["spec"]))]
pub struct ClusterBinding {
    /// Standard object's metadata.
    #[schemars(skip)]
    pub metadata: Metadata,
    /// The provider's part.
    pub spec: ClusterBindingSpec,
    /// The consumer's part.
    pub status: ClusterBindingStatus,
}

/// The provider's part of a `ClusterBinding`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["kubeconfigSecretRef", "providerPrettyName"]))]
pub struct ClusterBindingSpec {
    /// The Secret with the kubeconfig that the consumer shall use.
    #[schemars(transform = schema::secret_immutable)]
    pub kubeconfig_secret_ref: LocalSecretRef,
    /// The name of the provider for people.
    #[schemars(extend("minLength" = 1))]
    pub provider_pretty_name: String,
    /// Whatever the provider wants to keep here.
    pub service_provider_spec: Free,
}

/// A key of a Secret of the same namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["key", "name"]))]
pub struct LocalSecretRef {
    /// The name of the Secret.
    #[schemars(extend("minLength" = 1))]
    pub name: String,
    /// The key in the Secret.
    pub key: String,
}

/// The consumer's part of a `ClusterBinding`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterBindingStatus {
    /// The time at which the consumer was last seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last_heartbeat_time: Option<String>,
    /// The longest time between two heartbeats.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub heartbeat_interval: String,
    /// The version of the consumer's side.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub konnector_version: String,
    /// The Secret of the consumer with the kubeconfig.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumer_secret_ref: Option<ConsumerSecretRef>,
    /// The state in detail.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A Secret in the consumer's cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name", "namespace"]))]
pub struct ConsumerSecretRef {
    /// The name of the Secret.
    #[schemars(extend("minLength" = 1))]
    pub name: String,
    /// The namespace of the Secret.
    #[schemars(extend("minLength" = 1))]
    pub namespace: String,
}

impl ConsumerSecretRef {
    /// Returns whether this is the Secret with a kubeconfig, under whatever key.
    pub fn is(&self, of: &SecretRef) -> bool {
        (&self.namespace, &self.name) == (&of.namespace, &of.name)
    }
}
