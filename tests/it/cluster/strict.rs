//! The objects that guests produce, sent to a real API server with the real definitions of their
//! kinds: none is refused, and no field is lost.
//!
//! The requests are dry runs: the test checks whether the server accepts an object, and which
//! fields it keeps.

mod istio;
mod judged;
mod oathkeeper;
mod produced;

pub(super) use produced::foreign;

use std::{collections::BTreeMap, path::Path};

use kube::client::Body;
use mortise::local;
use mortise_embedded_api::{EmbeddedApi, Options};
use mortise_host::cluster::Cluster;
use mortise_sdk::testing::case;
use mortise_tests::cluster;
use serde_json::{Value, json};

use self::produced::{Produced, Said, Way};

/// Fields that only one server or one test knows.
const OF_ONE_SERVER: [&str; 5] =
    ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"];
/// The guests with kinds of their own.
const GUESTS: [&str; 8] = [
    "guests/api-gateway",
    "guests/api-rule",
    "guests/external-gateway",
    "guests/ingress-gateway-restart",
    "guests/peer-authentication",
    "guests/rate-limit",
    "guests/secret-copy",
    "guests/sidecar-restart",
];
/// The name of the object of each kind that every status is written to.
const SUBJECT: &str = "subject";

/// A server with all kinds, and a namespace in it.
struct Server {
    cluster: Cluster,
    namespace: String,
}

/// The answer of a server to an object.
struct Answer {
    status: u16,
    body: Value,
    warnings: Vec<String>,
}

#[tokio::test]
async fn a_real_server_takes_all_that_guests_produce() {
    let Some(control_plane) = cluster::shared().await.unwrap() else { return };
    let produced::All { sources, definitions } =
        tokio::task::spawn_blocking(produced::all).await.unwrap();
    for (source, produced) in &sources {
        assert!(!produced.is_empty(), "{source}: nothing");
        println!("{source}: {}", produced.len());
    }
    let definitions = all_definitions(definitions).await;
    let real = Server::real(control_plane, &definitions).await;
    let embedded = Server::embedded(&definitions, &real.namespace).await;
    // Equal objects of many cases are sent once.
    let mut distinct: BTreeMap<(Way, String), Produced> = BTreeMap::new();
    for mut produced in sources.into_iter().flat_map(|(_, produced)| produced) {
        produced.object = without_what_one_server_knows(produced.object, &real.namespace);
        let key = (produced.way.clone(), produced.object.to_string());
        distinct.entry(key).or_insert(produced);
    }
    for way in ["Apply", "Patch", "Status"] {
        let is_there = |(known, _): &(Way, String)| format!("{known:?}").starts_with(way);
        assert!(distinct.keys().any(is_there), "{way}: nothing");
    }
    println!("distinct: {}", distinct.len());
    for produced in distinct.into_values() {
        judge(&real, &embedded, &produced).await;
    }
}

/// Returns the definitions of Istio, of the guests and of tests, each once.
async fn all_definitions(of_tests: Vec<Value>) -> Vec<Value> {
    let mut all = cluster::istio().await.unwrap().unwrap();
    for guest in GUESTS {
        all.extend(mortise_tests::definitions(guest).unwrap());
    }
    let mut distinct: BTreeMap<String, Value> = BTreeMap::new();
    for definition in all.into_iter().chain(of_tests) {
        let name = definition["metadata"]["name"].as_str().unwrap().to_owned();
        distinct.entry(name).or_insert_with(|| {
            // Kinds of Kubernetes' own groups need an annotation.
            let annotations = definition["metadata"].get("annotations");
            json!({"apiVersion": definition["apiVersion"], "kind": definition["kind"],
                "metadata": {
                    "name": definition["metadata"]["name"],
                    "annotations": annotations.unwrap_or(&json!({})),
                },
                "spec": definition["spec"]})
        });
    }
    distinct.into_values().collect()
}

/// Sends an object as the host would, as a dry run, and checks the servers' answers.
async fn judge(real: &Server, embedded: &Server, produced: &Produced) {
    let Produced { case, said, .. } = produced;
    let object = &sent(produced);
    let answer = real.answer(produced).await;
    let Answer { status, body, warnings } = &answer;
    if *said == Said::ByTest {
        let expected = embedded.answer(produced).await;
        let told = |answer: &Answer| (answer.status, answer.body["message"].clone());
        if expected.status >= 300 {
            assert_eq!(told(&answer), told(&expected), "{case}: refused otherwise\n{object:#}");
            return;
        }
    }
    assert!((200..300).contains(status), "{case}: {status}: {body}\n{object:#}");
    assert!(warnings.is_empty(), "{case}: {warnings:?}\n{object:#}");
    let mut lost = Vec::new();
    lacks(object, body, "", &mut lost);
    assert!(lost.is_empty(), "{case}: not kept: {lost:?}\n{object:#}");
}

// === impl Server ===

impl Server {
    async fn real(control_plane: &cluster::Cluster, definitions: &[Value]) -> Self {
        control_plane.install(definitions).await.unwrap();
        let namespace = control_plane.namespace("strict").await.unwrap();
        let cluster = Cluster::new(control_plane.client().await.unwrap());
        Self { cluster, namespace }.with_subjects().await
    }

    async fn embedded(definitions: &[Value], namespace: &str) -> Self {
        let api = EmbeddedApi::new(Options {
            namespaces: vec!["default".into(), namespace.into()],
            ..Options::default()
        });
        let cluster = Cluster::new(kube::Client::new(api.router(), "default"));
        local::apply(&cluster, definitions.to_vec()).await.unwrap();
        Self { cluster, namespace: namespace.to_owned() }.with_subjects().await
    }

