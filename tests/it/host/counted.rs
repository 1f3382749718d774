//! Counts of the keys that run after a change.

use std::collections::BTreeSet;

use mortise_host::host::Drive;
use serde_json::json;

use super::{RULE, Scene, Stage, VIRTUAL_SERVICE, names, pod, rule, service, text};

const RULES: usize = 300;
const SERVICES: usize = 30;

#[tokio::test(start_paused = true)]
async fn a_change_runs_only_the_affected_ones_of_many_rules() {
    let scene = Scene::of_rules().await;
    for number in 0..SERVICES {
        scene.load(&service(&format!("s{number}")));
        scene.load(&pod(&format!("p{number}"), &format!("s{number}")));
    }
    scene.load(&pod("unrelated", "nobody"));
    for number in 0..RULES {
        scene.load(&rule(&format!("r{number}"), &format!("s{}", number % SERVICES)));
    }
    let stage = scene.start(Drive::Caller);
    let runs = stage.settle().await;
    assert_eq!(runs.len(), RULES, "each runs once: {:?}", runs.last().map(|run| &run.causes));
    assert!(stage.all(RULE).values().all(|rule| text(rule, "/status/state") == "Ready"));
    assert_eq!(stage.all(VIRTUAL_SERVICE).len(), RULES);
    assert_eq!(stage.ready().await.len(), 0, "nothing has changed since");

    // A Service.
    stage.edit("v1/Service", "s7", json!({"spec": {"selector": {"app": "s7", "tier": "b"}}})).await;
    let ready = stage.ready().await;
    let readers = (0..RULES).filter(|number| number % SERVICES == 7);
    let readers: BTreeSet<String> = readers.map(|number| format!("r{number}")).collect();
    assert_eq!(names(&ready), readers);
    for report in stage.run(ready).await {
        assert!(!report.changes.is_empty());
        let is_policy = |kind: &str| kind == "AuthorizationPolicy";
        assert!(report.changes.iter().all(|change| is_policy(&change.of.kind.kind)), "{report:#?}");
    }
    rests(&stage).await;

    // A field of a Service that no rule has read.
    stage.edit("v1/Service", "s8", json!({"metadata": {"labels": {"x": "y"}}})).await;
    assert_eq!(stage.ready().await.len(), 0);

    // A changed produced object.
    let made = stage.only(VIRTUAL_SERVICE, "r12-");
    let name = text(&made, "/metadata/name");
    stage.edit(VIRTUAL_SERVICE, name, json!({"spec": {"gateways": ["a/b"]}})).await;
    let ready = stage.ready().await;
    assert_eq!(names(&ready), ["r12".to_owned()].into());
    stage.run(ready).await;
    assert_eq!(stage.get(VIRTUAL_SERVICE, name).unwrap()["spec"], made["spec"]);
    rests(&stage).await;

    // A deleted produced object.
    stage.delete(VIRTUAL_SERVICE, name).await;
    let ready = stage.ready().await;
    assert_eq!(names(&ready), ["r12".to_owned()].into());
    stage.run(ready).await;
    assert_eq!(stage.get(VIRTUAL_SERVICE, name).unwrap()["spec"], made["spec"]);
    rests(&stage).await;

    // A label of a Pod that no Service selects.
    stage.edit("v1/Pod", "unrelated", json!({"metadata": {"labels": {"x": "y"}}})).await;
    assert_eq!(stage.ready().await.len(), 0);
}

/// A write is no reason to run its writer again.
async fn rests(stage: &Stage) {
    assert_eq!(stage.ready().await.len(), 0);
}
