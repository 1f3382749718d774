//! A host that starts with the objects that another host has left.

use mortise_core::write::Action;
use mortise_host::host::Drive;
use serde_json::json;

use super::{POLICY, Scene, Stage, VIRTUAL_SERVICE, actions, names, pod, rule, service, text};

/// Starts a host with five rules, and settles.
async fn settled() -> Stage {
    let scene = Scene::of_rules().await;
    scene.load(&service("shop"));
    scene.load(&pod("shop-1", "shop"));
    for number in 0..5 {
        scene.load(&rule(&format!("r{number}"), "shop"));
    }
    let stage = scene.start(Drive::Caller);
    stage.settle().await;
    assert!((0..5).all(|number| stage.is_ready(&format!("r{number}"))));
    stage.api.reset_requests();
    stage
}

#[tokio::test(start_paused = true)]
async fn where_nothing_changed_a_new_host_writes_nothing() {
    let stage = settled().await;
    let (before, revision) = (stage.state(), stage.api.revision());
    let stage = stage.restart().await;
    let ready = stage.ready().await;
    assert_eq!(ready.len(), 5, "each runs once more");
    let reports = stage.run(ready).await;
    assert!(
        reports.iter().all(|report| report.failure.is_none() && report.changes.is_empty()),
        "{reports:#?}"
    );
    assert!(reports.iter().all(|report| report.unchanged > 0), "it was skipped, not forgotten");
    assert_eq!(stage.settle().await.len(), 0);
    assert_eq!((stage.writes(), stage.api.revision()), (0, revision));
    assert_eq!(stage.state(), before);
}

#[tokio::test(start_paused = true)]
async fn what_somebody_changed_meanwhile_is_all_that_a_new_host_repairs() {
    let stage = settled().await;
    let before = stage.state();
    let made = stage.only(VIRTUAL_SERVICE, "r3-");
    let name = text(&made, "/metadata/name");
    stage.edit(VIRTUAL_SERVICE, name, json!({"spec": {"hosts": ["other.example.com"]}})).await;
    stage.api.reset_requests();
    let stage = stage.restart().await;
    let reports = stage.settle().await;
    let changed = reports.iter().flat_map(actions);
    assert_eq!(changed.collect::<Vec<_>>(), [(Action::Update, name.to_owned())]);
    assert_eq!(stage.state(), before);
}

#[tokio::test(start_paused = true)]
async fn a_new_host_hears_of_changes_as_the_former_did() {
    let stage = settled().await.restart().await;
    stage.settle().await;
    let policy = stage.only(POLICY, "r2-");
    stage.delete(POLICY, text(&policy, "/metadata/name")).await;
    let ready = stage.ready().await;
    assert_eq!(names(&ready), ["r2".to_owned()].into());
    stage.run(ready).await;
    assert_eq!(stage.only(POLICY, "r2-")["spec"], policy["spec"]);
}
