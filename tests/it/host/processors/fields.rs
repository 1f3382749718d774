//! The effect of each field of a spec.

use std::time::Duration;

use mortise_core::write::Action;
use mortise_embedded_api::RequestKind;
use serde_json::json;
use tokio::time::Instant;

use super::*;

const MISBEHAVE: &str = "tests/guests/misbehave";

/// Returns a `ConfigMap` that the puppet reconciles by its configured script.
fn played(name: &str) -> Value {
    object(CONFIG_MAP, name, &json!({"metadata": {"labels": {"play": "yes"}}}))
}

/// Returns a puppet that applies `<name>-made` with this value for each of its objects.
fn makes(value: &str) -> Play {
    let manifest = manifest(&made("$(name)-made", &json!({"value": value})));
    let script = outcome(&json!({"apply": [manifest]}));
    puppet().script(json!({"returns": script}))
}

fn holds(value: &str) -> impl Fn(Option<&Value>) -> bool {
    move |found| found.is_some_and(|found| found["data"]["value"] == value)
}

#[tokio::test(start_paused = true)]
async fn another_configuration_is_put_to_work_and_all_runs_on_it() {
    let place = Place::new().await;
    place.apply(&[played("a")]).await;
    place.puppet("rules", &makes("1"), &json!({})).await;
    place.until_object(CONFIG_MAP, "a-made", "the first", holds("1")).await;
    place.puppet("rules", &makes("2").version("2.0.0"), &json!({})).await;
    place.until_object(CONFIG_MAP, "a-made", "the second", holds("2")).await;
    let (_, message) = place.reason("rules", "Loaded", "Loaded").await;
    assert_eq!(message, "puppet 2.0.0 is loaded");
    let processor = place.until("rules", "the status of the new version", |processor| {
        let module = processor.status.as_ref().and_then(|status| status.module.as_ref());
        module.is_some_and(|module| module.version == "2.0.0")
    });
    let processor = processor.await;
    let status = processor.status.unwrap();
    assert_eq!(status.observed_generation, processor.metadata.generation);
}

#[tokio::test(start_paused = true)]
async fn the_former_version_runs_until_a_missing_new_module_appears() {
    let place = Place::new().await;
    place.puppet("rules", &makes("1"), &json!({})).await;
    place.reason("rules", "Ready", "Runs").await;
    place.edit("rules", json!({"module": {"path": "next.wasm"}})).await;
    let (status, message) = place.reason("rules", "Loaded", "ModuleNotFound").await;
    assert_eq!(status, "False");
    assert_eq!(
        message,
        "there is no module `next.wasm` in the folder of modules; it holds: puppet.wasm; the former version 1.0.0 keeps running"
    );
    assert_eq!(place.reason("rules", "Ready", "FormerVersion").await.0, "True");
    place.apply(&[played("b")]).await;
    place.until_object(CONFIG_MAP, "b-made", "the former version runs", holds("1")).await;
    // Files cause no watch events, so the host looks for the module again.
    place.put("next.wasm", PUPPET);
    place.reason("rules", "Loaded", "Loaded").await;
    place.reason("rules", "Ready", "Runs").await;
}

#[tokio::test(start_paused = true)]
async fn a_suspended_processor_keeps_its_queue_and_runs_it_when_resumed() {
    let place = Place::new().await;
    place.puppet("rules", &makes("1"), &json!({"suspend": true})).await;
    place.apply(&[played("a")]).await;
    assert_eq!(place.reason("rules", "Ready", "Suspended").await.0, "False");
    assert_eq!(place.reason("rules", "Synced", "Suspended").await.0, "Unknown");
    assert_eq!(place.runs("rules"), 0);
    place.edit("rules", json!({"suspend": false})).await;
    place.until_object(CONFIG_MAP, "a-made", "it runs", holds("1")).await;
    place.reason("rules", "Synced", "Synced").await;
    let runs = place.runs("rules");

    // Suspending an active version changes nothing but its pace.
    place.edit("rules", json!({"suspend": true})).await;
    place.reason("rules", "Ready", "Suspended").await;
    place.apply(&[played("b")]).await;
    place.edit("rules", json!({"suspend": false})).await;
    place.until_object(CONFIG_MAP, "b-made", "the new one runs", holds("1")).await;
    place.until_idle().await;
    assert_eq!(place.runs("rules"), runs + 1, "the others are not run again");
}

