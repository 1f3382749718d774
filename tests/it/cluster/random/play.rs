//! Plays a sequence on both servers at the same time, and finds the first difference of their
//! answers.

use std::sync::LazyLock;

use axum::Router;
use regex::Regex;
use serde_json::{Map, Value, json};

use super::{
    super::{
        normalise::Names,
        run::{self, Got},
    },
    accepted::{self, Accepted, Answers},
    step::{Body, GENERATED, Sequence, Step},
};

/// The two servers that are compared.
#[derive(Clone)]
pub(super) struct Servers {
    pub(super) embedded: Router,
    pub(super) real: Router,
}

/// The result of a sequence.
#[derive(Debug, Default)]
pub(super) struct Played {
    /// The accepted differences that occurred, by name.
    pub(super) accepted: Vec<&'static str>,
    /// The status of each answer.
    pub(super) statuses: Vec<u64>,
    /// The first difference that is not accepted.
    pub(super) difference: Option<Difference>,
}

/// A difference between the servers' answers.
#[derive(Debug)]
pub(super) struct Difference {
    pub(super) text: String,
    /// The requests up to the difference, as the steps of a scenario with the real server's
    /// answers.
    pub(super) steps: Value,
    /// The reason why the difference may be absent when the sequence is played again, if there is
    /// one.
    pub(super) passing: Option<Passing>,
}

/// Differences that depend on more than the requests. The test cannot prevent them: it can neither
/// stop the clock of the real server nor wait for its caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Passing {
    /// Only a warning of the real server about an earlier state differs. Kubernetes tries a write
    /// on the content of its watch cache, and once more on the stored object if the cache was
    /// outdated; warnings of the first try are returned all the same.
    LateWarning,
    /// Only resource versions differ. The times of managers have a resolution of seconds; where
    /// Kubernetes takes a request for a change that is none, it sets the present time, which makes
    /// a new version only if a new second has begun.
    Clock,
}

/// A server's side of a sequence.
struct Side<'a> {
    server: &'a Router,
    names: Names,
    /// The last answers that held an object, by name; and the resource versions first seen.
    latest: Map<String, Value>,
    first: Map<String, Value>,
}

/// Plays all steps in a new namespace, then compares the remaining objects.
pub(super) async fn play(servers: &Servers, sequence: &Sequence, namespace: &str) -> Played {
    let mut sides = [Side::new(&servers.embedded), Side::new(&servers.real)];
    let mut played = Played::default();
    let mut steps: Vec<Value> = Vec::new();
    let kind = &sequence.kind;
    let ends = kind.versions.iter().map(|version| Step::list(version));
    let ends: Vec<Step> = ends.collect();
    let create = json!({"method": "POST", "path": "/api/v1/namespaces", "contentType": "application/json",
        "body": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}});
    for side in &mut sides {
        let got = run::request(side.server, &create, &side.names).await;
        assert_eq!(got.status, 201, "namespace {namespace}: {:?}", got.body);
    }
    for step in sequence.steps.iter().chain(&ends) {
        let path = step.path(kind, namespace);
        let [embedded, real] = &mut sides;
        let (embedded, real) = tokio::join!(embedded.answer(&path, step), real.answer(&path, step));
        let (recorded, real) = real;
        let embedded = embedded.1;
        played.statuses.push(real["status"].as_u64().unwrap_or_default());
        let equal = embedded == real;
        let mut step = recorded.clone();
        step["answer"] = real.clone();
        steps.push(step);
        if equal {
            continue;
        }
        let difference = run::difference(&real, &embedded, "");
        let answers = Answers { kind, steps: &steps, embedded: &embedded, real: &real };
        let Some(Accepted { name, goes_on, .. }) = accepted::find(&answers) else {
            let passing = Passing::of(&answers);
            let steps = Value::Array(steps);
            played.difference = Some(Difference { text: difference, steps, passing });
            return played;
        };
        played.accepted.push(name);
        if !goes_on {
            return played;
        }
    }
    played
}

/// Returns whether only the warnings differ, and the real server's additional ones repeat earlier
/// warnings.
fn is_late_warning(answers: &Answers<'_>) -> bool {
    let is_same = |key: &str| answers.embedded[key] == answers.real[key];
    let Some(warnings) = answers.real["warnings"].as_array().filter(|_| !is_same("warnings"))
    else {
        return false;
    };
    let Some((_, earlier)) = answers.steps.split_last() else { return false };
    let holds = |answer: &Value, warning: &Value| {
        answer["warnings"].as_array().is_some_and(|warnings| warnings.contains(warning))
    };
    let is_explained = |warning: &Value| {
        holds(answers.embedded, warning)
            || earlier.iter().any(|step| holds(&step["answer"], warning))
    };
    let embedded = answers.embedded["warnings"].as_array().into_iter().flatten();
    is_same("status")
        && is_same("body")
        && warnings.iter().all(is_explained)
        && embedded.into_iter().all(|warning| warnings.contains(warning))
}

impl Passing {
    fn of(answers: &Answers<'_>) -> Option<Self> {
        if is_late_warning(answers) {
            return Some(Self::LateWarning);
        }
        answers.are_equal_without(&["resourceVersion"]).then_some(Self::Clock)
    }
}

