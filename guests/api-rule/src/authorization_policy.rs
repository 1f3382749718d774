//! The `AuthorizationPolicies` of an APIRule, which let requests through to workloads.

use crate::{
    api::{ApiRule, ExtAuth, JwtAuthorization, JwtConfig, Rule},
    hash, istio, path,
    workload::Labels,
};

/// The principal with which Istio's ingress gateway calls workloads.
const INGRESS: &str = "cluster.local/ns/istio-system/sa/istio-ingressgateway-service-account";
/// The claims in which issuers put the scopes of a token.
const SCOPE_CLAIMS: [&str; 3] =
    ["request.auth.claims[scp]", "request.auth.claims[scope]", "request.auth.claims[scopes]"];
const AUDIENCE_CLAIM: &str = "request.auth.claims[aud]";

/// A policy, and the values of the labels by which it is found again.
pub(crate) struct Policy {
    pub(crate) hash: String,
    pub(crate) index: String,
    pub(crate) spec: istio::AuthorizationPolicySpec,
}

/// Returns the key that identifies a policy: its namespace and the two labels that it carries.
///
/// Formerly, a hash started with the namespace itself instead of its hash.
pub(crate) fn key(namespace: &str, hash: &str, index: &str) -> String {
    match hash.strip_prefix(namespace).filter(|rest| rest.starts_with('.')) {
        Some(rest) => format!("{namespace}/{}{rest}/{index}", hash::of_namespace(namespace)),
        None => format!("{namespace}/{hash}/{index}"),
    }
}

/// Builds the policies of the rule at index `at`, for fully qualified hosts and the workloads
/// behind the rule.
pub(crate) fn build(rule: &ApiRule, at: usize, hosts: &[String], labels: &Labels) -> Vec<Policy> {
    let Some(of) = rule.spec.rules.get(at) else { return Vec::new() };
    let operation = istio::Operation {
        hosts: hosts.to_vec(),
        methods: of.methods.clone(),
        not_paths: paths_of_earlier_rules(&rule.spec.rules, of),
        paths: vec![path::operator(&of.path).to_owned()],
    };
    let hash = hash::label(rule.service_namespace(of), labels, &[&operation]);
    let draft = Draft { operation, labels };
    let custom = of.ext_auth.iter().flat_map(|ext_auth| draft.asked(ext_auth));
    let allow = draft.allowed(of.tokens());
    let specs = custom.chain(allow).enumerate();
    specs
        .map(|(index, spec)| Policy { hash: hash.clone(), index: index.to_string(), spec })
        .collect()
}

/// Returns the paths of earlier rules that share a method with this one, so that a broad rule does
/// not allow requests that a strict rule guards. A path that covers every path is left out, because
/// nothing would remain.
fn paths_of_earlier_rules(rules: &[Rule], of: &Rule) -> Vec<String> {
    rules
        .iter()
        .take_while(|earlier| earlier.path != of.path)
        .filter(|earlier| earlier.methods.iter().any(|method| of.methods.contains(method)))
        .filter(|earlier| {
            ![path::EVERY, path::EVERY_OPERATOR, "/"].contains(&earlier.path.as_str())
        })
        .map(|earlier| earlier.path.clone())
        .collect()
}

/// The parts that all policies of one rule share.
struct Draft<'a> {
    operation: istio::Operation,
    labels: &'a Labels,
}

impl Draft<'_> {
    /// Builds a policy for each authorizer, all of which must agree.
    fn asked(&self, ext_auth: &ExtAuth) -> Vec<istio::AuthorizationPolicySpec> {
        let policy = |name: &String| {
            let provider = Some(istio::Provider { name: name.clone() });
            self.policy(Some("CUSTOM"), provider, vec![self.rule(Vec::new(), Vec::new())])
        };
        ext_auth.authorizers.iter().map(policy).collect()
    }

    /// Builds a policy for each authorization, one of which must agree.
    fn allowed(&self, tokens: Option<&JwtConfig>) -> Vec<istio::AuthorizationPolicySpec> {
        let from = source(tokens);
        let authorizations =
            tokens.and_then(|tokens| tokens.authorizations.as_deref()).unwrap_or_default();
        if authorizations.is_empty() {
            return vec![self.policy(None, None, vec![self.rule(from, Vec::new())])];
        }
        let policy = |authorization: &Option<JwtAuthorization>| {
            let conditions = conditions(authorization.as_ref()).into_iter();
            self.policy(None, None, conditions.map(|when| self.rule(from.clone(), when)).collect())
        };
        authorizations.iter().map(policy).collect()
    }

    fn policy(
        &self,
        action: Option<&'static str>,
        provider: Option<istio::Provider>,
        rules: Vec<istio::PolicyRule>,
    ) -> istio::AuthorizationPolicySpec {
        let selector = istio::Selector { match_labels: self.labels.clone() };
        istio::AuthorizationPolicySpec { action, provider, rules, selector }
    }

    fn rule(&self, from: Vec<istio::From>, when: Vec<istio::Condition>) -> istio::PolicyRule {
        istio::PolicyRule { from, to: [istio::To { operation: self.operation.clone() }], when }
    }
}

