//! Reads of a component, answered from the stores: only what was declared is returned.

use std::sync::Arc;

use mortise_core::{
    contract::{Kind, Request},
    grant::Grant,
    reads::{PAGE_BYTES, View},
    store::{Scope, Stores},
};
use mortise_host::wasm::{Called, Error, Input, Limits, Moment, Processor};
use serde_json::{Value, json};

use super::{NOW_MS, processor, request};

/// Returns the configuration of a puppet that reconciles `ConfigMaps`, and reads `spec.a` of the
/// `Things` in namespace `default` with the label `app=x`.
fn play(script: &Value) -> String {
    let maps = selection("", "ConfigMap");
    let mut things = selection("example.com", "Thing");
    things["namespace"] = "default".into();
    things["labels"] = "app=x".into();
    things["fields"] = json!(["spec.a", "metadata.labels"]);
    let reconciler = json!({
        "name": "config-maps", "of": maps, "finalizers": [], "resync": 0, "triggered_by_status": false, "min_interval": 0, "on_demand": false, "whole_status": false,
    });
    let description = json!({
        "name": "puppet", "version": "1.0.0", "reconcilers": [reconciler], "reads": [things], "writes": [], "grants": [], "outbound": [], "config_schema": null,
    });
    json!({"description": description, "script": script}).to_string()
}

fn kind_json(group: &str, kind: &str) -> Value {
    json!({"group": group, "version": "v1", "kind": kind})
}

fn selection(group: &str, kind: &str) -> Value {
    json!({
        "cluster": "", "kind": kind_json(group, kind), "namespace": null, "name": null, "labels": "", "matching": [], "fields": [],
    })
}

fn thing_list() -> Value {
    let mut of = selection("example.com", "Thing");
    of["namespace"] = "default".into();
    of["labels"] = "app=x".into();
    of
}

fn get(namespace: &str, name: &str, fields: &[&str]) -> Value {
    let kind = kind_json("example.com", "Thing");
    let of = json!({"cluster": "", "kind": kind, "namespace": namespace, "name": name});
    json!({"get": {"ref": of, "fields": fields}})
}

fn thing(name: &str, app: &str) -> Value {
    let labels = json!({"app": app});
    let metadata = json!({"name": name, "namespace": "default", "uid": name, "resourceVersion": "5", "labels": labels});
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": metadata, "spec": {"a": name, "b": "not declared"}})
}

/// Fills stores as the host would.
fn stores(grant: &Grant, things: &[Value]) -> Stores {
    let stores = Stores::new();
    for (kind, scope, wanted) in grant.wanted() {
        stores.open(kind, scope, wanted);
        let feed = stores.feed(kind, scope).unwrap();
        feed.begin_list();
        for thing in things.iter().filter(|_| kind.kind == "Thing") {
            feed.list_item(thing);
        }
        feed.end_list();
    }
    stores
}

struct Performed {
    called: Called,
    stores: Stores,
}

async fn perform_with(processor: &Processor, script: &Value, page_bytes: usize) -> Performed {
    let config = play(script);
    let description = processor.describe(&config).await.unwrap();
    let grant = Arc::new(Grant::new(&description).unwrap());
    let things: Vec<Value> = ["a", "b", "c"].map(|name| thing(name, "x")).into();
    let stores = stores(&grant, &things);
    let view = View::new(stores.clone(), grant, page_bytes);
    let request = Request { config, ..request("map") };
    let moment = Moment { now_ms: NOW_MS, seed: 7 };
    Performed { called: processor.call(Input::new(view, &request, moment)).await, stores }
}

async fn perform(script: &Value) -> Performed {
    perform_with(&processor("puppet", Limits::default()).await, script, PAGE_BYTES).await
}

/// Returns the answers that the guest logged, in order.
fn answers(called: &Called) -> Vec<Value> {
    let answer = |line: &mortise_host::wasm::Line| serde_json::from_str(&line.fields[0].1).unwrap();
    called.log.iter().map(answer).collect()
}

/// Parses the objects of a list's answer.
fn objects(answer: &Value) -> Vec<Value> {
    let parse = |text: &Value| serde_json::from_str(text.as_str().unwrap()).unwrap();
    answer["Ok"].as_array().unwrap().iter().map(parse).collect()
}

