//! Istio's policies for the handler Istio: who may send a request, with which token.

use super::strategy::{self, NO_AUTH};
use crate::{
    api::{JwtAuthentication, JwtAuthorization, JwtConfig, v1beta1::Rule},
    authorization_policy::{INGRESS, OATHKEEPER, Policy, allowed_policies, issuers, with_labels},
    istio, request_authentication,
    workload::Labels,
};

/// Returns whether rules need policies: if one of them does, all get some, because a workload with
/// a policy refuses what no policy allows.
pub(super) fn is_needed(rules: &[Rule]) -> bool {
    rules.iter().any(|rule| strategy::is_jwt(rule) || strategy::has(rule, NO_AUTH))
}

/// Builds the policies of a rule: one for each authorization of its first strategy.
pub(super) fn policies(of: &Rule, namespace: &str, labels: &Labels) -> Vec<Policy> {
    let path = if of.path == "/.*" { "/*" } else { of.path.as_str() };
    let operation = istio::Operation {
        hosts: Vec::new(),
        methods: of.methods.clone(),
        not_paths: Vec::new(),
        paths: vec![path.to_owned()],
    };
    let specs = allowed_policies(&authorizations(of), &[source(of)], &operation, labels);
    with_labels(specs, 0, namespace, labels, &operation)
}

fn authorizations(of: &Rule) -> Vec<Option<JwtAuthorization>> {
    let first = of.access_strategies.first();
    let config = first.and_then(|strategy| strategy::config::<JwtConfig>(strategy).ok());
    config.and_then(|config| config.authorizations).unwrap_or_default()
}

fn source(of: &Rule) -> istio::From {
    let (principals, request_principals) = if strategy::is_jwt(of) {
        (Vec::new(), issuers(&authentications(of)))
    } else if strategy::is_secured(of) {
        (vec![OATHKEEPER], Vec::new())
    } else {
        (vec![INGRESS], Vec::new())
    };
    istio::From { source: istio::Source { principals, request_principals } }
}

/// Builds the spec that names whose tokens the workloads accept.
pub(super) fn tokens(of: &Rule, labels: &Labels) -> istio::RequestAuthenticationSpec {
    request_authentication::build(&authentications(of), labels)
}

fn authentications(of: &Rule) -> Vec<JwtAuthentication> {
    of.access_strategies.iter().flat_map(strategy::authentications).collect()
}
