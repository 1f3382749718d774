use mortise_embedded_api::{Fault, Filter};

use super::*;

/// Returns a ConfigMap that every API server rejects.
fn invalid(name: &str) -> Value {
    let mut object = config_map(name, json!({"k": "v"}));
    object["metadata"]["labels"] = json!({"not a label!": "v"});
    object
}

fn patches() -> Filter {
    Filter::resource("configmaps").verbs([Verb::Patch])
}

#[tokio::test]
async fn a_failed_class_is_tried_in_full_and_later_steps_are_skipped() {
    let bed = Bed::new().await;
    bed.make(&config_map("theirs", json!({}))).await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "e", "namespace": "a"}, "spec": {"ports": [{"port": 80}]}});
    let outcome = Outcome {
        patch: vec![given(&config_map("theirs", json!({"k": "v"})))],
        delete: vec![deletion(config_map_ref("theirs"))],
        status: Some(json!({"state": "Ready"}).to_string()),
        events: vec![said("Done", "m")],
        ..apply([&invalid("one"), &config_map("two", json!({})), &invalid("three"), &service])
    };
    let written = bed.run(Outcome { finalizers: Some(vec![]), ..outcome }).await;
    assert_eq!(codes(&written), [(contract::Action::Apply, 422), (contract::Action::Apply, 422)]);
    assert_eq!(
        written.failures.iter().map(|failure| failure.ref_.name.as_str()).collect::<Vec<_>>(),
        ["one", "three"]
    );
    assert_eq!(actions(&written), ["create ConfigMap two"]);
    assert!(written.is_failure() && bed.get(&config_map_ref("theirs")).await.is_some());
    assert_eq!(bed.object(&rule_ref("r")).await["status"], Value::Null);
    assert!(
        written.wrote.iter().any(|wrote| wrote.of.name == "one"),
        "it is to be known when somebody mends it"
    );
}

#[tokio::test]
async fn a_failure_carries_the_code_and_message_of_the_api_server() {
    let bed = Bed::new().await;
    let written = bed.run(apply([&invalid("one")])).await;
    let failure = &written.failures[0];
    assert_eq!(
        (failure.code, failure.reason.as_str(), &failure.ref_),
        (422, "Invalid", &config_map_ref("one"))
    );
    assert!(failure.message.contains("metadata.labels"), "{}", failure.message);
}