#[tokio::test]
async fn declared_reads_are_answered_and_recorded() {
    let list = json!({"list": {"of": thing_list(), "limit": 0}});
    let reads = [get("default", "a", &[]), get("default", "none", &[]), list];
    let performed = perform(&json!({"reads": reads})).await;
    let answers = answers(&performed.called);
    let given: Value = serde_json::from_str(answers[0]["Ok"].as_str().unwrap()).unwrap();
    assert_eq!(given["spec"], json!({"a": "a"}));
    assert_eq!(answers[1], json!({"Ok": null}));
    let names: Vec<Value> =
        objects(&answers[2]).iter().map(|object| object["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    performed.called.outcome.unwrap().unwrap();
    assert_eq!(performed.called.outside.view.finish().records().len(), 3);
}

#[tokio::test]
async fn undeclared_reads_are_denied() {
    let mut all_namespaces = thing_list();
    all_namespaces["namespace"] = Value::Null;
    let mut no_labels = thing_list();
    no_labels["labels"] = "".into();
    let list = |of: Value| json!({"list": {"of": of}});
    let secrets = selection("", "Secret");
    let cases = [
        ("field of an object", get("default", "a", &["spec.b"])),
        ("all of an object", get("default", "a", &["spec"])),
        ("object of another namespace", get("kube-system", "a", &[])),
        ("all namespaces", list(all_namespaces)),
        ("without the labels", list(no_labels)),
        ("another kind", list(secrets)),
    ];
    let reads: Vec<&Value> = cases.iter().map(|(_, read)| read).collect();
    let performed = perform(&json!({"reads": reads})).await;
    for ((case, _), answer) in cases.iter().zip(answers(&performed.called)) {
        assert!(answer["Err"]["Denied"].is_string(), "{case}: {answer}");
    }
    performed.called.outcome.unwrap().unwrap();
}

#[tokio::test]
async fn a_list_comes_in_pages_of_one_state() {
    let list = json!({"list": {"of": thing_list(), "limit": 1}});
    let processor = processor("puppet", Limits::default()).await;
    for page_bytes in [PAGE_BYTES, 1] {
        let performed = perform_with(&processor, &json!({"reads": [list]}), page_bytes).await;
        assert_eq!(objects(&answers(&performed.called)[0]).len(), 3);
        assert_eq!(
            performed.called.outside.view.finish().records().len(),
            3,
            "a read for each page"
        );
    }
}

#[tokio::test]
async fn a_kind_that_the_cluster_does_not_know_is_told_apart() {
    let read = get("default", "a", &[]);
    let processor = processor("puppet", Limits::default()).await;
    let script = json!({"reads": [read]});
    let Performed { stores, .. } = perform_with(&processor, &script, PAGE_BYTES).await;
    let kind = Kind::home("example.com", "v1", "Thing");
    stores.set_unknown(&kind, &Scope::default());
    let config = play(&script);
    let grant = Grant::new(&processor.describe(&config).await.unwrap()).unwrap();
    let view = View::new(stores, Arc::new(grant), PAGE_BYTES);
    let request = Request { config, ..request("map") };
    let called =
        processor.call(Input::new(view, &request, Moment { now_ms: NOW_MS, seed: 7 })).await;
    assert_eq!(answers(&called), [json!({"Err": "UnknownKind"})]);
}

#[tokio::test]
async fn reads_are_limited_in_number_and_bytes() {
    let script = json!({"reads": [get("default", "a", &[]), get("default", "b", &[])]});
    let one = processor("puppet", Limits { reads: 1, ..Limits::default() }).await;
    let error = perform_with(&one, &script, PAGE_BYTES).await.called.outcome.unwrap_err();
    assert!(matches!(error, Error::TooManyReads { limit: 1, .. }), "{error}");
    let short = processor("puppet", Limits { read_bytes: 250, ..Limits::default() }).await;
    let Performed { called, .. } = perform_with(&short, &script, PAGE_BYTES).await;
    let error = called.outcome.unwrap_err();
    assert!(matches!(error, Error::TooMuchRead { limit: 250, .. }), "{error}");
    assert_eq!(
        called.outside.view.finish().records().len(),
        2,
        "what a failed call read triggers it too"
    );
}
