use super::{
    super::{Case, Step, differences},
    *,
};
use crate::{
    Description, Failure, Host, Methods, NoConfig, ObjectRef, OutboundRule, Outcome, Processor,
    Reconciler, Request, Selection,
    kubernetes::{ConfigMap, Secret},
    outbound::{Credential, Method},
};

const ITEMS: &str = "https://api.example.com/items";

fn parse(text: &str) -> Result<Calls, String> {
    let calls: Calls = serde_saphyr::from_str_with_options(text, yaml::options())
        .map_err(|error| error.to_string())?;
    calls.check().map(|()| calls)
}

fn asked(method: Method, url: &str, token: &str, body: Option<&str>) -> OutboundRequest {
    let body = body.map(|body| body.as_bytes().to_vec());
    let (url, token) = (url.to_owned(), Some(token.to_owned()));
    OutboundRequest { method, url, headers: Vec::new(), body, token, now: 0 }
}

fn status(reply: &Reply) -> Option<u16> {
    match reply {
        Reply::Answer(answer) => Some(answer.status),
        _ => None,
    }
}

#[test]
fn a_call_of_a_file_is_complete_and_has_no_other_field() {
    let good = "calls: [{method: GET, url: a, answer: {status: 204}}]";
    assert!(parse(good).is_ok());
    let cases = [
        (
            "calls: [{method: get, url: a, error: not-sent}]",
            "calls[0].method: `get` is none of GET, ",
        ),
        ("calls: [{method: GET, url: a}]", "calls[0].answer: either `answer` or `error`"),
        ("calls: [{method: GET, url: a, answer: {status: 99}}]", "calls[0].answer.status: 99 is"),
        (
            "calls: [{method: GET, url: a, answer: {status: 200}, error: not-sent}]",
            "calls[0].answer: either",
        ),
        ("calls: [{method: GET, url: a, tokens: b, error: not-sent}]", "unknown field `tokens`"),
        ("calls: [{method: GET, url: a, error: lost}]", "unknown variant `lost`"),
        ("calls: [{method: GET, url: a, answer: {state: 200}}]", "unknown field `state`"),
        ("anyOrder: true", "unknown field `anyOrder`"),
    ];
    for (text, expected) in cases {
        let error = parse(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn calls_are_answered_in_the_order_of_the_file() {
    let text = "calls:\n- {method: GET, url: a, answer: {status: 200, headers: {retry-after: '7'}, body: {b: 1}}}\n- {method: POST, url: a, token: t, body: {c: [{d: 1}]}, answer: {status: 201, body: text}}\n- {method: PUT, url: a, error: no-answer}\n";
    let post = || asked(Method::Post, "a", "t", Some(r#"{"c": [{"d": 1, "e": 2}], "f": 3}"#));
    let get = || asked(Method::Get, "a", "t", None);
    let script = Script::new(parse(text).unwrap());
    let reply = |request: &OutboundRequest| script.0.lock().reply(request);
    let Reply::Answer(answer) = reply(&get()) else { panic!() };
    assert_eq!((answer.status, answer.header("retry-after")), (200, Some("7")));
    assert_eq!(answer.json::<Value>().unwrap(), json!({"b": 1}));
    let Reply::Answer(answer) = reply(&post()) else { panic!() };
    assert_eq!((answer.status, &*answer.body), (201, &b"text"[..]));
    assert!(matches!(reply(&asked(Method::Put, "a", "t", None)), Reply::NoAnswer(_)));
    script.end_step("a step", Calls::default());
    assert_eq!(script.wrong(), []);

    let others = [
        OutboundRequest { token: None, ..post() },
        OutboundRequest { url: "b".to_owned(), ..post() },
        OutboundRequest { method: Method::Put, ..post() },
        asked(Method::Post, "a", "t", Some(r#"{"c": [{"d": 1}, {"d": 1}]}"#)),
        asked(Method::Post, "a", "t", Some(r#"{"c": [{"d": 2}]}"#)),
    ];
    for other in others {
        let script = Script::new(parse(text).unwrap());
        assert_eq!(status(&script.0.lock().reply(&get())), Some(200));
        assert!(matches!(script.0.lock().reply(&other), Reply::NotSent(_)), "{other:?}");
    }
}

#[test]
fn a_call_that_is_missing_or_not_scripted_is_told() {
    let text = "calls:\n- {method: GET, url: a, answer: {status: 200}}\n- {method: GET, url: b, body: {c: 1}, answer: {status: 200}}\n";
    let script = Script::new(parse(text).unwrap());
    script.0.lock().reply(&asked(Method::Get, "b", "t", Some(r#"{"c":1}"#)));
    script.end_step("step 1", parse(&format!("any-order: true\n{text}")).unwrap());
    let [wrong] = &script.wrong()[..] else { panic!() };
    assert_eq!(wrong.title, "the calls of step 1");
    assert_eq!(wrong.expected, "GET a\nGET b body {\"c\":1}\n");
    let said = parse(&format!("calls:\n{}", wrong.actual)).unwrap();
    assert_eq!((&*said.calls[0].url, said.calls[0].body.clone()), ("b", Some(json!({"c": 1}))));

    for url in ["b", "a"] {
        let reply = script.0.lock().reply(&asked(Method::Get, url, "t", Some(r#"{"c":1}"#)));
        assert_eq!(status(&reply), Some(200), "any order");
    }
    script.end_step("step 2", Calls::default());
    assert_eq!(script.wrong().len(), 1);
}

#[test]
fn without_notes_calls_may_be_left_out_and_made_again() {
    let text = "calls:\n- {method: GET, url: a, answer: {status: 200}}\n- {method: GET, url: b, answer: {status: 201}}\n";
    let script = Script::new(parse(text).unwrap());
    script.set_loose();
    for _ in 0..2 {
        assert_eq!(status(&script.0.lock().reply(&asked(Method::Get, "b", "t", None))), Some(201));
    }
    script.end_step("step 1", Calls::default());
    assert_eq!(status(&script.0.lock().reply(&asked(Method::Get, "b", "t", None))), Some(201));
    assert_eq!(script.wrong(), []);
    script.0.lock().reply(&asked(Method::Get, "a", "t", None));
    script.end_step("step 2", Calls::default());
    assert_eq!(script.wrong().len(), 1, "a call that was never answered");
}

/// Asks for an item, unless the note has it, and patches the `ConfigMap` with its number.
/// With `IS_RIGHT` false, it asks only once, and needs the note.
struct Numbers<const IS_RIGHT: bool>;

impl<const IS_RIGHT: bool> Processor for Numbers<IS_RIGHT> {
    type Config = NoConfig;

    fn describe(_: &NoConfig) -> Result<Description, String> {
        let tokens = Selection::of::<Secret>().fields(["data.token"]);
        let maps = Selection::of::<ConfigMap>().labels("number=yes");
        let rule = OutboundRule::new("https://api.example.com").methods(Methods::GET);
        Ok(Description::new("numbers", "1.0.0")
            .reconciles(Reconciler::new("numbers", maps))
            .writes(Selection::of::<ConfigMap>(), crate::Verbs::CREATE | crate::Verbs::UPDATE)
            .outbound([rule.credentials([tokens])]))
    }

    fn reconcile(request: &Request, _: &NoConfig, host: &Host) -> Result<Outcome, Failure> {
        let Some(map) = request.object::<ConfigMap>()? else { return Ok(Outcome::new()) };
        let secret = ObjectRef::of::<Secret>(Some("a"), "token");
        let credential = Credential::bearer(&secret, "data.token");
        let asks = IS_RIGHT || map.data.get("text").map(String::as_str) == Some("1");
        let number = match request.note.clone() {
            Some(number) => number,
            None if asks => {
                let answer = host.outbound().get(ITEMS).credential(credential).send()?;
                answer.json::<Value>().unwrap()["number"].to_string()
            }
            None => "none".to_owned(),
        };
        let metadata = crate::object::Metadata::new("copy").namespace("a");
        let data = [("number".to_owned(), number.clone())].into();
        let copy = ConfigMap { metadata, data, ..ConfigMap::default() };
        Ok(Outcome::new().apply(&copy).note(number).requeue_never())
    }
}

fn case(calls: &str) -> Case {
    let map = |text: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"text": text},
            "metadata": {"name": "map", "namespace": "a", "labels": {"number": "yes"}},
        })
    };
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "data": {"token": "c2VjcmV0"},
        "metadata": {"name": "token", "namespace": "a"},
    });
    let steps = vec![Step::default(), Step { apply: vec![map("2")], ..Step::default() }];
    let expected = "objects:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: copy, namespace: a}\n  data: {number: '7'}\n---\n{}\n";
    let documents = serde_saphyr::from_multiple(expected).unwrap();
    let texts = expected.split("---\n").map(str::to_owned).collect();
    Case {
        name: "case".to_owned(),
        folder: "nowhere".into(),
        objects: vec![map("1"), secret],
        clusters: Vec::new(),
        config: "{}".to_owned(),
        now: jiff::Timestamp::UNIX_EPOCH,
        only: None,
        validate: true,
        steps,
        calls: vec![parse(calls).unwrap()],
        expected: Some(super::super::Expected { texts, documents }),
    }
}

#[test]
fn a_case_runs_a_second_time_without_notes() {
    let scripted = "calls: [{method: GET, url: 'https://api.example.com/items', token: secret, answer: {status: 200, body: {number: 7}}}]";
    assert_eq!(differences::<Numbers<true>>(&case(scripted), &[], &[], false), []);

    let wrong = differences::<Numbers<false>>(&case(scripted), &[], &[], false);
    let [wrong] = &wrong[..] else { panic!("{wrong:?}") };
    assert_eq!(wrong.title, "step 1, with all notes forgotten");
    assert!(wrong.actual.contains("number: none"), "{wrong}");

    let wrong = differences::<Numbers<true>>(&case("{}"), &[], &[], false);
    let titles: Vec<&str> = wrong.iter().map(|wrong| wrong.title.as_str()).collect();
    assert!(titles.contains(&"the calls of the first reconciles"), "{titles:?}");
}