#[tokio::test]
async fn a_plan_reduced_to_its_report_writes_only_status_and_events() {
    let bed = Bed::new().await;
    let answer = Outcome {
        events: vec![said("Failed", "m")],
        status: Some(json!({"state": "Error"}).to_string()),
        ..apply([&config_map("two", json!({}))])
    };
    let reconciled = Reconciled { reference: rule_ref("r"), object: bed.get(&rule_ref("r")).await };
    let plan = bed.plan(&reconciled, &answer).await.only_report();
    let written = bed.carry_out(&reconciled, &plan).await;
    fine(&written);
    assert_eq!(actions(&written), ["status Rule r", "event Event"]);
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_is_asked_again_after_the_time_that_it_names() {
    let bed = Bed::new().await;
    bed.catch_up().await;
    bed.api.faults().inject(Fault::TooManyRequests(Some(3)), patches(), 2);
    let begun = tokio::time::Instant::now();
    fine(&bed.run_for("r", apply([&config_map("c", json!({}))])).await);
    assert!((6..7).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_fault_of_the_server_is_retried_and_is_a_failure_when_it_does_not_end() {
    let bed = Bed::new().await;
    bed.catch_up().await;
    bed.api.faults().inject(Fault::InternalError, patches(), 4);
    fine(&bed.run_for("r", apply([&config_map("c", json!({}))])).await);
    bed.api.faults().inject(Fault::InternalError, patches(), 100);
    let written = bed.run_for("r", apply([&config_map("d", json!({}))])).await;
    assert_eq!(codes(&written), [(contract::Action::Apply, 500)]);
    assert_eq!(bed.api.faults().pending(), 95, "five times");
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_asked_for_again() {
    let bed = Bed::new().await;
    bed.catch_up().await;
    bed.api.faults().inject(Fault::LostAnswer, patches(), 1);
    fine(&bed.run_for("r", apply([&config_map("c", json!({"k": "v"}))])).await);
    bed.api.faults().inject(
        Fault::LostAnswer,
        Filter::resource("configmaps").verbs([Verb::Create]),
        1,
    );
    let create = Outcome {
        apply: vec![Given { mode: Mode::Create, ..given(&config_map("made", json!({"k": "v"}))) }],
        ..outcome()
    };
    fine(&bed.run_for("r", create).await);
    assert!(
        matches!(bed.stores.known(&config_map_ref("made")), mortise_core::store::Known::Present(_)),
        "what comes after sees it"
    );
    bed.api.faults().inject(
        Fault::LostAnswer,
        Filter::resource("rules.x.dev").verbs([Verb::Patch]),
        1,
    );
    fine(&bed.run_for("r", finalizers(&["x.dev/f"])).await);
    assert_eq!(bed.object(&rule_ref("r")).await["metadata"]["finalizers"], json!(["x.dev/f"]));
    bed.api.faults().inject(
        Fault::LostAnswer,
        Filter::resource("configmaps").verbs([Verb::Delete]),
        1,
    );
    fine(
        &bed.run_for("r", Outcome { delete: vec![deletion(config_map_ref("c"))], ..outcome() })
            .await,
    );
    assert_eq!(bed.get(&config_map_ref("c")).await, None);
}

#[tokio::test(start_paused = true)]
async fn no_answer_at_all_is_a_failure_without_code() {
    let bed = Bed::new().await;
    bed.catch_up().await;
    bed.api.faults().inject(Fault::LostAnswer, patches(), 100);
    let written = bed.run_for("r", apply([&config_map("c", json!({}))])).await;
    assert_eq!(codes(&written), [(contract::Action::Apply, 0)]);
}

#[tokio::test(start_paused = true)]
async fn an_apply_that_does_not_fit_the_schema_is_not_retried() {
    let bed = Bed::new().await;
    bed.catch_up().await;
    let mut object = config_map("c", json!({}));
    object["unknown"] = json!(1);
    bed.writes();
    let written = bed.run_for("r", apply([&object])).await;
    assert_eq!(written.failures.len(), 1, "{written:?}");
    assert_eq!(bed.writes(), 1);
}

#[tokio::test]
async fn a_namespace_that_is_terminating_is_waited_for_without_failure() {
    let bed = Bed::new().await;
    let mut held = config_map("held", json!({}));
    (held["metadata"]["namespace"], held["metadata"]["finalizers"]) =
        (json!("b"), json!(["x.dev/hold"]));
    bed.make(&held).await;
    let namespace = object_ref(v1("", "Namespace"), None, "b");
    bed.foreign(Method::Delete, &namespace, "", json!({})).await;
    let mut wanted = config_map("c", json!({}));
    wanted["metadata"]["namespace"] = json!("b");
    let outcome =
        || Outcome { status: Some(json!({"state": "Ready"}).to_string()), ..apply([&wanted]) };
    let written = bed.run(outcome()).await;
    assert_eq!(
        (written.waits.as_slice(), written.failures.as_slice()),
        (&["b".to_owned()][..], &[][..])
    );
    assert!(!written.is_failure() && written.changes.is_empty(), "the status would not be true");
    bed.edit(&rule_ref("r"), json!({"metadata": {"finalizers": ["x.dev/f"]}})).await;
    bed.foreign(Method::Delete, &rule_ref("r"), "", json!({})).await;
    let written = bed.run(Outcome { finalizers: Some(vec![]), ..apply([&wanted]) }).await;
    assert_eq!(actions(&written), ["finalizers Rule r"], "what is going itself does not wait");
}

#[tokio::test]
async fn a_kind_that_the_cluster_does_not_know_is_a_404() {
    let bed = Bed::new().await;
    let unknown = json!({"apiVersion": "none.dev/v1", "kind": "None", "metadata": {"name": "n", "namespace": "a"}});
    let written = bed.run(apply([&unknown])).await;
    assert_eq!(codes(&written), [(contract::Action::Apply, 404)]);
    assert!(
        written.failures[0].message.contains("None none.dev/v1 `a/n`"),
        "{}",
        written.failures[0].message
    );
}
