//! Kinds that come and go.

use kube::api::DeleteParams;
use mortise_host::run::Drive;
use serde_json::{Value, json};

use super::{CONFIG_MAP, Scene, Stage, applies, object};

const WIDGET: &str = "example.com/v1/Widget";
const DEFINITION: &str = "apiextensions.k8s.io/v1/CustomResourceDefinition";

fn definition() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    })
}

/// A Widget for which a `ConfigMap` of its name is made.
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
        stage.host.stores().is_settled(&super::kind(WIDGET), &stage.host.watches()[0].scope)
    };
    let mut progress = stage.host.progress();
    while !widgets(&stage) {
        progress.changed().await.unwrap();
    }
    assert!(!stage.api.serves("example.com", "v1", "Widget"));

    stage.apply(&[definition(), widget("first")]).await;
    made(&mut stage, "first").await;

    // Deleted, and made again. Its objects have gone with it.
    let definitions = stage.client(DEFINITION, "").await;
    definitions.delete("widgets.example.com", &DeleteParams::default()).await.unwrap();
    stage.cluster.forget("example.com");
    assert!(stage.all(WIDGET).is_empty());
    stage.apply(&[definition(), widget("second")]).await;
    made(&mut stage, "second").await;
    // The first came back with the kind: nothing of the time before keeps it from being served.
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
