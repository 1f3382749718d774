//! Every part of the contract is passed unchanged between guest and host, in both directions.

use mortise_core::{
    contract::{
        Deletion, Event, EventType, Failure, Kind, Manifest, Methods, Mode, ObjectRef, Outcome,
        Propagation, Reconciler, Request, Requeue, Retry, Selection, Start, Verbs,
    },
    reads::View,
};
use mortise_host::wasm::{Called, Input, Limits, Moment, Processor};
use serde_json::{Value, json};

use super::{NOW_MS, processor, request};

async fn puppet() -> Processor {
    processor("puppet", Limits::default()).await
}

fn play(script: &Value) -> String {
    let outbound = json!({
        "origin": "https://api.example.com", "methods": ["get", "post"], "credentials": [credential_json()], "pause": 3,
    });
    let description = json!({
        "name": "puppet", "version": "1.2.3", "reads": [], "grants": [], "outbound": [outbound], "config_schema": "{}",
        "reconcilers": [{
            "name": "maps", "of": selection_json(), "finalizers": ["example.com/f"], "resync": 1, "triggered_by_status": true,
            "min_interval": 2, "on_demand": true, "whole_status": true,
        }],
        "writes": [{"of": selection_json(), "verbs": ["create", "evict"], "fields": ["data.a"]}],
    });
    json!({"description": description, "script": script}).to_string()
}

fn credential_json() -> Value {
    let mut of = selection_json();
    of["cluster"] = "".into();
    of
}

async fn perform(script: &Value) -> Called {
    let request = Request { config: play(script), ..request("map") };
    let moment = Moment { now_ms: NOW_MS, seed: 7 };
    puppet().await.call(Input::new(View::default(), &request, moment)).await
}

fn kind_json() -> Value {
    json!({"group": "", "version": "v1", "kind": "Pod"})
}

fn ref_json() -> Value {
    json!({"cluster": "", "kind": kind_json(), "namespace": "a", "name": "b"})
}

fn selection_json() -> Value {
    json!({
        "cluster": "", "kind": kind_json(), "namespace": null, "name": "n", "labels": "x=y", "matching": [["spec.nodeName", "one"]],
        "fields": ["spec"],
    })
}

fn kind() -> Kind {
    Kind::home("", "v1", "Pod")
}

fn object_ref() -> ObjectRef {
    ObjectRef { kind: kind().into(), namespace: Some("a".into()), name: "b".into() }
}

fn selection() -> Selection {
    Selection {
        kind: kind().into(),
        namespace: None,
        name: Some("n".into()),
        labels: "x=y".into(),
        matching: vec![("spec.nodeName".into(), "one".into())],
        fields: ["spec".into()].into(),
    }
}

#[tokio::test]
async fn every_word_of_a_description_arrives() {
    let description = puppet().await.describe(&play(&json!({}))).await.unwrap();
    assert_eq!((description.name.as_str(), description.version.as_str()), ("puppet", "1.2.3"));
    assert_eq!(description.config_schema.as_deref(), Some("{}"));
    let reconciler = Reconciler {
        name: "maps".into(),
        of: selection(),
        finalizers: vec!["example.com/f".into()],
        resync: 1,
        triggered_by_status: true,
        min_interval: 2,
        on_demand: true,
        whole_status: true,
    };
    assert_eq!(description.reconcilers, [reconciler]);
    let [rule] = &description.writes[..] else { panic!("{:?}", description.writes) };
    assert_eq!((&rule.of, rule.verbs), (&selection(), Verbs::CREATE | Verbs::EVICT));
    assert_eq!(rule.fields, ["data.a"]);
    let [rule] = &description.outbound[..] else { panic!("{:?}", description.outbound) };
    assert_eq!((rule.origin.as_str(), rule.pause), ("https://api.example.com", 3));
    assert_eq!(rule.methods, Methods::GET | Methods::POST);
    let kind = Kind { cluster: "".into(), ..Kind::clone(&selection().kind) };
    assert_eq!(rule.credentials, [Selection { kind: kind.into(), ..selection() }]);
}

#[tokio::test]
async fn every_word_of_an_outcome_arrives() {
    let manifest =
        json!({"cluster": "c", "object": "{}", "mode": "Create", "leave": ["l"], "absent": ["m"]});
    let deletion =
        json!({"ref_": ref_json(), "uid": "u", "propagation": "Orphan", "grace_period": 3});
    let event = json!({"on": ref_json(), "event_type": "Warning", "reason": "r", "message": "m"});
    let start = json!({"reconciler": "k", "of": selection_json()});
    let outcome = json!({
        "apply": [manifest], "patch": [manifest], "evict": [deletion], "delete": [deletion], "prune": [selection_json()],
        "status": "s", "events": [event], "requeue": {"After": 5}, "finalizers": ["example.com/f"], "start": [start], "note": "n",
    });
    let called = perform(&json!({"returns": {"outcome": outcome}})).await;
    let manifest = Manifest {
        cluster: "c".into(),
        object: "{}".into(),
        mode: Mode::Create,
        leave: vec!["l".into()],
        absent: vec!["m".into()],
    };
    let deletion = Deletion {
        ref_: object_ref(),
        uid: Some("u".into()),
        propagation: Propagation::Orphan,
        grace_period: Some(3),
    };
    let expected = Outcome {
        apply: vec![manifest.clone()],
        patch: vec![manifest],
        evict: vec![deletion.clone()],
        delete: vec![deletion],
        prune: vec![selection()],
        status: Some("s".into()),
        events: vec![event_on(Some(object_ref()))],
        requeue: Requeue::After(5),
        finalizers: Some(vec!["example.com/f".into()]),
        start: vec![Start { reconciler: "k".into(), of: selection() }],
        note: Some("n".into()),
    };
    assert_eq!(called.outcome.unwrap().unwrap(), expected);
}

fn event_on(on: Option<ObjectRef>) -> Event {
    Event { on, event_type: EventType::Warning, reason: "r".into(), message: "m".into() }
}

#[tokio::test]
async fn every_word_of_a_failure_arrives() {
    let event = json!({"on": null, "event_type": "Warning", "reason": "r", "message": "m"});
    let failure = json!({"message": "no", "status": "s", "events": [event], "retry": {"After": 7}, "note": null});
    let called = perform(&json!({"returns": {"failure": failure}})).await;
    let expected = Failure {
        message: "no".into(),
        status: Some("s".into()),
        events: vec![event_on(None)],
        retry: Retry::After(7),
        note: None,
    };
    assert_eq!(called.outcome.unwrap().unwrap_err(), expected);
}

#[tokio::test]
async fn the_name_of_a_cluster_arrives() {
    let mut of = ref_json();
    of["cluster"] = "ns/name/key".into();
    let mut selection = selection_json();
    selection["cluster"] = "*".into();
    let called =
        perform(&json!({"reads": [{"get": {"ref": of}}, {"list": {"of": selection}}]})).await;
    let answers: Vec<&str> = called.log.iter().map(|line| line.fields[0].1.as_str()).collect();
    let expected = [("Denied", "a read of Secret v1 `ns/name`"), ("Invalid", "cluster `*`")];
    for (answer, (error, part)) in answers.iter().zip(expected) {
        assert!(answer.contains(error) && answer.contains(part), "{answer}");
    }
    assert_eq!(answers.len(), 2);
    called.outcome.unwrap().unwrap();
}
