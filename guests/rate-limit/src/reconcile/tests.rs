use mortise_sdk::testing::Stub;
use serde_json::{Value, json};

use super::*;
use crate::RateLimits;

fn limit() -> Value {
    json!({
        "apiVersion": "gateway.kyma-project.io/v1alpha1", "kind": "RateLimit",
        "metadata": {"name": "rl", "namespace": "shop"},
        "spec": {
            "selectorLabels": {"app": "web"},
            "local": {"defaultBucket": {"maxTokens": 1, "tokensPerFill": 1, "fillInterval": "30s"}},
        },
    })
}

fn module(name: &str, age: &str, state: &str) -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "APIGateway",
        "metadata": {"name": name, "creationTimestamp": age}, "status": {"state": state},
    })
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "p", "namespace": "shop", "labels": {"app": "web"},
            "annotations": {"sidecar.istio.io/status": "{}"},
        },
        "spec": {"containers": [{"name": "app", "image": "x"}]},
    })
}

fn reference() -> ObjectRef {
    ObjectRef::of::<RateLimit>(Some("shop"), "rl")
}

fn settled(stub: &Stub) -> (String, String) {
    stub.settle::<RateLimits>("");
    let limit = stub.object(&reference()).unwrap();
    let text = |key: &str| limit["status"][key].as_str().unwrap_or_default().to_owned();
    (text("state"), text("description"))
}

#[test]
fn the_module_must_be_ready() {
    let (old, new) = ("2024-01-01T00:00:00Z", "2024-05-01T00:00:00Z");
    let missing =
        "failed to reconcile RateLimit CR because of missing APIGateway CR in the cluster";
    let state =
        |state| format!("failed to create RateLimit CR because APIGateway CR is in {state} state");
    let cases = [
        (vec![], "Warning", missing.to_owned()),
        (vec![module("a", old, "Ready")], "Ready", "Finished reconciliation".to_owned()),
        (vec![module("a", old, "Error"), module("b", new, "Ready")], "Warning", state("Error")),
        (
            vec![module("a", new, "Error"), module("b", old, "Ready")],
            "Ready",
            "Finished reconciliation".to_owned(),
        ),
    ];
    for (modules, expected, description) in cases {
        let stub = Stub::new().objects(modules).objects([limit(), pod()]);
        assert_eq!(settled(&stub), (expected.to_owned(), description));
    }
    let stub = Stub::new().objects([limit(), pod()]);
    let stub = stub.without_kind("operator.kyma-project.io", "APIGateway");
    assert_eq!(settled(&stub), ("Warning".to_owned(), missing.to_owned()));
}

#[test]
fn the_kind_of_filters_must_be_there() {
    let stub = Stub::new().objects([limit(), pod(), module("a", "2024-01-01T00:00:00Z", "Ready")]);
    let stub = stub.without_kind("networking.istio.io", "EnvoyFilter");
    let expected = "dependency missing 'envoyfilters.networking.istio.io': \
        customresourcedefinitions.apiextensions.k8s.io \"envoyfilters.networking.istio.io\" not found";
    assert_eq!(settled(&stub), ("Error".to_owned(), expected.to_owned()));
}

#[test]
fn a_read_that_is_not_possible_now_leaves_the_status() {
    let stub = Stub::new().objects([limit(), pod(), module("a", "2024-01-01T00:00:00Z", "Ready")]);
    let stub = stub.unavailable("Pod");
    let run = stub.reconcile::<RateLimits>(&reference(), "");
    let failure = run.outcome.unwrap().unwrap_err();
    assert_eq!((failure.status, failure.retry), (None, mortise_sdk::Retry::BackOff));
}

#[test]
fn a_settled_limit_asks_no_clock_and_writes_nothing() {
    let stub = Stub::new().objects([limit(), pod(), module("a", "2024-01-01T00:00:00Z", "Ready")]);
    settled(&stub);
    let run = stub.reconcile::<RateLimits>(&reference(), "");
    assert!(run.changes.is_empty(), "{:?}", run.changes);
    assert_eq!(stub.asked_clock(), 0);
}
