//! Conversions and hooks of a component, called as the host calls them.

use std::time::{Duration, Instant};

use mortise_core::{
    contract::{
        Kind, ObjectRef,
        hooks::{Conversion, Operation, Review, Verdict},
    },
    reads::View,
};
use mortise_host::wasm::{Engine, Error, Limits, Options, Processor};
use serde_json::{Value, json};

use super::{MOMENT, misbehave, processor};

const HOOK_TIMEOUT: Duration = Duration::from_secs(30);

async fn hooks(limits: Limits) -> Processor {
    processor("hooks", limits).await
}

fn rule(spec: &Value) -> String {
    let metadata = json!({"name": "a", "namespace": "shop"});
    json!({"apiVersion": "example.com/v1", "kind": "Rule", "metadata": metadata, "spec": spec})
        .to_string()
}

fn conversion(objects: Vec<String>) -> Conversion {
    let (group, kind, to) = ("example.com".into(), "Rule".into(), "v2".into());
    Conversion { group, kind, to, objects, config: String::new() }
}

/// Converts one object whose `do` says what the conversion does.
async fn convert(
    processor: &Processor,
    deed: &str,
    timeout: Duration,
) -> Result<Result<Vec<String>, String>, Error> {
    let objects = vec![rule(&json!({"do": deed}))];
    processor.convert(conversion(objects), Instant::now() + timeout).await.answer
}

fn review(hook: &str, spec: &Value) -> Review {
    let kind = Kind::home("example.com", "v1", "Rule");
    Review {
        hook: hook.into(),
        operation: Operation::Create,
        ref_: ObjectRef { kind: kind.into(), namespace: Some("shop".into()), name: "a".into() },
        object: Some(rule(spec)),
        old: None,
        user: "jane".into(),
        groups: vec!["people".into()],
        dry_run: true,
        config: String::new(),
    }
}

#[tokio::test]
async fn a_component_tells_its_hooks_and_one_without_has_none() {
    let told = hooks(Limits::default()).await.hooks("").await.unwrap();
    assert_eq!(told.conversions[0].versions, ["v1", "v2"]);
    let names: Vec<&str> = told.admission.iter().map(|hook| hook.name.as_str()).collect();
    assert_eq!(names, ["mark", "check"]);
    assert!(told.admission[0].changes && !told.admission[1].changes);
    assert_eq!(told.admission[0].timeout, 10_000);
    assert!(misbehave().await.hooks("").await.unwrap().is_empty());
}

#[tokio::test]
async fn hooks_over_the_bounds_are_refused() {
    let processor = hooks(Limits::default()).await;
    let error = processor.hooks(r#"{"versions": ["v1"]}"#).await.unwrap_err();
    assert!(matches!(&error, Error::DescriptionRefused { .. }), "{error}");
    assert!(error.to_string().contains("two or more versions"), "{error}");
}

/// With one thread there is one turn to compute for longer than a millisecond, which a call has
/// until its store ends.
#[tokio::test]
async fn a_component_that_thinks_about_its_hooks_tells_them_on_one_thread() {
    let engine = Engine::new(Options::default()).unwrap();
    let limits = Limits { deadline: Duration::from_secs(5), ..Limits::default() };
    let processor = super::processor_in(&engine, "hooks", limits).await;
    let told = processor.hooks(r#"{"rounds": 20000000}"#).await.unwrap();
    assert_eq!((told.conversions.len(), told.admission.len()), (1, 2));
}

#[tokio::test]
async fn objects_are_converted_in_their_order() {
    let processor = hooks(Limits::default()).await;
    let objects = (0..100).map(|size| rule(&json!({"size": size}))).collect();
    let called = processor.convert(conversion(objects), Instant::now() + HOOK_TIMEOUT).await;
    let converted = called.answer.unwrap().unwrap();
    for (at, object) in converted.iter().enumerate() {
        let object: Value = serde_json::from_str(object).unwrap();
        assert_eq!(object["spec"], json!({"length": at}));
        assert_eq!(object["apiVersion"], "example.com/v2");
    }
}

#[tokio::test]
async fn a_hook_changes_refuses_or_fails_a_request() {
    let processor = hooks(Limits::default()).await;
    let ask = async |hook, spec: &Value| {
        let ends = Instant::now() + HOOK_TIMEOUT;
        processor.admit(View::default(), review(hook, spec), MOMENT, ends).await.answer.unwrap()
    };
    let marked = ask("mark", &json!({})).await.unwrap();
    let Verdict::Change(object) = &marked.verdict else { panic!("{marked:?}") };
    assert!(object.contains(r#""example.com/marked-by":"jane""#), "{object}");
    assert_eq!(marked.warnings, ["it is marked"]);
    assert_eq!(ask("mark", &json!({"do": "refuse"})).await.unwrap_err(), "told to refuse");
    // Of an empty view nothing can be read, which is a failure of this hook.
    let failure = ask("check", &json!({"size": 1})).await.unwrap_err();
    assert!(failure.contains("ConfigMap"), "{failure}");
}

#[tokio::test]
async fn a_fault_in_a_hook_ends_its_call() {
    let processor = hooks(Limits::default()).await;
    for (deed, expected) in
        [("panic", "panicked: told to panic"), ("grow", "the answer of a hook has")]
    {
        let error = convert(&processor, deed, HOOK_TIMEOUT).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{deed}: {error}");
    }
}

#[tokio::test]
async fn a_hook_that_hangs_ends_at_the_earlier_of_its_own_and_the_callers_deadline() {
    let deadline = Duration::from_millis(300);
    let processor = hooks(Limits { deadline, ..Limits::default() }).await;
    let own = convert(&processor, "hang", HOOK_TIMEOUT).await;
    assert!(matches!(own, Err(Error::OutOfTime { limit, .. }) if limit == deadline), "{own:?}");
    let timeout = Duration::from_secs(1);
    let callers = convert(&hooks(Limits::default()).await, "hang", timeout).await;
    let is_ended = matches!(callers, Err(Error::OutOfTime { limit, .. }) if limit <= timeout);
    assert!(is_ended, "{callers:?}");
}

/// All calls of a processor and all places for calls of others may wait for the API server, which
/// waits for a hook.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hooks_have_places_of_their_own() {
    let limits = Limits { deadline: Duration::from_secs(3), ..Limits::default() };
    let processor = hooks(limits.clone()).await;
    let other = super::processor("misbehave", limits).await;
    let mut hanging = tokio::task::JoinSet::new();
    for _ in 0..256 {
        let other = other.clone();
        hanging.spawn(async move { super::call(&other, "hangs").await.outcome.is_err() });
    }
    while other.waiting().calls == 0 {
        tokio::task::yield_now().await;
    }
    let of = conversion(vec![rule(&json!({"size": 1}))]);
    processor.convert(of, Instant::now() + HOOK_TIMEOUT).await.answer.unwrap().unwrap();
    assert_ne!(other.waiting().calls, 0, "the hook has waited for calls of others");
    hanging.abort_all();
    // Calls that hold all places for hooks delay others no longer than those wait.
    let mut hooked = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let processor = processor.clone();
        hooked.spawn(async move {
            let ends = Instant::now() + Duration::from_millis(300);
            let of = conversion(vec![rule(&json!({"do": "hang"}))]);
            processor.convert(of, ends).await.answer.unwrap_err().reason()
        });
    }
    let reasons = hooked.join_all().await;
    assert!(reasons.contains(&"crowded") && reasons.contains(&"out-of-time"), "{reasons:?}");
}
