//! Processors whose calls never end: the calls are cancelled when their result is not needed any
//! more.
//!
//! Guests take real time, which cannot be paused: if a call were not cancelled, the test would wait
//! for its deadline of a minute and fail.

use mortise_host::operator::admin::Admin;

use super::*;

/// Longer than any of these tests takes.
const DEADLINE: &str = "1m";
/// More than the concurrency that a Processor is given.
const CONCURRENCY: u32 = 256;

/// Call slots that one processor may have.
const MAX_SLOTS_PER_PROCESSOR: usize = 56;
/// Objects whose calls never end.
const HANGING_OBJECTS: usize = 20;

/// Starts with a finalizer held on each object, then lets all calls hang.
async fn hanging(spec: &Value) -> Place {
    let place = Place::new().await;
    place.hangs(HANGING_OBJECTS, spec).await;
    place.until_running(16).await;
    place
}

fn is_held(found: Option<&Value>) -> bool {
    found.is_some_and(|found| found["metadata"]["finalizers"].is_array())
}

impl Place {
    async fn hangs(&self, objects: usize, spec: &Value) {
        let held = json!({"finalizers": ["example.com/held"]});
        let of = selection(CONFIG_MAP, "play=yes");
        let play = Play::new("puppet").reconciles_with("objects", &of, &held);
        let holds = json!({"returns": outcome(&held)}).to_string();
        let names: Vec<String> = (0..objects).map(|number| format!("h{number}")).collect();
        let maps: Vec<Value> = names.iter().map(|name| scripted(name, &holds)).collect();
        self.apply(&maps).await;
        let mut fields = json!({"limits": {"concurrency": CONCURRENCY, "deadline": DEADLINE}});
        merge(&mut fields, spec);
        self.puppet("hostile", &play, &fields).await;
        for name in &names {
            self.until_object(CONFIG_MAP, name, "the finalizer is held", is_held).await;
        }
        self.until_idle().await;
        let hangs = json!({"data": {"script": json!({"hangs": true}).to_string()}});
        for name in &names {
            self.change(CONFIG_MAP, name, hangs.clone()).await;
        }
    }

    /// Waits until `count` runs of the hostile Processor are in progress.
    async fn until_running(&self, count: usize) {
        let name = format!("{NAMESPACE}/hostile");
        let is_reached = async {
            while self.host.status_of(&name).is_some_and(|status| status.running != count) {
                // As often as a task of the runtime gets a thread: what reads the status in a loop
                // keeps its locks from the host.
                tokio::spawn(async {}).await.unwrap();
            }
        };
        timeout(TIMEOUT, is_reached).await.unwrap_or_else(|_| panic!("never {count} runs"));
    }

    fn has_no_failure(&self) {
        let reports = self.reports.borrow();
        let failures: Vec<_> =
            reports.iter().filter_map(|report| report.failure.as_ref()).collect();
        assert!(failures.is_empty(), "{failures:?}");
    }

