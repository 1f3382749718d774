//! The changes that a step of a case led to, and their differences from the expected ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write as _},
};

use jiff::SignedDuration;
use json_patch::merge;
use mortise_embedded_api::yaml;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use similar::TextDiff;

use crate::testing::{
    Settled,
    cluster::Cluster,
    identity::{Identity, text},
};

/// The changes that the reconciles of one step made: a document of `expected.yaml`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Document {
    /// New objects as a whole, and of changed objects what differs, as a JSON merge patch.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "yaml::values")]
    pub objects: Vec<Value>,
    /// Objects that are gone, as `KIND/NAMESPACE/NAME`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<String>,
    /// New events.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Said>,
    /// The changes in other clusters, by their folders.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub clusters: BTreeMap<String, Changes>,
    /// The requeue delay of each key; `None` if the key no longer has one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub requeues: BTreeMap<String, Option<String>>,
    /// The error of each key whose last run failed; `None` if the key no longer fails.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<String, Option<String>>,
}

/// The changes that the reconciles of one step made in one cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Changes {
    /// New objects and those that differ, as in a [`Document`].
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "yaml::values")]
    pub objects: Vec<Value>,
    /// Objects that are gone, as `KIND/NAMESPACE/NAME`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<String>,
    /// New events.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Said>,
}

/// An event, reduced to the fields that a case compares.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Said {
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub event_type: String,
    /// The reason, in one word.
    pub reason: String,
    /// The object that the event is about, as `KIND/NAMESPACE/NAME`.
    pub on: String,
    /// The message for people.
    #[serde(default)]
    pub message: String,
}

/// Two texts that should be equal and are not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The step of the case.
    pub title: String,
    /// The expected text.
    pub expected: String,
    /// The actual text.
    pub actual: String,
}

/// The state of a case at one point, as far as documents describe it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct State {
    /// The states of the clusters, by their folders; "" for the home cluster.
    clusters: BTreeMap<String, ClusterState>,
    requeues: BTreeMap<String, String>,
    failures: BTreeMap<String, String>,
    /// The replacement of each uid.
    uids: BTreeMap<String, String>,
}

/// The state of one cluster.
#[derive(Debug, Clone, Default, PartialEq)]
struct ClusterState {
    objects: BTreeMap<Identity, Value>,
    events: BTreeSet<Said>,
}

// === impl State ===

impl State {
    /// Returns the state of clusters by their folders. `former` knows the uids of objects that may
    /// be gone by now.
    pub(super) fn of<'a>(
        clusters: impl IntoIterator<Item = (&'a str, &'a Cluster)>,
        settled: &Settled,
        former: &Self,
    ) -> Self {
        let clusters: Vec<_> =
            clusters.into_iter().map(|(folder, of)| (folder, of.objects())).collect();
        let mut uids = former.uids.clone();
        for (folder, objects) in &clusters {
            uids.extend(objects.iter().map(|object| title_of_uid(object, folder)));
        }
        let span = |(key, span): (&String, &SignedDuration)| (key.clone(), format!("{span:#}"));
        let of =
            |(folder, objects): (&str, _)| (folder.to_owned(), ClusterState::of(objects, &uids));
        Self {
            clusters: clusters.into_iter().map(of).collect(),
            uids,
            requeues: settled.requeues.iter().map(span).collect(),
            failures: settled
                .failures
                .iter()
                .map(|(key, why)| (key.clone(), anonymous(why)))
                .collect(),
        }
    }

    /// Takes over the requeues and failures of `former`, so that a later state can be compared with
    /// this one.
    pub(super) fn with_settled(mut self, former: &Self) -> Self {
        self.requeues.clone_from(&former.requeues);
        self.failures.clone_from(&former.failures);
        self
    }

    /// Returns the changes from this state to a later one.
    pub(super) fn changes(&self, after: &Self) -> Document {
        let changes = |(folder, before): (&String, &ClusterState)| {
            Some((folder.clone(), before.changes(after.clusters.get(folder)?)))
        };
        let document = Document {
            requeues: changed_texts(&self.requeues, &after.requeues),
            failures: changed_texts(&self.failures, &after.failures),
            ..Document::default()
        };
        document.with(self.clusters.iter().filter_map(changes).collect())
    }

    /// Returns a document with the same meaning as one that people wrote, in the form of
    /// [`State::changes`]: without entries that change nothing, and in the same order.
    pub(super) fn normal(&self, expected: &Document, after: &Self) -> Document {
        let none = ClusterState::default();
        let normal = |(folder, changes): (String, Changes)| {
            let of = |state: &Self| state.clusters.get(&folder).cloned();
            let (before, after) = (of(self).unwrap_or_default(), of(after));
            let changes = before.normal(&changes, after.as_ref().unwrap_or(&none));
            (folder, changes)
        };
        let changes = expected.by_cluster().into_iter().map(normal).collect();
        expected.clone().with(changes)
    }
}

