//! Kinds that are added and removed.

use std::time::Duration;

use kube::api::DeleteParams;
use mortise_core::{contract::ObjectRef, queue::Cause, reconcile::Report, store::Known};
use mortise_host::host::Drive;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    CONFIG_MAP, NAMESPACE, Scene, Stage, TIMEOUT, applies, kind, names, object, outcome,
    play::Play, scripted, selection, text,
};

pub(super) const WIDGET: &str = "example.com/v1/Widget";
const DEFINITION: &str = "apiextensions.k8s.io/v1/CustomResourceDefinition";

pub(super) fn definition() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    })
}

/// Returns a Widget for which a `ConfigMap` of its name is made.
fn widget(name: &str) -> Value {
    let made = object(CONFIG_MAP, name, &json!({"data": {"made": "yes"}}));
    let metadata = json!({"labels": {"play": "yes"}, "annotations": {"script": applies(&[made])}});
    object(WIDGET, name, &json!({"metadata": metadata}))
}

async fn made(stage: &mut Stage, name: &str) {
    stage.until(name, |stage| stage.get(CONFIG_MAP, name).is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn a_reconciler_waits_for_its_crd_and_starts_when_it_is_there() {
    let mut stage = Scene::of_puppet(WIDGET).await.start(Drive::Host);
    let widgets = |stage: &Stage| {
        stage.host.drive().stores().is_settled(&super::kind(WIDGET), &stage.host.watches()[0].scope)
    };
    let mut progress = stage.host.drive().stores().progress();
    while !widgets(&stage) {
        progress.changed().await.unwrap();
    }
    assert!(!stage.api.serves("example.com", "v1", "Widget"));

    stage.apply(&[definition(), widget("first")]).await;
    made(&mut stage, "first").await;

    // The kind is deleted, with its objects, and created again.
    let definitions = stage.client(DEFINITION, "").await;
    definitions.delete("widgets.example.com", &DeleteParams::default()).await.unwrap();
    stage.cluster.forget("example.com");
    assert!(stage.all(WIDGET).is_empty());
    stage.apply(&[definition(), widget("second")]).await;
    made(&mut stage, "second").await;
    // The first object returns with the kind: nothing from before keeps it from being reconciled.
    stage.delete(CONFIG_MAP, "first").await;
    stage.apply(&[widget("first")]).await;
    made(&mut stage, "first").await;
    stage.host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_comes_back_before_the_host_has_noticed_is_served_too() {
    let scene = Scene::of_puppet(WIDGET).await;
    let mut stage = scene.start(Drive::Host);
    for turn in 0..3 {
        let name = format!("turn-{turn}");
        stage.cluster.forget("example.com");
        stage.apply(&[definition(), widget(&name)]).await;
        made(&mut stage, &name).await;
        let definitions = stage.client(DEFINITION, "").await;
        definitions.delete("widgets.example.com", &DeleteParams::default()).await.unwrap();
    }
    stage.host.stop().await.unwrap();
}

/// Waits until the host has listed the objects of a kind.
async fn listed(stage: &Stage) {
    let mut progress = stage.host.drive().stores().progress();
    let of = ObjectRef {
        kind: kind(WIDGET).into(),
        namespace: Some(NAMESPACE.into()),
        name: "nobody".into(),
    };
    while matches!(stage.host.drive().stores().known(&of), Known::Unwatched) {
        timeout(TIMEOUT, progress.changed()).await.unwrap().unwrap();
    }
}

/// Returns the answers to the puppet's reads in a run.
pub(super) fn answers(report: &Report) -> Vec<Value> {
    let reads = report.log.iter().filter(|line| line.message == "read");
    let answer = |(key, value): &(String, String)| {
        (key == "answer").then(|| serde_json::from_str(value).unwrap())
    };
    reads.flat_map(|line| line.fields.iter().filter_map(answer)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_read_of_a_kind_that_is_not_served_says_so_and_is_made_again_when_it_is() {
    let play = Play::new("puppet")
        .reconciles("objects", &selection(CONFIG_MAP, "play=yes"))
        .reads(&selection(WIDGET, ""));
    let stage = Scene::of_play(&play).await.start(Drive::Caller);
    let of = json!({"cluster": "", "kind": selection(WIDGET, "")["kind"], "namespace": NAMESPACE, "name": "first"});
    let reads = json!([{"get": {"ref": of}}, {"list": {"of": selection(WIDGET, "")}}]);
    stage.apply(&[scripted("reader", &json!({"reads": reads}).to_string())]).await;

    let reports = stage.settle().await;
    let unknown = json!({"Err": "UnknownKind"});
    assert_eq!(answers(reports.last().unwrap()), [unknown.clone(), unknown.clone()]);
    assert_eq!(reports.last().unwrap().failure, None, "it is an answer");

    stage.apply(&[definition()]).await;
    listed(&stage).await;
    let woken = stage.ready().await;
    assert_eq!(names(&woken), ["reader".to_owned()].into());
    let is_known =
        |cause: &Cause| matches!(cause, Cause::KindKnown(known) if **known == kind(WIDGET));
    assert!(woken[0].causes.iter().any(is_known), "{:?}", woken[0].causes);
    let mut reports = stage.run(woken).await;
    reports.extend(stage.settle().await);
    assert_eq!(answers(reports.last().unwrap()), [json!({"Ok": null}), json!({"Ok": []})]);

    stage.apply(&[widget("first")]).await;
    let reports = stage.settle().await;
    let [found, listed] = &answers(reports.last().unwrap())[..] else { panic!("{reports:#?}") };
    let found: Value = serde_json::from_str(text(found, "/Ok")).unwrap();
    assert_eq!(text(&found, "/metadata/name"), "first");
    assert_eq!(listed["Ok"].as_array().unwrap().len(), 1);

    // The kind is removed again, and with it the objects that were read.
    let definitions = stage.client(DEFINITION, "").await;
    definitions.delete("widgets.example.com", &DeleteParams::default()).await.unwrap();
    let reports = stage.settle().await;
    assert_eq!(answers(reports.last().unwrap()), [unknown.clone(), unknown]);
}

#[tokio::test(start_paused = true)]
async fn a_write_of_a_kind_that_is_not_served_fails_and_is_made_when_it_is() {
    let play = Play::new("puppet")
        .reconciles("objects", &selection(CONFIG_MAP, "play=yes"))
        .writes(&selection(WIDGET, ""), &["create", "update"]);
    let stage = Scene::of_play(&play).await.start(Drive::Caller);
    let warning = json!({"on": null, "event_type": "Warning", "reason": "NotWritten", "message": "no widgets yet"});
    let script = json!({
        "returns": outcome(&json!({"apply": [super::manifest(&object(WIDGET, "made", &json!({"spec": {}})))]})),
        "refused": outcome(&json!({"events": [warning]})),
    });
    stage.apply(&[scripted("writer", &script.to_string())]).await;
    let ready = stage.ready().await;
    let reports = stage.run(ready).await;
    let failure = reports[0].failure.as_deref().unwrap();
    assert!(failure.contains("Widget example.com/v1 `a/made` failed (404)"), "{failure}");
    let refused: Vec<_> = reports[0].log.iter().filter(|line| line.message == "refused").collect();
    assert_eq!(refused.len(), 1, "it was told at once: {reports:#?}");
    assert_eq!(stage.events("writer"), ["no widgets yet"]);

    // So many failures that the back-off reaches minutes.
    let mut wait = Duration::from_millis(5);
    while wait < Duration::from_mins(5) {
        tokio::time::advance(wait + Duration::from_millis(1)).await;
        let ready = stage.ready().await;
        assert!(stage.run(ready).await[0].failure.is_some());
        wait *= 2;
    }
    stage.apply(&[definition()]).await;
    listed(&stage).await;
    let ready = stage.ready().await;
    assert_eq!(names(&ready), ["writer".to_owned()].into(), "not only when the back-off is over");
    let is_known =
        |cause: &Cause| matches!(cause, Cause::KindKnown(known) if **known == kind(WIDGET));
    assert!(ready[0].causes.iter().any(is_known), "{:?}", ready[0].causes);
    let reports = stage.run(ready).await;
    assert_eq!(reports[0].failure, None, "{reports:#?}");
    assert!(stage.get(WIDGET, "made").is_some());
}

#[tokio::test(start_paused = true)]
async fn the_keys_of_a_kind_that_is_made_again_run_again() {
    let mut stage = Scene::of_puppet(WIDGET).await.start(Drive::Host);
    stage.apply(&[definition(), widget("held")]).await;
    made(&mut stage, "held").await;
    stage.delete(CONFIG_MAP, "held").await;
    made(&mut stage, "held").await;

    let definitions = stage.client(DEFINITION, "").await;
    definitions.delete("widgets.example.com", &DeleteParams::default()).await.unwrap();
    stage.cluster.forget("example.com");
    // The object and its script are gone: the object that it made stays, without an owner.
    let reports = stage.until("told", |stage| stage.host.drive().is_idle()).await;
    assert!(reports.iter().all(|report| report.failure.is_none()), "{reports:#?}");
    stage.delete(CONFIG_MAP, "held").await;
    stage.apply(&[definition(), widget("held")]).await;
    made(&mut stage, "held").await;
    stage.host.stop().await.unwrap();
}
