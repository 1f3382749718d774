mod started;

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    Description, Error, Failure, Host, Kind, Manifest, NoConfig, ObjectRef, Outcome, Processor,
    Reconciler, Request, Selection, Verbs, kubernetes::ConfigMap, testing::Stub,
};

const FINALIZER: &str = "example.com/greeting";

/// Makes a `ConfigMap` for each Greeting, once the `ConfigMap` `words` is there.
struct Greetings;

fn greeting() -> Kind {
    Kind::new("example.com", "v1", "Greeting")
}

impl Processor for Greetings {
    type Config = NoConfig;

    fn describe(_config: &NoConfig) -> Result<Description, String> {
        let greetings = Reconciler::new("greetings", Selection::new(greeting()))
            .finalizer(FINALIZER)
            .resync(Duration::from_secs(600));
        let all = Verbs::CREATE | Verbs::UPDATE | Verbs::DELETE;
        Ok(Description::new("greetings", "1")
            .reconciles(greetings)
            .reads(Selection::of::<ConfigMap>())
            .writes(Selection::of::<ConfigMap>(), all))
    }

    fn reconcile(request: &Request, _: &NoConfig, host: &Host) -> Result<Outcome, Failure> {
        let Some(greeting) = request.object::<Value>()? else { return Ok(Outcome::new()) };
        if let Some(failed) = request.failed_writes.first() {
            let status = json!({"state": "Refused", "why": failed.message});
            return Ok(Outcome::new().status(request, &status));
        }
        let mine = Selection::of::<ConfigMap>().namespace("shop").labels("greeting");
        if greeting.pointer("/metadata/deletionTimestamp").is_some() {
            return Ok(Outcome::new().prune(mine).finalizers::<&str>([]));
        }
        let words: Option<Value> = host.get_ref(&words(), &[]).map_err(Error::into_failure)?;
        let Some(words) = words else { return Err(Failure::new("no words").retry_on_change()) };
        let name = greeting["spec"]["to"].as_str().unwrap_or("world");
        let text = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "shop", "labels": {"greeting": "yes"}},
            "data": {"text": words["data"]["hello"]},
        });
        Ok(Outcome::new()
            .apply(Manifest::json(&text))
            .prune(mine)
            .status(request, &json!({"state": "Ready"}))
            .finalizers([FINALIZER]))
    }
}

impl Error {
    fn into_failure(self) -> Failure {
        self.into()
    }
}

fn words() -> ObjectRef {
    ObjectRef::of::<ConfigMap>(Some("shop"), "words")
}

fn one() -> ObjectRef {
    ObjectRef::new(greeting(), Some("shop"), "one")
}

fn object(api_version: &str, kind: &str, name: &str, (key, more): (&str, Value)) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "shop"}, key: more})
}

fn stub() -> Stub {
    Stub::new().objects([
        object("example.com/v1", "Greeting", "one", ("spec", json!({"to": "anna"}))),
        object("v1", "ConfigMap", "words", ("data", json!({"hello": "Hello"}))),
    ])
}

fn text(stub: &Stub, name: &str) -> Option<String> {
    let map = stub.object(&ObjectRef::of::<ConfigMap>(Some("shop"), name))?;
    map["data"]["text"].as_str().map(str::to_owned)
}

fn actions(run: &super::Run) -> Vec<(&str, &str)> {
    let kind = |change: &'_ super::Change| change.object["kind"].as_str().map(str::to_owned);
    let changes = run.changes.iter();
    changes
        .map(|change| {
            (
                change.action,
                if kind(change).as_deref() == Some("ConfigMap") { "ConfigMap" } else { "Greeting" },
            )
        })
        .collect()
}

#[test]
fn one_reconcile_says_what_it_read_and_did_in_the_order_of_the_contract() {
    let stub = stub();
    let run = stub.reconcile::<Greetings>(&one(), "");
    let expected = [("finalizers", "Greeting"), ("create", "ConfigMap"), ("status", "Greeting")];
    assert_eq!(actions(&run), expected);
    assert_eq!(run.reads, [super::Read::Get(words(), Vec::new())]);
    assert_eq!((run.failure, run.again), (None, Some(Duration::from_secs(600))));
    let greeting = stub.object(&one()).unwrap();
    assert_eq!(
        (&greeting["status"]["state"], &greeting["metadata"]["finalizers"]),
        (&json!("Ready"), &json!([FINALIZER]))
    );
    assert_eq!(actions(&stub.reconcile::<Greetings>(&one(), "")), [], "what is so is not changed");
}

