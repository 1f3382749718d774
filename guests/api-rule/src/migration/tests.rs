use std::collections::{BTreeMap, BTreeSet};

use access_grant::Access;
use mortise_sdk::{
    Processor, Requeue,
    testing::{Stub, request_for},
};
use serde_json::Value;

use super::*;
use crate::{
    ApiRules,
    authorization_policy::{INGRESS, OATHKEEPER},
    reconcile::reconcile,
};

const AT: &str = "2026-05-01T12:00:00Z";
/// The configuration with which APIRules are migrated.
const ALLOWED: &str = r#"{"v1beta1": "allowed"}"#;

/// The `AuthorizationPolicies` and `RequestAuthentications` of a cluster, by kind and name.
#[derive(Default)]
struct Guards(BTreeMap<(String, String), Value>);

fn rule(step: Option<&str>, written: Option<&str>) -> Value {
    let mut rule = json!({
        "apiVersion": "gateway.kyma-project.io/v2alpha1", "kind": "APIRule",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "hosts": ["web.example.com"], "gateway": "edge/gw", "service": {"name": "web", "port": 80},
            "rules": [{"path": "/a", "methods": ["GET"], "noAuth": true}],
        },
    });
    if let Some(step) = step {
        rule["metadata"]["annotations"] = json!({MIGRATION_STEP: step});
    }
    if let Some(written) = written {
        rule["status"] = json!({
            "state": "Ready", "description": "Reconciled successfully", "lastProcessedTime": written,
        });
    }
    rule
}

fn config(access: Access) -> Config {
    Config { v1beta1: Some(access), ..Config::default() }
}

fn cluster() -> Stub {
    let description = ApiRules::describe(&config(Access::Allowed)).unwrap();
    Stub::new().declared(description).at(AT).objects([
        json!({
            "apiVersion": "networking.istio.io/v1", "kind": "Gateway", "metadata": {"name": "gw", "namespace": "edge"},
            "spec": {"servers": [{"hosts": ["*.example.com"]}]},
        }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"selector": {"app": "web"}},
        }),
    ])
}

fn ory_rule() -> Value {
    json!({
        "apiVersion": "oathkeeper.ory.sh/v1alpha1", "kind": "Rule",
        "metadata": {"name": "web-r1", "namespace": "shop", "labels": {
            "apirule.gateway.kyma-project.io/v1beta1": "web.shop",
        }},
    })
}

/// Returns the route that leads to Oathkeeper.
fn route() -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1beta1", "kind": "VirtualService",
        "metadata": {"name": "web-x2w2z", "namespace": "shop", "labels": {
            "apirule.gateway.kyma-project.io/name": "web",
            "apirule.gateway.kyma-project.io/namespace": "shop",
        }},
        "spec": {"hosts": ["web.example.com"]},
    })
}

/// Returns a cluster with an APIRule that is to be migrated.
fn migrating(rule: Value) -> Stub {
    let crds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crds/gateway.kyma-project.io");
    Stub::new().at(AT).crds(crds).objects([
        rule,
        ory_rule(),
        route(),
        json!({
            "apiVersion": "networking.istio.io/v1beta1", "kind": "Gateway", "metadata": {"name": "gw", "namespace": "edge"},
            "spec": {"servers": [{"hosts": ["*.example.com"]}]},
        }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
        }),
    ])
}

// === impl Guards ===

impl Guards {
    /// Takes in a change of the cluster. Returns whether it is one of a guard.
    fn see(&mut self, action: &str, object: &Value) -> bool {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let key = (text(&object["kind"]), text(&object["metadata"]["name"]));
        if !["AuthorizationPolicy", "RequestAuthentication"].contains(&key.0.as_str()) {
            return false;
        }
        if action == "delete" {
            self.0.remove(&key);
        } else {
            self.0.insert(key, object.clone());
        }
        true
    }

    fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(move |((of, _), _)| of == kind).map(|(_, object)| object)
    }

    /// Returns the sources that policies accept for a path.
    fn sources(&self, path: &str) -> Vec<Value> {
        let policies = self.of("AuthorizationPolicy");
        let policies = policies.filter(|policy| path_of(policy) == path);
        let from = policies.flat_map(|policy| {
            policy["spec"]["rules"][0]["from"].as_array().cloned().unwrap_or_default()
        });
        from.map(|from| from["source"].clone()).collect()
    }

    /// Returns the paths with a policy, and the number of `RequestAuthentications`.
    fn present(&self) -> (BTreeSet<&str>, usize) {
        let paths = self.of("AuthorizationPolicy").map(path_of).collect();
        (paths, self.of("RequestAuthentication").count())
    }
}

fn path_of(policy: &Value) -> &str {
    policy["spec"]["rules"][0]["to"][0]["operation"]["paths"][0].as_str().unwrap()
}

/// Returns the written annotation (`None`: none is written; empty: it is taken away), whether the
/// route is written, whether the rule of Ory is deleted, and when the APIRule is run again.
fn round_of(rule: &Value, access: Access, cluster: &Stub) -> (Option<String>, bool, bool, Requeue) {
    let outcome = reconcile(&request_for(rule), &config(access), &cluster.host()).unwrap();
    let annotation = outcome.patch.first().map(|manifest| {
        let object: Value = serde_json::from_str(&manifest.object).unwrap();
        let value = object.pointer("/metadata/annotations/gateway.kyma-project.io~1migration-step");
        assert_eq!(value.is_none(), manifest.absent.len() == 1);
        value.and_then(Value::as_str).unwrap_or_default().to_owned()
    });
    let writes_route =
        outcome.apply.iter().any(|manifest| manifest.object.contains("\"VirtualService\""));
    let deletes = outcome.delete.iter().any(|deletion| deletion.ref_.kind.kind == "Rule");
    (annotation, writes_route, deletes, outcome.requeue)
}