/// Returns the allowed source: the ingress gateway and, if the rule demands tokens, only requests
/// with a token of one of the issuers.
fn source(tokens: Option<&JwtConfig>) -> Vec<istio::From> {
    let authentications =
        tokens.map(|tokens| tokens.authentications.as_slice()).unwrap_or_default();
    let request_principals = authentications
        .iter()
        .map(|authentication| format!("{}/*", authentication.issuer))
        .collect();
    vec![istio::From { source: istio::Source { principals: [INGRESS], request_principals } }]
}

/// Returns the conditions of each rule of a policy: a rule for each of the three claims that may
/// hold scopes.
fn conditions(authorization: Option<&JwtAuthorization>) -> Vec<Vec<istio::Condition>> {
    let list = |values: Option<&Option<Vec<String>>>| {
        values.and_then(Option::as_deref).unwrap_or_default().to_vec()
    };
    let scopes = list(authorization.map(|authorization| &authorization.required_scopes));
    let audiences = list(authorization.map(|authorization| &authorization.audiences));
    let condition = |key, value: &String| istio::Condition { key, values: [value.clone()] };
    let of_audiences = || audiences.iter().map(|audience| condition(AUDIENCE_CLAIM, audience));
    if scopes.is_empty() {
        return vec![of_audiences().collect()];
    }
    let of_claim =
        |claim| scopes.iter().map(|scope| condition(claim, scope)).chain(of_audiences()).collect();
    SCOPE_CLAIMS.map(of_claim).into()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policies(rules: &Value, at: usize) -> Vec<(String, Value)> {
        let rule = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"service": {"name": "web", "port": 80}, "rules": rules},
        }));
        let labels = [("app".to_owned(), "web".to_owned())].into();
        let policies = build(&rule.unwrap(), at, &["a.com".to_owned()], &labels);
        policies
            .into_iter()
            .map(|policy| (policy.index, serde_json::to_value(policy.spec).unwrap()))
            .collect()
    }

    #[test]
    fn a_broad_rule_leaves_out_what_an_earlier_one_guards() {
        let rule = |path: &str, methods: &[&str]| json!({"path": path, "methods": methods, "noAuth": true});
        let rules = json!([
            rule("/", &["GET"]),
            rule("/*", &["GET"]),
            rule("/{**}", &["GET"]),
            rule("/a", &["GET", "PUT"]),
            rule("/b", &["PUT"]),
            rule("/a", &["GET"]),
            rule("/c/{**}", &["GET"]),
            rule("/c/{**}", &["PUT"]),
        ]);
        let not_paths = |at: usize| {
            policies(&rules, at)[0].1.pointer("/rules/0/to/0/operation/notPaths").cloned()
        };
        assert_eq!(not_paths(0), None);
        assert_eq!(not_paths(5), None, "only up to the first rule of this path");
        assert_eq!(not_paths(6), Some(json!(["/a", "/a"])));
        assert_eq!(
            not_paths(7),
            Some(json!(["/a", "/b"])),
            "not those after the first rule of this path"
        );
    }

    #[test]
    fn authorizers_come_first_and_then_what_is_allowed() {
        let authentications =
            json!([{"issuer": "one", "jwksUri": "/"}, {"issuer": "two", "jwksUri": "/"}]);
        let authorizations = json!([{"requiredScopes": ["s"], "audiences": ["x"]}, {}]);
        let restrictions =
            json!({"authentications": authentications, "authorizations": authorizations});
        let ext_auth = json!({"authorizers": ["p", "q"], "restrictions": restrictions});
        let rules = json!([{"path": "/*", "methods": ["GET"], "extAuth": ext_auth}]);
        let policies = policies(&rules, 0);
        let summary: Vec<Value> = policies
            .iter()
            .map(|(index, spec)| {
                json!([
                    index,
                    spec.get("action"),
                    spec.pointer("/provider/name"),
                    spec["rules"].as_array().unwrap().len()
                ])
            })
            .collect();
        let expected = [
            json!(["0", "CUSTOM", "p", 1]),
            json!(["1", "CUSTOM", "q", 1]),
            json!(["2", null, null, 3]),
            json!(["3", null, null, 1]),
        ];
        assert_eq!(summary, expected);
        assert_eq!(policies[0].1["rules"][0].get("from"), None);
        let allowed = &policies[2].1["rules"];
        assert_eq!(allowed[0]["from"][0]["source"]["requestPrincipals"], json!(["one/*", "two/*"]));
        assert_eq!(
            allowed[1]["when"],
            json!([{"key": "request.auth.claims[scope]", "values": ["s"]}, {"key": "request.auth.claims[aud]", "values": ["x"]}])
        );
        assert_eq!(policies[3].1["rules"][0].get("when"), None);
    }

    #[test]
    fn a_hash_of_former_times_is_the_same_key() {
        let hash = hash::of_namespace("shop");
        assert_eq!(key("shop", "shop.a.b", "0"), key("shop", &format!("{hash}.a.b"), "0"));
        assert_ne!(key("shop", "shop.a.b", "0"), key("shop", "shopx.a.b", "0"));
    }
}