#[test]
fn who_has_read_or_written_what_changed_is_run_again() {
    let stub = stub();
    assert!(stub.settle::<Greetings>("").runs > 0);
    assert_eq!(stub.settle::<Greetings>("").runs, 0, "nothing is due");

    stub.patch(&object("v1", "ConfigMap", "words", ("data", json!({"hello": "Hi"}))));
    assert!(stub.settle::<Greetings>("").runs > 0, "what was read");
    assert_eq!(text(&stub, "anna").as_deref(), Some("Hi"));

    stub.apply(&object("v1", "ConfigMap", "anna", ("data", json!({"text": "mine", "more": "x"}))));
    stub.settle::<Greetings>("");
    let map = stub.object(&ObjectRef::of::<ConfigMap>(Some("shop"), "anna")).unwrap();
    assert_eq!(map["data"], json!({"text": "Hi", "more": "x"}), "what was written, and no more");

    stub.delete("ConfigMap/shop/anna");
    stub.settle::<Greetings>("");
    assert_eq!(text(&stub, "anna").as_deref(), Some("Hi"), "what is gone");

    let to = object("example.com/v1", "Greeting", "one", ("spec", json!({"to": "bert"})));
    stub.patch(&to);
    stub.settle::<Greetings>("");
    assert_eq!((text(&stub, "anna"), text(&stub, "bert")), (None, Some("Hi".to_owned())), "pruned");

    stub.advance(Duration::from_secs(600));
    assert_eq!(stub.settle::<Greetings>("").runs, 1, "the resync");

    stub.delete("Greeting/shop/one");
    stub.settle::<Greetings>("");
    assert_eq!((stub.object(&one()), text(&stub, "bert")), (None, None));
}

#[test]
fn a_failure_is_tried_again_when_what_it_waits_for_comes() {
    let stub = Stub::new().objects([object(
        "example.com/v1",
        "Greeting",
        "one",
        ("spec", json!({"to": "anna"})),
    )]);
    let settled = stub.settle::<Greetings>("");
    assert_eq!(settled.failures["Greeting/shop/one"], "no words");
    assert_eq!(stub.settle::<Greetings>("").runs, 0);
    stub.apply(&object("v1", "ConfigMap", "words", ("data", json!({"hello": "Hello"}))));
    assert_eq!(stub.settle::<Greetings>("").failures.len(), 0);
    assert_eq!(text(&stub, "anna").as_deref(), Some("Hello"));
}

#[test]
fn a_refused_write_comes_back_and_stops_what_is_later() {
    let stub = stub();
    // Without `hello` in `words`, the applied `text` is null.
    stub.set(object("v1", "ConfigMap", "words", ("data", json!({}))));
    let run = stub.reconcile::<Greetings>(&one(), "");
    assert_eq!(run.failure, None, "null is no field");
    let stub = super::super::Stub::new().objects([
        object("example.com/v1", "Greeting", "one", ("spec", json!({"to": "UPPER"}))),
        object("v1", "ConfigMap", "words", ("data", json!({"hello": "Hello"}))),
    ]);
    let run = stub.reconcile::<Greetings>(&one(), "");
    let failure = run.failure.as_deref().unwrap();
    assert!(
        failure
            .contains("of ConfigMap v1 `shop/UPPER` failed (422): ConfigMap \"UPPER\" is invalid"),
        "{failure}"
    );
    assert_eq!(stub.object(&one()).unwrap()["status"]["state"], "Refused");
    assert_eq!(actions(&run), [("finalizers", "Greeting"), ("status", "Greeting")]);
}

#[test]
#[should_panic(expected = "the stub is prepared before the first reconcile")]
fn a_stub_is_not_prepared_after_the_first_reconcile() {
    let stub = stub();
    stub.settle::<Greetings>("");
    stub.set(object("v1", "ConfigMap", "late", ("data", json!({}))));
}

#[test]
fn another_processor_takes_the_place_of_the_former() {
    struct Other;
    impl Processor for Other {
        type Config = NoConfig;
        fn describe(config: &NoConfig) -> Result<Description, String> {
            Ok(Description { name: "other".to_owned(), ..Greetings::describe(config)? })
        }
        fn reconcile(_: &Request, _: &NoConfig, _: &Host) -> Result<Outcome, Failure> {
            Ok(Outcome::new().requeue_never())
        }
    }
    let stub = stub();
    stub.settle::<Greetings>("");
    assert_eq!(stub.settle::<Other>("").runs, 1, "the object is new to it");
    stub.patch(&object("v1", "ConfigMap", "words", ("data", json!({"hello": "Hi"}))));
    assert_eq!(stub.settle::<Other>("").runs, 0, "the former has read it, and is gone");
}

#[test]
fn one_object_is_settled_and_the_others_are_left_alone() {
    let two = object("example.com/v1", "Greeting", "two", ("spec", json!({"to": "otto"})));
    let stub = stub().objects([two]);
    assert_eq!(stub.settle_one::<Greetings>(&one(), "").failures, [].into());
    let kinds: Vec<(Value, Value)> = stub
        .all()
        .iter()
        .map(|object| (object["kind"].clone(), object["metadata"]["name"].clone()))
        .collect();
    let expected =
        [("ConfigMap", "anna"), ("ConfigMap", "words"), ("Greeting", "one"), ("Greeting", "two")];
    let expected = expected.map(|(kind, name)| (json!(kind), json!(name)));
    assert!(expected.iter().all(|one| kinds.contains(one)) && kinds.len() == 4, "{kinds:?}");
}

#[test]
fn invalid_objects_are_taken_in_when_a_test_asks_for_it() {
    let service = || object("v1", "Service", "web", ("spec", json!({})));
    let stub = stub().unchecked().objects([service()]);
    stub.settle::<Greetings>("");
    assert_eq!(text(&stub, "anna").as_deref(), Some("Hello"));
    assert!(stub.all().iter().any(|object| object["kind"] == "Service"));
    let refused =
        std::panic::catch_unwind(|| self::stub().objects([service()]).settle::<Greetings>(""));
    assert!(refused.is_err(), "otherwise it is refused");
}
