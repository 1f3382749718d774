//! The parts of Istio's kinds that are read and written. Fields are in alphabetical order, as the
//! API server returns them.

use std::collections::BTreeMap;

use mortise_sdk::{Kind, object::Metadata};
use serde::{Deserialize, Serialize};

use crate::api::JwtHeader;

pub(crate) fn virtual_service() -> Kind {
    Kind::new("networking.istio.io", "v1beta1", "VirtualService")
}

pub(crate) fn gateway() -> Kind {
    Kind::new("networking.istio.io", "v1beta1", "Gateway")
}

pub(crate) fn authorization_policy() -> Kind {
    Kind::new("security.istio.io", "v1beta1", "AuthorizationPolicy")
}

pub(crate) fn request_authentication() -> Kind {
    Kind::new("security.istio.io", "v1beta1", "RequestAuthentication")
}

/// A `Gateway`, reduced to the hosts of its servers.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Gateway {
    pub(crate) metadata: Metadata,
    pub(crate) spec: GatewaySpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct GatewaySpec {
    pub(crate) servers: Vec<Server>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Server {
    pub(crate) hosts: Vec<String>,
}

/// The spec of a `VirtualService`.
#[derive(Debug, Serialize)]
pub(crate) struct VirtualServiceSpec {
    pub(crate) gateways: Vec<String>,
    pub(crate) hosts: Vec<String>,
    pub(crate) http: Vec<HttpRoute>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HttpRoute {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cors_policy: Option<CorsPolicy>,
    pub(crate) headers: Headers,
    #[serde(rename = "match")]
    pub(crate) matches: [HttpMatch; 1],
    pub(crate) route: [Route; 1],
    pub(crate) timeout: String,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CorsPolicy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) allow_credentials: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) allow_headers: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) allow_methods: Vec<String>,
    pub(crate) allow_origins: Vec<StringMatch>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) expose_headers: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_age: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Headers {
    pub(crate) request: RequestHeaders,
    pub(crate) response: ResponseHeaders,
}

#[derive(Debug, Serialize)]
pub(crate) struct RequestHeaders {
    pub(crate) set: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ResponseHeaders {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(crate) remove: &'static [&'static str],
}

#[derive(Debug, Serialize)]
pub(crate) struct HttpMatch {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) method: Option<StringMatch>,
    pub(crate) uri: StringMatch,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum StringMatch {
    Exact(String),
    Prefix(String),
    Regex(String),
}

impl StringMatch {
    /// Returns the match of exactly these methods.
    pub(crate) fn methods(methods: &[String]) -> Self {
        Self::Regex(format!("^({})$", methods.join("|")))
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Route {
    pub(crate) destination: Destination,
    pub(crate) weight: u32,
}

#[derive(Debug, Serialize)]
pub(crate) struct Destination {
    pub(crate) host: String,
    pub(crate) port: Port,
}

#[derive(Debug, Serialize)]
pub(crate) struct Port {
    pub(crate) number: i64,
}

/// The spec of an `AuthorizationPolicy`.
#[derive(Debug, Serialize)]
pub(crate) struct AuthorizationPolicySpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) action: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) provider: Option<Provider>,
    pub(crate) rules: Vec<PolicyRule>,
    #[serde(skip_serializing_if = "Selector::is_empty")]
    pub(crate) selector: Selector,
}

#[derive(Debug, Serialize)]
pub(crate) struct Provider {
    pub(crate) name: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct PolicyRule {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) from: Vec<From>,
    pub(crate) to: [To; 1],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) when: Vec<Condition>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct From {
    pub(crate) source: Source,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Source {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) principals: Vec<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) request_principals: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct To {
    pub(crate) operation: Operation,
}

/// The requests that a rule of a policy covers.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Operation {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) hosts: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) methods: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) not_paths: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) paths: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Condition {
    pub(crate) key: &'static str,
    pub(crate) values: [String; 1],
}

/// A selector of workloads by their labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Selector {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) match_labels: BTreeMap<String, String>,
}

impl Selector {
    /// Returns whether it selects all workloads of its namespace.
    fn is_empty(&self) -> bool {
        self.match_labels.is_empty()
    }
}

/// The spec of a `RequestAuthentication`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct RequestAuthenticationSpec {
    pub(crate) jwt_rules: Vec<JwtRule>,
    #[serde(skip_serializing_if = "Selector::is_empty")]
    pub(crate) selector: Selector,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct JwtRule {
    pub(crate) forward_original_token: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) from_headers: Vec<JwtHeader>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) from_params: Vec<String>,
    pub(crate) issuer: String,
    pub(crate) jwks_uri: String,
}
