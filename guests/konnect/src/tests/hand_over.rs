//! A cluster that Kong's operator leaves: recorded scenarios are played, its requests at the fake and
//! its writes in the cluster, then the processor starts.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use konnect_fake::Request;
use mortise_sdk::{Kind, ObjectRef};
use serde_json::{Value, json};

use super::fixture::World;
use crate::kind::{self, Entity};

const SCENARIOS: &str = "../../tests/goldens/konnect";
/// The keys of a step that can be played: nothing fails in it, and nothing is deleted.
const PLAYED: [&str; 9] = [
    "about",
    "setup",
    "apply",
    "patch",
    "requests",
    "objects",
    "requestsInAnyOrder",
    "withoutReads",
    "gone",
];
/// The time at which the original changed the conditions: before the processor starts.
const BEFORE: &str = "2025-12-31T00:00:00Z";

/// A scenario that is played.
struct Play {
    world: World,
    name: String,
    /// The replacements of the record's uids, IDs and names.
    names: BTreeMap<String, String>,
    /// The numbers of IDs by collection.
    numbers: BTreeMap<String, usize>,
}

fn scenario(text: &str) -> Value {
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options).unwrap()
}

fn list(of: &Value, field: &str) -> Vec<Value> {
    of[field].as_array().cloned().unwrap_or_default()
}

fn text(of: &Value, field: &str) -> String {
    of[field].as_str().unwrap_or_default().to_owned()
}

fn collection(entity: &Entity) -> Option<&'static str> {
    entity.api.as_ref()?.collection.rsplit('/').next()
}

/// Returns the steps at the beginning that are played, up to the last one after which all is well;
/// none if nothing is recorded in them.
fn played(scenario: &Value) -> Vec<Value> {
    let is_played = |step: &&Value| {
        let is_known = step.as_object().unwrap().keys().all(|key| PLAYED.contains(&&**key));
        let is_answered = |request: &Value| {
            let status = request["answer"]["status"].as_u64();
            status.is_some_and(|status| status < 300) && request.get("repeated").is_none()
        };
        // The original does not notice that a Secret is edited.
        let is_noticed = list(step, "patch").iter().all(|patch| patch["kind"] != "Secret");
        let is_whole = is_noticed && list(step, "gone").is_empty();
        is_known && is_whole && list(step, "requests").iter().all(is_answered)
    };
    let is_well = |step: &Value| {
        list(step, "objects").iter().all(|object| {
            list(&object["status"], "conditions").iter().all(|of| of["status"] == "True")
        })
    };
    let mut steps: Vec<Value> =
        list(scenario, "steps").iter().take_while(is_played).cloned().collect();
    while steps.last().is_some_and(|step| !is_well(step)) {
        steps.pop();
    }
    let is_recorded = steps
        .iter()
        .any(|step| list(step, "requests").iter().any(|request| request["method"] == "POST"));
    if is_recorded && scenario.get("secondNamespace").is_none() { steps } else { Vec::new() }
}

// === impl Play ===

impl Play {
    fn new(name: &str) -> Self {
        let world = World::new(&json!({"syncPeriodSeconds": 3600}));
        Self { world, name: name.to_owned(), names: BTreeMap::new(), numbers: BTreeMap::new() }
    }

    fn of(&self, object: &Value) -> ObjectRef {
        let (of, name) = (text(object, "kind"), self.named(object));
        let Some(entity) = kind::find(&of) else {
            return ObjectRef::new(Kind::new("", "v1", of), Some(&self.name), &name);
        };
        entity.object(&self.name, &name)
    }

    fn named(&self, object: &Value) -> String {
        let name = object.pointer("/metadata/name").unwrap_or(&object["name"]);
        self.filled(name).as_str().unwrap().to_owned()
    }

    /// Returns the head of a manifest.
    fn head(&self, object: &Value) -> Value {
        let of = self.of(object);
        let mut head = json!({
            "apiVersion": of.kind.api_version(), "kind": of.kind.kind, "metadata": {"name": of.name},
        });
        if let Some(namespace) = &of.namespace {
            head["metadata"]["namespace"] = namespace.clone().into();
        }
        head
    }

    fn get(&self, object: &Value) -> Option<Value> {
        self.world.stub.object(&self.of(object))
    }

    /// Returns a value with what stands for the names of the record.
    fn filled(&self, value: &Value) -> Value {
        let mut names: Vec<_> = self.names.iter().collect();
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        let fill = |text: String, (name, own): (&String, &String)| text.replace(&**name, own);
        serde_json::from_str(&names.into_iter().fold(value.to_string(), fill)).unwrap()
    }

