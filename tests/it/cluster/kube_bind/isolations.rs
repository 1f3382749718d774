//! Whole lives of objects in five kinds of isolation and scope, and of what belongs to them.

use std::{future::Future, time::Duration};

use futures::future;
use serde_json::json;
use tokio::time::Instant;

use super::{
    backend::{EXPORTS, Export, SHARED, kube_bind, within},
    both,
    consumer::{Consumer, Stand, TEAM, fields_by_manager},
    named,
};
use crate::cluster::program::{POLL_INTERVAL, TIMEOUT};

/// The name of all objects, at every consumer.
const SATURN: &str = "saturn";
/// The fields of metadata that tell where an object comes from.
const CLUSTER_NAMESPACE: &str = "/metadata/annotations/kube-bind.io~1cluster-namespace";
const CONSUMER_UID: &str = "/metadata/annotations/kube-bind.io~1consumer-uid";

/// Returns whether only one consumer at a time can have an object of this name.
fn is_exclusive(export: &Export) -> bool {
    !export.is_namespaced() && export.isolation == "None"
}

/// Does something with each kind of each consumer that has objects of it: all of them at once.
async fn each<'a, F: Future<Output = ()>>(
    stand: &'a Stand,
    act: impl Fn(&'a Consumer, usize, &'static Export) -> F,
) {
    let mut all = Vec::new();
    for (number, consumer) in stand.consumers.iter().enumerate() {
        let exports = EXPORTS.iter().filter(|export| number == 0 || !is_exclusive(export));
        all.extend(exports.map(|export| act(consumer, number, export)));
    }
    future::join_all(all).await;
}

async fn objects_go_up(stand: &Stand) {
    each(stand, async |consumer, number, export| {
        let mut here = export.here(TEAM, SATURN);
        here["spec"] = json!({"stages": number, "secretName": "named", "parts": {"a": "b"}});
        here["metadata"]["labels"] = json!({"size": "big"});
        consumer.home.apply(&here).await;
        let there = consumer.there(export, SATURN);
        stand.provider.until_is(&there, "/spec", &here["spec"]).await;
        let found = stand.provider.get(&there).await.unwrap();
        let uid = consumer.home.get(&here).await.unwrap()["metadata"]["uid"].clone();
        assert_eq!(found.pointer(CLUSTER_NAMESPACE), Some(&json!(consumer.place)), "{found:#}");
        assert_eq!(found.pointer(CONSUMER_UID), Some(&uid), "{found:#}");
        assert_eq!(found["metadata"]["labels"]["size"], "big", "{found:#}");
    })
    .await;
}

async fn changes_go_both_ways(stand: &Stand) {
    each(stand, async |consumer, number, export| {
        let (here, there) = (export.here(TEAM, SATURN), consumer.there(export, SATURN));
        let change = json!({"spec": {"stages": number + 10, "parts": {"a": null, "c": "d"}}});
        consumer.home.merge(&here, "", change).await;
        let spec = json!({"stages": number + 10, "secretName": "named", "parts": {"c": "d"}});
        stand.provider.until_is(&there, "/spec", &spec).await;
        let status = json!({"height": number + 100, "parts": {"e": "f"}});
        stand.provider.merge(&there, "/status", json!({"status": status})).await;
        consumer.home.until_is(&here, "/status", &status).await;
    })
    .await;
}

/// An object of one consumer is no other's, though its name is the same.
async fn names_are_taken_once(stand: &Stand) {
    let exclusive = EXPORTS.iter().find(|export| is_exclusive(export)).unwrap();
    for second in stand.consumers.iter().skip(1) {
        let first = &stand.consumers[0];
        let mut here = exclusive.here(TEAM, SATURN);
        here["spec"] = json!({"stages": 77});
        second.home.apply(&here).await;
        until_event(second, "OtherConsumer").await;
        let there = stand.provider.get(&exclusive.there("", "", SATURN)).await.unwrap();
        assert_eq!(there.pointer(CLUSTER_NAMESPACE), Some(&json!(first.place)), "{there:#}");
        assert_eq!(there["spec"]["stages"], 10, "{there:#}");
        second.home.delete(&here).await;
        second.home.until_gone(&here).await;
        let still = stand.provider.get(&exclusive.there("", "", SATURN)).await.unwrap();
        assert_eq!(still["metadata"]["uid"], there["metadata"]["uid"]);
        assert!(still["metadata"]["deletionTimestamp"].is_null(), "{still:#}");
    }
}

