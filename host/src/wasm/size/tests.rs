use mortise_core::contract::{Mode, Requeue, Retry};

use super::*;

fn outcome() -> Outcome {
    Outcome {
        apply: Vec::new(),
        patch: Vec::new(),
        evict: Vec::new(),
        delete: Vec::new(),
        prune: Vec::new(),
        status: None,
        events: Vec::new(),
        requeue: Requeue::ByDefault,
        finalizers: None,
        start: Vec::new(),
        note: None,
    }
}

fn manifest(object: &str) -> Manifest {
    let (leave, absent) = (Vec::new(), Vec::new());
    Manifest {
        cluster: std::sync::Arc::default(),
        object: object.into(),
        mode: Mode::Apply,
        leave,
        absent,
    }
}

fn refusal(limit: usize, returned: &Result<Outcome, Failure>) -> Option<String> {
    let limits = Limits { outcome: limit, ..Limits::default() };
    check("p", &limits, returned).err().map(|error| error.to_string())
}

#[test]
fn an_outcome_within_the_limit_passes() {
    assert_eq!(refusal(0, &Ok(outcome())), None);
    let returned = Ok(Outcome { status: Some("12345678".into()), ..outcome() });
    assert_eq!(refusal(8, &returned), None);
    assert!(refusal(7, &returned).unwrap().contains("most of them in `status` (8 bytes)"));
}

#[test]
fn the_largest_object_is_named() {
    let large = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"a","name":"b"},"data":{}}"#;
    let apply = vec![manifest("{}"), manifest(large)];
    let message = refusal(150, &Ok(Outcome { apply, ..outcome() })).unwrap();
    assert!(message.contains("`apply[1]`, ConfigMap a/b (88 bytes)"), "{message}");
    let patch = vec![manifest("not JSON, and longer than twenty bytes")];
    let message = refusal(20, &Ok(Outcome { patch, ..outcome() })).unwrap();
    assert!(message.contains("`patch[0]` (38 bytes)"), "{message}");
}

#[test]
fn a_failure_counts_too() {
    let failure = Failure {
        message: "123".into(),
        status: Some("45".into()),
        events: Vec::new(),
        retry: Retry::BackOff,
        note: None,
    };
    assert_eq!(refusal(5, &Err(failure.clone())), None);
    assert!(refusal(4, &Err(failure)).unwrap().contains("it has 5 bytes"));
}

/// Regression: entries without texts were free; 10,000 empty deletions had no size at all.
#[test]
fn entries_count_where_their_texts_are_empty() {
    let kind = mortise_core::fixture::v1("", "Pod").into();
    let ref_ = ObjectRef { kind, namespace: None, name: String::new() };
    let propagation = mortise_core::contract::Propagation::Background;
    let deletion = Deletion { ref_, uid: None, propagation, grace_period: None };
    let returned = Ok(Outcome { delete: vec![deletion; 10_000], ..outcome() });
    assert!(refusal(ENTRY * 10_000, &returned).is_some());
    let event = Event {
        on: None,
        event_type: mortise_core::contract::EventType::Normal,
        reason: String::new(),
        message: String::new(),
    };
    let returned = Ok(Outcome { events: vec![event; 100], ..outcome() });
    assert!(refusal(ENTRY * 100 - 1, &returned).is_some());
    assert!(refusal(ENTRY * 100, &returned).is_none());
}
