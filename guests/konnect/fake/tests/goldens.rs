//! Replays the requests of the recorded scenarios, and compares the answers with the recorded ones.
//!
//! Reads `konnect` in the folder that `MORTISE_GOLDENS` names, else in `tests/goldens`. Steps of
//! which only the objects are recorded are played by a creation for each object.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use konnect_fake::{Answer, Config, End, Fault, Konnect, Reply, Request, id};
use regex::{Captures, Regex};
use serde_json::{Map, Value, json};

/// Collection by kind, for objects that become an entity of their own.
const COLLECTIONS: [(&str, &str); 17] = [
    ("KongService", "services"),
    ("KongRoute", "routes"),
    ("KongConsumer", "consumers"),
    ("KongConsumerGroup", "consumer_groups"),
    ("KongPluginBinding", "plugins"),
    ("KongUpstream", "upstreams"),
    ("KongTarget", "targets"),
    ("KongCertificate", "certificates"),
    ("KongCACertificate", "ca_certificates"),
    ("KongSNI", "snis"),
    ("KongKeySet", "key-sets"),
    ("KongKey", "keys"),
    ("KongVault", "vaults"),
    ("KongCredentialAPIKey", "key-auth"),
    ("KongCredentialBasicAuth", "basic-auth"),
    ("KongCredentialHMAC", "hmac-auth"),
    ("KonnectGatewayControlPlane", "control-planes"),
];

/// A scenario that is being replayed.
struct Replay {
    scenario: String,
    konnect: Konnect,
    /// Identifiers by placeholder, such as `ID-services-1`.
    ids: BTreeMap<String, String>,
    /// The number of entities made so far, by collection.
    counts: BTreeMap<String, usize>,
    /// Differences.
    found: Vec<String>,
    compared: usize,
}

#[test]
fn answers_are_the_recorded_ones() {
    let (mut compared, mut found) = (0, Vec::new());
    for file in scenarios() {
        let replay = replay(&file);
        compared += replay.compared;
        found.extend(replay.found);
    }
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
    println!("{compared} answers compared");
    assert!(compared > 300, "only {compared} answers were compared");
}