// === impl ClusterState ===

impl ClusterState {
    fn of(objects: Vec<Value>, uids: &BTreeMap<String, String>) -> Self {
        let (events, objects): (Vec<Value>, Vec<Value>) =
            objects.into_iter().partition(|object| text(object, "/kind") == "Event");
        let shown = |object| {
            let mut shown = shown(object);
            name_uids(&mut shown, uids);
            shown
        };
        Self {
            objects: objects.iter().map(|object| (Identity::of(object), shown(object))).collect(),
            events: events.iter().map(Said::of).collect(),
        }
    }

    fn changes(&self, after: &Self) -> Changes {
        let changed = |(identity, object): (&Identity, &Value)| match self.objects.get(identity) {
            None => Some(object.clone()),
            Some(before) => changed(before, object),
        };
        let gone = self.objects.keys().filter(|identity| !after.objects.contains_key(identity));
        let gone: BTreeSet<String> = gone.map(ToString::to_string).collect();
        Changes {
            objects: after.objects.iter().filter_map(changed).collect(),
            gone: gone.into_iter().collect(),
            events: after.events.difference(&self.events).cloned().collect(),
        }
    }

    fn normal(&self, expected: &Changes, after: &Self) -> Changes {
        let mut objects = BTreeMap::new();
        for entry in &expected.objects {
            let mut entry = bare(entry);
            let identity = Identity::of(&entry);
            // Every version of a kind shows the same object.
            let version = after.objects.get(&identity).and_then(|object| object.get("apiVersion"));
            if let (Some(version), Some(entry)) = (version, entry.as_object_mut()) {
                entry.insert("apiVersion".to_owned(), version.clone());
            }
            let object = match self.objects.get(&identity) {
                None => Some(without_nulls(&entry)),
                Some(before) => {
                    let mut merged = before.clone();
                    merge(&mut merged, &entry);
                    changed(before, &merged)
                }
            };
            objects.extend(object.map(|object| (identity, object)));
        }
        let mut changes = expected.clone();
        changes.objects = objects.into_values().collect();
        changes.gone.sort();
        changes.events.sort();
        changes
    }
}

/// Returns the JSON merge patch between two states of an object, with the object's name; `None` if
/// they are equal.
fn changed(before: &Value, after: &Value) -> Option<Value> {
    let mut patch = merge_patch(before, after)?;
    let mut named = json!({"apiVersion": after.get("apiVersion"), "kind": after.get("kind")});
    for key in ["name", "namespace"] {
        if let Some(part) = after.pointer(&format!("/metadata/{key}")) {
            merge(&mut named, &json!({"metadata": {key: part}}));
        }
    }
    // A merge would apply the nulls of the patch, and so lose them.
    if let (Some(patch), Some(named)) = (patch.as_object_mut(), named.as_object_mut()) {
        let metadata = named.remove("metadata").unwrap_or_default();
        patch.append(named);
        let held = patch.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if let (Some(held), Value::Object(metadata)) = (held.as_object_mut(), metadata) {
            held.extend(metadata);
        }
    }
    Some(patch)
}

fn changed_texts(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> BTreeMap<String, Option<String>> {
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), None));
    let new = after.iter().filter(|(key, text)| before.get(*key) != Some(*text));
    gone.chain(new.map(|(key, text)| (key.clone(), Some(text.clone())))).collect()
}

/// Returns an object as documents show it: a field that is null counts as absent, since a merge
/// patch cannot say null.
fn shown(object: &Value) -> Value {
    without_nulls(&bare(object))
}

/// Returns an object without the fields that the API server sets, and without digests of field
/// managers.
fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"]
        {
            metadata.remove(field);
        }
        let owners = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut);
        for owner in owners.into_iter().flatten().filter_map(Value::as_object_mut) {
            owner.remove("uid");
        }
    }
    rewrite(&mut object);
    object
}

/// Returns the smallest JSON merge patch (RFC 7386) that turns one value into another; `None` if
/// they are equal.
fn merge_patch(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        return Some(new.clone());
    };
    let gone = before.keys().filter(|key| !after.contains_key(*key));
    let mut patch: Map<String, Value> = gone.map(|key| (key.clone(), Value::Null)).collect();
    for (key, value) in after {
        let changed = match before.get(key) {
            Some(held) => merge_patch(held, value),
            None => Some(value.clone()),
        };
        patch.extend(changed.map(|value| (key.clone(), value)));
    }
    Some(Value::Object(patch))
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let held = map.iter().filter(|(_, value)| !value.is_null());
            Value::Object(held.map(|(key, value)| (key.clone(), without_nulls(value))).collect())
        }
        other => other.clone(),
    }
}