async fn until_event(consumer: &Consumer, reason: &str) {
    let list = mortise_core::api::Outgoing::get(format!(
        "/apis/events.k8s.io/v1/events?fieldSelector=reason%3D{reason}"
    ));
    let wait = async {
        loop {
            let events = consumer.home.cluster.send(&list).await.unwrap().body;
            if !events["items"].as_array().unwrap().is_empty() {
                return;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    let waited = tokio::time::timeout(TIMEOUT, wait).await;
    assert!(waited.is_ok(), "no event `{reason}`");
}

/// Secrets that a claim takes by label, or as an object names them, go up; others stay.
async fn claimed_secrets_go_up(stand: &Stand) {
    for consumer in &stand.consumers {
        let kinds = EXPORTS.iter().filter(|export| export.is_namespaced());
        let shared = kinds.map(|export| (export.plural, json!({SHARED: export.plural})));
        let secrets = [("named", json!({})), ("private", json!({}))].into_iter().chain(shared);
        for (name, labels) in secrets {
            let mut secret = within(named("v1", "Secret", name), TEAM);
            secret["metadata"]["labels"] = labels;
            secret["stringData"] = json!({"key": name});
            consumer.home.apply(&secret).await;
        }
        let there = format!("{}-{TEAM}", consumer.place);
        for name in ["named", "rockets", "probes"] {
            let copy = within(named("v1", "Secret", name), &there);
            let owner = "/metadata/labels/kube-bind.io~1owner";
            stand.provider.until_is(&copy, owner, &json!("consumer")).await;
        }
        let private = within(named("v1", "Secret", "private"), &there);
        assert_eq!(stand.provider.get(&private).await, None, "it is not claimed");
    }
}

/// A namespace that the provider makes comes to be at home.
async fn namespaces_of_the_provider_come_home(stand: &Stand) {
    for consumer in &stand.consumers {
        let mut seeded = within(kube_bind("APIServiceNamespace", "seeded"), &consumer.place);
        seeded["metadata"]["labels"] = json!({"kube-bind.io/owner": "provider"});
        seeded["spec"] = json!({});
        stand.provider.apply(&seeded).await;
        let namespace = named("v1", "Namespace", "seeded");
        let owner = "/metadata/labels/kube-bind.io~1owner";
        consumer.home.until_is(&namespace, owner, &json!("provider")).await;
    }
}

/// No field has two managers, the spec at home and the status at the provider are not ours.
async fn managers_have_fields_of_their_own(stand: &Stand) {
    each(stand, async |consumer, _, export| {
        let here = consumer.home.get(&export.here(TEAM, SATURN)).await.unwrap();
        let there = stand.provider.get(&consumer.there(export, SATURN)).await.unwrap();
        for (object, foreign) in [(here, "/f:spec"), (there, "/f:status")] {
            let fields = fields_by_manager(&object);
            assert!(fields.len() > 1, "somebody and the processor: {fields:#?}");
            for (manager, of) in &fields {
                let is_ours = manager.starts_with("mortise/");
                let is_foreign = |field: &String| field.starts_with(foreign);
                assert!(!is_ours || !of.iter().any(is_foreign), "{manager}: {of:#?}");
                let others = fields.iter().filter(|(other, _)| *other != manager);
                let shared = others.flat_map(|(_, of)| of).find(|field| of.contains(field));
                assert_eq!(shared, None, "{manager} and another: {fields:#?}");
            }
        }
    })
    .await;
}

/// Objects go at the provider, and those of the next consumer stay until its own go.
async fn objects_go(stand: &Stand) {
    for (number, consumer) in stand.consumers.iter().enumerate() {
        let exports = || EXPORTS.iter().filter(|export| number == 0 || !is_exclusive(export));
        for export in exports() {
            consumer.home.delete(&export.here(TEAM, SATURN)).await;
        }
        for export in exports() {
            consumer.home.until_gone(&export.here(TEAM, SATURN)).await;
            assert_eq!(stand.provider.get(&consumer.there(export, SATURN)).await, None);
        }
        for next in &stand.consumers[number + 1..] {
            for export in EXPORTS.iter().filter(|export| !is_exclusive(export)) {
                let there = stand.provider.get(&next.there(export, SATURN)).await;
                let there = there.unwrap_or_else(|| panic!("{} of {}", export.kind, next.place));
                assert!(there["metadata"]["deletionTimestamp"].is_null(), "{there:#}");
            }
        }
    }
}

/// Tells how long each part of a test took.
struct Clock(Instant);

impl Clock {
    fn tell(&mut self, part: &str) {
        println!("{part}: {:.1?}", self.0.elapsed());
        self.0 = Instant::now();
    }
}

async fn whole_lives(places: &[&str], lasts: Duration) {
    let mut clock = Clock(Instant::now());
    let Some(stand) = Stand::open(places).await else { return };
    clock.tell("control planes");
    for consumer in &stand.consumers {
        consumer.until_bound().await;
    }
    clock.tell("bindings");
    objects_go_up(&stand).await;
    clock.tell("objects go up");
    changes_go_both_ways(&stand).await;
    clock.tell("changes");
    names_are_taken_once(&stand).await;
    clock.tell("names");
    claimed_secrets_go_up(&stand).await;
    clock.tell("claims");
    namespaces_of_the_provider_come_home(&stand).await;
    managers_have_fields_of_their_own(&stand).await;
    clock.tell("namespaces, managers");
    both::sides_change(&stand, lasts).await;
    clock.tell("both sides change");
    objects_go(&stand).await;
    stand.nothing_was_refused().await;
    clock.tell("deletion");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_each_isolation_live_with_the_rights_of_the_backend() {
    whole_lives(&["cluster-a"], Duration::from_secs(5)).await;
}

/// The name of one place begins with that of the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts three control planes"]
async fn objects_of_two_consumers_have_equal_names_and_change_for_a_minute() {
    whole_lives(&["cluster-a", "cluster-a-b"], Duration::from_mins(1)).await;
}