    fn apply(&mut self, object: &Value) {
        let mut whole = object.clone();
        super::fixture::merge(&mut whole, self.head(object));
        self.world.apply(&whole);
        self.know(object);
    }

    /// Learns the uid of an object.
    fn know(&mut self, object: &Value) {
        let stored = self.get(object).unwrap();
        let recorded = object.pointer("/metadata/name").unwrap_or(&object["name"]);
        let name = format!("UID-{}-{}", text(object, "kind"), recorded.as_str().unwrap());
        self.names.insert(name, text(&stored["metadata"], "uid"));
    }

    /// Learns the next ID of a collection.
    fn know_id(&mut self, collection: &str, id: &str) {
        let number = self.numbers.entry(collection.to_owned()).or_default();
        *number += 1;
        self.names.insert(format!("ID-{collection}-{number}"), id.to_owned());
    }

    /// Does a step that the record leaves out: with the processor.
    fn set_up(&mut self, step: &Value) {
        for object in list(step, "apply") {
            self.apply(&object);
        }
        self.world.settle();
        for object in list(step, "apply") {
            let Some(entity) = kind::find(&text(&object, "kind")) else { continue };
            let stored = self.get(&object).unwrap();
            if let Some((collection, id)) = collection(entity).zip(entity.id(&stored, "id")) {
                self.know_id(collection, id);
            }
            if let Some(organization) = entity.id(&stored, "organizationID") {
                self.names.insert("ID-organization".to_owned(), organization.to_owned());
            }
        }
    }

    /// Does a step as the original did.
    fn play(&mut self, step: &Value) {
        for object in list(step, "apply") {
            self.apply(&object);
        }
        for patch in list(step, "patch") {
            let mut whole = self.head(&patch);
            super::fixture::merge(&mut whole, self.filled(&patch["merge"]));
            self.world.stub.patch(&whole);
        }
        for object in list(step, "objects") {
            if self.get(&object).is_none() && object.get("spec").is_some() {
                self.make(&object);
            }
        }
        for request in list(step, "requests") {
            self.send(&request);
        }
        for object in list(step, "objects") {
            self.write(&object);
        }
    }

    /// Creates an object that the original made, under a name that the server chose.
    fn make(&mut self, object: &Value) {
        let name = text(object, "name");
        if let Some((prefix, number)) = name.split_once("NAME-") {
            self.names.insert(name.clone(), format!("{prefix}x7k2{number}"));
        }
        let mut made = self.head(object);
        let owners = list(object, "owners").into_iter().map(|owner| {
            let of = self.head(&owner);
            let uid = self.get(&owner).unwrap()["metadata"]["uid"].clone();
            let controls = owner["kind"] != "Secret";
            json!({
                "apiVersion": of["apiVersion"], "kind": owner["kind"], "name": of["metadata"]["name"],
                "uid": uid, "controller": controls, "blockOwnerDeletion": controls,
            })
        });
        made["metadata"]["ownerReferences"] = owners.collect::<Vec<_>>().into();
        for field in ["labels", "annotations"] {
            made["metadata"][field] = self.filled(&object[field]);
        }
        made["spec"] = self.filled(&object["spec"]);
        self.world.apply(&made);
        self.know(object);
    }

    fn send(&mut self, request: &Value) {
        let filled = self.filled(request);
        let query = filled["query"].as_object().into_iter().flatten();
        let query: Vec<String> =
            query.map(|(key, value)| format!("{key}={}", value.as_str().unwrap())).collect();
        let host = filled["host"].as_str().unwrap_or("eu.api.konghq.com");
        let sent = Request {
            method: text(&filled, "method"),
            host: host.to_owned(),
            path: text(&filled, "path"),
            query: query.join("&"),
            token: Some(format!("kpat_{}", self.name)),
            headers: Vec::new(),
            body: filled.get("body").map(|body| body.to_string().into_bytes()).unwrap_or_default(),
        };
        let reply = self.world.fake.lock().answer(self.world.stub.host().now(), &sent);
        let answer = reply.answer().unwrap();
        let body = answer.body_value().unwrap_or_default();
        assert_eq!(Some(u64::from(answer.status)), filled["answer"]["status"].as_u64(), "{body}");
        let recorded = text(&request["answer"], "id");
        let id = body.pointer("/item/id").or(body.get("id")).and_then(Value::as_str);
        if let Some((name, id)) = Some(recorded).filter(|name| !name.is_empty()).zip(id) {
            self.names.insert(name, id.to_owned());
        }
    }

