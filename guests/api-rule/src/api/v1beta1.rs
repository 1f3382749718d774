//! The types of the APIRule in version v1beta1.
//!
//! A spec is serialised as the original does it, with fields in this order: the text is stored in
//! an annotation of the object.

use std::collections::BTreeMap;

use mortise_sdk::{duration, object::Metadata};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use super::{Service, null_is_default, schema};

/// Exposes services of the cluster on a host.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ApiRule {
    /// Standard object's metadata.
    #[schemars(skip)]
    pub metadata: Metadata,
    /// The desired exposure: service, host and access rules.
    pub spec: Option<Spec>,
    /// The state of carrying the spec out.
    pub status: Option<Status>,
}

/// The exposure of a service: host, gateway and access rules.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["gateway", "host", "rules"]))]
pub struct Spec {
    /// The host: a name within the domain of the Kyma Gateway, or a fully qualified domain name.
    #[schemars(transform = schema::v1beta1_host)]
    pub host: Option<String>,
    /// The service behind all rules that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// The Istio Gateway through which the host is reached, as namespace/name or name.namespace.
    #[schemars(regex(pattern = r"^[0-9a-z-_]+(\/[0-9a-z-_]+|(\.[0-9a-z-_]+)*)$"))]
    pub gateway: Option<String>,
    /// The CORS policy: requests that browsers may send from other origins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cors_policy: Option<CorsPolicy>,
    /// The access rules, by path and method.
    #[schemars(transform = schema::v1beta1_rules)]
    pub rules: Option<Vec<Rule>>,
    /// The timeout of a request in seconds, for rules without a timeout of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::timeout)]
    pub timeout: Option<i64>,
}

/// An access rule for one path.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["path", "methods", "accessStrategies"]))]
pub struct Rule {
    /// The path: a regular expression, or `/*` for every path.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(regex(pattern = r"^([0-9a-zA-Z./*()?!\\_-]+)"))]
    pub path: String,
    /// The service behind this path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// The HTTP methods that are let through.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(transform = schema::methods)]
    pub methods: Vec<String>,
    /// The strategies that decide who is let through.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(min = 1))]
    pub access_strategies: Vec<Handler>,
    /// The changes to a request before the service gets it.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub mutators: Vec<Handler>,
    /// The timeout of a request in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::timeout)]
    pub timeout: Option<i64>,
}

/// An access strategy or a mutator.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["handler"]))]
pub struct Handler {
    /// The name of the handler.
    #[serde(rename = "handler", deserialize_with = "null_is_default")]
    pub name: String,
    /// The configuration of the handler; its fields depend on the handler.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::free_form)]
    pub config: Option<Value>,
}

/// The fields in the configuration of the strategy `jwt` that only Oathkeeper knows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct OryJwt {
    /// Whose tokens are accepted.
    pub trusted_issuers: Option<Vec<String>>,
    /// The addresses of the keys that the tokens are checked with.
    pub jwks_urls: Option<Vec<String>>,
    /// The required scopes, all of them.
    pub required_scope: Option<Vec<String>>,
    /// The required audiences, all of them.
    pub target_audience: Option<Vec<String>>,
}

/// A CORS policy: requests that browsers may send from other origins.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct CorsPolicy {
    /// Headers that a request may have.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub allow_headers: Vec<String>,
    /// Methods that a request may have.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub allow_methods: Vec<String>,
    /// The origins, each by `exact`, `prefix` or `regex`. Without any, the whole policy has no
    /// effect.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub allow_origins: Vec<BTreeMap<String, String>>,
    /// Allows credentials in requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_credentials: Option<bool>,
    /// Headers that a page may read.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub expose_headers: Vec<String>,
    /// The time for which a browser may keep the answer, such as `1m30s`.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "canonical_duration")]
    #[schemars(extend("format" = "duration"))]
    pub max_age: Option<String>,
}

/// The state of carrying an APIRule out, by kind of object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    /// The time of the last change of the state.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last_processed_time: Option<String>,
    /// The generation of the object that was carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The state of the APIRule itself.
    #[serde(rename = "APIRuleStatus", skip_serializing_if = "Option::is_none")]
    pub api_rule_status: Option<Part>,
    /// The state of its `VirtualService`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_service_status: Option<Part>,
    /// The state of its `Rule`s of Ory Oathkeeper.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_rule_status: Option<Part>,
    /// The state of its `RequestAuthentications`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_authentication_status: Option<Part>,
    /// The state of its `AuthorizationPolicies`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorization_policy_status: Option<Part>,
}

/// A part of a status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Part {
    /// OK, SKIPPED, ERROR or WARNING.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// The same in words.
    #[serde(
        rename = "desc",
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub description: String,
}

/// Writes a duration as Go does. A text that is no duration stays as it is.
#[expect(clippy::ref_option, reason = "the signature is serde's")]
fn canonical_duration<S: Serializer>(
    duration: &Option<String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let canonical = |text: &String| match duration::parse(text) {
        Ok(nanoseconds) => duration::format(nanoseconds),
        Err(_) => text.clone(),
    };
    duration.as_ref().map(canonical).serialize(serializer)
}

// === impl Spec ===

impl Spec {
    /// Returns the rules.
    pub fn rules(&self) -> &[Rule] {
        self.rules.as_deref().unwrap_or_default()
    }

    /// Returns the service behind a rule: the rule's own, or the one of the spec.
    pub fn service<'a>(&'a self, rule: &'a Rule) -> Option<&'a Service> {
        rule.service.as_ref().or(self.service.as_ref())
    }

    /// Returns the namespace of the service behind a rule, if one is named. That of the spec's
    /// service also counts for a rule's own service without a namespace.
    pub fn service_namespace<'a>(&'a self, rule: &'a Rule) -> Option<&'a str> {
        let of = |service: &'a Option<Service>| service.as_ref()?.namespace.as_deref();
        of(&rule.service).or_else(|| of(&self.service))
    }
}