impl<'a> Side<'a> {
    fn new(server: &'a Router) -> Self {
        Self { server, names: Names::default(), latest: Map::new(), first: Map::new() }
    }

    /// Sends a step. Returns the request in the form of a scenario, and the normalised answer.
    async fn answer(&mut self, path: &str, step: &Step) -> (Value, Value) {
        let request = self.request(path, step);
        let got = run::request(self.server, &request, &self.names).await;
        self.record(&got);
        let mut answer = Value::Object(got.normalised(&mut self.names, None));
        unstable(&mut answer);
        (request, answer)
    }

    fn request(&self, path: &str, step: &Step) -> Value {
        let mut request = json!({"method": step.method, "path": path});
        if let Some(content_type) = step.content_type {
            request["contentType"] = json!(content_type);
        }
        let name = step.name.unwrap_or("a");
        let latest = self.latest.get(name);
        let body = match &step.body {
            Body::None => return request,
            Body::Given(body) => body.clone(),
            Body::Edited(fields) => edited(latest.filter(|_| step.subresource != "scale"), fields),
        };
        let metadata = latest.map_or(&Value::Null, |latest| &latest["metadata"]);
        let text = body
            .to_string()
            .replace("${uid}", metadata["uid"].as_str().unwrap_or("none"))
            .replace("${current}", metadata["resourceVersion"].as_str().unwrap_or("1"))
            .replace("${stale}", self.first.get(name).and_then(Value::as_str).unwrap_or("1"));
        request["body"] = serde_json::from_str(&text).expect("blanks stand in texts");
        request
    }

    fn record(&mut self, got: &Got) {
        let Some(body) = got.body.as_ref().filter(|body| body["kind"] != "Scale") else { return };
        let metadata = &body["metadata"];
        let (Some(name), Some(version)) =
            (metadata["name"].as_str(), metadata["resourceVersion"].as_str())
        else {
            return;
        };
        self.first.entry(name.to_owned()).or_insert_with(|| json!(version));
        self.latest.insert(name.to_owned(), body.clone());
    }
}

/// Returns an object with some fields replaced.
fn edited(latest: Option<&Value>, fields: &Value) -> Value {
    let mut object = latest.cloned().unwrap_or_else(|| json!({}));
    for (key, value) in fields.as_object().into_iter().flatten() {
        let Some(value) = value.as_object().filter(|_| key == "metadata") else {
            object[key] = value.clone();
            continue;
        };
        for (key, value) in value {
            object["metadata"][key] = value.clone();
        }
    }
    object
}

/// Part of a message. After an unknown field Kubernetes checks no other field of a map, and it
/// checks fields in random order.
const UNKNOWN: &str = "field not declared in schema";

/// Matches a resource version in an object that a message quotes.
static QUOTED_VERSION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"(resourceVersion\\+":\\+")\d+"#).expect("a valid pattern"));

/// Matches an address in the cluster, in a message.
static ADDRESS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b10\.0\.\d+\.\d+\b").expect("a valid pattern"));

/// Removes the parts of an answer that vary with each request to the real server: the order of
/// several causes in a message, which of several faults of a typed object it found, quoted versions
/// and addresses, a generated name that is refused, the order of generated names, and ports that it
/// chose.
fn unstable(answer: &mut Value) {
    if let Some(Value::String(message)) = answer.pointer_mut("/body/message")
        && let Some((which, _)) = message.split_once("): ")
        && ["errors:\n", UNKNOWN].iter().any(|part| message.contains(part))
        && message.starts_with("failed to ")
    {
        *message = which.to_owned();
    }
    if answer["body"]["kind"] == "Status" {
        let text = answer["body"].to_string();
        let text = QUOTED_VERSION.replace_all(&text, "${1}NUMBER");
        let text = ADDRESS.replace_all(&text, "ADDRESS");
        answer["body"] = serde_json::from_str(&text).expect("only digits were replaced");
    }
    if let Some(name) = answer["body"]["details"]["name"].as_str().map(str::to_owned)
        && name.starts_with(GENERATED)
    {
        let text = answer["body"].to_string().replace(&name, GENERATED);
        answer["body"] = serde_json::from_str(&text).expect("a name needs no escapes");
    }
    let causes = answer["body"]["details"]["causes"].as_array().map_or(0, Vec::len);
    if let Some(Value::String(message)) = answer.pointer_mut("/body/message")
        && let Some(at) = message.find(" is invalid: [").filter(|_| causes > 1)
    {
        message.truncate(at);
    }
    let mut bodies = vec![&mut answer["body"]];
    while let Some(body) = bodies.pop() {
        if let Some(ports) = body.pointer_mut("/spec/ports").and_then(Value::as_array_mut) {
            for port in ports.iter_mut().filter_map(|port| port.get_mut("nodePort")) {
                *port = json!("PORT");
            }
        }
        if let Some(port) = body.pointer_mut("/spec/healthCheckNodePort") {
            *port = json!("PORT");
        }
        if let Some(items) = body.get_mut("items").and_then(Value::as_array_mut) {
            // Generated names are in random order; the placeholders of uids are in the order of
            // creation.
            if items.iter().any(|item| item["metadata"].get("generateName").is_some()) {
                items.sort_by_key(|item| item["metadata"]["uid"].to_string());
            }
            bodies.extend(items);
        }
    }
}
