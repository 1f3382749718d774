use mortise_sdk::{
    Action, ObjectRef, WriteFailure,
    testing::{Stub, request_for},
};
use serde_json::{Value, json};

use super::*;

fn namespace(name: &str, team: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": team}}})
}

fn secret(namespace: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": {"token": "c2VjcmV0"},
        "metadata": {"name": "registry", "namespace": namespace, "labels": labels},
    })
}

fn copy() -> Value {
    json!({
        "apiVersion": "copy.mortise.dev/v1", "kind": "SecretCopy",
        "metadata": {"name": "pull", "namespace": "platform", "generation": 1},
        "spec": {"secret": "registry", "namespaces": "team"},
    })
}

/// A cluster with a Secret, its namespace, two namespaces that are selected and one that is not.
fn cluster() -> Stub {
    Stub::new().declared(SecretCopies::describe(&NoConfig {}).unwrap()).objects([
        namespace("platform", "platform"),
        namespace("orders", "orders"),
        namespace("shop", "shop"),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}),
        secret("platform", &json!({"app": "registry"})),
    ])
}

fn run(object: &Value, cluster: &Stub) -> Outcome {
    SecretCopies::reconcile(&request_for(object), &NoConfig {}, &cluster.host()).unwrap()
}

fn applied(outcome: &Outcome) -> Vec<Value> {
    outcome.apply.iter().map(|manifest| serde_json::from_str(&manifest.object).unwrap()).collect()
}

/// Returns the number of copies, and the condition's type, status, reason and message.
fn said(outcome: &Outcome) -> (u64, String) {
    let object: Value = serde_json::from_str(outcome.status.as_ref().unwrap()).unwrap();
    let condition = &object["status"]["conditions"][0];
    let text = |field: &str| condition[field].as_str().unwrap().to_owned();
    let condition = [text("type"), text("status"), text("reason"), text("message")].join(" ");
    (object["status"]["copies"].as_u64().unwrap(), condition)
}

#[test]
fn the_secret_is_copied_into_the_selected_namespaces_but_its_own() {
    let outcome = run(&copy(), &cluster());
    let mark = derived_name("pull", &["platform"]);
    let expected: Vec<Value> =
        ["orders", "shop"].map(|to| secret(to, &json!({COPY_OF: mark}))).into();
    assert_eq!(applied(&outcome), expected);
    assert_eq!(said(&outcome), (2, "Ready True Copied ".to_owned()));
    assert_eq!(outcome.finalizers.as_deref(), Some(&[FINALIZER.to_owned()][..]));
    let [prune] = outcome.prune.as_slice() else { panic!("{:?}", outcome.prune) };
    assert_eq!(prune.labels, format!("{COPY_OF}={mark}"), "what is wanted no longer goes");
}

#[test]
fn a_second_run_asks_for_no_time_and_says_the_same() {
    let first = run(&copy(), &cluster());
    let status: Value = serde_json::from_str(first.status.as_ref().unwrap()).unwrap();
    let mut copy = copy();
    copy["status"] = status["status"].clone();
    let cluster = cluster().at("2030-01-01T00:00:00Z").objects(applied(&first));
    assert_eq!((run(&copy, &cluster), cluster.asked_clock()), (first, 0));
}

#[test]
fn a_secret_that_is_not_a_copy_is_left_alone() {
    let cluster =
        cluster().objects([secret("shop", &json!({})), secret("orders", &json!({COPY_OF: "x"}))]);
    let outcome = run(&copy(), &cluster);
    assert_eq!(applied(&outcome), [Value::Null; 0]);
    let wrong =
        "the Secret registry in orders is not a copy; the Secret registry in shop is not a copy";
    assert_eq!(said(&outcome), (0, format!("Ready False Incomplete {wrong}")));
}

#[test]
fn a_secret_that_is_gone_takes_its_copies_along() {
    let mut copy = copy();
    copy["spec"]["secret"] = "none".into();
    let outcome = run(&copy, &cluster());
    assert_eq!((outcome.apply.len(), outcome.prune.len()), (0, 1));
    let wrong = "there is no Secret none to copy";
    assert_eq!(said(&outcome), (0, format!("Ready False Incomplete {wrong}")));
}

#[test]
fn a_deleted_copy_prunes_everything_and_lets_go() {
    let mut copy = copy();
    copy["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let outcome = run(&copy, &cluster());
    assert_eq!((outcome.apply.len(), outcome.prune.len()), (0, 1));
    assert_eq!((outcome.finalizers, outcome.status), (Some(vec![]), None));
}

#[test]
fn what_is_refused_is_said() {
    let refused = WriteFailure {
        action: Action::Apply,
        ref_: ObjectRef::of::<Secret>(Some("shop"), "registry"),
        code: 403,
        reason: "Forbidden".to_owned(),
        message: "secrets is forbidden".to_owned(),
        conflicting_managers: Vec::new(),
    };
    let request = Request { failed_writes: vec![refused], ..request_for(&copy()) };
    let outcome = SecretCopies::reconcile(&request, &NoConfig {}, &cluster().host()).unwrap();
    assert_eq!(said(&outcome).1, "Ready False Incomplete secrets is forbidden");
}

#[test]
fn an_object_that_is_gone_needs_nothing() {
    let request = Request { object: None, ..request_for(&copy()) };
    let outcome = SecretCopies::reconcile(&request, &NoConfig {}, &cluster().host()).unwrap();
    assert_eq!(outcome, Outcome::new());
}

mortise_sdk::testing::cases!(SecretCopies, "cases");
