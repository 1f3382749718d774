use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::{
    Description, Failure, Host, Methods, NoConfig, ObjectRef, Outcome, Processor, Reconciler,
    Request, Selection,
    kubernetes::{ConfigMap, Secret},
    outbound::{Credential, CredentialFault},
};

const FINALIZER: &str = "example.com/item";
const URL: &str = "https://eu.api.example.com/v1/items?tag=1";

fn rule() -> OutboundRule {
    let tokens = Selection::of::<Secret>().labels("token=yes").fields(["data.token"]);
    OutboundRule::new("https://*.api.example.com")
        .methods(Methods::GET | Methods::POST)
        .credentials([tokens])
        .pause(Duration::from_secs(15))
}

/// Makes the calls that the data of a `ConfigMap` names, `METHOD URL`, with the token of the Secret
/// `token`. Notes how often it has run.
struct Caller;

impl Processor for Caller {
    type Config = NoConfig;

    fn describe(_: &NoConfig) -> Result<Description, String> {
        let maps = Selection::of::<ConfigMap>().labels("calls=yes");
        Ok(Description::new("caller", "1.0.0")
            .reconciles(Reconciler::new("maps", maps).finalizer(FINALIZER))
            .outbound([rule()]))
    }

    fn reconcile(request: &Request, _: &NoConfig, host: &Host) -> Result<Outcome, Failure> {
        let Some(map) = request.object::<ConfigMap>()? else { return Ok(Outcome::new()) };
        let secret = ObjectRef::of::<Secret>(map.metadata.namespace.as_deref(), "token");
        for call in map.data.values() {
            let (method, url) = call.split_once(' ').unwrap_or_default();
            let outbound = host.outbound();
            let prepared = match method {
                "POST" => outbound.post(url).json(&json!({"a": 1})),
                "DELETE" => outbound.delete(url),
                _ => outbound.get(url),
            };
            prepared.credential(Credential::bearer(&secret, "data.token")).send()?;
        }
        let runs: usize = request.note.as_deref().unwrap_or("0").parse().unwrap_or_default();
        let outcome = Outcome::new().note((runs + 1).to_string()).requeue_never();
        Ok(outcome.finalizers([FINALIZER]).event(crate::Event::normal("Ran", format!("{runs}"))))
    }
}

fn map(calls: &[&str], finalizers: &[&str]) -> Value {
    let data = calls.iter().enumerate().map(|(at, call)| (format!("{at:02}"), *call));
    let data: BTreeMap<_, _> = data.collect();
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": data,
        "metadata": {"name": "a", "namespace": "b", "labels": {"calls": "yes"}, "finalizers": finalizers},
    })
}

fn secret(labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "data": {"token": "c2VjcmV0"},
        "metadata": {"name": "token", "namespace": "b", "labels": labels},
    })
}

fn of_map() -> ObjectRef {
    ObjectRef::of::<ConfigMap>(Some("b"), "a")
}

fn stub(calls: &[&str]) -> Stub {
    Stub::new()
        .objects([map(calls, &[FINALIZER]), secret(&json!({"token": "yes"}))])
        .outbound(|_| Reply::json(200, &json!({"id": "7"})))
}

#[test]
fn a_call_reaches_the_test_with_the_value_of_its_credential() {
    let stub = stub(&[&format!("POST {URL}")]).outbound(|call| {
        assert_eq!(
            (call.method, &*call.url, call.token.as_deref()),
            (Method::Post, URL, Some("secret"))
        );
        assert_eq!((call.json(), call.now), (json!({"a": 1}), 1_767_225_600_000));
        Reply::json(201, &json!({"id": "7"})).header("X-Trace", "t")
    });
    assert_eq!(stub.settle::<Caller>("").failures, [].into());
    let [call] = &stub.calls()[..] else { panic!("{:?}", stub.calls()) };
    assert!(call.is_sent);
    assert_eq!((&*call.url, call.token.as_deref()), (URL, Some("secret")));
    let answer = call.result.clone().unwrap();
    assert_eq!((answer.status, answer.header("x-trace")), (201, Some("t")));
}

