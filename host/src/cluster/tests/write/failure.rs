use mortise_core::store::Known;
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

/// Returns a cluster that answers writes of objects of a resource with other metadata.
fn lying(api: &EmbeddedApi, plural: &'static str, metadata: &Value) -> Cluster {
    let (router, metadata) = (api.router(), metadata.as_object().unwrap().clone());
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (router, metadata) = (router.clone(), metadata.clone());
        let is_write =
            request.method() != http::Method::GET && request.uri().path().contains(plural);
        async move {
            let (head, body) = router.oneshot(request).await?.into_parts();
            let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
            let mut answer: Value = serde_json::from_slice(&bytes).unwrap();
            if is_write {
                answer["metadata"].as_object_mut().unwrap().extend(metadata);
            }
            Ok::<_, std::convert::Infallible>(http::Response::from_parts(head, answer.to_string()))
        }
    });
    Cluster::new(kube::Client::new(service, "default"))
}

#[tokio::test]
async fn an_answer_with_another_object_than_the_written_one_is_not_stored() {
    let mut bed = Bed::new().await;
    let kept = bed.stores.known(&rule_ref("r"));
    bed.cluster = lying(&bed.api, "", &json!({"name": "../lied"}));
    let outcome = Outcome {
        status: Some(json!({"state": "Ready"}).to_string()),
        ..apply([&config_map("made", json!({"k": "v"}))])
    };
    fine(&bed.run(outcome).await);
    assert!(bed.get(&config_map_ref("made")).await.is_some());
    for name in ["../lied", "made"] {
        let known = bed.stores.known(&config_map_ref(name));
        assert!(!matches!(known, Known::Present(_)), "{name}");
    }
    let known = bed.stores.known(&rule_ref("r"));
    let (Known::Present(kept), Known::Present(known)) = (kept, known) else { panic!("it is gone") };
    assert_eq!(kept.resource_version(), known.resource_version());
}

#[tokio::test]
async fn an_answer_with_the_uid_of_the_reconciled_object_is_not_taken_for_it() {
    let mut bed = Bed::new().await;
    fine(&bed.run(Outcome { finalizers: finalizers(&["x.dev/f"]).finalizers, ..outcome() }).await);
    let uid = bed.object(&rule_ref("r")).await["metadata"]["uid"].clone();
    let lie = json!({"uid": uid, "finalizers": []});
    bed.cluster = lying(&bed.api, "configmaps", &lie);
    let outcome = apply([&config_map("made", json!({"k": "v"}))]);
    fine(&bed.run(Outcome { finalizers: Some(vec![]), ..outcome }).await);
    let rule = bed.object(&rule_ref("r")).await;
    assert_eq!(rule["metadata"].get("finalizers"), None, "the finalizer is taken off");
}

#[tokio::test]
async fn the_log_tells_of_refusals_without_the_values_that_they_quote() {
    let bed = Bed::new().await;
    let log = tempfile::NamedTempFile::new().unwrap();
    let lines = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
    let lines = lines.with_writer(Arc::new(log.reopen().unwrap())).finish();
    let listening = mortise_core::fixture::listen(lines);
    let refused = Fault::Refused { code: 500, message: "it quotes not a label!".to_owned() };
    bed.api.faults().inject(refused, Filter::resource("events"), 100);
    let written = bed.run(Outcome { events: vec![said("Done", "m")], ..outcome() }).await;
    assert_eq!(written.refused_events.len(), 1);
    let written = bed.run(apply([&invalid("one")])).await;
    assert!(written.failures[0].message.contains("not a label!"), "{:?}", written.failures);
    drop(listening);
    let logged = std::fs::read_to_string(log.path()).unwrap();
    for expected in ["a write was refused", "422 Invalid", "an event was refused", "retrying"] {
        assert!(logged.contains(expected), "{logged}");
    }
    assert!(!logged.contains("not a label!"), "{logged}");
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
