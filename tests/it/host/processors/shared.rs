//! Two Processors that conflict.

use std::time::Duration;

use mortise_embedded_api::{Fault, Filter};
use serde_json::json;

use super::*;

/// Returns a puppet that reconciles its `ConfigMaps` and applies the same object for each, with
/// this value.
fn sets(name: &str, value: &str) -> Play {
    let manifest = manifest(&made("shared", &json!({"value": value})));
    let script = outcome(&json!({"apply": [manifest]}));
    Play::new(name)
        .reconciles("objects", &selection(CONFIG_MAP, "play=yes"))
        .writes(&selection(CONFIG_MAP, ""), &["create", "update"])
        .script(json!({"returns": script}))
}

fn held(name: &str, labels: &str) -> Play {
    let finalizers = json!({"finalizers": ["example.com/held"]});
    Play::new(name).reconciles_with("objects", &selection(CONFIG_MAP, labels), &finalizers)
}

#[tokio::test(start_paused = true)]
async fn two_that_reconcile_the_same_both_run_and_a_conflict_shows_in_both() {
    let place = Place::new().await;
    let played = object(CONFIG_MAP, "a", &json!({"metadata": {"labels": {"play": "yes"}}}));
    place.apply(&[played]).await;
    place.puppet("one", &sets("one", "1"), &json!({})).await;
    place.reason("one", "Synced", "Synced").await;
    place.puppet("two", &sets("two", "2"), &json!({})).await;
    let (status, message) = place.reason("two", "Synced", "FieldConflict").await;
    assert_eq!(status, "False");
    assert!(
        message.contains("`a/one/objects:a/a` has set other values in `.data.value` of"),
        "{message}"
    );
    let (status, message) = place.reason("one", "Synced", "FieldConflict").await;
    assert_eq!(status, "False");
    assert!(
        message.contains("`a/two/objects:a/a` wants other values in `.data.value` of"),
        "{message}"
    );
    for name in ["one", "two"] {
        assert_eq!(place.reason(name, "Ready", "Runs").await.0, "True");
    }
    let kept = place.objects(CONFIG_MAP).await.get("shared").await.unwrap();
    assert_eq!(kept.data["data"]["value"], "1", "what was there first stays");

    place.puppet("two", &sets("two", "1"), &json!({})).await;
    for name in ["one", "two"] {
        place.reason(name, "Synced", "Synced").await;
    }
}

/// Returns the rights that the puppet of `held` needs.
fn rights_for_held<'a>(verbs: &[&'a str]) -> [(&'static str, Vec<&'a str>); 2] {
    [("configmaps", verbs.to_vec()), ("events", vec!["create", "patch"])]
}

