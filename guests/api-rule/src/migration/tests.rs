use access_grant::Access;
use mortise_sdk::{
    Processor, Requeue,
    testing::{Stub, request_for},
};
use serde_json::Value;

use super::*;
use crate::{ApiRules, reconcile::reconcile};

const AT: &str = "2026-05-01T12:00:00Z";

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
    let mut service = json!({
        "apiVersion": "networking.istio.io/v1beta1", "kind": "VirtualService",
        "metadata": {"name": "web-x2w2z", "namespace": "shop", "labels": {
            "apirule.gateway.kyma-project.io/name": "web",
            "apirule.gateway.kyma-project.io/namespace": "shop",
        }},
    });
    service["spec"] = json!({"hosts": ["web.example.com"]});
    let crds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crds/gateway.kyma-project.io");
    let stub = Stub::new().at(AT).crds(crds).objects([
        rule(None, None),
        ory_rule(),
        service.clone(),
        json!({
            "apiVersion": "networking.istio.io/v1beta1", "kind": "Gateway", "metadata": {"name": "gw", "namespace": "edge"},
            "spec": {"servers": [{"hosts": ["*.example.com"]}]},
        }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
        }),
    ]);
    let reference = |object: &Value| request_for(object).ref_;
    let step = |stub: &Stub| {
        let rule = stub.object(&reference(&rule(None, None))).unwrap();
        rule["metadata"]["annotations"][MIGRATION_STEP].as_str().map(str::to_owned)
    };
    let allowed = r#"{"v1beta1": "allowed"}"#;
    let mut steps = Vec::new();
    for round in 0..4 {
        let settled = stub.settle::<ApiRules>(allowed);
        assert!(settled.failures.is_empty(), "{settled:?}");
        // The annotation that is written runs nothing again.
        assert!(settled.runs <= 2, "round {round}: {} runs", settled.runs);
        steps.push(step(&stub));
        let service = stub.object(&reference(&service)).expect("the route is there");
        let is_switched = service["spec"].get("http").is_some();
        assert_eq!(is_switched, round > 0, "round {round}");
        assert_eq!(stub.object(&reference(&ory_rule())).is_none(), round > 1, "round {round}");
        // A change in between does not shorten the time.
        stub.advance(Duration::from_secs(30));
        stub.patch(&json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"selector": {"app": "web", "round": round.to_string()}},
        }));
        assert_eq!(stub.settle::<ApiRules>(allowed).runs, 1, "round {round}");
        assert_eq!(step(&stub), *steps.last().unwrap(), "round {round}");
        stub.advance(Duration::from_secs(31));
    }
    let (authorize, switch) = ("apply-istio-authorization", "vs-switch-to-service");
    assert_eq!(steps, [Some(authorize.to_owned()), Some(switch.to_owned()), None, None]);
}
