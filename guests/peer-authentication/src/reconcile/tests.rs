use mortise_sdk::{
    Action, ObjectRef, Processor as _,
    testing::{Stub, request_for},
};
use serde_json::json;

use super::*;
use crate::PeerAuthentications;

const INSTALLED: &str = r#"{"config":{},"IstioTag":"1.30.2-distroless"}"#;

fn istio(last_applied: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1alpha2", "kind": "Istio",
        "metadata": {
            "name": "default", "namespace": "kyma-system", "uid": "uid-1",
            "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {ANNOTATION: last_applied},
        },
        "spec": spec,
    })
}

fn cluster(istio: &Value) -> Stub {
    let description = PeerAuthentications::describe(&Config::default()).unwrap();
    Stub::new().declared(description).objects([istio.clone()])
}

fn run(istio: &Value, cluster: &Stub) -> Result<Outcome, Failure> {
    reconcile(&request_for(istio), &Config::default(), &cluster.host())
}

/// Returns the reason and the message of the condition.
fn said(status: Option<&String>) -> (String, String) {
    let object: Value = serde_json::from_str(status.unwrap()).unwrap();
    let [condition] = object["status"]["conditions"].as_array().unwrap().as_slice() else {
        panic!("{object}")
    };
    assert_eq!(condition["type"], RESOURCES);
    let text = |field: &str| condition[field].as_str().unwrap().to_owned();
    (text("reason"), text("message"))
}

fn names(outcome: &Outcome) -> Vec<String> {
    let name = |text: &String| -> String {
        let object: Value = serde_json::from_str(text).unwrap();
        object["metadata"]["name"].as_str().unwrap().to_owned()
    };
    outcome.apply.iter().map(|manifest| name(&manifest.object)).collect()
}

#[test]
fn nothing_is_done_before_istio_is_installed_or_for_a_refused_spec() {
    let duplicates = json!({"config": {"authorizers": [{"name": "a"}, {"name": "a"}]}});
    let mut none = istio("", &json!({}));
    none["metadata"]["annotations"] = json!({});
    let cases = [
        ("no annotation", none),
        ("no tag", istio("{}", &json!({}))),
        ("duplicate authorizers", istio(INSTALLED, &duplicates)),
        ("experimental", istio(INSTALLED, &json!({"experimental": {}}))),
    ];
    for (case, istio) in cases {
        assert_eq!(run(&istio, &cluster(&istio)), Ok(Outcome::new()), "{case}");
    }
}

#[test]
fn a_second_run_asks_for_no_time_and_says_the_same() {
    let mut istio = istio(INSTALLED, &json!({"networkPoliciesEnabled": true}));
    let first = run(&istio, &cluster(&istio)).unwrap();
    assert_eq!(first.apply.len(), 9, "{:?}", names(&first));
    let status: Value = serde_json::from_str(first.status.as_ref().unwrap()).unwrap();
    istio["status"] = status["status"].clone();
    let applied = first.apply.iter().map(|one| serde_json::from_str(&one.object).unwrap());
    let cluster = cluster(&istio).at("2030-01-01T00:00:00Z").objects(applied.collect::<Vec<_>>());
    assert_eq!((run(&istio, &cluster).unwrap(), cluster.asked_clock()), (first, 0));
}