#[test]
fn a_step_follows_the_other_after_a_minute() {
    let (authorize, switch) = ("apply-istio-authorization", "vs-switch-to-service");
    let (long_ago, just_now) = ("2026-05-01T11:59:00Z", "2026-05-01T11:59:30Z");
    let minute = Requeue::After(60_000);
    let half = Requeue::After(30_000);
    let said = |step: &str| Some(step.to_owned());
    let cases = [
        ("first", rule(None, Some(just_now)), (said(authorize), false, false, minute)),
        (
            "unknown step",
            rule(Some("other"), Some(just_now)),
            (said(authorize), false, false, minute),
        ),
        ("first, held", rule(Some(authorize), Some(just_now)), (None, false, false, half)),
        ("second", rule(Some(authorize), Some(long_ago)), (said(switch), true, false, minute)),
        ("second, held", rule(Some(switch), Some(just_now)), (None, true, false, half)),
        ("third", rule(Some(switch), Some(long_ago)), (said(""), true, true, Requeue::ByDefault)),
        ("no time", rule(Some(switch), None), (said(""), true, true, Requeue::ByDefault)),
    ];
    for (case, rule, expected) in cases {
        let cluster = cluster().objects([ory_rule()]);
        assert_eq!(round_of(&rule, Access::Allowed, &cluster), expected, "{case}");
    }
}

#[test]
fn only_rules_of_ory_and_access_start_a_migration() {
    let done = (None, true, false, Requeue::ByDefault);
    assert_eq!(round_of(&rule(None, None), Access::Allowed, &cluster()), done);
    // An annotation that is left over is taken away.
    let left = rule(Some("vs-switch-to-service"), None);
    let taken = (Some(String::new()), true, false, Requeue::ByDefault);
    assert_eq!(round_of(&left, Access::Allowed, &cluster()), taken);
    let at_once = (None, true, true, Requeue::ByDefault);
    let cluster = cluster().objects([ory_rule()]);
    assert_eq!(round_of(&rule(None, None), Access::Denied, &cluster), at_once);
    assert_eq!(round_of(&left, Access::Denied, &cluster), at_once);
}

#[test]
fn the_steps_are_done_one_after_the_other_and_no_route_is_ever_missing() {
    let stub = migrating(rule(None, None));
    let reference = |object: &Value| request_for(object).ref_;
    let step = |stub: &Stub| {
        let rule = stub.object(&reference(&rule(None, None))).unwrap();
        rule["metadata"]["annotations"][MIGRATION_STEP].as_str().map(str::to_owned)
    };
    let mut steps = Vec::new();
    for round in 0..4 {
        let settled = stub.settle::<ApiRules>(ALLOWED);
        assert!(settled.failures.is_empty(), "{settled:?}");
        // The annotation that is written runs nothing again.
        assert!(settled.runs <= 2, "round {round}: {} runs", settled.runs);
        steps.push(step(&stub));
        let route = stub.object(&reference(&route())).expect("the route is there");
        let is_switched = route["spec"].get("http").is_some();
        assert_eq!(is_switched, round > 0, "round {round}");
        assert_eq!(stub.object(&reference(&ory_rule())).is_none(), round > 1, "round {round}");
        // A change in between does not shorten the time.
        stub.advance(Duration::from_secs(30));
        stub.patch(&json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"selector": {"app": "web", "round": round.to_string()}},
        }));
        assert_eq!(stub.settle::<ApiRules>(ALLOWED).runs, 1, "round {round}");
        assert_eq!(step(&stub), *steps.last().unwrap(), "round {round}");
        stub.advance(Duration::from_secs(31));
    }
    let (authorize, switch) = ("apply-istio-authorization", "vs-switch-to-service");
    assert_eq!(steps, [Some(authorize.to_owned()), Some(switch.to_owned()), None, None]);
}

#[test]
fn from_the_first_step_on_no_policy_and_no_authentication_is_ever_missing() {
    let issuer = "https://id.example.com";
    let jwt = json!({"authentications": [{"issuer": issuer, "jwksUri": format!("{issuer}/keys")}]});
    let mut rule = rule(None, None);
    let rules = rule["spec"]["rules"].as_array_mut().unwrap();
    rules.push(json!({"path": "/b", "methods": ["GET"], "jwt": jwt}));
    let of = request_for(&rule).ref_;
    let (stub, mut guards) = (migrating(rule), Guards::default());
    let all = || (BTreeSet::from(["/a", "/b"]), 1);
    let by = |principal: &str| json!({"principals": [principal]});
    let tokens = json!([format!("{issuer}/*")]);
    let both = (
        vec![by(OATHKEEPER), by(INGRESS)],
        // Oathkeeper sends tokens on, which decide alone.
        vec![json!({"requestPrincipals": tokens})],
    );
    let ingress =
        (vec![by(INGRESS)], vec![json!({"principals": [INGRESS], "requestPrincipals": tokens})]);
    for (round, expected) in [&both, &both, &ingress, &ingress].into_iter().enumerate() {
        let run = stub.reconcile::<ApiRules>(&of, ALLOWED);
        assert_eq!(run.failure, None, "round {round}");
        for change in &run.changes {
            // In the first step they are made, one after the other.
            if guards.see(change.action, &change.object) && round > 0 {
                assert_eq!(guards.present(), all(), "round {round}: {change:#?}");
            }
        }
        assert_eq!(guards.present(), all(), "round {round}");
        assert_eq!((guards.sources("/a"), guards.sources("/b")), *expected, "round {round}");
        stub.advance(Duration::from_secs(61));
    }
}