    fn is_unharmed(&self) {
        let status = self.host.status_of(&format!("{NAMESPACE}/hostile")).unwrap();
        assert_eq!((status.failures, status.failing, status.last_failure), (0, 0, None));
        let events = self.api.objects().into_iter().filter(|object| object["kind"] == "Event");
        assert_eq!(events.count(), 0, "nothing is said of it on the objects");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_above_those_of_the_host_are_lowered_and_reported() {
    let place = hanging(&json!({"limits": {"memory": "2Gi"}})).await;
    let (status, message) = place.reason("hostile", "Limited", "LimitsLowered").await;
    assert_eq!(status, "True");
    for part in ["memory is 2Gi, given is 256Mi", "concurrency is 256, given is 16"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(!message.contains("deadline"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_calls_of_a_suspended_processor_are_cancelled_and_made_later() {
    let place = hanging(&json!({})).await;
    place.edit("hostile", json!({"suspend": true})).await;
    place.until_running(0).await;
    place.is_unharmed();
    place.reason("hostile", "Ready", "Suspended").await;
    let status = place.host.status_of(&format!("{NAMESPACE}/hostile")).unwrap();
    assert_eq!(status.ready, HANGING_OBJECTS, "all are queued again");
    place.edit("hostile", json!({"suspend": false})).await;
    place.until_running(16).await;
    place.is_unharmed();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_processor_that_is_released_goes_though_its_calls_never_end() {
    let place = hanging(&json!({"onDelete": "Release"})).await;
    place.delete("hostile").await;
    place.until_gone("hostile").await;
    for number in 0..HANGING_OBJECTS {
        let what = "the finalizer is dropped";
        place.until_object(CONFIG_MAP, &format!("h{number}"), what, |found| !is_held(found)).await;
    }
    place.until_idle().await;
    place.has_no_failure();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_cancelled_when_the_account_withdraws_its_consent() {
    let place = hanging(&json!({})).await;
    let consent = json!({"metadata": {"annotations": {"mortise.dev/processor": null}}});
    place.change("v1/ServiceAccount", "puppet", consent).await;
    place.reason("hostile", "Ready", "AccountDoesNotConsent").await;
    place.until_idle().await;
    place.has_no_failure();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_does_not_wait_for_a_description_that_never_comes() {
    let place = Place::new().await;
    place.put("misbehave.wasm", "tests/guests/misbehave");
    place.puppet("hostile", &puppet(), &json!({})).await;
    place.reason("hostile", "Loaded", "Loaded").await;
    let hangs = json!({
        "module": {"path": "misbehave.wasm"}, "limits": {"deadline": DEADLINE},
        "config": {"hang": true, "description": null, "script": null},
    });
    place.edit("hostile", hangs).await;
    place.delete("hostile").await;
    place.until_gone("hostile").await;
    place.until_at_work_are(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspension_and_lost_consent_apply_while_a_new_version_hangs() {
    let place = hanging(&json!({})).await;
    place.put("misbehave.wasm", "tests/guests/misbehave");
    let never = json!({
        "module": {"path": "misbehave.wasm"}, "suspend": true,
        "config": {"hang": true, "description": null, "script": null},
    });
    place.edit("hostile", never).await;
    place.until_running(0).await;
    place.is_unharmed();
    place.edit("hostile", json!({"suspend": false})).await;
    place.until_running(16).await;
    let consent = json!({"metadata": {"annotations": {"mortise.dev/processor": null}}});
    place.change("v1/ServiceAccount", "puppet", consent).await;
    place.reason("hostile", "Ready", "AccountDoesNotConsent").await;
    place.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_wait_for_a_slot_are_told_and_others_have_one() {
    let mut place = Place::new().await;
    place.largest.concurrency = CONCURRENCY;
    place.restart().await;
    place.hangs(MAX_SLOTS_PER_PROCESSOR + 10, &json!({})).await;
    // The first status may have been written before all of them waited.
    let all_wait = place.until("hostile", "ten calls wait", |processor| {
        condition(processor, "Limited").is_some_and(|condition| {
            condition.reason == "WaitsForSlot"
                && condition.message.starts_with("10 calls wait for a slot, the first for ")
        })
    });
    assert_eq!(condition(&all_wait.await, "Limited").unwrap().status, "True");
    let waiting = Admin::of(&place.host).waiting;
    assert_eq!(waiting(), [(format!("{NAMESPACE}/hostile").into(), 10)]);

    let benign = Play::new("puppet")
        .reconciles("objects", &selection(CONFIG_MAP, "play=also"))
        .writes(&selection(CONFIG_MAP, ""), &["create", "update", "delete"]);
    place.puppet("benign", &benign, &json!({})).await;
    let mut map = scripted("a", &applies(&[made("b", &json!({}))]));
    map["metadata"]["labels"] = json!({"play": "also"});
    place.apply(&[map]).await;
    place.until_object(CONFIG_MAP, "b", "the other one runs", |found| found.is_some()).await;
    place.edit("hostile", json!({"suspend": true})).await;
    place.reason("hostile", "Limited", "WithinLimits").await;
    place.is_unharmed();
}
