//! The objects that count, in the form of the record.

use std::{collections::BTreeMap, fmt, sync::LazyLock};

use regex::Regex;
use serde_json::{Map, Value, json};

use super::{
    format::{Named, Object, Owner, Scenario},
    names::Names,
};
use crate::goldens::scenario::{
    conditions_mut, group_of, object_differences, regex, text, with_differences,
};

/// The API groups of the original's kinds.
const GROUPS: [&str; 2] = ["configuration.konghq.com", "konnect.konghq.com"];
/// The kind that has neither finalizers nor a status.
const GRANT: &str = "KongReferenceGrant";
/// The kinds of which only the finalizers count.
const BY_FINALIZERS: [&str; 2] = ["KongPlugin", "Secret"];
/// What stands for any message.
const ANY: &str = "ANY";
/// The text of the original's HTTP client about a call without an answer, at the end of a message.
static UNANSWERED: LazyLock<Regex> = LazyLock::new(|| {
    regex(r#"(?s)(Get|Post|Put|Patch|Delete) "https://[^"]*": .*$|context deadline exceeded.*$"#)
});
/// The texts of the SDK about one.
const UNANSWERED_HERE: [&str; 2] = ["no answer to what was sent", "nothing was sent"];

/// The objects that count, in the form of the record.
pub(super) type State = BTreeMap<Key, Value>;

/// The identity of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) kind: String,
    /// Empty for the namespace of the scenario.
    pub(super) namespace: String,
    pub(super) name: String,
}

// === impl Key ===

impl Key {
    pub(super) fn named(of: &Named) -> Self {
        let Named { kind, namespace, name } = of.clone();
        Self { kind, namespace, name }
    }

    pub(super) fn of(object: &Value, names: &Names, scenario: &Scenario) -> Self {
        let [kind, namespace] = ["/kind", "/metadata/namespace"].map(|at| text(object, at));
        Self {
            kind: kind.to_owned(),
            namespace: if namespace == scenario.namespace { "" } else { namespace }.to_owned(),
            name: names.shown(text(object, "/metadata/name")),
        }
    }

    /// Returns whether only the finalizers of the object count.
    fn is_by_finalizers(&self) -> bool {
        BY_FINALIZERS.contains(&self.kind.as_str())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} ", self.kind)?;
        if !self.namespace.is_empty() {
            write!(to, "{}/", self.namespace)?;
        }
        to.write_str(&self.name)
    }
}

// === objects of the cluster ===

/// Returns the objects of a cluster that count.
pub(super) fn state_of(objects: &[Value], names: &Names, scenario: &Scenario) -> State {
    let counting = objects.iter().filter(|object| counts(object));
    counting
        .map(|object| (Key::of(object, names, scenario), object))
        .filter_map(|(key, object)| Some((key.clone(), shown(&key, object, names)?)))
        .collect()
}

/// Returns whether an object counts.
pub(super) fn counts(object: &Value) -> bool {
    let (group, kind) = (group_of(text(object, "/apiVersion")), text(object, "/kind"));
    kind == "Secret" && group.is_empty() || GROUPS.contains(&group) && kind != GRANT
}

/// Returns an object in the form of the record; `None` if there is nothing about it that counts.
fn shown(key: &Key, object: &Value, names: &Names) -> Option<Value> {
    let list = |at: &str| object.pointer(at).and_then(Value::as_array).cloned().unwrap_or_default();
    let mut finalizers: Vec<String> =
        list("/metadata/finalizers").iter().filter_map(Value::as_str).map(str::to_owned).collect();
    finalizers.sort_unstable();
    let deleting = object.pointer("/metadata/deletionTimestamp").is_some();
    if key.is_by_finalizers() {
        return by_finalizers(&finalizers, deleting);
    }
    let mut fields = Map::new();
    fields.insert("finalizers".to_owned(), json!(finalizers));
    fields.insert("deleting".to_owned(), json!(deleting));
    fields.insert("generation".to_owned(), object["metadata"]["generation"].clone());
    let mut shown = Value::Object(fields);
    shown["status"] = names.value(&object["status"]);
    if names.is_made(object) {
        let map = |field: &str| names.value(&object["metadata"][field]);
        let owners: Vec<Value> = owners(object).iter().map(owner).collect();
        shown["owners"] = json!(owners);
        shown["labels"] = map("labels");
        shown["annotations"] = map("annotations");
        shown["spec"] = names.value(&spec_of(object));
    }
    Some(normal(shown))
}

