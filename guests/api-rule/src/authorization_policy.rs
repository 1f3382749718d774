//! The `AuthorizationPolicies` of an APIRule, which let requests through to workloads.

use crate::{
    api::{ApiRule, ExtAuth, JwtAuthentication, JwtAuthorization, JwtConfig, Rule},
    hash, istio, path,
    workload::Labels,
};

/// The principal with which Istio's ingress gateway calls workloads.
pub(crate) const INGRESS: &str =
    "cluster.local/ns/istio-system/sa/istio-ingressgateway-service-account";
/// The principal with which Oathkeeper calls workloads.
pub(crate) const OATHKEEPER: &str = "cluster.local/ns/kyma-system/sa/oathkeeper-maester-account";
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

/// The callers that policies expect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Callers {
    /// The ingress gateway.
    Ingress,
    /// The ingress gateway or Oathkeeper, which sends another host on: traffic is on its way from
    /// the one to the other.
    IngressOrOathkeeper,
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
pub(crate) fn build(
    rule: &ApiRule,
    at: usize,
    hosts: &[String],
    labels: &Labels,
    callers: Callers,
) -> Vec<Policy> {
    let Some(of) = rule.spec.rules.get(at) else { return Vec::new() };
    let asked = istio::Operation {
        hosts: hosts.to_vec(),
        methods: of.methods.clone(),
        not_paths: paths_of_earlier_rules(&rule.spec.rules, of),
        paths: vec![path::operator(&of.path).to_owned()],
    };
    let mut allowed = asked.clone();
    if callers == Callers::IngressOrOathkeeper {
        allowed.hosts.clear();
    }
    let namespace = rule.service_namespace(of);
    let custom = of.ext_auth.iter().flat_map(|ext_auth| asked_policies(ext_auth, &asked, labels));
    let sources = sources(of.tokens(), of.ext_auth.is_some(), callers);
    let authorizations = of.tokens().and_then(|tokens| tokens.authorizations.as_deref());
    let authorizations = authorizations.unwrap_or_default();
    let mut policies = with_labels(custom.collect(), 0, namespace, labels, &asked);
    let allow = allowed_policies(authorizations, &sources, &allowed, labels);
    policies.extend(with_labels(allow, policies.len(), namespace, labels, &allowed));
    policies
}

