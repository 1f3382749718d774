//! A host that starts with the objects that another host has left.

use std::path::Path;

use mortise::local;
use mortise_core::write::Action;
use mortise_host::host::Drive;
use mortise_sdk::testing::case;
use mortise_tests::{definitions, loaded, tool};
use serde_json::json;

use super::{POLICY, Scene, Stage, VIRTUAL_SERVICE, actions, names, pod, rule, service, text};

/// The configuration of api-gateway with which it installs Oathkeeper.
const OATHKEEPER: &str = r#"{"v1beta1": "allowed", "images": {"oathkeeper": "a:1", "oathkeeperMaester": "b:1", "busybox": "c:1"}}"#;

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
async fn a_new_host_writes_nothing_if_no_object_has_changed() {
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
async fn a_new_host_repairs_only_objects_changed_since_the_last_run() {
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

/// Loads a guest, and starts a host with the guest's examples.
async fn with_examples(guest: &str, config: &str) -> Stage {
    let folder = format!("guests/{guest}");
    let scene = Scene::new(vec![loaded(&folder, config).await.unwrap()]);
    local::apply(&scene.cluster, definitions(&folder).unwrap()).await.unwrap();
    local::serve_untyped(&scene.api, &scene.loaded[0].description, |_| false);
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder).join("examples");
    for object in case::load_objects(&examples).unwrap() {
        // An example may need a kind of another guest.
        let _ = local::apply(&scene.cluster, vec![object]).await;
    }
    scene.start(Drive::Caller)
}

#[tokio::test(start_paused = true)]
async fn a_new_host_sends_no_write_for_objects_that_the_api_server_completes() {
    let guests = [
        ("api-gateway", OATHKEEPER),
        ("external-gateway", "{}"),
        ("ingress-gateway-restart", "{}"),
        ("istio-installation", "{}"),
        ("peer-authentication", "{}"),
        ("rate-limit", "{}"),
        ("secret-copy", "{}"),
        ("sidecar-restart", "{}"),
        ("webhook-certificate", "{}"),
    ];
    for (guest, config) in guests {
        if guest == "istio-installation" && !tool::is_there("go", "the restart of Istio's host") {
            continue;
        }
        let stage = with_examples(guest, config).await;
        stage.settle().await;
        stage.api.reset_requests();
        let revision = stage.api.revision();
        let stage = stage.restart().await;
        let reports = stage.settle().await;
        let skipped: usize = reports.iter().map(|report| report.unchanged).sum();
        assert!(skipped > 0, "{guest}");
        assert_eq!((stage.writes(), stage.api.revision()), (0, revision), "{guest}");
    }
}
