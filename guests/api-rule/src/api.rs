//! The types of the APIRule, in versions v2 and v2alpha1; those of v1beta1 are in [`v1beta1`]. The
//! CRD is made from these types.
//!
//! Deserialization is lenient: an object that was stored under an older schema, or without
//! validation, gets a status that says what is wrong with it.

#[cfg(not(target_family = "wasm"))]
mod crd;
mod schema;
pub mod v1beta1;

#[cfg(not(target_family = "wasm"))]
pub use crd::definition;

use std::collections::BTreeMap;

use mortise_sdk::{Object, object::Metadata};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// The finalizer that keeps an APIRule until the objects that were made for it are deleted.
pub(crate) const FINALIZER: &str = "gateway.kyma-project.io/subresources";

/// Exposes services of the cluster on a host.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ApiRule {
    /// Standard object's metadata.
    #[schemars(skip)]
    pub metadata: Metadata,
    /// The desired exposure: services, hosts and access rules.
    #[serde(deserialize_with = "null_is_default")]
    pub spec: ApiRuleSpec,
    /// The state of carrying the spec out.
    #[serde(deserialize_with = "null_is_default")]
    pub status: Option<ApiRuleStatus>,
}

/// Names the stored version. Its schema does not require a spec, so that a status can be written to
/// every object.
impl Object for ApiRule {
    const GROUP: &'static str = "gateway.kyma-project.io";
    const VERSION: &'static str = "v2alpha1";
    const KIND: &'static str = "APIRule";
}

/// The exposure of a service: hosts, gateway and access rules.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["hosts", "rules"]))]
pub struct ApiRuleSpec {
    /// The host: a name within the Gateway's domain, a fully qualified domain name, or a wildcard
    /// domain name.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(transform = schema::hosts)]
    pub hosts: Vec<String>,
    /// The service behind all rules that name none.
    pub service: Option<Service>,
    /// The Istio Gateway through which the host is reached, as namespace/name.
    #[schemars(transform = schema::gateway)]
    pub gateway: Option<String>,
    /// The ExternalGateway through which the host is reached, as namespace/name.
    #[schemars(transform = schema::external_gateway)]
    pub external_gateway: Option<String>,
    /// The CORS policy: requests that browsers may send from other origins.
    pub cors_policy: Option<CorsPolicy>,
    /// The access rules, by path and method.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(min = 1))]
    pub rules: Vec<Rule>,
    /// The timeout of a request in seconds, for rules without a timeout of their own.
    #[schemars(transform = schema::timeout)]
    pub timeout: Option<i64>,
}

/// A service of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name", "port"]))]
pub struct Service {
    /// The name of the service.
    pub name: Option<String>,
    /// The namespace of the service; the APIRule's if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: Option<String>,
    /// The port of the service.
    #[schemars(transform = schema::port)]
    pub port: i64,
    /// Accepted for compatibility, without effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<bool>,
}

/// An access rule for one path.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["path", "methods"]), transform = schema::one_access_strategy)]
pub struct Rule {
    /// The path: `{*}` stands for one segment, `{**}` for any number of them, `/*` for every path.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(transform = schema::path)]
    pub path: String,
    /// The service behind this path.
    pub service: Option<Service>,
    /// The HTTP methods that are let through.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(transform = schema::methods)]
    pub methods: Vec<String>,
    /// Lets everybody through.
    pub no_auth: Option<bool>,
    /// Lets those through who show a token.
    pub jwt: Option<JwtConfig>,
    /// Asks others who is let through.
    pub ext_auth: Option<ExtAuth>,
    /// The timeout of a request in seconds.
    #[schemars(transform = schema::timeout)]
    pub timeout: Option<i64>,
    /// The changes to a request before the service gets it.
    pub request: Option<RequestChange>,
}

/// The tokens that are accepted, and the claims that they must hold.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct JwtConfig {
    /// Whose tokens are accepted.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub authentications: Vec<JwtAuthentication>,
    /// The alternatives for the claims of a token: one must hold.
    #[serde(skip_serializing_if = "is_empty")]
    pub authorizations: Option<Vec<Option<JwtAuthorization>>>,
}

/// Whose tokens are accepted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["issuer", "jwksUri"]))]
pub struct JwtAuthentication {
    /// The issuer of the tokens.
    #[serde(deserialize_with = "null_is_default")]
    pub issuer: String,
    /// The URI of the keys that the tokens are checked with.
    #[serde(deserialize_with = "null_is_default")]
    pub jwks_uri: String,
    /// In which header they come.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub from_headers: Vec<JwtHeader>,
    /// In which query parameter they come.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub from_params: Vec<String>,
}

