//! The `RequestAuthentications` of an APIRule, which name the token issuers that workloads accept.

use std::fmt::Write;

use crate::{
    api::JwtAuthentication,
    istio::{JwtRule, RequestAuthenticationSpec, Selector},
    workload::Labels,
};

/// Builds the spec for the workloads with these labels.
pub(crate) fn build(
    authentications: &[JwtAuthentication],
    labels: &Labels,
) -> RequestAuthenticationSpec {
    let jwt_rules = authentications.iter().map(|authentication| JwtRule {
        forward_original_token: true,
        from_headers: authentication.from_headers.clone(),
        from_params: authentication.from_params.clone(),
        issuer: authentication.issuer.clone(),
        jwks_uri: authentication.jwks_uri.clone(),
    });
    RequestAuthenticationSpec {
        jwt_rules: jwt_rules.collect(),
        selector: Selector { match_labels: labels.clone() },
    }
}

/// Returns the key that identifies a `RequestAuthentication`: its namespace, workloads, issuers and
/// the addresses of their keys.
pub(crate) fn key(namespace: &str, spec: &RequestAuthenticationSpec) -> String {
    let mut key = format!("{namespace}/");
    for (label, value) in &spec.selector.match_labels {
        let _infallible = write!(key, "{label}={value},");
    }
    for rule in &spec.jwt_rules {
        let _infallible = write!(key, "{}:{}", rule.issuer, rule.jwks_uri);
    }
    key
}