#[test]
fn conditions_of_others_are_not_sent() {
    let mut istio = istio(INSTALLED, &json!({}));
    istio["status"] = json!({"state": "Ready", "conditions": [{
        "type": "Ready", "status": "True", "reason": "ReconcileSucceeded", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]});
    let outcome = run(&istio, &cluster(&istio)).unwrap();
    let status: Value = serde_json::from_str(outcome.status.as_ref().unwrap()).unwrap();
    assert_eq!(status["status"].as_object().unwrap().len(), 1, "{status}");
    assert_eq!(said(outcome.status.as_ref()).0, "CustomResourcesReconcileSucceeded");
}

#[test]
fn a_broken_annotation_is_named_and_nothing_is_touched() {
    let istio = istio("{", &json!({}));
    let failure = run(&istio, &cluster(&istio)).unwrap_err();
    let message = format!(
        "Could not reconcile Istio resources: annotation {ANNOTATION}: unexpected end of JSON input"
    );
    let expected = ("CustomResourcesReconcileFailed".to_owned(), message.clone());
    assert_eq!((said(failure.status.as_ref()), failure.message), (expected, message));
}

#[test]
fn a_kind_that_is_missing_is_named_but_for_autoscalers() {
    let istio = istio(INSTALLED, &json!({}));
    let missing = |group: &str, kind: &str| run(&istio, &cluster(&istio).without_kind(group, kind));
    let outcome = missing("autoscaling.k8s.io", "VerticalPodAutoscaler").unwrap();
    assert_eq!(names(&outcome), ["default"]);
    for (group, kind, title) in [
        ("security.istio.io", "PeerAuthentication", "PeerAuthentication/default"),
        ("networking.istio.io", "EnvoyFilter", "EnvoyFilter/proxy-protocol"),
    ] {
        let failure = missing(group, kind).unwrap_err();
        let start = format!("Could not reconcile Istio resource {title}: ");
        assert!(said(failure.status.as_ref()).1.starts_with(&start), "{failure:?}");
    }
}

#[test]
fn a_read_without_an_answer_is_tried_again_and_leaves_the_status() {
    let istio = istio(INSTALLED, &json!({"networkPoliciesEnabled": true}));
    for kind in ["Node", "Service", "ConfigMap", "NetworkPolicy", "PeerAuthentication"] {
        let failure = run(&istio, &cluster(&istio).unavailable(kind)).unwrap_err();
        assert_eq!((failure.status, failure.retry), (None, mortise_sdk::Retry::BackOff), "{kind}");
    }
}

#[test]
fn without_the_namespace_and_the_rights_in_it_the_rest_is_deleted() {
    let mut istio = istio(INSTALLED, &json!({"networkPoliciesEnabled": true}));
    let applied = run(&istio, &cluster(&istio)).unwrap().apply.into_iter();
    let applied: Vec<Value> =
        applied.map(|one| serde_json::from_str(&one.object).unwrap()).collect();
    istio["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    istio["metadata"]["finalizers"] = json!([FINALIZER]);
    let mut rights = PeerAuthentications::describe(&Config::default()).unwrap();
    rights.reads.retain(|read| read.namespace.as_deref() != Some(ISTIO_NAMESPACE));
    let here = |object: &Value| object["metadata"]["namespace"] != ISTIO_NAMESPACE;
    let left: Vec<Value> = applied.into_iter().filter(here).collect();
    let cluster = Stub::new().declared(rights).objects([istio.clone()]).objects(left.clone());
    let outcome = run(&istio, &cluster).unwrap();
    assert_eq!((outcome.delete.len(), outcome.finalizers), (left.len(), Some(vec![])));
    assert!(!left.is_empty());
}

#[test]
fn failed_writes_are_named_once_for_each_sort() {
    let failure = |kind: &str, name: &str, message: &str| WriteFailure {
        action: Action::Apply,
        ref_: ObjectRef::new(mortise_sdk::Kind::new("", "v1", kind), Some("istio-system"), name),
        code: 403,
        reason: "Forbidden".to_owned(),
        message: message.to_owned(),
        conflicting_managers: Vec::new(),
    };
    let failed_writes = vec![
        failure("NetworkPolicy", "kyma-project.io--istio-pilot", "no"),
        failure("NetworkPolicy", "kyma-project.io--istio-pilot-jwks", "no"),
        failure("VerticalPodAutoscaler", "istiod-vpa", "never"),
    ];
    let istio = istio(INSTALLED, &json!({}));
    let request = Request { failed_writes, ..request_for(&istio) };
    let outcome = reconcile(&request, &Config::default(), &cluster(&istio).host()).unwrap();
    let expected = "Could not reconcile Istio resource NetworkPolicies: no; Could not reconcile Istio resource VerticalPodAutoscaler/control-plane: never";
    assert_eq!(said(outcome.status.as_ref()).1, expected);
    assert_eq!((outcome.apply.len(), outcome.finalizers), (0, None));
}

#[test]
fn more_foreign_fields_than_can_be_removed_are_an_error() {
    let istio = istio(INSTALLED, &json!({"networkPoliciesEnabled": true}));
    let labels: serde_json::Map<String, Value> =
        (0..200).map(|index| (format!("l{index}"), "x".into())).collect();
    let policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "kyma-project.io--istio-pilot-jwks", "namespace": "istio-system"},
        "spec": {"podSelector": {"matchLabels": labels}},
    });
    let failure = run(&istio, &cluster(&istio).objects([policy])).unwrap_err();
    let expected = "Could not reconcile Istio resource NetworkPolicies: `kyma-project.io--istio-pilot-jwks` has too many foreign fields to remove them one by one: delete it";
    assert_eq!(failure.message, expected);
}

#[test]
fn features_that_are_no_json_switch_nothing_on_and_are_logged() {
    let istio = istio(INSTALLED, &json!({}));
    let features = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"features": "{enableControlPlaneVPA"},
        "metadata": {"name": "istio-features", "namespace": "kyma-system"},
    });
    let cluster = cluster(&istio).objects([features]);
    assert_eq!(names(&run(&istio, &cluster).unwrap()), ["default", "istio-operator-vpa"]);
    assert_eq!(cluster.lines().len(), 1);
}
