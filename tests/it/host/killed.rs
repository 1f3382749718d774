//! A host that is killed in the middle of its writes.

use std::collections::BTreeMap;

use mortise_host::host::{Drive, Host};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    CONFIG_MAP, NAMESPACE, RULE, Scene, Stage, TIMEOUT, VIRTUAL_SERVICE, manifest, object, outcome,
    play::{Play, deletion},
    pod, rule, scripted, selection, service, start,
    tap::Tap,
    text,
};

/// More hosts than are needed if each makes at least one step.
const MAX_HOSTS: usize = 100;

/// Runs hosts on a stage whose own host does nothing by itself. Each host is killed after this many
/// writes, until one survives. Returns the number of hosts and the number of writes of the last
/// one.
async fn kill_again_and_again(stage: &Stage, writes: usize) -> (usize, usize) {
    for hosts in 1..=MAX_HOSTS {
        let tap = Tap::killing_after(writes);
        let mut host = start(&tap.cluster(&stage.api), &stage.loaded, Drive::Host);
        let lives = tokio::select! {
            () = tap.killed() => false,
            () = rests(&mut host) => true,
        };
        // Drops all its tasks, wherever they are.
        drop(host);
        if lives {
            return (hosts, tap.writes());
        }
    }
    panic!("killed after {writes} writes each, {MAX_HOSTS} hosts did not come to an end");
}

/// Waits until nothing has happened for longer than any timer. The clock is paused: it advances
/// when nothing else can happen.
async fn rests(host: &mut Host) {
    while let Ok(report) = timeout(TIMEOUT, host.next_report()).await {
        report.unwrap();
    }
}

/// Checks that the final state is the same however often, and wherever, the host is killed.
async fn ends_alike(before: impl AsyncFn() -> Stage) {
    let undisturbed = before().await;
    let (hosts, writes) = kill_again_and_again(&undisturbed, usize::MAX).await;
    assert_eq!(hosts, 1);
    assert!(writes > 9, "{writes} writes are too few to show anything");
    let expected: BTreeMap<String, Value> = undisturbed.state();
    for kill in 1..=writes {
        let stage = before().await;
        let (hosts, _) = kill_again_and_again(&stage, kill).await;
        assert!(hosts > 1, "the first one was killed after {kill} writes");
        let there = stage.state();
        for place in expected.keys().chain(there.keys()) {
            assert_eq!(
                there.get(place),
                expected.get(place),
                "{place}, killed after {kill} writes each"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rules_end_alike_however_often_the_host_is_killed() {
    ends_alike(async || {
        let scene = Scene::of_rules().await;
        scene.load(&service("shop"));
        scene.load(&pod("shop-1", "shop"));
        for name in ["changed", "deleted", "disturbed"] {
            scene.load(&rule(name, "shop"));
        }
        let stage = scene.start(Drive::Caller);
        stage.settle().await;
        let two = json!([
            {"path": "/a", "methods": ["GET"], "noAuth": true},
            {"path": "/b", "methods": ["GET"], "jwt": {"authentications": [{"issuer": "https://i.example", "jwksUri": "https://i.example/keys"}]}},
        ]);
        // These changes happen without a host, so that all of them are left for the one that is
        // killed.
        stage.edit(RULE, "changed", json!({"spec": {"rules": two}})).await;
        stage.delete(RULE, "deleted").await;
        let made = stage.only(VIRTUAL_SERVICE, "disturbed-");
        stage.delete(VIRTUAL_SERVICE, text(&made, "/metadata/name")).await;
        stage.apply(&[rule("new", "shop")]).await;
        stage
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn writes_of_every_kind_end_alike_however_often_the_host_is_killed() {
    ends_alike(async || {
        let play = Play::new("puppet")
            .reconciles_with("objects", &selection(CONFIG_MAP, "play=yes"), &json!({"finalizers": ["example.com/held"]}))
            .writes(&selection(CONFIG_MAP, ""), &["create", "update", "delete"])
            .writes(&selection("v1/Secret", ""), &["create"])
            .writes(&selection("apps/v1/Deployment", ""), &["create", "update", "delete"]);
        let scene = Scene::of_play(&play).await;
        scene.load(&object(CONFIG_MAP, "theirs", &json!({"data": {"mine": "no", "gone": "soon"}})));
        scene.load(&object(CONFIG_MAP, "doomed", &json!({})));
        // An object of an earlier run, which is to be pruned.
        let wanted = |version: &str| object(CONFIG_MAP, &format!("made-{version}"), &json!({"metadata": {"labels": {"of": "play"}}, "data": {"version": version}}));
        let pruned = json!([selection(CONFIG_MAP, "of=play")]);
        scene.load(&scripted("play", &json!({"returns": outcome(&json!({
            "apply": [manifest(&wanted("1"))], "prune": pruned, "finalizers": ["example.com/held"],
        }))}).to_string()));
        let stage = scene.start(Drive::Caller);
        stage.settle().await;

        let mut scaled = manifest(&deployment());
        scaled["leave"] = json!(["spec.replicas"]);
        let mut key = manifest(&object("v1/Secret", "key", &json!({"stringData": {"key": "generated"}})));
        key["mode"] = json!("Create");
        let mut patch = manifest(&object(CONFIG_MAP, "theirs", &json!({"data": {"mine": "yes"}})));
        patch["absent"] = json!(["data.gone"]);
        let doomed = json!({"cluster": "", "kind": selection(CONFIG_MAP, "")["kind"], "namespace": NAMESPACE, "name": "doomed"});
        let script = json!({"returns": outcome(&json!({
            "apply": [scaled, key, manifest(&wanted("2")), manifest(&wanted("3"))], "patch": [patch],
            "delete": [deletion(&doomed)], "prune": pruned, "finalizers": [],
            "events": [{"on": null, "event_type": "Normal", "reason": "Made", "message": "made"}],
        }))});
        stage.edit(CONFIG_MAP, "play", json!({"data": {"script": script.to_string()}})).await;
        stage
    })
    .await;
}

fn deployment() -> Value {
    let container = json!({"name": "main", "image": "example.com/main:1"});
    object(
        "apps/v1/Deployment",
        "web",
        &json!({"spec": {
            "replicas": 3, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}},
        }}),
    )
}