/// Adds the values of the labels to specs for the same operation. The first one has this index.
pub(crate) fn with_labels(
    specs: Vec<istio::AuthorizationPolicySpec>,
    first: usize,
    namespace: &str,
    labels: &Labels,
    operation: &istio::Operation,
) -> Vec<Policy> {
    if specs.is_empty() {
        return Vec::new();
    }
    let hash = hash::label(namespace, labels, &[operation]);
    let specs = specs.into_iter().enumerate();
    specs
        .map(|(at, spec)| Policy { hash: hash.clone(), index: (first + at).to_string(), spec })
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

/// Builds a policy for each authorizer, all of which must agree.
fn asked_policies(
    ext_auth: &ExtAuth,
    operation: &istio::Operation,
    labels: &Labels,
) -> Vec<istio::AuthorizationPolicySpec> {
    let policy = |name: &String| istio::AuthorizationPolicySpec {
        action: Some("CUSTOM"),
        provider: Some(istio::Provider { name: name.clone() }),
        rules: vec![policy_rule(&[], operation, Vec::new())],
        selector: istio::Selector { match_labels: labels.clone() },
    };
    ext_auth.authorizers.iter().map(policy).collect()
}

/// Builds a policy for each authorization, one of which must agree. Without any, the sources alone
/// decide.
pub(crate) fn allowed_policies(
    authorizations: &[Option<JwtAuthorization>],
    from: &[istio::From],
    operation: &istio::Operation,
    labels: &Labels,
) -> Vec<istio::AuthorizationPolicySpec> {
    let policy = |rules| istio::AuthorizationPolicySpec {
        action: None,
        provider: None,
        rules,
        selector: istio::Selector { match_labels: labels.clone() },
    };
    if authorizations.is_empty() {
        return vec![policy(vec![policy_rule(from, operation, Vec::new())])];
    }
    let rules = |authorization: &Option<JwtAuthorization>| {
        let conditions = conditions(authorization.as_ref()).into_iter();
        conditions.map(|when| policy_rule(from, operation, when)).collect()
    };
    authorizations.iter().map(rules).map(policy).collect()
}

fn policy_rule(
    from: &[istio::From],
    operation: &istio::Operation,
    when: Vec<istio::Condition>,
) -> istio::PolicyRule {
    istio::PolicyRule {
        from: from.to_vec(),
        to: [istio::To { operation: operation.clone() }],
        when,
    }
}

/// Returns the allowed sources: the expected callers and, if the rule demands tokens, only requests
/// with a token of one of the issuers.
///
/// While traffic moves from Oathkeeper to the ingress gateway, the tokens decide alone, as they do
/// in v1beta1.
fn sources(tokens: Option<&JwtConfig>, is_asked: bool, callers: Callers) -> Vec<istio::From> {
    let request_principals =
        issuers(tokens.map(|tokens| tokens.authentications.as_slice()).unwrap_or_default());
    let from = |principals: &[&'static str], request_principals: &[String]| istio::From {
        source: istio::Source {
            principals: principals.to_vec(),
            request_principals: request_principals.to_vec(),
        },
    };
    match (callers, tokens) {
        (Callers::Ingress, _) => vec![from(&[INGRESS], &request_principals)],
        (Callers::IngressOrOathkeeper, None) => {
            vec![from(&[OATHKEEPER], &[]), from(&[INGRESS], &[])]
        }
        (Callers::IngressOrOathkeeper, Some(_)) if is_asked => {
            vec![from(&[], &request_principals), from(&[INGRESS], &request_principals)]
        }
        (Callers::IngressOrOathkeeper, Some(_)) => vec![from(&[], &request_principals)],
    }
}

/// Returns the principals of requests with a token of one of the issuers.
pub(crate) fn issuers(authentications: &[JwtAuthentication]) -> Vec<String> {
    authentications.iter().map(|authentication| format!("{}/*", authentication.issuer)).collect()
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
        let policies = policies_for(rules, at, Callers::Ingress).into_iter();
        policies.map(|policy| (policy.index, serde_json::to_value(policy.spec).unwrap())).collect()
    }

    fn policies_for(rules: &Value, at: usize, callers: Callers) -> Vec<Policy> {
        let rule = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"service": {"name": "web", "port": 80}, "rules": rules},
        }));
        let labels = [("app".to_owned(), "web".to_owned())].into();
        build(&rule.unwrap(), at, &["a.com".to_owned()], &labels, callers)
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
    fn while_traffic_moves_both_callers_are_let_through() {
        let jwt = json!({"authentications": [{"issuer": "i", "jwksUri": "/"}]});
        let asked = json!({"authorizers": ["p"]});
        let restricted = json!({"authorizers": ["p"], "restrictions": jwt});
        let (ingress, oathkeeper) =
            (json!({"principals": [INGRESS]}), json!({"principals": [OATHKEEPER]}));
        let token = json!({"requestPrincipals": ["i/*"]});
        let both = json!({"principals": [INGRESS], "requestPrincipals": ["i/*"]});
        let open = vec![oathkeeper, ingress];
        let cases = [
            (json!({"noAuth": true}), open.clone()),
            (json!({"extAuth": asked}), open),
            (json!({"jwt": jwt}), vec![token.clone()]),
            (json!({"extAuth": restricted}), vec![token, both]),
        ];
        for (strategy, expected) in cases {
            let mut rule = strategy.clone();
            rule["path"] = "/a".into();
            rule["methods"] = json!(["GET"]);
            let policies = policies_for(&json!([rule]), 0, Callers::IngressOrOathkeeper);
            let (allow, custom) = policies.split_last().unwrap();
            let allowed = serde_json::to_value(&allow.spec).unwrap();
            let from: Vec<Value> = allowed["rules"][0]["from"]
                .as_array()
                .unwrap()
                .iter()
                .map(|from| from["source"].clone())
                .collect();
            assert_eq!(from, expected, "{strategy}");
            assert_eq!(allowed.pointer("/rules/0/to/0/operation/hosts"), None, "{strategy}");
            assert_eq!(allow.index, custom.len().to_string(), "{strategy}");
            for policy in custom {
                let spec = serde_json::to_value(&policy.spec).unwrap();
                assert_eq!(spec["rules"][0]["to"][0]["operation"]["hosts"], json!(["a.com"]));
                assert_ne!(policy.hash, allow.hash, "{strategy}");
            }
        }
    }

    #[test]
    fn a_hash_of_former_times_is_the_same_key() {
        let hash = hash::of_namespace("shop");
        assert_eq!(key("shop", "shop.a.b", "0"), key("shop", &format!("{hash}.a.b"), "0"));
        assert_ne!(key("shop", "shop.a.b", "0"), key("shop", "shopx.a.b", "0"));
    }
}