/// A header that holds a token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
pub struct JwtHeader {
    /// The name of the header.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// The prefix before the token in the value of the header.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub prefix: String,
}

/// The claims that a token must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct JwtAuthorization {
    /// The required scopes, all of them.
    #[serde(skip_serializing_if = "is_empty")]
    pub required_scopes: Option<Vec<String>>,
    /// The required audiences, all of them.
    #[serde(skip_serializing_if = "is_empty")]
    pub audiences: Option<Vec<String>>,
}

/// The external authorizers that decide on a request.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["authorizers"]))]
pub struct ExtAuth {
    /// Names of extension providers in Istio's mesh configuration; all of them must agree.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(min = 1))]
    pub authorizers: Vec<String>,
    /// The tokens that are required in addition.
    pub restrictions: Option<JwtConfig>,
}

/// The changes to a request before the service gets it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RequestChange {
    /// Cookies that are set.
    pub cookies: Option<BTreeMap<String, String>>,
    /// Headers that are set.
    pub headers: Option<BTreeMap<String, String>>,
}

/// A CORS policy: requests that browsers may send from other origins.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct CorsPolicy {
    /// Headers that a request may have.
    #[serde(deserialize_with = "null_is_default")]
    pub allow_headers: Vec<String>,
    /// Methods that a request may have.
    #[serde(deserialize_with = "null_is_default")]
    pub allow_methods: Vec<String>,
    /// The origins, each by `exact`, `prefix` or `regex`. Without any, the whole policy has no
    /// effect.
    #[serde(deserialize_with = "null_is_default")]
    pub allow_origins: Vec<BTreeMap<String, String>>,
    /// Allows credentials in requests.
    pub allow_credentials: Option<bool>,
    /// Headers that a page may read.
    #[serde(deserialize_with = "null_is_default")]
    pub expose_headers: Vec<String>,
    /// The time in seconds for which a browser may keep the answer.
    #[schemars(range(min = 1))]
    pub max_age: Option<i64>,
}

/// The state of carrying an APIRule out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["state"]))]
pub struct ApiRuleStatus {
    /// The time of the last change of the state.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last_processed_time: Option<String>,
    /// Ready, or what keeps it from being so.
    #[schemars(transform = schema::state)]
    pub state: String,
    /// The same in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// Deserializes a field so that null counts as absent.
fn null_is_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Returns whether a list has no elements: in JSON it is left out then.
#[expect(clippy::ref_option, reason = "the signature is serde's")]
fn is_empty<T>(list: &Option<Vec<T>>) -> bool {
    list.as_ref().is_none_or(Vec::is_empty)
}

impl ApiRule {
    /// Returns the namespace of the APIRule.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Returns the service behind a rule: the rule's own, or the one of the spec.
    pub fn service<'a>(&'a self, rule: &'a Rule) -> Option<&'a Service> {
        rule.service.as_ref().or(self.spec.service.as_ref())
    }

    /// Returns the namespace of the service behind a rule. The namespace of the spec's service also
    /// counts for a rule's own service without a namespace.
    pub fn service_namespace<'a>(&'a self, rule: &'a Rule) -> &'a str {
        let of = |service: &'a Option<Service>| {
            service.as_ref().and_then(|service| service.namespace.as_deref())
        };
        let of_rule = of(&rule.service);
        of_rule.or_else(|| of(&self.spec.service)).unwrap_or_else(|| self.namespace())
    }
}

impl ApiRule {
    /// Returns the APIRule as it is after the original has written it back: without the lists of
    /// authorizations, scopes and audiences that are empty.
    #[must_use]
    pub fn without_empty_lists(mut self) -> Self {
        for rule in &mut self.spec.rules {
            let restrictions =
                rule.ext_auth.as_mut().and_then(|ext_auth| ext_auth.restrictions.as_mut());
            for config in rule.jwt.as_mut().into_iter().chain(restrictions) {
                config.drop_empty_lists();
            }
        }
        self
    }
}

impl JwtConfig {
    fn drop_empty_lists(&mut self) {
        self.authorizations = self.authorizations.take().filter(|list| !list.is_empty());
        for authorization in self.authorizations.iter_mut().flatten().flatten() {
            for list in [&mut authorization.required_scopes, &mut authorization.audiences] {
                *list = list.take().filter(|list| !list.is_empty());
            }
        }
    }
}

impl Rule {
    /// Returns the tokens that a rule demands: those of `jwt`, or else the restrictions of
    /// `extAuth`.
    pub fn tokens(&self) -> Option<&JwtConfig> {
        self.jwt.as_ref().or_else(|| self.ext_auth.as_ref()?.restrictions.as_ref())
    }
}

#[cfg(test)]
mod tests;
