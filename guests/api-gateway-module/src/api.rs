//! The types of the APIGateway. The CRD is made from these types.

#[cfg(not(target_family = "wasm"))]
mod crd;
mod schema;

#[cfg(not(target_family = "wasm"))]
pub use crd::{definition, definition_of};
pub use schema::conditions;

use mortise_sdk::{
    Object,
    object::{Condition, Metadata},
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// Describes the API Gateway module of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ApiGateway {
    /// Standard object's metadata.
    #[schemars(skip)]
    pub metadata: Metadata,
    /// The desired parts of the module.
    #[serde(deserialize_with = "null_is_default")]
    pub spec: ApiGatewaySpec,
    /// The state of the module.
    #[serde(deserialize_with = "null_is_default")]
    pub status: Option<ApiGatewayStatus>,
}

impl Object for ApiGateway {
    const GROUP: &'static str = "operator.kyma-project.io";
    const VERSION: &'static str = "v1alpha1";
    const KIND: &'static str = "APIGateway";
}

/// The desired parts of the module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ApiGatewaySpec {
    /// Installs the default Gateway for the domain of the cluster. Without a value there is none.
    pub enable_kyma_gateway: Option<bool>,
    /// Installs the module's network policy. Without a value there is none.
    pub network_policies_enabled: Option<bool>,
}

/// The state of the module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["state"]))]
pub struct ApiGatewayStatus {
    /// Ready, or what keeps the module from being so.
    #[schemars(transform = schema::state)]
    pub state: String,
    /// The same in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The condition `Ready`.
    #[schemars(with = "Vec<ConditionSchema>")]
    pub conditions: Vec<Condition>,
}

/// The schema of a condition, as Kubernetes declares it.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its schema is used")]
pub struct ConditionSchema {
    /// The last time at which the status changed.
    #[schemars(extend("format" = "date-time"))]
    last_transition_time: String,
    /// The message for people.
    #[schemars(length(max = 32768))]
    message: String,
    /// The generation that the condition speaks of.
    #[schemars(range(min = 0))]
    observed_generation: Option<i64>,
    /// The reason, in one word in camel case.
    #[schemars(transform = schema::reason)]
    reason: String,
    /// The status: `True`, `False` or `Unknown`.
    status: mortise_sdk::object::ConditionStatus,
    /// The type of the condition.
    #[schemars(rename = "type", transform = schema::condition_type)]
    condition_type: String,
}

/// Deserializes a field so that null counts as absent.
///
/// # Errors
///
/// Fails if the value does not fit the type.
pub fn null_is_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Returns the APIGateway that counts: the oldest, and of those of one age the last. `all` is in
/// the order of their names. `None` if there is none.
pub fn oldest(all: &[ApiGateway]) -> Option<&ApiGateway> {
    let age = |gateway: &ApiGateway| gateway.metadata.creation_timestamp.clone();
    // `min_by` keeps the first of equals, so it is given the last one first.
    all.iter().rev().min_by(|one, other| age(one).cmp(&age(other)))
}

#[cfg(test)]
mod tests;