    /// Writes finalizers and status as they are recorded.
    fn write(&self, object: &Value) {
        let mut written = self.head(object);
        written["metadata"]["finalizers"] = object.get("finalizers").cloned().unwrap_or(json!([]));
        if let Some(status) = object.get("status") {
            written["status"] = self.filled(status);
            let conditions = written.pointer_mut("/status/conditions").unwrap();
            for condition in conditions.as_array_mut().unwrap() {
                condition["lastTransitionTime"] = BEFORE.into();
            }
        }
        self.world.stub.patch(&written);
    }

    /// Returns finalizers and status of all objects, by kind and name. Endpoints are left out: the API
    /// behind the record gives the same ones in all regions.
    fn state(&self) -> BTreeMap<String, [Value; 2]> {
        let shown = |mut object: Value| {
            if let Some(status) = object["status"].as_object_mut() {
                status.remove("konnectEndpoints");
            }
            let place = format!("{} {}", object["kind"], object["metadata"]["name"]);
            (place, [object["metadata"]["finalizers"].clone(), object["status"].clone()])
        };
        self.world.stub.all().into_iter().map(shown).collect()
    }

    /// Returns the requests since the last call that are no reads.
    fn writes(&self) -> Vec<String> {
        let mut requests = self.world.requests();
        requests.retain(|request| !request.starts_with("GET"));
        requests
    }
}

/// Returns what differs between two states.
fn differences(
    before: &BTreeMap<String, [Value; 2]>,
    after: &BTreeMap<String, [Value; 2]>,
) -> Vec<String> {
    let places: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differ = places.into_iter().filter(|place| before.get(*place) != after.get(*place));
    differ
        .map(|place| format!("{place}: {:?} became {:?}", before.get(place), after.get(place)))
        .collect()
}

/// Runs a check, which returns what is wrong, for each scenario that can be played.
fn each(check: impl Fn(&Play) -> Vec<String>) {
    let files = fs::read_dir(SCENARIOS).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|file| file.extension().is_some_and(|of| of == "yaml")).collect();
    files.sort();
    let (mut count, mut wrong) = (0, Vec::new());
    for file in files {
        let scenario = scenario(&fs::read_to_string(&file).unwrap());
        let steps = played(&scenario);
        if steps.is_empty() {
            continue;
        }
        let mut play = Play::new(file.file_stem().unwrap().to_str().unwrap());
        for step in &steps {
            if step["setup"] == true { play.set_up(step) } else { play.play(step) }
        }
        println!("{}: {} of {} steps", play.name, steps.len(), list(&scenario, "steps").len());
        play.world.requests();
        wrong.extend(check(&play).into_iter().map(|what| format!("{}: {what}", play.name)));
        count += 1;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count > 15, "{count} scenarios are too few");
}

/// Lets a period pass. Nothing is created or deleted, no status changes, and each entity is sent once
/// at most, under its ID.
fn taken_over(play: &Play) -> Vec<String> {
    let before = play.state();
    let mut wrong = Vec::new();
    let mut sent = BTreeSet::new();
    for part in [20, 3_570] {
        play.world.settle_for(Duration::from_secs(part));
        wrong.extend(differences(&before, &play.state()));
        let is_wrong = |request: &String| {
            let is_update = request.starts_with("PUT") || request.starts_with("PATCH");
            !is_update || !sent.insert(request.clone())
        };
        wrong.extend(play.writes().into_iter().filter(is_wrong));
    }
    wrong
}

/// Deletes all objects, children first: the finalizers of the original hold them until their entities
/// are gone. Returns what is left.
fn deleted(play: &Play) -> Vec<String> {
    let objects = play.world.stub.all();
    let of_kind = |row: &&'static Entity| {
        let of = objects.iter().filter(|object| object["kind"] == row.kind);
        of.map(|object| (*row, object)).collect::<Vec<_>>()
    };
    let rows = kind::ALL.iter().rev().filter(|row| row.api.is_some());
    let all: Vec<_> = rows.flat_map(of_kind).collect();
    for (row, object) in &all {
        // Bindings and credentials of annotations and Secrets go with what they are for.
        if play.get(object).is_some() {
            play.world.delete(row.kind, object["metadata"]["name"].as_str().unwrap());
        }
        play.world.settle_for(Duration::from_secs(5));
    }
    let mut left: Vec<Value> = all.iter().filter_map(|(_, object)| play.get(object)).collect();
    let fake = play.world.fake.lock();
    left.extend(all.iter().filter_map(|(row, _)| collection(row)).flat_map(|of| fake.entities(of)));
    left.iter().map(|of| format!("is left: {of}")).collect()
}

#[test]
fn what_the_original_leaves_is_kept_as_it_is_and_can_be_deleted() {
    each(|play| [taken_over(play), deleted(play)].concat());
}