fn scenarios() -> Vec<PathBuf> {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let goldens = std::env::var_os("MORTISE_GOLDENS").map(PathBuf::from);
    let goldens = goldens.unwrap_or_else(|| crate_folder.join("../../../tests/goldens"));
    let folder = goldens.join("konnect");
    let entries =
        fs::read_dir(&folder).unwrap_or_else(|fault| panic!("{}: {fault}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
}

fn replay(file: &Path) -> Replay {
    // The records have texts such as `y` and `no`, which are no booleans.
    let options = serde_saphyr::options! { strict_booleans: true };
    let text = fs::read_to_string(file).unwrap();
    let scenario: Value = serde_saphyr::from_str_with_options(&text, options).unwrap();
    let mut replay = Replay {
        scenario: file.file_stem().unwrap().to_str().unwrap().to_owned(),
        konnect: Konnect::new(Config::default()),
        ids: BTreeMap::new(),
        counts: BTreeMap::new(),
        found: Vec::new(),
        compared: 0,
    };
    let without_planes = scenario["withoutControlPlane"] == true;
    for step in scenario["steps"].as_array().unwrap() {
        replay.step(step, without_planes);
    }
    replay
}

// === impl Replay ===

impl Replay {
    fn step(&mut self, step: &Value, without_planes: bool) {
        if let Some(faults) = step["konnect"].as_array() {
            let faults = faults.iter().map(|fault| serde_json::from_value(fault.clone()).unwrap());
            self.konnect.set_faults(faults.collect::<Vec<Fault>>()).unwrap();
        }
        for change in step["konnectData"].as_array().into_iter().flatten() {
            let mut change = self.resolve(change);
            change["token"] = format!("kpat_{}", self.scenario).into();
            let change = serde_json::from_value(change).unwrap();
            self.konnect.change(0, &change).unwrap();
        }
        for object in step["apply"].as_array().into_iter().flatten() {
            let is_plane = object["kind"] == "KonnectGatewayControlPlane";
            if step["setup"] == true || (without_planes && is_plane) {
                self.set_up(object);
            }
        }
        let mut requests: Vec<&Value> = step["requests"].as_array().into_iter().flatten().collect();
        if step["requestsInAnyOrder"] == true {
            requests.sort_by_key(|request| rank(&request["method"]));
        }
        for recorded in requests {
            for _ in 0..times(step, recorded) {
                self.compare(recorded);
            }
        }
    }

    /// Creates the entity of an object.
    fn set_up(&mut self, object: &Value) {
        let kind = object["kind"].as_str().unwrap();
        let Some((_, collection)) = COLLECTIONS.iter().find(|(of, _)| *of == kind) else { return };
        if object["spec"]["source"] == "Mirror" {
            return;
        }
        let name = object["metadata"]["name"].as_str().unwrap();
        let (path, mut body) = self.creation(object, collection);
        let tag = self.resolve(&json!([format!("k8s-uid:UID-{kind}-{name}")]));
        body.insert("tags".to_owned(), tag);
        let request = self.request("POST", &path, &Value::Object(body));
        let reply = self.konnect.answer(0, &request);
        let answer = reply.answer().filter(|answer| answer.status == 201);
        let answer = answer.unwrap_or_else(|| panic!("{} {path}: {reply:?}", self.scenario));
        let id = answer.body_value().unwrap()["id"].as_str().unwrap().to_owned();
        self.made(collection, &id);
        self.ids.insert(format!("{kind}/{name}"), id);
    }

    /// Returns path and body of the creation of an object's entity.
    fn creation(&self, object: &Value, collection: &str) -> (String, Map<String, Value>) {
        let spec = &object["spec"];
        if collection == "control-planes" {
            let body = spec["createControlPlaneRequest"].as_object().unwrap().clone();
            return ("/v2/control-planes".to_owned(), body);
        }
        let core = format!("/v2/control-planes/{}/core-entities", self.ids["ID-control-planes-1"]);
        let of = |kind: &str, reference: &Value| {
            let name = reference["name"].as_str().or(reference["namespacedRef"]["name"].as_str());
            self.ids.get(&format!("{kind}/{}", name.unwrap_or_default())).cloned()
        };
        let mut body = spec.as_object().unwrap().clone();
        for field in ["username", "custom_id"] {
            if let Some(value) = object.get(field) {
                body.insert(field.to_owned(), value.clone());
            }
        }
        if let Some(service) = of("KongService", &spec["serviceRef"]) {
            body.insert("service".to_owned(), json!({"id": service}));
        }
        if collection == "plugins" {
            body.insert("name".to_owned(), spec["pluginRef"]["name"].clone());
            let service = of("KongService", &spec["targets"]["serviceRef"]);
            body.insert("service".to_owned(), service.map_or(Value::Null, |id| json!({"id": id})));
        }
        let path = match collection {
            "targets" => {
                format!("/upstreams/{}", of("KongUpstream", &spec["upstreamRef"]).unwrap())
            }
            "snis" => {
                format!("/certificates/{}", of("KongCertificate", &spec["certificateRef"]).unwrap())
            }
            "key-auth" | "basic-auth" | "hmac-auth" => {
                format!("/consumers/{}", of("KongConsumer", &spec["consumerRef"]).unwrap())
            }
            _ => String::new(),
        };
        if collection == "certificates" {
            body.entry("cert").or_insert_with(|| "from a Secret".into());
            body.entry("key").or_insert_with(|| "from a Secret".into());
        }
        (format!("{core}{path}/{collection}"), body)
    }

    fn request(&self, method: &str, path: &str, body: &Value) -> Request {
        Request {
            method: method.to_owned(),
            host: "eu.api.konghq.com".to_owned(),
            path: path.to_owned(),
            token: Some(format!("kpat_{}", self.scenario)),
            body: if body.is_null() { Vec::new() } else { body.to_string().into_bytes() },
            ..Request::default()
        }
    }

    /// Sends a recorded request, and compares the answer with the recorded one.
    fn compare(&mut self, recorded: &Value) {
        let resolved = self.resolve(recorded);
        let text = |field: &str| resolved[field].as_str().map(str::to_owned);
        let mut request =
            self.request(&text("method").unwrap(), &text("path").unwrap(), &resolved["body"]);
        request.host = text("host").unwrap_or(request.host);
        request.token = text("token").or(request.token);
        request.query = query(&recorded_query(&resolved["query"]));
        let reply = self.konnect.answer(0, &request);
        self.compared += 1;
        self.learn(&request, &reply, &recorded["answer"]);
        if !is_answered_in_full(&request, &reply) {
            self.found.push(format!("{}: {request:?}: {reply:?}", self.scenario));
        }
        let expected = self.resolve(&recorded["answer"]);
        if let Err(difference) = differs(&reply, &expected) {
            let request = format!("{} {}", recorded["method"], recorded["path"]);
            self.found.push(format!("{}: {request}: {difference}", self.scenario));
        }
    }

    /// Learns the identifier that an entity got.
    fn learn(&mut self, request: &Request, reply: &Reply, recorded: &Value) {
        let collection = request.path.rsplit('/').next().unwrap().to_owned();
        let body = reply.answer().and_then(Answer::body_value).unwrap_or_default();
        let id = body["id"].as_str().or(body["item"]["id"].as_str());
        let (Some(id), Some(placeholder)) = (id, recorded["id"].as_str()) else {
            let done = reply.end == End::Closed { reset: false, done: true };
            if done && request.method == "POST" {
                let made = self.konnect.entities(&collection);
                let id = made.last().unwrap()["id"].as_str().unwrap().to_owned();
                self.made(&collection, &id);
            }
            return;
        };
        self.ids.entry(placeholder.to_owned()).or_insert_with(|| id.to_owned());
    }

    fn made(&mut self, collection: &str, id: &str) {
        let count = self.counts.entry(collection.to_owned()).or_default();
        *count += 1;
        self.ids.insert(format!("ID-{collection}-{count}"), id.to_owned());
    }

    /// Puts identifiers in place of placeholders.
    fn resolve(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.resolve_text(text).into(),
            Value::Array(values) => values.iter().map(|value| self.resolve(value)).collect(),
            Value::Object(fields) => fields
                .iter()
                .map(|(field, value)| (field.clone(), self.resolve(value)))
                .collect::<Map<String, Value>>()
                .into(),
            other => other.clone(),
        }
    }

    fn resolve_text(&self, text: &str) -> String {
        let id = Regex::new(r"\$?\{?(ID-[a-z_-]*[a-z](-\d+)?)\}?").unwrap();
        let text = id.replace_all(text, |found: &Captures<'_>| {
            let placeholder = &found[1];
            let (collection, number) = match placeholder[3..].rsplit_once('-') {
                Some((collection, number)) => (collection, number.parse().unwrap_or(1)),
                None => ("organizations", 1),
            };
            let own = || id::seeded("")(collection, number);
            self.ids.get(placeholder).cloned().unwrap_or_else(own)
        });
        let uid = Regex::new(r"UID-([A-Za-z]+-[a-z0-9-]+)").unwrap();
        let uid = uid.replace_all(&text, |found: &Captures<'_>| id::seeded("uid")(&found[1], 1));
        uid.into_owned()
    }
}

/// Returns the place of a method where the order is not recorded.
fn rank(method: &Value) -> usize {
    ["POST", "PUT", "PATCH", "GET", "DELETE"].iter().position(|of| method == of).unwrap()
}

/// Returns how often a request was sent that stands in the record once: as often as a fault said
/// whose answer it got.
fn times(step: &Value, recorded: &Value) -> u64 {
    let is_once = recorded["repeated"] != true && recorded["method"] != "GET";
    let faults = step["konnect"].as_array().into_iter().flatten();
    let applies = |fault: &&Value| {
        fault["method"] == recorded["method"]
            && fault["status"] == recorded["answer"]["status"]
            && fault.get("body") == recorded["answer"].get("body")
    };
    let times = faults.into_iter().find(applies).and_then(|fault| fault["times"].as_u64());
    times.filter(|_| !is_once).unwrap_or(1)
}

fn recorded_query(query: &Value) -> Vec<(String, String)> {
    let pairs = query.as_object().into_iter().flatten();
    pairs
        .map(|(name, value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            (name.clone(), value)
        })
        .collect()
}

fn query(pairs: &[(String, String)]) -> String {
    let encode = |text: &str| text.replace('%', "%25").replace('&', "%26").replace('[', "%5B");
    let pairs = pairs.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// Returns whether an ordinary answer to a write has each field that was sent.
fn is_answered_in_full(request: &Request, reply: &Reply) -> bool {
    let Some(answer) = reply.answer().and_then(Answer::body_value) else { return true };
    let is_entity = request.path.contains("/core-entities/") && answer.get("id").is_some();
    let sent: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let mut sent = sent.as_object().into_iter().flatten();
    !is_entity || sent.all(|(field, value)| value.is_null() || answer[field] == *value)
}

fn differs(reply: &Reply, expected: &Value) -> Result<(), String> {
    let answer = match (reply.answer(), expected["status"].as_u64()) {
        (None, None) => return Ok(()),
        (Some(answer), Some(status)) if u64::from(answer.status) == status => answer,
        _ => return Err(format!("{reply:?} is not {expected}")),
    };
    let body = answer.body_value().unwrap_or_default();
    let same_type = expected["contentType"]
        .as_str()
        .is_none_or(|of| answer.header("content-type").is_some_and(|own| own == of));
    let headers = expected["headers"].as_object().into_iter().flatten();
    let same_headers =
        headers.into_iter().all(|(name, value)| answer.header(name) == value.as_str());
    let same_body = expected.get("body").is_none_or(|expected| *expected == body);
    let same_ids = expected["ids"].as_array().is_none_or(|expected| ids(&body) == set(expected));
    let id = expected["id"].as_str();
    let same_id = id.is_none_or(|id| body["id"] == id || body["item"]["id"] == id);
    if same_type && same_headers && same_body && same_ids && same_id {
        return Ok(());
    }
    Err(format!("{:?} {body} is not {expected}", answer.headers))
}

fn ids(body: &Value) -> BTreeSet<String> {
    let data = body["data"].as_array().or(body["items"].as_array()).cloned().unwrap_or_default();
    set(&data.iter().map(|entity| entity["id"].clone()).collect::<Vec<_>>())
}

fn set(ids: &[Value]) -> BTreeSet<String> {
    ids.iter().map(|id| id.as_str().unwrap_or_default().to_owned()).collect()
}
