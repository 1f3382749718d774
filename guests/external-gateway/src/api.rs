//! The types of the ExternalGateway. The CRD is made from these types.
//!
//! Deserialization is lenient: an object that was stored without validation gets a status that says
//! what is wrong with it.

#[cfg(not(target_family = "wasm"))]
mod crd;
mod schema;

#[cfg(not(target_family = "wasm"))]
pub use crd::definition;

use api_gateway_module::api::{ConditionSchema, conditions, null_is_default};
use mortise_sdk::{
    Object,
    object::{Condition, Metadata},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Lets the clients of one region reach the cluster under a foreign domain.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ExternalGateway {
    /// Standard object's metadata.
    #[schemars(skip)]
    pub metadata: Metadata,
    /// The domains, and who is let through.
    #[serde(deserialize_with = "null_is_default")]
    pub spec: ExternalGatewaySpec,
    /// The state of carrying the spec out.
    #[serde(deserialize_with = "null_is_default")]
    pub status: Option<ExternalGatewayStatus>,
}

impl Object for ExternalGateway {
    const GROUP: &'static str = "gateway.kyma-project.io";
    const VERSION: &'static str = "v1alpha1";
    const KIND: &'static str = "ExternalGateway";
}

/// The domains, and who is let through.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["externalDomain", "internalDomain", "region", "regionsConfigMap", "caSecretRef"]))]
pub struct ExternalGatewaySpec {
    /// The foreign domain, which may begin with `*.`; no other ExternalGateway may have it.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(transform = schema::external_domain)]
    pub external_domain: String,
    /// The domain within that of the cluster.
    #[serde(deserialize_with = "null_is_default")]
    pub internal_domain: InternalDomain,
    /// The region whose clients are let through, as it is named in the ConfigMap with regions.
    #[serde(deserialize_with = "null_is_default")]
    pub region: String,
    /// The name of the ConfigMap with regions, in the namespace of the ExternalGateway.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(transform = schema::regions)]
    pub regions_config_map: String,
    /// The Secret with the authorities that sign the clients' certificates.
    #[serde(deserialize_with = "null_is_default")]
    pub ca_secret_ref: SecretReference,
    /// Tells workloads the external gateway's certificate too, in the header
    /// `X-Forwarded-Client-Cert`.
    #[serde(deserialize_with = "null_is_default")]
    pub include_ext_gateway_client_cert: bool,
}

/// The domain within that of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["kymaSubdomain"]))]
pub struct InternalDomain {
    /// The part before the cluster's domain.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(transform = schema::subdomain)]
    pub kyma_subdomain: String,
}

impl Default for InternalDomain {
    fn default() -> Self {
        Self { kyma_subdomain: "external".to_owned() }
    }
}

/// A reference to a Secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct SecretReference {
    /// The name of the Secret.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// The namespace of the Secret; that of the ExternalGateway if absent.
    #[serde(deserialize_with = "null_is_default")]
    pub namespace: String,
}

/// The state of carrying an ExternalGateway out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ExternalGatewayStatus {
    /// Ready, or what keeps the ExternalGateway from being so.
    #[schemars(transform = schema::state)]
    pub state: String,
    /// The same in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The generation that was carried out last, or that has an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The time of the last change of the status.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last_processed_time: Option<String>,
    /// The conditions, one of each type.
    #[schemars(with = "Vec<ConditionSchema>", transform = conditions)]
    pub conditions: Vec<Condition>,
}

impl ExternalGateway {
    /// Returns the namespace of the ExternalGateway.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }
}
