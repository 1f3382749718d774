//! Objects that are deleted, that wait, and that are left alone.

use std::time::Duration;

use kube::api::DeleteParams;
use mortise_host::host::Drive;
use serde_json::{Value, json};

use super::{
    CONFIG_MAP, POLICY, RULE, Scene, VIRTUAL_SERVICE, applies, names, object, scripted, with_rules,
};

#[tokio::test(start_paused = true)]
async fn deleting_a_rule_deletes_its_objects_and_no_others() {
    let stage = with_rules(&["goes", "stays"]).await;
    let held = stage.get(RULE, "goes").unwrap();
    assert_eq!(held["metadata"]["finalizers"], json!(["gateway.kyma-project.io/subresources"]));
    stage.delete(RULE, "goes").await;
    assert!(stage.get(RULE, "goes").is_some(), "it is held until its objects are gone");
    let reports = stage.settle().await;
    assert!(reports.iter().all(|report| report.failure.is_none()), "{reports:#?}");
    assert!(stage.get(RULE, "goes").is_none());
    for kind in [VIRTUAL_SERVICE, POLICY] {
        stage.only(kind, "stays-");
        assert_eq!(stage.all(kind).len(), 1, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_paused_object_is_left_alone_until_it_is_not_paused_any_more() {
    let stage = with_rules(&["orders"]).await;
    let pause = |value: Value| json!({"metadata": {"annotations": {"mortise.dev/paused": value}}});
    stage.edit(RULE, "orders", pause(json!("true"))).await;
    stage.settle().await;
    let made = super::text(&stage.only(VIRTUAL_SERVICE, "orders-"), "/metadata/name").to_owned();
    stage.delete(VIRTUAL_SERVICE, &made).await;
    stage.edit(RULE, "orders", json!({"spec": {"timeout": 7}})).await;
    let reports = stage.settle().await;
    assert!(reports.iter().all(|report| report.changes.is_empty()), "{reports:#?}");
    assert!(reports.iter().any(|report| report.notes.iter().any(|note| note.contains("paused"))));
    assert!(stage.get(VIRTUAL_SERVICE, &made).is_none());

    stage.edit(RULE, "orders", pause(Value::Null)).await;
    let ready = stage.ready().await;
    assert_eq!(names(&ready), ["orders".to_owned()].into());
    stage.run(ready).await;
    let again = stage.get(VIRTUAL_SERVICE, &made).unwrap();
    assert_eq!(again["spec"]["http"][0]["timeout"], "7s");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_terminating_is_waited_for() {
    let scene = Scene::of_puppet(CONFIG_MAP).await;
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ending"}});
    scene.load(&namespace);
    let there = |name: &str, finalizers: Value| {
        object(
            CONFIG_MAP,
            name,
            &json!({"metadata": {"namespace": "ending", "finalizers": finalizers}}),
        )
    };
    scene.load(&there("last", json!(["example.com/slow"])));
    let stage = scene.start(Drive::Caller);
    let namespaces = stage.client("v1/Namespace", "").await;
    namespaces.delete("ending", &DeleteParams::default()).await.unwrap();
    assert!(stage.all("v1/Namespace").contains_key("ending"), "one object holds it");

    let wanted = object(CONFIG_MAP, "wanted", &json!({"metadata": {"namespace": "ending"}}));
    stage.apply(&[scripted("play", &applies(&[wanted]))]).await;
    for _ in 0..3 {
        let ready = stage.ready().await;
        assert_eq!(names(&ready), ["play".to_owned()].into());
        assert_eq!(ready[0].attempt, 0, "to wait is no failure");
        let reports = stage.run(ready).await;
        assert_eq!(reports[0].failure, None);
        assert!(reports[0].changes.is_empty());
        assert!(reports[0].notes.iter().any(|note| note.contains("ending")), "{reports:#?}");
        assert_eq!(stage.ready().await.len(), 0, "not at once");
        tokio::time::advance(reports[0].again.unwrap() + Duration::from_millis(1)).await;
    }

    let ending = stage.client(CONFIG_MAP, "ending").await;
    let release = json!({"metadata": {"finalizers": null}});
    ending
        .patch("last", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(release))
        .await
        .unwrap();
    assert!(!stage.all("v1/Namespace").contains_key("ending"));
    stage.apply(&[namespace]).await;
    stage.settle().await;
    assert!(stage.get(CONFIG_MAP, "wanted").is_some());
}
