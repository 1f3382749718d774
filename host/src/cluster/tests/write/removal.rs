use mortise_embedded_api::{Fault, Filter};

use super::*;

#[tokio::test]
async fn a_deletion_names_its_uid_and_another_object_of_that_name_stays() {
    let bed = Bed::new().await;
    bed.make(&config_map("c", json!({}))).await;
    let uid =
        bed.object(&config_map_ref("c")).await["metadata"]["uid"].as_str().unwrap().to_owned();
    let with_uid = |uid: &str| Outcome {
        delete: vec![Deletion { uid: Some(uid.into()), ..deletion(config_map_ref("c")) }],
        ..outcome()
    };
    let written = bed.run(with_uid("00000000-0000-0000-0000-000000000000")).await;
    fine(&written);
    assert!(written.changes.is_empty() && bed.get(&config_map_ref("c")).await.is_some());
    assert_eq!(actions(&bed.run(with_uid(&uid)).await), ["delete ConfigMap c"]);
    assert_eq!(bed.get(&config_map_ref("c")).await, None);
    assert!(
        matches!(bed.stores.known(&config_map_ref("c")), mortise_core::store::Known::Absent),
        "the store knows at once"
    );
    fine(&bed.run(with_uid(&uid)).await);
}

#[tokio::test]
async fn deleting_a_missing_object_or_an_unknown_kind_succeeds() {
    let bed = Bed::new().await;
    let unknown = object_ref(v1("none.dev", "None"), Some("a"), "n");
    let written = bed
        .run(Outcome {
            delete: vec![deletion(config_map_ref("none")), deletion(unknown)],
            ..outcome()
        })
        .await;
    fine(&written);
    assert!(written.changes.is_empty());
}

#[tokio::test]
async fn propagation_and_grace_are_sent() {
    let bed = Bed::new().await;
    bed.make(&config_map("c", json!({}))).await;
    let foreground =
        Deletion { propagation: Propagation::Foreground, ..deletion(config_map_ref("c")) };
    let mut dependent = config_map("dependent", json!({}));
    let uid = bed.object(&config_map_ref("c")).await["metadata"]["uid"].clone();
    dependent["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": uid, "blockOwnerDeletion": true}]);
    dependent["metadata"]["finalizers"] = json!(["x.dev/hold"]);
    bed.make(&dependent).await;
    fine(&bed.run(Outcome { delete: vec![foreground], ..outcome() }).await);
    assert_eq!(
        bed.object(&config_map_ref("c")).await["metadata"]["finalizers"],
        json!(["foregroundDeletion"])
    );
    let known = bed.stores.known(&config_map_ref("c"));
    assert!(matches!(known, mortise_core::store::Known::Present(_)), "it is on its way, not gone");
}

fn pod() -> ObjectRef {
    object_ref(v1("", "Pod"), Some("a"), "p")
}

fn with_budget(bed: &Bed, allowed: u32) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "a", "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "a", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "x"}}, "minAvailable": 1},
        "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1, "observedGeneration": 1},
    });
    bed.api.load(pod, true).unwrap();
    bed.api.load(budget, true).unwrap();
}

fn evicting() -> Outcome {
    Outcome { evict: vec![deletion(pod())], ..status(&json!({"state": "Ready"})) }
}

#[tokio::test]
async fn a_pod_is_evicted() {
    let bed = Bed::new().await;
    with_budget(&bed, 1);
    assert_eq!(actions(&bed.run(evicting()).await), ["evict Pod p", "status Rule r"]);
    fine(
        &bed.run(Outcome {
            evict: vec![deletion(object_ref(v1("", "Pod"), Some("a"), "none"))],
            ..outcome()
        })
        .await,
    );
}

#[tokio::test(start_paused = true)]
async fn a_refused_eviction_is_an_answer_and_everything_else_is_carried_out() {
    let bed = Bed::new().await;
    with_budget(&bed, 0);
    let begun = tokio::time::Instant::now();
    let written = bed.run(evicting()).await;
    assert_eq!(codes(&written), [(contract::Action::Evict, 429)]);
    assert!(!written.is_failure(), "no back-off");
    assert_eq!(actions(&written), ["status Rule r"]);
    assert!(
        begun.elapsed() < Duration::from_millis(5),
        "it is not tried again: {:?}",
        begun.elapsed()
    );
    assert!(bed.get(&pod()).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn an_eviction_that_the_server_was_too_busy_for_is_a_failure() {
    let bed = Bed::new().await;
    with_budget(&bed, 1);
    let evictions = Filter::resource("pods").subresource("eviction");
    bed.api.faults().inject(Fault::TooManyRequests(Some(60)), evictions, 1);
    let written = bed.run(evicting()).await;
    assert_eq!(codes(&written), [(contract::Action::Evict, 429)]);
    assert!(written.is_failure(), "it is not a budget's answer, and is tried again");
    assert_eq!(written.retry_after, Some(Duration::from_mins(1)));
    assert_eq!(actions(&written), Vec::<String>::new(), "no later step is begun");
}