impl Place {
    /// Returns the finalizers that a Processor holds according to its status.
    async fn holds(&self, name: &str) -> Vec<String> {
        let status = self.processors().get(name).await.unwrap().status.unwrap_or_default();
        status.finalizers.into_iter().map(|held| held.finalizer).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_of_two_processors_keeps_a_shared_finalizer_over_restarts() {
    let mut place = Place::new().await;
    // By age and by name the later Processor would have precedence.
    let without = Play::new("later").reconciles("objects", &selection(CONFIG_MAP, "play=yes"));
    place.puppet("a-later", &without, &json!({})).await;
    place.reason("a-later", "Ready", "Runs").await;
    place.puppet("first", &held("first", "play=yes"), &json!({})).await;
    place.reason("first", "Ready", "Runs").await;
    place.puppet("a-later", &held("later", "play=yes"), &json!({})).await;
    let (status, message) = place.reason("a-later", "Loaded", "FinalizerShared").await;
    assert_eq!(status, "False");
    let says = "`a/first` holds the finalizer `example.com/held` of ConfigMap already";
    assert!(message.contains(says), "{message}");
    let (_, message) = place.reason("first", "Ready", "Runs").await;
    assert_eq!(message, "runs", "nobody else writes into its status");
    for _ in 0..3 {
        place.restart().await;
        place.reason("a-later", "Ready", "FinalizerShared").await;
        place.reason("first", "Ready", "Runs").await;
        assert_eq!(place.holds("first").await, ["example.com/held"]);
        assert_eq!(place.holds("a-later").await, Vec::<String>::new());
    }
    place.delete("first").await;
    place.until_gone("first").await;
    place.reason("a-later", "Ready", "Runs").await;
}

#[tokio::test(start_paused = true)]
async fn a_version_does_not_run_before_its_finalizers_are_in_its_status() {
    let place = Place::new().await;
    let played = object(CONFIG_MAP, "a", &json!({"metadata": {"labels": {"play": "yes"}}}));
    place.apply(&[played]).await;
    let refused = Fault::Refused { code: 403, message: "no statuses".into() };
    let faults = place.api.faults();
    faults.inject(refused, Filter::resource("processors").subresource("status"), 1_000);
    place.puppet("holder", &held("holder", "play=yes"), &json!({})).await;
    let refused_again = async {
        while faults.hits() < 4 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(TIMEOUT, refused_again).await.expect("repeated writes of the status");
    assert!(place.host.status_of("a/holder").is_none(), "it is at work");
    faults.clear();
    place.reason("holder", "Ready", "Runs").await;
    assert_eq!(place.holds("holder").await, ["example.com/held"]);
}

#[tokio::test(start_paused = true)]
async fn a_processor_without_patch_rights_takes_no_finalizer_from_others() {
    let mut place = Place::new().await;
    let all = ["get", "list", "watch", "patch"];
    for name in ["attacker", "victim"] {
        place.limited(name).await;
    }
    place.may("attacker", &rights_for_held(&all[..3])).await;
    place.may("victim", &rights_for_held(&all)).await;
    let as_name = |name: &str| json!({"serviceAccountName": name});
    // The older Processor lacks the right.
    place.puppet("attacker", &held("attacker", "play=yes"), &as_name("attacker")).await;
    place.reason("attacker", "Ready", "RightsMissing").await;
    place.puppet("victim", &held("victim", "play=yes"), &as_name("victim")).await;
    place.reason("victim", "Ready", "Runs").await;
    assert_eq!(place.holds("attacker").await, Vec::<String>::new());
    // A refused version holds no finalizer either.
    place.puppet("attacker", &held("attacker", "").version("2.0.0"), &as_name("attacker")).await;
    place.until_ready_says("attacker", "RightsMissing", "").await;
    place.restart().await;
    place.reason("victim", "Ready", "Runs").await;
    assert_eq!(place.holds("victim").await, ["example.com/held"]);

    // The right comes too late.
    place.may("attacker", &rights_for_held(&all)).await;
    place.reason("attacker", "Ready", "FinalizerShared").await;
    place.reason("victim", "Ready", "Runs").await;
    // A Processor that loses the right no longer holds the finalizer, though it runs.
    place.may("victim", &rights_for_held(&all[..3])).await;
    place.reason("attacker", "Ready", "Runs").await;
    assert_eq!(place.holds("attacker").await, ["example.com/held"]);
    place.may("victim", &rights_for_held(&all)).await;
    place.reason("victim", "Ready", "FinalizerShared").await;
}

#[tokio::test(start_paused = true)]
async fn two_with_the_same_finalizer_on_other_objects_both_run() {
    let place = Place::new().await;
    place.puppet("one", &held("one", "class=a"), &json!({})).await;
    place.puppet("two", &held("two", "class=b"), &json!({})).await;
    for name in ["one", "two"] {
        place.reason(name, "Ready", "Runs").await;
    }
}

/// Returns a puppet with a reconciler on demand, which has the finalizer of [`held`], and an object
/// that starts it on those with `class=a`.
fn starts() -> (Play, Value) {
    let of = selection(CONFIG_MAP, "class=a");
    let own = json!({"finalizers": ["example.com/starter"]});
    let start = json!({"start": [{"reconciler": "held", "of": of}]});
    let on_demand = json!({"finalizers": ["example.com/held"], "on_demand": true});
    let play = Play::new("starts")
        .reconciles_with("objects", &selection(CONFIG_MAP, "play=yes"), &own)
        .reconciles_with("held", &selection(CONFIG_MAP, ""), &on_demand)
        .script(json!({"returns": outcome(&json!({}))}));
    let mut starter = scripted("starter", &json!({"returns": outcome(&start)}).to_string());
    // Only an object that holds a finalizer starts a reconciler that has one.
    merge(&mut starter, &json!({ "metadata": own }));
    (play, starter)
}

#[tokio::test(start_paused = true)]
async fn an_on_demand_reconciler_takes_no_finalizer_from_the_processor_that_holds_it() {
    let place = Place::new().await;
    place.puppet("victim", &held("victim", "class=a"), &json!({})).await;
    place.reason("victim", "Ready", "Runs").await;
    let (starts, starter) = starts();
    let of_both = object(CONFIG_MAP, "of-both", &json!({"metadata": {"labels": {"class": "a"}}}));
    place.apply(&[starter, of_both]).await;
    place.puppet("starts", &starts, &json!({})).await;
    let (status, message) = place.reason("starts", "Ready", "FinalizerShared").await;
    assert_eq!(status, "False");
    let expected = "`held` does not run for ConfigMap v1: the Processor `a/victim` holds the finalizer `example.com/held` of ConfigMap already";
    assert!(message.starts_with(expected), "{message}");
    place.reason("starts", "Synced", "Synced").await;
    place.reason("victim", "Ready", "Runs").await;
    place.until_idle().await;
    let is_of_held = |report: &Report| report.key.reconciler().name() == "held";
    assert!(!place.reports.borrow().iter().any(is_of_held), "the finalizer is not held yet");
    assert_eq!(place.holds("victim").await, ["example.com/held"]);
    assert_eq!(place.holds("starts").await, ["example.com/starter"]);
    place.delete("victim").await;
    place.until_gone("victim").await;
    place.reason("starts", "Ready", "Runs").await;
    place.report("the started one runs", is_of_held).await;
    assert_eq!(place.holds("starts").await, ["example.com/starter", "example.com/held"]);
}
