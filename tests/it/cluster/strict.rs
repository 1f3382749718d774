//! What guests produce, sent to a real API server with the real definitions of its kinds: nothing is refused, nothing is lost.
//!
//! The requests are dry runs: what is asked for is whether the server takes an object, and what of it.

use std::{cell::RefCell, collections::BTreeMap, marker::PhantomData, path::Path};

use kube::client::Body;
use mortise_host::{cluster::Cluster, desk};
use mortise_sdk::{Description, Failure, Host, Outcome, Processor, Request, testing::case};
use serde_json::{Value, json};

use crate::goldens;

/// What only one server knows of an object, or only one test.
const OF_ONE_SERVER: [&str; 5] =
    ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"];

thread_local! {
    static APPLIED: RefCell<Vec<Value>> = const { RefCell::new(Vec::new()) };
}

/// A guest of which is kept what it wants applied.
struct Recorded<P>(PhantomData<P>);

impl<P: Processor> Processor for Recorded<P> {
    type Config = P::Config;

    fn describe(config: &P::Config) -> Result<Description, String> {
        P::describe(config)
    }

    fn reconcile(request: &Request, config: &P::Config, host: &Host) -> Result<Outcome, Failure> {
        let outcome = P::reconcile(request, config, host)?;
        let applied =
            outcome.apply.iter().map(|manifest| serde_json::from_str(&manifest.object).unwrap());
        APPLIED.with_borrow_mut(|kept| kept.extend(applied));
        Ok(outcome)
    }
}

/// What a guest wants applied in its cases, each with the name of the case.
fn in_cases<P: Processor>(folder: &str) -> Vec<(String, Value)> {
    let crds = mortise_tests::definitions(folder).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
    let mut all = Vec::new();
    for case in case::all(&root.join("cases")).unwrap() {
        case::run::<Recorded<P>>(&case, &crds).unwrap();
        let applied = APPLIED.take();
        all.extend(applied.into_iter().map(|object| (format!("{folder} {}", case.name), object)));
    }
    all
}

#[tokio::test]
async fn a_real_server_takes_all_that_guests_apply() {
    let Some(server) = mortise_tests::cluster::shared().await.unwrap() else { return };
    server.install(&mortise_tests::cluster::istio().await.unwrap().unwrap()).await.unwrap();
    let namespace = server.namespace("strict").await.unwrap();
    let client = server.client().await.unwrap();
    let cluster = Cluster::new(client.clone());

    let api_rules = in_cases::<api_rule::ApiRules>("guests/api-rule");
    let copies = in_cases::<secret_copy::SecretCopies>("guests/secret-copy");
    let recorded = goldens::applied();
    let sources = [api_rules.len(), copies.len(), recorded.len()];
    assert!(sources.iter().all(|count| *count > 0), "{sources:?}");

    // What many cases apply alike is sent once.
    let mut distinct: BTreeMap<String, (String, Value)> = BTreeMap::new();
    for (case, object) in api_rules.into_iter().chain(copies).chain(recorded) {
        let object = without_what_one_server_knows(object, &namespace);
        distinct.entry(object.to_string()).or_insert((case, object));
    }
    for (case, object) in distinct.into_values() {
        let resource = cluster.resolve(&desk::kind_of(&object)).await.unwrap();
        let resource = resource.unwrap_or_else(|| panic!("{case}: not served: {object}"));
        assert!(resource.namespaced, "{case}: {object}");
        let (group, version) = (&resource.kind.group, &resource.kind.version);
        let base = if group.is_empty() { "/api".into() } else { format!("/apis/{group}") };
        let name = object["metadata"]["name"].as_str().unwrap();
        let path = format!(
            "{base}/{version}/namespaces/{namespace}/{}/{name}?fieldManager=strict&force=true&fieldValidation=Strict&dryRun=All",
            resource.plural
        );
        let request = http::Request::patch(path)
            .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
            .body(Body::from(object.to_string().into_bytes()))
            .unwrap();
        let (head, body) = client.send(request).await.unwrap().into_parts();
        let body = body.collect_bytes().await.unwrap();
        let said = String::from_utf8_lossy(&body);
        assert!(head.status.is_success(), "{case}: {}: {said}\n{object:#}", head.status);
        let warnings: Vec<_> = head.headers.get_all(http::header::WARNING).iter().collect();
        assert!(warnings.is_empty(), "{case}: {warnings:?}\n{object:#}");
        let answer = serde_json::from_slice(&body).unwrap();
        let mut lost = Vec::new();
        lacks(&object, &answer, "", &mut lost);
        assert!(lost.is_empty(), "{case}: not kept: {lost:?}\n{object:#}");
    }
}

/// In the test's namespace, since nobody has made the others.
fn without_what_one_server_knows(mut object: Value, namespace: &str) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in OF_ONE_SERVER {
        metadata.remove(field);
    }
    metadata.insert("namespace".to_owned(), json!(namespace));
    object
}

/// Where an answer lacks what was sent. What is sent empty may be left out.
pub(super) fn lacks(sent: &Value, answer: &Value, at: &str, lost: &mut Vec<String>) {
    match (sent, answer) {
        (Value::Null, _) => {}
        (Value::Object(sent), _) => {
            for (key, sent) in sent {
                lacks(sent, &answer[key], &format!("{at}/{key}"), lost);
            }
        }
        (Value::Array(sent), Value::Array(answer)) if sent.len() == answer.len() => {
            for (index, (sent, answer)) in sent.iter().zip(answer).enumerate() {
                lacks(sent, answer, &format!("{at}/{index}"), lost);
            }
        }
        (Value::Array(sent), Value::Null) if sent.is_empty() => {}
        (sent, answer) if sent == answer => {}
        _ => lost.push(at.to_owned()),
    }
}

#[test]
fn a_field_that_an_answer_lacks_is_found() {
    let sent = json!({"a": {"b": 1, "c": [{"d": 2}]}, "e": {}, "f": []});
    let cases = [
        (json!({"a": {"b": 1, "c": [{"d": 2, "more": 1}]}}), vec![]),
        (json!({"a": {"b": 1, "c": [{}]}}), vec!["/a/c/0/d"]),
        (json!({"a": {"c": [{"d": 3}]}}), vec!["/a/b", "/a/c/0/d"]),
        (json!({"a": {"b": 1, "c": []}}), vec!["/a/c"]),
    ];
    for (answer, expected) in cases {
        let mut lost = Vec::new();
        lacks(&sent, &answer, "", &mut lost);
        assert_eq!(lost, expected, "{answer}");
    }
}