#[test]
fn the_rules_of_the_host_come_first() {
    let post = format!("POST {URL}");
    let refused = |stub: Stub| {
        stub.set_outbound(|call| panic!("{call}"));
        stub.settle::<Caller>("");
        let call = stub.calls().remove(0);
        assert_eq!((call.is_sent, call.token), (false, None));
        call.result.unwrap_err()
    };
    let denied = |stub: Stub| match refused(stub) {
        CallError::Denied(why) => why,
        other => panic!("{other}"),
    };
    let cases = [
        ("another origin", stub(&["GET https://evil.example/"])),
        ("a method that is not declared", stub(&[&format!("DELETE {URL}")])),
        ("nothing granted", stub(&[&post]).grant_egress([])),
        (
            "another origin granted",
            stub(&[&post])
                .grant_egress([OutboundRule { origin: "https://b.example".to_owned(), ..rule() }]),
        ),
        (
            "no credential granted",
            stub(&[&post]).grant_egress([OutboundRule { credentials: Vec::new(), ..rule() }]),
        ),
    ];
    for (name, stub) in cases {
        assert!(!denied(stub).is_empty(), "{name}");
    }
    let unheld = stub(&[&post]).objects([map(&[&post], &[])]);
    assert_eq!(refused(unheld), CallError::NotHeld);
    let unlabelled = stub(&[&post]).objects([secret(&json!({}))]);
    assert_eq!(refused(unlabelled), CallError::Credential(CredentialFault::NoObject));
    let without_value = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token", "namespace": "b", "labels": {"token": "yes"}}});
    let empty = stub(&[&post]).objects([without_value]);
    assert_eq!(refused(empty), CallError::Credential(CredentialFault::NoValue));
}

#[test]
fn a_pause_lasts_until_its_end_by_the_clock_of_the_test() {
    let stub =
        stub(&[&format!("GET {URL}")]).outbound(|_| Reply::status(429).header("Retry-After", "7"));
    let again = |stub: &Stub| {
        stub.reconcile::<Caller>(&of_map(), "");
        stub.calls().pop().unwrap()
    };
    assert_eq!(again(&stub).result.unwrap().status, 429);
    stub.set_outbound(|_| Reply::status(200));
    stub.advance(Duration::from_millis(6500));
    let paused = again(&stub);
    assert_eq!(
        (paused.is_sent, paused.result),
        (false, Err(CallError::Paused(Duration::from_millis(500))))
    );
    stub.advance(Duration::from_millis(500));
    assert_eq!(again(&stub).result.unwrap().status, 200);
    stub.set_outbound(|_| Reply::status(503));
    for _ in 0..2 {
        assert_eq!(again(&stub).result.unwrap().status, 503, "no time is named");
    }
    stub.set_outbound(|_| Reply::status(429));
    again(&stub);
    stub.advance(Duration::from_millis(14_999));
    assert_eq!(again(&stub).result, Err(CallError::Paused(Duration::from_millis(1))));
}

#[test]
fn replies_are_answers_or_the_reason_why_there_is_none() {
    let cases = [
        (Reply::NotSent("a".to_owned()), CallError::NotSent("a".to_owned())),
        (Reply::NoAnswer("b".to_owned()), CallError::NoAnswer("b".to_owned())),
        (Reply::Paused(Duration::from_secs(1)), CallError::Paused(Duration::from_secs(1))),
        (Reply::TooLarge, CallError::TooLarge),
    ];
    for (reply, expected) in cases {
        let stub = stub(&[&format!("GET {URL}")]).outbound(move |_| reply.clone());
        let run = stub.reconcile::<Caller>(&of_map(), "");
        assert_eq!(stub.calls()[0].result, Err(expected));
        assert!(run.failure.is_some());
    }
}

#[test]
fn a_run_with_too_many_calls_fails() {
    let urls: Vec<String> = (0..65).map(|at| format!("GET {URL}&at={at}")).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let run = stub(&urls).reconcile::<Caller>(&of_map(), "");
    let failure = run.failure.unwrap();
    assert!(failure.contains("more than 64 calls to the outside"), "{failure}");
    assert!(stub(&urls[..64]).reconcile::<Caller>(&of_map(), "").failure.is_none());
}

#[test]
fn a_call_without_a_script_fails_the_test() {
    let unscripted = Stub::new()
        .objects([map(&[&format!("GET {URL}")], &[FINALIZER]), secret(&json!({"token": "yes"}))]);
    let run = || unscripted.settle::<Caller>("");
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains(&format!("GET {URL}")) && text.contains("Stub::outbound("), "{text}");
}

#[test]
fn a_note_is_there_in_the_next_run_until_it_is_forgotten() {
    let stub = stub(&[]);
    let runs = |stub: &Stub| {
        let run = stub.reconcile::<Caller>(&of_map(), "");
        run.outcome.unwrap().unwrap().events.remove(0).message
    };
    assert_eq!((runs(&stub), runs(&stub)), ("0".to_owned(), "1".to_owned()));
    stub.forget_notes();
    assert_eq!((runs(&stub), runs(&stub)), ("0".to_owned(), "1".to_owned()));
}

#[test]
fn the_value_of_a_credential_is_read_from_its_header() {
    let of = |scheme: Scheme, value: &str| {
        let credential = core::Credential { of: of_map().into(), at: String::new(), scheme };
        token(&Authorization { credential, header: String::new(), value: value.to_owned().into() })
    };
    assert_eq!(of(Scheme::Bearer, "Bearer a"), "a");
    assert_eq!(of(Scheme::Header("x".to_owned()), "Bearer a"), "Bearer a");
    assert_eq!(of(Scheme::Basic("me".to_owned()), "Basic bWU6YTpi"), "a:b");
}
