//! What guests produce, sent to a real API server with the real definitions of its kinds: nothing is refused, nothing is lost.
//!
//! The requests are dry runs: what is asked for is whether the server takes an object, and what of it.

mod produced;

use std::{collections::BTreeMap, path::Path};

use kube::client::Body;
use mortise_host::{cluster::Cluster, desk};
use mortise_sdk::testing::case;
use mortise_tests::cluster;
use serde_json::{Value, json};

use produced::{Produced, Way};

/// What only one server knows of an object, or only one test.
const OF_ONE_SERVER: [&str; 5] =
    ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"];
/// The guests that own kinds.
const GUESTS: [&str; 2] = ["guests/api-rule", "guests/secret-copy"];
/// The object that every status is written to, of each kind.
const SUBJECT: &str = "subject";

/// A real server with all kinds, and a namespace in it.
struct Server {
    cluster: Cluster,
    namespace: String,
}

#[tokio::test]
async fn a_real_server_takes_all_that_guests_produce() {
    let Some(control_plane) = cluster::shared().await.unwrap() else { return };
    let server = Server::new(control_plane).await;
    let sources = produced::all();
    for (source, produced) in &sources {
        assert!(!produced.is_empty(), "{source}: nothing");
    }
    // What many cases produce alike is sent once.
    let mut distinct: BTreeMap<(Way, String), Produced> = BTreeMap::new();
    for mut produced in sources.into_iter().flat_map(|(_, produced)| produced) {
        produced.object = without_what_one_server_knows(produced.object, &server.namespace);
        let key = (produced.way.clone(), produced.object.to_string());
        distinct.entry(key).or_insert(produced);
    }
    for way in ["Apply", "Patch", "Status"] {
        let is_there = |(known, _): &(Way, String)| format!("{known:?}").starts_with(way);
        assert!(distinct.keys().any(is_there), "{way}: nothing");
    }
    for produced in distinct.into_values() {
        server.takes(produced).await;
    }
}

// === impl Server ===

impl Server {
    /// With Istio's kinds and those of the guests.
    async fn new(control_plane: &cluster::Cluster) -> Self {
        let mut kinds = cluster::istio().await.unwrap().unwrap();
        for guest in GUESTS {
            kinds.extend(mortise_tests::definitions(guest).unwrap());
        }
        control_plane.install(&kinds).await.unwrap();
        let namespace = control_plane.namespace("strict").await.unwrap();
        let server =
            Self { cluster: Cluster::new(control_plane.client().await.unwrap()), namespace };
        for subject in subjects() {
            server.make(subject).await;
        }
        server
    }

    /// Sends an object as the host would, only to see what the server would make of it.
    async fn takes(&self, Produced { case, way, mut object }: Produced) {
        let subresource = match way {
            Way::Apply => "",
            Way::Patch(whole) => {
                self.make(serde_json::from_str(&whole).unwrap()).await;
                ""
            }
            Way::Status => {
                object["metadata"]["name"] = json!(SUBJECT);
                "/status"
            }
        };
        let (answer, warnings) = self.apply(&case, &object, subresource, "strict&dryRun=All").await;
        assert!(warnings.is_empty(), "{case}: {warnings:?}\n{object:#}");
        let mut lost = Vec::new();
        lacks(&object, &answer, "", &mut lost);
        assert!(lost.is_empty(), "{case}: not kept: {lost:?}\n{object:#}");
    }

    /// Makes an object that others are about.
    async fn make(&self, object: Value) {
        let object = without_what_one_server_knows(object, &self.namespace);
        self.apply("what is there", &object, "", "somebody").await;
    }

    /// What an apply is answered, with its warnings.
    async fn apply(
        &self,
        case: &str,
        object: &Value,
        subresource: &str,
        manager: &str,
    ) -> (Value, Vec<String>) {
        let resource = self.cluster.resolve(&desk::kind_of(object)).await.unwrap();
        let resource = resource.unwrap_or_else(|| panic!("{case}: not served: {object}"));
        assert!(resource.namespaced, "{case}: {object}");
        let (group, version) = (&resource.kind.group, &resource.kind.version);
        let base = if group.is_empty() { "/api".into() } else { format!("/apis/{group}") };
        let name = object["metadata"]["name"].as_str().unwrap();
        let path = format!(
            "{base}/{version}/namespaces/{}/{}/{name}{subresource}?force=true&fieldValidation=Strict&fieldManager={manager}",
            self.namespace, resource.plural
        );
        let request = http::Request::patch(path)
            .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
            .body(Body::from(object.to_string().into_bytes()))
            .unwrap();
        let (head, body) = self.cluster.client().send(request).await.unwrap().into_parts();
        let body = body.collect_bytes().await.unwrap();
        let said = String::from_utf8_lossy(&body);
        assert!(head.status.is_success(), "{case}: {}: {said}\n{object:#}", head.status);
        let warnings = head.headers.get_all(http::header::WARNING).iter();
        let warnings = warnings.map(|warning| warning.to_str().unwrap().to_owned()).collect();
        (serde_json::from_slice(&body).unwrap(), warnings)
    }
}

/// An object of each kind that a guest writes the status of, of its examples.
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
    assert_eq!(subjects.len(), GUESTS.len(), "{subjects:?}");
    subjects.into_values().collect()
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
        // Of a list that others have items in, too: each is somewhere.
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
