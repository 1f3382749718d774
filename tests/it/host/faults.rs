//! Faults between host and API do not change the final state.

use std::{collections::BTreeMap, time::Duration};

use mortise_embedded_api::{Fault, Filter, Verb};
use mortise_host::host::Drive;
use serde_json::{Value, json};

use super::{RULE, Scene, Stage, VIRTUAL_SERVICE, pod, rule, service, text};

/// Number of changes.
const STEPS: usize = 8;
/// Longer than a write is retried: that takes 3 s, in four waits from 200 ms on, each twice the one
/// before.
const PAST_ALL_RETRIES: Duration = Duration::from_secs(5);

async fn scene() -> Scene {
    let scene = Scene::of_rules().await;
    for name in ["one", "two"] {
        scene.load(&service(name));
        scene.load(&pod(&format!("{name}-1"), name));
    }
    for number in 0..4 {
        scene.load(&rule(&format!("r{number}"), if number % 2 == 0 { "one" } else { "two" }));
    }
    scene
}

/// Makes one of the changes as another user.
async fn change(stage: &Stage, step: usize) {
    let name = |prefix: &str| {
        let mut all = stage.all(VIRTUAL_SERVICE).into_keys();
        all.find(|name| name.starts_with(prefix))
    };
    match step {
        0 => stage.edit("v1/Service", "one", json!({"spec": {"selector": {"tier": "a"}}})).await,
        1 => stage.apply(&[rule("r4", "two")]).await,
        2 => stage.delete(RULE, "r1").await,
        3 => stage.edit(RULE, "r0", json!({"spec": {"timeout": 9}})).await,
        4 => {
            if let Some(name) = name("r2-") {
                stage.delete(VIRTUAL_SERVICE, &name).await;
            }
        }
        5 => {
            if let Some(name) = name("r3-") {
                stage.edit(VIRTUAL_SERVICE, &name, json!({"spec": {"gateways": ["x/y"]}})).await;
            }
        }
        6 => stage.delete("v1/Service", "two").await,
        _ => stage.apply(&[service("two")]).await,
    }
}

/// Returns the final state without faults.
async fn expected() -> BTreeMap<String, Value> {
    let stage = scene().await.start(Drive::Caller);
    stage.settle().await;
    for step in 0..STEPS {
        change(&stage, step).await;
        stage.settle().await;
    }
    let rules = stage.all(RULE);
    assert_eq!(rules.len(), 4);
    assert!(rules.values().all(|rule| text(rule, "/status/state") == "Ready"));
    stage.state()
}

/// Makes the changes with a fault before each of them, and waits for the expected state. `count`
/// returns how often the fault has happened so far.
async fn ends_well(what: &str, wrong: impl Fn(&Stage), count: impl Fn(&Stage) -> usize) {
    let expected = expected().await;
    let mut stage = scene().await.start(Drive::Host);
    let all_ready = |stage: &Stage| (0..4).all(|number| stage.is_ready(&format!("r{number}")));
    stage.until("ready", all_ready).await;
    let before = count(&stage);
    for step in 0..STEPS {
        change(&stage, step).await;
        wrong(&stage);
        // Each fault meets the host at another point of its work; and every other change meets a
        // host at rest.
        for _ in 0..step * 20 {
            tokio::task::yield_now().await;
        }
        if step % 2 == 1 {
            tokio::time::sleep(PAST_ALL_RETRIES).await;
        }
        // The test's own requests must not fail.
        stage.api.faults().clear();
    }
    let times = count(&stage) - before;
    assert!(times >= STEPS, "{what}: {times} times are too few to show anything");
    wrong(&stage);
    let other = |stage: &Stage| {
        let there = stage.state();
        let mut all = expected.iter().chain(&there);
        all.find(|(place, _)| there.get(*place) != expected.get(*place)).map(|(place, _)| {
            println!("{what}: {place} is {:?}, not {:?}", there.get(place), expected.get(place));
        })
    };
    stage.until(what, |stage| other(stage).is_none()).await;
    stage.host.stop().await.unwrap();
}

/// Injects a fault into the next writes of each kind that the processor writes.
fn inject(stage: &Stage, fault: &Fault, times: usize) {
    let verbs = [Verb::Create, Verb::Update, Verb::Patch, Verb::Delete];
    let kinds = ["virtualservices", "authorizationpolicies", "apirules"];
    for kind in kinds {
        stage.api.faults().inject(fault.clone(), Filter::resource(kind).verbs(verbs), times);
    }
}

fn break_watches(stage: &Stage) {
    stage.api.faults().drop_watches(&Filter::all());
}

fn hits(stage: &Stage) -> usize {
    stage.api.faults().hits()
}

#[tokio::test(start_paused = true)]
async fn watches_that_break_lose_no_change() {
    ends_well("after broken watches", break_watches, |stage| stage.tap.watches()).await;
}

#[tokio::test(start_paused = true)]
async fn watches_that_break_before_a_forgotten_history_lose_no_change() {
    let forget = |stage: &Stage| {
        break_watches(stage);
        stage.api.compact();
    };
    ends_well("after 410", forget, |stage| stage.tap.all_lists()).await;
}

#[tokio::test(start_paused = true)]
async fn watches_and_lists_that_are_refused_lose_no_change() {
    let refuse = |stage: &Stage| {
        let faults = stage.api.faults();
        let all = Filter::all().verbs([Verb::List, Verb::Watch]);
        faults.inject(Fault::InternalError, all.clone(), 10);
        faults.inject(Fault::Gone, all, 10);
        break_watches(stage);
    };
    ends_well("after 500 and 410", refuse, hits).await;
}

#[tokio::test(start_paused = true)]
async fn writes_that_find_the_server_broken_are_made_later() {
    ends_well("after 500", |stage| inject(stage, &Fault::InternalError, 3), hits).await;
}

#[tokio::test(start_paused = true)]
async fn writes_that_find_the_server_broken_for_longer_than_they_are_tried_are_made_later() {
    ends_well("after many 500", |stage| inject(stage, &Fault::InternalError, 20), hits).await;
}

#[tokio::test(start_paused = true)]
async fn writes_that_the_server_is_too_busy_for_are_made_later() {
    ends_well("after 429", |stage| inject(stage, &Fault::TooManyRequests(Some(2)), 4), hits).await;
}

#[tokio::test(start_paused = true)]
async fn writes_whose_answers_are_lost_are_made_once() {
    ends_well("after lost answers", |stage| inject(stage, &Fault::LostAnswer, 3), hits).await;
}

#[tokio::test(start_paused = true)]
async fn writes_that_meet_a_conflict_are_made_later() {
    ends_well("after conflicts", |stage| inject(stage, &Fault::Conflict, 2), hits).await;
}