fn by_finalizers(finalizers: &[String], deleting: bool) -> Option<Value> {
    let counts = !finalizers.is_empty();
    counts.then(|| normal(json!({"finalizers": finalizers, "deleting": deleting})))
}

fn owner(owner: &Owner) -> Value {
    json!({"kind": owner.kind, "name": owner.name})
}

/// Returns the owners of an object, sorted.
pub(super) fn owners(object: &Value) -> Vec<Owner> {
    let references = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let owner = |reference: &Value| Owner {
        kind: text(reference, "/kind").to_owned(),
        name: text(reference, "/name").to_owned(),
    };
    let mut owners: Vec<Owner> = references.into_iter().flatten().map(owner).collect();
    owners.sort_unstable();
    owners
}

/// Returns the spec of an object.
pub(super) fn spec_of(object: &Value) -> Value {
    object.get("spec").cloned().unwrap_or_default()
}

// === objects of the record ===

/// Returns an object of the record in the form in which objects are compared; `None` if there is
/// nothing about it that counts.
pub(super) fn recorded(object: &Object) -> Option<Value> {
    let Object { finalizers, deleting, .. } = object;
    if BY_FINALIZERS.contains(&object.kind.as_str()) {
        return by_finalizers(finalizers, *deleting);
    }
    let mut owners = object.owners.clone();
    owners.sort_unstable();
    let owners: Vec<Value> = owners.iter().map(owner).collect();
    Some(normal(json!({
        "finalizers": finalizers, "deleting": deleting, "generation": object.generation, "status": object.status,
        "owners": owners, "labels": object.labels, "annotations": object.annotations, "spec": object.spec,
    })))
}

pub(super) fn key_of(object: &Object) -> Key {
    let Object { kind, namespace, name, .. } = object.clone();
    Key { kind, namespace, name }
}

/// Returns an object with sorted conditions and without what is empty or does not count.
fn normal(mut object: Value) -> Value {
    for condition in conditions_mut(&mut object) {
        condition.as_object_mut().and_then(|fields| fields.remove("lastTransitionTime"));
        if let Some(Value::String(message)) = condition.get_mut("message") {
            normalize(message);
        }
    }
    if let Some(Value::Array(conditions)) = object.pointer_mut("/status/conditions") {
        conditions.sort_by_cached_key(|condition| text(condition, "/type").to_owned());
    }
    let is_empty = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    if let Value::Object(fields) = &mut object {
        fields.retain(|_, value| !is_empty(value));
    }
    object
}

/// Brings the JSON at the end of a message into one form: how an answer of Konnect is written is not
/// the operator's choice.
fn normalize(message: &mut String) {
    let Some(start) = message.find('{') else { return };
    if let Ok(json) = serde_json::from_str::<Value>(&message[start..]) {
        message.replace_range(start.., &json.to_string());
    }
}

/// Returns the conditions of an object by type.
pub(super) fn conditions(object: &Value) -> Map<String, Value> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let of = |condition: &Value| (text(condition, "/type").to_owned(), condition.clone());
    conditions.into_iter().flatten().map(of).collect()
}

// === comparison ===

/// Returns the differences of two states, each with the object and the field.
pub(super) fn differences(expected: &State, actual: &State) -> Vec<String> {
    object_differences(expected, actual, |key, expected, actual, all| {
        with_differences(key, &comparable(expected, actual), &by_type(actual), all);
    })
}

/// Returns an object with its conditions by type, so that a difference names the type.
fn by_type(object: &Value) -> Value {
    let mut shown = object.clone();
    if let Some(held) = shown.pointer_mut("/status/conditions") {
        *held = Value::Object(conditions(object));
    }
    shown
}

