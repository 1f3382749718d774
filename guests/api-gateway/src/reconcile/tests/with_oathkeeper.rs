use mortise_sdk::testing::check_grants;

use super::*;

fn make_available(stub: &Stub, is_available: bool) {
    let status = if is_available { "True" } else { "False" };
    stub.patch(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "ory-oathkeeper", "namespace": "kyma-system"},
        "status": {"conditions": [{"type": "Available", "status": status}]},
    }));
}

#[test]
fn oathkeeper_has_time_to_start() {
    let stub = local([gateway(&json!({}))]);
    assert_eq!(
        settled(&stub, ALLOWED),
        ["Processing", "", "ReconcileProcessing", "Reconcile processing"]
    );
    let failed = [
        "Error",
        "Oathkeeper did not start successfully",
        "OathkeeperReconcileFailed",
        "Ory Oathkeeper reconciliation failed",
    ];
    stub.advance(Duration::from_secs(119));
    assert_eq!(settled(&stub, ALLOWED)[0], "Processing");
    stub.advance(Duration::from_secs(1));
    assert_eq!(settled(&stub, ALLOWED), failed);
    let asked = stub.asked_clock();
    stub.reconcile::<ApiGateways>(&reference(), ALLOWED);
    assert_eq!(stub.asked_clock(), asked, "an error waits for a change");
    make_available(&stub, true);
    assert_eq!(settled(&stub, ALLOWED), READY);
    make_available(&stub, false);
    assert_eq!(settled(&stub, ALLOWED)[0], "Processing");
    make_available(&stub, true);
    assert_eq!(settled(&stub, ALLOWED), READY);
}

#[test]
fn the_key_that_signs_tokens_is_made_once() {
    let stub = local([gateway(&json!({}))]);
    settled(&stub, ALLOWED);
    let key = || part(&stub, "Secret", "ory-oathkeeper-jwks-secret").unwrap();
    let first = key();
    assert!(first["data"]["jwks.json"].as_str().unwrap().len() > 1000);
    make_available(&stub, true);
    stub.advance(Duration::from_hours(11));
    settled(&stub, ALLOWED);
    stub.patch(&gateway(&json!({"networkPoliciesEnabled": true})));
    settled(&stub, ALLOWED);
    assert_eq!(key(), first);
    // That of the original is kept, too.
    let of_original = object(
        "v1",
        "Secret",
        ("kyma-system", "ory-oathkeeper-jwks-secret"),
        json!({"data": {"jwks.json": "e30="}}),
    );
    let stub = local([gateway(&json!({})), of_original]);
    settled(&stub, ALLOWED);
    let kept = part(&stub, "Secret", "ory-oathkeeper-jwks-secret").unwrap();
    assert_eq!(kept["data"]["jwks.json"], "e30=");
}

#[test]
fn a_lost_key_is_made_again() {
    let stub = local([gateway(&json!({}))]);
    settled(&stub, ALLOWED);
    stub.delete("Secret/kyma-system/ory-oathkeeper-jwks-secret");
    settled(&stub, ALLOWED);
    assert!(part(&stub, "Secret", "ory-oathkeeper-jwks-secret").is_some());
}

#[test]
fn replicas_are_left_to_the_autoscaler_of_a_large_cluster() {
    let large = local([gateway(&json!({}))]).objects([node("5", "10G")]);
    settled(&large, ALLOWED);
    let replicas =
        || part(&large, "Deployment", "ory-oathkeeper").unwrap()["spec"]["replicas"].clone();
    assert_eq!(replicas(), 3);
    assert!(part(&large, "HorizontalPodAutoscaler", "ory-oathkeeper").is_some());
    large.patch(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "ory-oathkeeper", "namespace": "kyma-system"}, "spec": {"replicas": 7},
    }));
    settled(&large, ALLOWED);
    assert_eq!(replicas(), 7);
    large.patch(&node("4", "10G"));
    settled(&large, ALLOWED);
    assert!(part(&large, "HorizontalPodAutoscaler", "ory-oathkeeper").is_none());
}

#[test]
fn rights_are_granted_as_declared() {
    let stub = local([gateway(&json!({}))]);
    let run = stub.reconcile::<ApiGateways>(&reference(), ALLOWED);
    let config: Config = serde_json::from_str(ALLOWED).unwrap();
    check_grants(&crate::describe::describe(&config).unwrap(), [&run.outcome.unwrap().unwrap()]);
}

#[test]
fn oathkeeper_goes_when_nobody_needs_it() {
    let rule = object(
        "oathkeeper.ory.sh/v1alpha1",
        "Rule",
        ("shop", "r"),
        json!({"spec": {"match": {"url": "a", "methods": ["GET"]}}}),
    );
    let stub = local([gateway(&json!({}))]);
    settled(&stub, ALLOWED);
    make_available(&stub, true);
    settled(&stub, ALLOWED);
    stub.apply(&rule);
    assert_eq!(settled(&stub, ""), READY);
    assert!(part(&stub, "Deployment", "ory-oathkeeper").is_some(), "a rule needs it");
    stub.delete("Rule/shop/r");
    assert_eq!(settled(&stub, ""), READY);
    for of in oathkeeper::parts() {
        assert!(stub.object(&of).is_none(), "{of:?}");
    }
}

#[test]
fn objects_of_others_with_oathkeepers_names_stay() {
    let foreign = object(
        "v1",
        "ConfigMap",
        ("kyma-system", "ory-oathkeeper-config"),
        json!({"data": {"a": "b"}}),
    );
    let stub = local([gateway(&json!({})), foreign]);
    assert_eq!(settled(&stub, ""), READY);
    assert!(part(&stub, "ConfigMap", "ory-oathkeeper-config").is_some());
}