#[tokio::test(start_paused = true)]
async fn a_processor_in_observe_mode_runs_and_writes_nothing() {
    let place = Place::new().await;
    let script = outcome(&json!({
        "apply": [manifest(&made("b", &json!({"k": "v"})))],
        "delete": [deletion(&reference(CONFIG_MAP, "a"))],
        "finalizers": ["example.com/held"],
        "events": [{"on": null, "event_type": "Normal", "reason": "Made", "message": "made it"}],
    }));
    let play = held_puppet().script(json!({"returns": script}));
    place.apply(&[played("a")]).await;
    let before = place.api.objects();
    place.puppet("rules", &play, &json!({"mode": "Observe"})).await;
    assert_eq!(place.reason("rules", "Ready", "Observes").await.0, "True");
    assert_eq!(place.reason("rules", "Synced", "Observed").await.0, "Unknown");
    place.until_idle().await;
    let rest = |objects: Vec<Value>| {
        let other = |object: &Value| object["kind"] != "Processor";
        objects.into_iter().filter(other).collect::<Vec<_>>()
    };
    assert_eq!(rest(place.api.objects()), before);
    let report = place.report("the run", |report| report.key.name() == "a").await;
    let would: Vec<(Action, &str)> =
        report.withheld.iter().map(|of| (of.action, of.of.name.as_str())).collect();
    let expected = [
        (Action::Finalizers, "a"),
        (Action::Create, "b"),
        (Action::Delete, "a"),
        (Action::Event, "a"),
    ];
    assert_eq!(would, expected);
    assert!(report.changes.is_empty());
    place.edit("rules", json!({"mode": "Reconcile"})).await;
    place.until_object(CONFIG_MAP, "b", "it is written", |found| found.is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn a_processor_that_fails_while_it_is_observed_writes_no_event() {
    let place = Place::new().await;
    place.put("misbehave.wasm", MISBEHAVE);
    place.apply(&[misbehaving("panics")]).await;
    place.misbehave("rules", &json!({"mode": "Observe"})).await;
    let (_, message) = place.reason("rules", "Synced", "ObjectsFail").await;
    assert!(message.contains("told to panic"), "{message}");
    let is_event = |object: &Value| object["kind"] == "Event";
    assert!(!place.api.objects().iter().any(is_event));
}

#[tokio::test(start_paused = true)]
async fn a_rate_holds_back_how_many_runs_begin() {
    let place = Place::new().await;
    for number in 0..6 {
        place.apply(&[played(&format!("a{number}"))]).await;
    }
    let start = Instant::now();
    place.puppet("rules", &makes("1"), &json!({"limits": {"rate": 1, "concurrency": 1}})).await;
    place.until_runs("rules", 6).await;
    let took = start.elapsed();
    assert!(took >= Duration::from_secs(5), "the first at once, then one a second: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn limits_hold_for_each_call_and_a_change_of_them_counts() {
    let place = Place::new().await;
    place.put("misbehave.wasm", MISBEHAVE);
    let cases = [
        (
            "allocates",
            [
                (json!({"memory": "8Mi"}), "its limit is 8388608"),
                (json!({"memory": "16Mi"}), "its limit is 16777216"),
            ],
        ),
        (
            "hangs",
            [
                (json!({"deadline": "100ms"}), "ran past its limit of 100ms"),
                (json!({"deadline": "200ms"}), "ran past its limit of 200ms"),
            ],
        ),
    ];
    for (name, limits) in cases {
        place.apply(&[misbehaving(name)]).await;
        for (limits, expected) in limits {
            place.misbehave(name, &json!({"limits": limits})).await;
            let said = place.until(name, expected, |processor| {
                let status = processor.status.as_ref();
                let failure = status.and_then(|status| status.last_failure.as_ref());
                failure.is_some_and(|failure| failure.message.contains(expected))
            });
            let failure = said.await.status.unwrap().last_failure.unwrap();
            assert_eq!(failure.object, format!("config-maps {NAMESPACE}/{name}"));
        }
        place.delete(name).await;
        place.until_gone(name).await;
        place.objects(CONFIG_MAP).await.delete(name, &DeleteParams::default()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn fields_of_a_former_operator_are_taken_over() {
    let place = Place::new().await;
    let params = PatchParams::apply("operator");
    let left = made("a-made", &json!({"value": "0", "old": "1"}));
    place.objects(CONFIG_MAP).await.patch("a-made", &params, &Patch::Apply(&left)).await.unwrap();
    place.apply(&[played("a")]).await;
    place.puppet("rules", &makes("1"), &json!({"takeOver": ["operator"]})).await;
    let taken =
        |found: Option<&Value>| found.is_some_and(|found| found["data"] == json!({"value": "1"}));
    place.until_object(CONFIG_MAP, "a-made", "`old` is gone", taken).await;
}

#[tokio::test(start_paused = true)]
async fn the_annotations_of_an_object_pause_it_and_ask_for_a_run() {
    let place = Place::new().await;
    place.apply(&[played("a")]).await;
    place.puppet("rules", &makes("1"), &json!({})).await;
    place.reason("rules", "Synced", "Synced").await;
    let runs = place.runs("rules");
    let annotate = async |key: &str, value: Value| {
        place.change(CONFIG_MAP, "a", json!({"metadata": {"annotations": {key: value}}})).await;
    };
    for (count, value) in [(1, "now"), (2, "again")] {
        annotate("mortise.dev/reconcile", json!(value)).await;
        place.until_runs("rules", runs + count).await;
        place.until_idle().await;
        assert_eq!(place.runs("rules"), runs + count);
    }
    annotate("mortise.dev/paused", json!("true")).await;
    let is_paused = |report: &Report| {
        report.notes.iter().any(|note| note == "paused by the annotation mortise.dev/paused")
    };
    place.report("paused", is_paused).await;
    place.puppet("rules", &makes("2"), &json!({})).await;
    place.reason("rules", "Loaded", "Loaded").await;
    place.until_idle().await;
    let kept = place.objects(CONFIG_MAP).await.get("a-made").await.unwrap();
    assert_eq!(kept.data["data"]["value"], "1", "paused");
    annotate("mortise.dev/paused", Value::Null).await;
    place.until_object(CONFIG_MAP, "a-made", "it runs again", holds("2")).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_starts_anew_writes_no_status() {
    let mut place = Place::new().await;
    place.apply(&[played("a"), played("b")]).await;
    place.puppet("rules", &makes("1"), &json!({})).await;
    place.reason("rules", "Synced", "Synced").await;
    let before = place.processors().get("rules").await.unwrap();
    place.restart().await;
    place.api.reset_requests();
    // The runs of the new host cause no write of the status; a new object does.
    place.until_runs("rules", 2).await;
    place.until_idle().await;
    place.apply(&[played("c")]).await;
    place.until_object(CONFIG_MAP, "c-made", "the new host runs", holds("1")).await;
    let after = place.until("rules", "the new object is counted", |processor| {
        let counts = processor.status.as_ref().and_then(|status| status.counts.clone());
        counts.is_some_and(|counts| counts.objects == 3)
    });
    let after = after.await;
    assert_eq!(place.statuses(), 1, "only the new object was worth a word");
    assert_eq!((after.metadata.uid, after.spec), (before.metadata.uid, before.spec));
}

#[tokio::test(start_paused = true)]
async fn a_pending_status_is_written_when_the_host_is_told_to_stop() {
    let place = Place::new().await;
    place.puppet("rules", &makes("1"), &json!({})).await;
    place.reason("rules", "Synced", "Synced").await;
    place.apply(&[played("a"), played("b")]).await;
    place.until_runs("rules", 2).await;
    place.stop.cancel();
    let said = place.until("rules", "both objects are counted", |processor| {
        let counts = processor.status.as_ref().and_then(|status| status.counts.clone());
        counts.is_some_and(|counts| counts.objects == 2)
    });
    said.await;
}

#[tokio::test(start_paused = true)]
async fn a_status_is_written_once_a_second_at_most() {
    let place = Place::new().await;
    place
        .puppet(
            "rules",
            &puppet().script(json!({"returns": {"failure": {
                "message": "never", "status": null, "events": [], "retry": {"After": 50},
            }}})),
            &json!({}),
        )
        .await;
    place.apply(&[played("a"), played("b"), played("c")]).await;
    place.reason("rules", "Synced", "ObjectsFail").await;
    let (start, runs) = (Instant::now(), place.runs("rules"));
    place.api.reset_requests();
    place.until_runs("rules", runs + 300).await;
    let seconds = start.elapsed().as_secs();
    let written = place.statuses();
    assert!(seconds > 0 && written <= seconds + 1, "{written} in {seconds} s");
}

impl Place {
    /// Returns the number of writes to the statuses of Processors.
    fn statuses(&self) -> u64 {
        let requests = self.api.requests();
        let is_status =
            |kind: &RequestKind| kind.resource == "processors" && kind.subresource == "status";
        requests.iter().filter(|(kind, _)| is_status(kind)).map(|(_, count)| count).sum()
    }

    /// Waits until at least `count` runs of a Processor have ended.
    async fn until_runs(&self, name: &str, count: u64) {
        let mut activity = self.host.activity();
        let reached = async {
            while self.runs(name) < count {
                activity.changed().await.unwrap();
            }
        };
        timeout(TIMEOUT, reached).await.expect("the runs are made");
    }

    /// Applies a Processor of the misbehaving guest.
    async fn misbehave(&self, name: &str, spec: &Value) {
        let mut fields =
            json!({"module": {"path": "misbehave.wasm"}, "serviceAccountName": "puppet"});
        merge(&mut fields, spec);
        self.apply(&[object("mortise.dev/v1alpha1/Processor", name, &json!({"spec": fields}))])
            .await;
    }
}

/// Returns a `ConfigMap` for the misbehaving guest.
fn misbehaving(name: &str) -> Value {
    object(CONFIG_MAP, name, &json!({"metadata": {"labels": {"test": "misbehave"}}}))
}

/// Returns a puppet that may hold a finalizer.
fn held_puppet() -> Play {
    Play::new("puppet")
        .reconciles_with(
            "objects",
            &selection(CONFIG_MAP, "play=yes"),
            &json!({"finalizers": ["example.com/held"]}),
        )
        .writes(&selection(CONFIG_MAP, ""), &["create", "update", "delete"])
}

fn reference(kind: &str, name: &str) -> Value {
    let kind = super::super::kind(kind);
    json!({
        "cluster": "", "kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "namespace": NAMESPACE, "name": name,
    })
}
