//! The types of the RateLimit. The CRD is made from these types.
//!
//! Deserialization is lenient: an object that was stored without validation gets a status that says
//! what is wrong with it.

#[cfg(not(target_family = "wasm"))]
mod crd;
mod schema;

#[cfg(not(target_family = "wasm"))]
pub use crd::definition;

use std::collections::BTreeMap;

use api_gateway_module::api::null_is_default;
use mortise_sdk::{Object, object::Metadata};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits the requests to Pods.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RateLimit {
    /// Standard object's metadata.
    #[schemars(skip)]
    pub metadata: Metadata,
    /// The Pods, and their limits.
    #[serde(deserialize_with = "null_is_default")]
    pub spec: RateLimitSpec,
    /// The state of carrying the spec out.
    #[serde(deserialize_with = "null_is_default")]
    pub status: Option<RateLimitStatus>,
}

impl Object for RateLimit {
    const GROUP: &'static str = "gateway.kyma-project.io";
    const VERSION: &'static str = "v1alpha1";
    const KIND: &'static str = "RateLimit";
}

/// The Pods, and their limits.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["selectorLabels", "local"]))]
pub struct RateLimitSpec {
    /// The labels of the Pods, in the namespace of the RateLimit.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(transform = schema::not_empty)]
    pub selector_labels: BTreeMap<String, String>,
    /// The limits that each Pod has for itself.
    #[serde(deserialize_with = "null_is_default")]
    pub local: Local,
    /// Tells clients of their limits, in headers of the responses.
    #[serde(deserialize_with = "null_is_default")]
    pub enable_response_headers: bool,
    /// Refuses requests beyond the limits. If false, they are only counted.
    pub enforce: bool,
}

impl Default for RateLimitSpec {
    fn default() -> Self {
        Self {
            selector_labels: BTreeMap::new(),
            local: Local::default(),
            enable_response_headers: false,
            enforce: true,
        }
    }
}

/// The limits that each Pod has for itself.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["defaultBucket"]))]
pub struct Local {
    /// The limit of requests to which no other one applies.
    #[serde(deserialize_with = "null_is_default")]
    pub default_bucket: Bucket,
    /// The limits of requests by path or by headers.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(transform = schema::buckets)]
    pub buckets: Vec<MatchedBucket>,
}

/// A limit of requests by path or by headers.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["bucket"]))]
pub struct MatchedBucket {
    /// The path of the requests.
    #[serde(deserialize_with = "null_is_default")]
    pub path: String,
    /// The headers of the requests, with their values.
    #[serde(deserialize_with = "null_is_default")]
    pub headers: BTreeMap<String, String>,
    /// The limit.
    #[serde(deserialize_with = "null_is_default")]
    pub bucket: Bucket,
}

/// A limit: a bucket of tokens, of which each request takes one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["maxTokens", "tokensPerFill", "fillInterval"]))]
pub struct Bucket {
    /// The most tokens in the bucket.
    #[schemars(extend("format" = "int64"))]
    pub max_tokens: i64,
    /// The number of tokens that are added at once.
    #[schemars(extend("format" = "int64"))]
    pub tokens_per_fill: i64,
    /// The time between two fillings, such as `30s`; at least 50ms.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(extend("format" = "duration"))]
    pub fill_interval: String,
}

/// The state of carrying a RateLimit out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RateLimitStatus {
    /// Ready, Warning or Error.
    pub state: String,
    /// The same in words.
    pub description: String,
}