/// Returns the uid of an object, and what a document shows in its place.
fn title_of_uid(object: &Value, folder: &str) -> (String, String) {
    let of = Identity::of(object);
    let place = if folder.is_empty() { String::new() } else { format!(" in {folder}") };
    (text(object, "/metadata/uid").to_owned(), format!("UID of {of}{place}"))
}

/// Replaces the texts that are uids of objects: the API server draws them.
fn name_uids(value: &mut Value, uids: &BTreeMap<String, String>) {
    /// The length of a uid that the API server draws; a case may give others.
    const UID_LENGTH: usize = 36;
    match value {
        Value::String(text) => {
            if let Some(title) = uids.get(text).filter(|_| text.len() == UID_LENGTH) {
                text.clone_from(title);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| name_uids(item, uids)),
        Value::Object(map) => map.values_mut().for_each(|item| name_uids(item, uids)),
        _ => {}
    }
}

/// Removes the digests from the names of field managers in all texts of a value.
fn rewrite(value: &mut Value) {
    match value {
        Value::String(text) if text.contains("mortise/") => *text = anonymous(text),
        Value::Array(items) => items.iter_mut().for_each(rewrite),
        Value::Object(map) => map.values_mut().for_each(rewrite),
        _ => {}
    }
}

/// Removes the digests from the names of field managers in a text: they differ between hosts.
fn anonymous(text: &str) -> String {
    /// The number of hexadecimal digits of a digest, which follow `/` and a letter.
    const DIGEST_DIGITS: usize = 32;
    let Some((start, rest)) = text.split_once("mortise/") else { return text.to_owned() };
    let mut result = format!("{start}mortise/");
    let mut rest = rest;
    while let Some((part, after)) = rest.split_once('/') {
        let _ = write!(result, "{part}/");
        rest = after;
        let is_digest = after
            .get(1..=DIGEST_DIGITS)
            .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if is_digest && after.starts_with(['a', 'p', 's', 'e']) {
            result.push_str(after.get(..1).unwrap_or_default());
            result.push('…');
            rest = after.get(DIGEST_DIGITS + 1..).unwrap_or_default();
            return result + &anonymous(rest);
        }
    }
    result + rest
}

// === impl Said ===

impl Said {
    fn of(event: &Value) -> Self {
        let first = |pointers: [&str; 2]| {
            let texts = pointers.map(|pointer| text(event, pointer));
            texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default().to_owned()
        };
        let on =
            |key: &str| first([&format!("/involvedObject/{key}"), &format!("/regarding/{key}")]);
        Self {
            event_type: text(event, "/type").to_owned(),
            reason: text(event, "/reason").to_owned(),
            on: format!("{}/{}/{}", on("kind"), on("namespace"), on("name")),
            message: anonymous(&first(["/message", "/note"])),
        }
    }
}

// === impl Document ===

impl Document {
    /// Returns the changes in each cluster, "" for the home cluster.
    fn by_cluster(&self) -> BTreeMap<String, Changes> {
        let Self { objects, gone, events, clusters, requeues: _, failures: _ } = self.clone();
        let mut all = clusters;
        all.insert(String::new(), Changes { objects, gone, events });
        all
    }

    /// Replaces the changes in each cluster.
    fn with(self, mut changes: BTreeMap<String, Changes>) -> Self {
        let Changes { objects, gone, events } = changes.remove("").unwrap_or_default();
        changes.retain(|_, of| *of != Changes::default());
        Self { objects, gone, events, clusters: changes, ..self }
    }

    /// Returns the document as YAML, as `expected.yaml` holds it.
    pub fn to_yaml(&self) -> String {
        if *self == Self::default() {
            return "{}\n".to_owned();
        }
        serde_saphyr::to_string(self).unwrap_or_else(|error| format!("# no YAML: {error}\n"))
    }
}

// === impl Difference ===

impl Difference {
    /// Creates the difference of a case that could not be run to its end.
    pub fn error(error: String) -> Self {
        Self { title: "it could not be run".to_owned(), expected: String::new(), actual: error }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:", self.title)?;
        let difference = TextDiff::from_lines(&self.expected, &self.actual);
        write!(f, "{}", difference.unified_diff().context_radius(4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(object: &Value) -> State {
        let objects = [(Identity::of(object), shown(object))].into();
        let home = ClusterState { objects, ..ClusterState::default() };
        State { clusters: [(String::new(), home)].into(), ..State::default() }
    }

    #[test]
    fn a_null_is_no_field() {
        let of = |status: Value| {
            let metadata = json!({"name": "a"});
            json!({"apiVersion": "v1", "kind": "A", "metadata": metadata, "status": status})
        };
        let after = state(&of(json!({"now": null, "wanted": 0})));
        for before in [State::default(), state(&of(json!({"now": 1, "wanted": 0})))] {
            let changes = before.changes(&after);
            assert_eq!(before.normal(&changes, &after), changes);
        }
    }
}
