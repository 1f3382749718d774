use std::cell::{Cell, RefCell};

use serde_json::json;

use super::*;
use crate::{Request, Retry, kubernetes::ConfigMap, testing};

fn request(finalizers: &[&str]) -> Request {
    testing::request_for(&json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "b", "finalizers": finalizers},
    }))
}

fn answer(status: u16) -> Answer {
    Answer { status, headers: Vec::new(), body: b"secret".to_vec() }
}

#[test]
fn a_failed_call_runs_again_when_it_may_succeed() {
    let cases = [
        (CallError::Denied("no".to_owned()), Retry::OnChange),
        (CallError::NotHeld, Retry::BackOff),
        (CallError::Credential(CredentialFault::NoValue), Retry::OnChange),
        (CallError::Paused(Duration::from_secs(7)), Retry::After(7000)),
        (CallError::NotSent("no".to_owned()), Retry::BackOff),
        (CallError::NoAnswer("no".to_owned()), Retry::BackOff),
        (CallError::TooLarge, Retry::OnChange),
        (CallError::Invalid("no".to_owned()), Retry::OnChange),
    ];
    for (error, expected) in cases {
        assert_eq!(Failure::from(error.clone()).retry, expected, "{error}");
        assert_eq!(Failure::from(Error::Call(error.clone())).retry, expected, "{error}");
    }
    let cases = [(400, Retry::OnChange), (429, Retry::BackOff), (503, Retry::BackOff)];
    for (status, expected) in cases {
        let failure = Failure::from(answer(status).success().unwrap_err());
        assert_eq!(failure.retry, expected, "{status}");
        assert_eq!(failure.message, format!("the answer has status {status}"));
    }
}

#[test]
fn an_error_quotes_no_body() {
    let body = Answer { body: br#"{"id": "secret"}"#.to_vec(), ..answer(200) };
    let parse = || -> Result<Vec<u8>, Error> { Ok(body.json::<Vec<u8>>()?) };
    let error = parse().unwrap_err().to_string();
    assert_eq!(error, "the answer cannot be read: it is JSON of another form at line 1 column 0");
}

#[test]
fn a_call_is_built_from_its_parts() {
    let (host, secret) = (testing::Stub::new().host(), ObjectRef::of::<ConfigMap>(None, "a"));
    let prepared = host.outbound().post("https://a.example/b").header("x-a", "1");
    let prepared = prepared.credential(Credential::basic(&secret, "data.a", "me"));
    let call = prepared.json(&json!({"a": 1})).timeout(Duration::from_secs(2)).call;
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(call.headers, [header("x-a", "1"), header("content-type", "application/json")]);
    assert_eq!((call.method, call.timeout), (Method::Post, 2000));
    assert_eq!(call.body.unwrap(), br#"{"a":1}"#);
    assert_eq!(call.credential.unwrap().scheme, Scheme::Basic("me".to_owned()));
    let unfit = std::collections::BTreeMap::from([((1, 2), 3)]);
    let error = host.outbound().put("https://a.example").json(&unfit).send().unwrap_err();
    assert!(matches!(&error, CallError::Invalid(why) if why.starts_with("the body is no JSON")));
}

#[test]
#[expect(clippy::too_many_lines, reason = "one flat table")]
fn nothing_is_created_without_a_finalizer_and_without_a_look() {
    struct Case {
        name: &'static str,
        finalizers: &'static [&'static str],
        known: Option<u8>,
        found: &'static [Option<u8>],
        created: Result<u8, Error>,
        expected: Result<Option<u8>, Error>,
        calls: &'static str,
    }
    let unanswered = || Error::Call(CallError::NoAnswer("no".to_owned()));
    let base = || Case {
        name: "",
        finalizers: &["f"],
        known: None,
        found: &[None, None],
        created: Ok(1),
        expected: Ok(Some(1)),
        calls: "find create ",
    };
    let none = Ok(None);
    let cases = [
        Case { name: "no finalizer", finalizers: &["g"], expected: none, calls: "", ..base() },
        Case { name: "known", known: Some(3), expected: Ok(Some(3)), calls: "", ..base() },
        Case {
            name: "created by an earlier run",
            found: &[Some(2)],
            expected: Ok(Some(2)),
            calls: "find ",
            ..base()
        },
        Case { name: "new", ..base() },
        Case {
            name: "conflict with our own",
            found: &[None, Some(2)],
            created: Err(Error::Refused(answer(409))),
            expected: Ok(Some(2)),
            calls: "find create find ",
            ..base()
        },
        Case {
            name: "conflict with another one",
            created: Err(Error::Refused(answer(409))),
            expected: Err(Error::Refused(answer(409))),
            calls: "find create find ",
            ..base()
        },
        Case {
            name: "no answer, and it was done",
            found: &[None, Some(2)],
            created: Err(unanswered()),
            expected: Ok(Some(2)),
            calls: "find create find ",
            ..base()
        },
        Case {
            name: "no answer, and it was not done",
            created: Err(unanswered()),
            expected: Err(unanswered()),
            calls: "find create find ",
            ..base()
        },
        Case {
            name: "not sent",
            created: Err(Error::Call(CallError::NotSent("no".to_owned()))),
            expected: Err(Error::Call(CallError::NotSent("no".to_owned()))),
            ..base()
        },
    ];
    for case in cases {
        let (calls, looks) = (RefCell::new(String::new()), Cell::new(0));
        let find = || {
            *calls.borrow_mut() += "find ";
            looks.set(looks.get() + 1);
            Ok(case.found[looks.get() - 1])
        };
        let create = || {
            *calls.borrow_mut() += "create ";
            case.created
        };
        let done = ensure(&request(case.finalizers), "f", case.known, find, create);
        assert_eq!((done, &**calls.borrow()), (case.expected, case.calls), "{}", case.name);
    }
}