    async fn with_subjects(self) -> Self {
        for subject in subjects() {
            self.make("subjects", subject).await;
        }
        self
    }

    /// Sends an object with strict validation, as a dry run.
    async fn answer(&self, produced: &Produced) -> Answer {
        const STRICT: &str = "strict&dryRun=All";
        let (whole, subresource) = match &produced.way {
            Way::Apply => (None, ""),
            Way::Patch(whole) => (Some(whole), ""),
            Way::Status => (None, "/status"),
        };
        if let Some(whole) = whole {
            self.make(&produced.case, serde_json::from_str(whole).unwrap()).await;
        }
        self.apply(&produced.case, &sent(produced), subresource, STRICT).await
    }

    /// Creates an object that other objects refer to. Each case is a manager of its own: an API
    /// server makes `spec: {}` null where the same manager gives up all fields that it had there.
    async fn make(&self, case: &str, object: Value) {
        let object = without_what_one_server_knows(object, &self.namespace);
        let part = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
        let manager: String = case.chars().rev().take(100).map(part).collect();
        let Answer { status, body, .. } = self.apply(case, &object, "", &manager).await;
        assert!((200..300).contains(&status), "{status}: {body}\n{object:#}");
    }

    /// Applies an object; returns the answer with its warnings.
    async fn apply(&self, case: &str, object: &Value, subresource: &str, manager: &str) -> Answer {
        let resource = self.cluster.resolve(&local::kind_of(object)).await.unwrap();
        let resource = resource.unwrap_or_else(|| panic!("{case}: not served: {object}"));
        let (group, version) = (&resource.kind.group, &resource.kind.version);
        let base = if group.is_empty() { "/api".into() } else { format!("/apis/{group}") };
        let place = if resource.namespaced {
            format!("namespaces/{}/{}", self.namespace, resource.plural)
        } else {
            resource.plural.clone()
        };
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut().filter(|_| !resource.namespaced)
        {
            metadata.remove("namespace");
        }
        let name = object["metadata"]["name"].as_str().unwrap();
        let path = format!(
            "{base}/{version}/{place}/{name}{subresource}?force=true&fieldValidation=Strict&fieldManager={manager}"
        );
        let request = http::Request::patch(path)
            .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
            .body(Body::from(object.to_string().into_bytes()))
            .unwrap();
        let (head, body) = self.cluster.client().send(request).await.unwrap().into_parts();
        let body = body.collect_bytes().await.unwrap();
        let warnings = head.headers.get_all(http::header::WARNING).iter();
        let warnings = warnings.map(|warning| warning.to_str().unwrap().to_owned()).collect();
        let body = serde_json::from_slice(&body).unwrap();
        Answer { status: head.status.as_u16(), body, warnings }
    }
}

/// Returns the object to send: a status is sent for the object that exists for this purpose.
fn sent(produced: &Produced) -> Value {
    let mut object = produced.object.clone();
    if produced.way == Way::Status {
        object["metadata"]["name"] = json!(SUBJECT);
    }
    object
}

/// Returns an object of each kind whose status a guest writes, from its examples.
fn subjects() -> Vec<Value> {
    let mut subjects: BTreeMap<String, Value> = BTreeMap::new();
    for guest in GUESTS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(guest).join("examples");
        let definitions = mortise_tests::definitions(guest).unwrap();
        let kinds: Vec<&Value> =
            definitions.iter().map(|of| &of["spec"]["names"]["kind"]).collect();
        for mut object in case::load_objects(&folder).unwrap() {
            if kinds.contains(&&object["kind"]) {
                object["metadata"]["name"] = json!(SUBJECT);
                subjects.insert(object["kind"].to_string(), object);
            }
        }
    }
    let kinds: Vec<&str> = subjects.keys().map(String::as_str).collect();
    let expected = ["APIGateway", "APIRule", "ExternalGateway", "Istio", "RateLimit", "SecretCopy"];
    assert_eq!(kinds, expected.map(|kind| format!("\"{kind}\"")));
    subjects.into_values().collect()
}

/// Removes such fields, and puts the object into the test's namespace, since the others do not
/// exist.
fn without_what_one_server_knows(mut object: Value, namespace: &str) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in OF_ONE_SERVER {
        metadata.remove(field);
    }
    if let Some(former) = metadata.get_mut("namespace") {
        *former = json!(namespace);
    }
    object
}

/// Collects the places where the answer lacks a value that was sent. A value that was sent empty
/// may be missing.
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
        // A list that also has items of others: each sent item is somewhere in it.
        (Value::Array(sent), Value::Array(answer)) if sent.len() < answer.len() => {
            let is_in = |sent: &Value, answer: &Value| {
                let mut lost = Vec::new();
                lacks(sent, answer, "", &mut lost);
                lost.is_empty()
            };
            for (index, sent) in sent.iter().enumerate() {
                if !answer.iter().any(|answer| is_in(sent, answer)) {
                    lost.push(format!("{at}/{index}"));
                }
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
        (json!({"a": {"b": 1, "c": [{"d": 1}, {"d": 2}]}}), vec![]),
        (json!({"a": {"b": 1, "c": [{"d": 1}, {"d": 3}]}}), vec!["/a/c/0"]),
    ];
    for (answer, expected) in cases {
        let mut lost = Vec::new();
        lacks(&sent, &answer, "", &mut lost);
        assert_eq!(lost, expected, "{answer}");
    }
}