/// Returns what is expected, where one of several reasons, or any message, will do.
fn comparable(expected: &Value, actual: &Value) -> Value {
    let mut wanted = by_type(expected);
    let held = conditions(actual);
    let conditions = wanted.pointer_mut("/status/conditions").and_then(Value::as_object_mut);
    for (name, condition) in conditions.into_iter().flatten() {
        let Some(held) = held.get(name) else { continue };
        if text(condition, "/reason").split('|').any(|reason| held["reason"] == reason) {
            condition["reason"] = held["reason"].clone();
        }
        let is_worded_otherwise = UNANSWERED.is_match(text(condition, "/message"))
            && UNANSWERED_HERE.iter().any(|here| text(held, "/message").contains(here));
        if condition["message"] == ANY || is_worded_otherwise {
            condition["message"] = held["message"].clone();
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario() -> Scenario {
        Scenario::parse("a", "about: a test\nsyncPeriod: 1h\nnamespace: a\nsteps: [{}]").unwrap()
    }

    fn service(status: &Value) -> Value {
        json!({
            "apiVersion": "configuration.konghq.com/v1alpha1", "kind": "KongService", "status": status,
            "metadata": {
                "name": "svc", "namespace": "a", "uid": "1", "generation": 2, "finalizers": ["b", "a"],
            },
        })
    }

    fn state(object: &Value) -> State {
        let mut names = Names::default();
        names.apply(object, &scenario());
        state_of(std::slice::from_ref(object), &names, &scenario())
    }

    fn from_record(text: &str) -> State {
        let object: Object = serde_saphyr::from_str(text).unwrap();
        recorded(&object).map(|shown| (key_of(&object), shown)).into_iter().collect()
    }

    const RECORDED: &str = "{kind: KongService, name: svc, finalizers: [a, b], generation: 2, \
         status: {conditions: [{type: A, reason: R|S, message: ANY}, {type: B, status: 'True'}], konnect: {id: x}}}";

    fn status() -> Value {
        json!({
            "conditions": [
                {"type": "B", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "A", "reason": "S", "message": "some"},
            ],
            "konnect": {"id": "x"},
        })
    }

    #[test]
    fn an_object_is_compared_by_what_the_record_has() {
        let found = differences(&from_record(RECORDED), &state(&service(&status())));
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn differences_name_object_condition_and_field() {
        let changed = |at: &str, value: Value| {
            let mut object = service(&status());
            *object.pointer_mut(at).unwrap() = value;
            object
        };
        let cases = [
            (
                changed("/status/conditions/1/reason", json!("T")),
                "/status/conditions/A/reason: expected \"R|S\", found \"T\"",
            ),
            (
                changed("/status/konnect/id", json!("y")),
                "/status/konnect/id: expected \"x\", found \"y\"",
            ),
            (
                changed("/metadata/finalizers", json!(["a"])),
                "/finalizers: expected [\"a\",\"b\"], found [\"a\"]",
            ),
            (changed("/metadata/generation", json!(3)), "/generation: expected 2, found 3"),
            (changed("/status/conditions", json!([])), "/status/conditions"),
        ];
        for (object, text) in cases {
            let found = differences(&from_record(RECORDED), &state(&object));
            assert!(
                !found.is_empty() && found.iter().all(|found| found.contains(text)),
                "{found:?}"
            );
        }
        let (expected, none) = (from_record(RECORDED), State::new());
        assert_eq!(differences(&expected, &none), ["KongService svc: is not there"]);
        assert!(differences(&none, &expected)[0].starts_with("KongService svc: is there"));
    }

    #[test]
    fn the_answer_in_a_message_is_compared_as_json() {
        let normal = |message: &str| {
            let mut message = message.to_owned();
            normalize(&mut message);
            message
        };
        let answer = "Status 400\n{\"b\": 1, \"a\": [ 2 ]}";
        assert_eq!(normal(answer), "Status 400\n{\"a\":[2],\"b\":1}");
        assert_ne!(normal(answer), normal(&answer.replace('2', "3")));
        assert_eq!(normal("{no} {\"a\": 1}"), "{no} {\"a\": 1}");
    }

    #[test]
    fn secrets_count_by_their_finalizers() {
        let secret = |finalizers: &[&str]| {
            json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": "b"},
                "metadata": {"name": "s", "namespace": "a", "uid": "2", "finalizers": finalizers}})
        };
        assert_eq!(state(&secret(&[])), State::new());
        assert_eq!(state(&secret(&["f"])), from_record("{kind: Secret, name: s, finalizers: [f]}"));
        assert_eq!(from_record("{kind: Secret, name: s}"), State::new());
    }

    #[test]
    fn owners_and_spec_of_made_objects_count() {
        let object = json!({
            "apiVersion": "configuration.konghq.com/v1alpha1", "kind": "KongSNI", "spec": {"a": 1},
            "metadata": {"name": "x", "namespace": "b", "uid": "3", "ownerReferences": [{"kind": "K", "name": "o", "uid": "4"}]},
        });
        let made = state_of(&[object], &Names::default(), &scenario());
        let expected =
            "{kind: KongSNI, namespace: b, name: x, owners: [{kind: K, name: o}], spec: {a: 1}}";
        assert_eq!(made, from_record(expected));
    }
}
