//! The state of both clusters as far as it counts, in the form of the record.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Map, Value};

use super::{
    format::{Condition, Side},
    names::Names,
};
use crate::goldens::scenario::{
    Of, conditions_mut, group_of, object_differences, text, with_differences,
};

/// The API group of the original's own kinds.
pub(super) const GROUP: &str = "kube-bind.io";
/// The API group of definitions of kinds.
pub(super) const EXTENSIONS: &str = "apiextensions.k8s.io";
/// The original's kinds that count at the provider.
const OF_PROVIDER: [&str; 5] = [
    "APIServiceExport",
    "APIServiceExportRequest",
    "APIServiceNamespace",
    "BoundSchema",
    "ClusterBinding",
];
/// The original's kinds that count at the consumer.
const OF_CONSUMER: [&str; 2] = ["APIServiceBinding", "APIServiceBindingBundle"];
/// The built-in kinds that count.
const BUILT_IN: [&str; 4] = ["ConfigMap", "Namespace", "Secret", "ServiceAccount"];
/// The namespaces that come with Kubernetes.
const SYSTEM: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];
/// The objects that Kubernetes makes in each namespace.
const OF_NAMESPACES: [(&str, &str); 2] =
    [("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")];
/// The fields of metadata that are left out.
const LEFT_OUT: [&str; 6] = [
    "uid",
    "resourceVersion",
    "generation",
    "managedFields",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
];
/// The ends of messages that another program continues.
const QUOTES: [&str; 4] = [
    "invalid kubeconfig: ",
    "cannot be created: ",
    "cannot be updated: ",
    "from provider cluster: ",
];
/// The beginning of a continuation that is the original's own.
const OWN: &str = "current context ";
/// The label that Kubernetes sets on namespaces.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// The objects that count, in the form of the record.
pub(super) type State = BTreeMap<Key, Value>;

/// The identity of an object in one of the clusters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) side: Side,
    pub(super) group: String,
    pub(super) kind: String,
    /// Empty for an object without a namespace.
    pub(super) namespace: String,
    pub(super) name: String,
}

// === impl Key ===

impl Key {
    pub(super) fn of(side: Side, object: &Value) -> Self {
        Self {
            side,
            group: group_of(text(object, "/apiVersion")).to_owned(),
            kind: text(object, "/kind").to_owned(),
            namespace: text(object, "/metadata/namespace").to_owned(),
            name: text(object, "/metadata/name").to_owned(),
        }
    }

    pub(super) fn named(side: Side, of: &Of) -> Self {
        let Of { api_version, kind, namespace, name } = of.clone();
        let group = group_of(&api_version).to_owned();
        Self { side, group, kind, namespace, name }
    }

    pub(super) fn is(&self, side: Side, group: &str, kind: &str) -> bool {
        (self.side, self.group.as_str(), self.kind.as_str()) == (side, group, kind)
    }

    pub(super) fn is_definition(&self) -> bool {
        self.group == EXTENSIONS
    }

    /// Returns whether the object is of a kind that a definition outside of the original's adds.
    pub(super) fn is_custom(&self) -> bool {
        self.group.contains('.') && self.group != GROUP && !self.is_definition()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:?} {} ", self.side, self.kind)?;
        if !self.namespace.is_empty() {
            write!(to, "{}/", self.namespace)?;
        }
        to.write_str(&self.name)
    }
}

// === what counts ===

/// Returns the objects of one cluster that count. `defined` are the API groups of its definitions.
pub(super) fn state_of(side: Side, objects: &[Value], names: &Names) -> State {
    let defined: BTreeSet<&str> = objects
        .iter()
        .filter(|object| text(object, "/kind") == "CustomResourceDefinition")
        .map(|definition| text(definition, "/spec/group"))
        .collect();
    let counting = objects.iter().filter(|object| counts(side, object, &defined));
    counting.map(|object| (Key::of(side, object), shown(object, names))).collect()
}

fn counts(side: Side, object: &Value, defined: &BTreeSet<&str>) -> bool {
    let Key { group, kind, namespace, name, .. } = Key::of(side, object);
    match group.as_str() {
        "" => {
            let place = if kind == "Namespace" { &name } else { &namespace };
            BUILT_IN.contains(&kind.as_str())
                && !SYSTEM.contains(&place.as_str())
                && !OF_NAMESPACES.contains(&(kind.as_str(), name.as_str()))
        }
        GROUP if side == Side::P => OF_PROVIDER.contains(&kind.as_str()),
        GROUP => OF_CONSUMER.contains(&kind.as_str()),
        EXTENSIONS => side == Side::C && text(object, "/spec/group") != GROUP,
        group => defined.contains(group),
    }
}

// === the form of the record ===

/// Returns an object in the form of the record.
pub(super) fn shown(object: &Value, names: &Names) -> Value {
    let mut shown = object.clone();
    let kind = text(object, "/kind").to_owned();
    if let Some(metadata) = shown.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in LEFT_OUT {
            metadata.remove(field);
        }
    }
    match (kind.as_str(), shown.as_object_mut()) {
        ("Namespace", Some(fields)) => show_namespace(fields),
        ("Secret", Some(fields)) => show_secret(fields),
        _ => {}
    }
    rewrite(&mut shown, names);
    if kind == "BoundSchema" {
        show_termination(&mut shown);
    }
    recorded(shown)
}

/// Returns an object of the record in the form in which objects are compared.
pub(super) fn recorded(mut object: Value) -> Value {
    cut_messages(&mut object);
    // The version is that of the program.
    if let Some(version) = object.pointer_mut("/status/konnectorVersion") {
        *version = version.as_str().is_some_and(is_version).into();
    }
    without_empty_maps(&mut object);
    object
}

fn show_namespace(fields: &mut Map<String, Value>) {
    fields.remove("spec");
    if let Some(labels) = fields.get_mut("metadata").and_then(|metadata| metadata.get_mut("labels"))
    {
        labels.as_object_mut().and_then(|labels| labels.remove(NAME_LABEL));
    }
    let phase = fields.get("status").map(|status| text(status, "/phase").to_owned());
    fields.remove("status");
    if phase.as_deref() == Some("Terminating") {
        fields.insert("status".to_owned(), serde_json::json!({"phase": "Terminating"}));
    }
}

fn show_secret(fields: &mut Map<String, Value>) {
    let data = fields.get_mut("data").and_then(Value::as_object_mut).into_iter().flatten();
    for (_, value) in data {
        let decoded = value.as_str().and_then(|text| BASE64_STANDARD.decode(text).ok());
        if let Some(text) = decoded.and_then(|bytes| String::from_utf8(bytes).ok()) {
            *value = text.into();
        }
    }
}

/// Reason and message of this condition depend on when the definition was last seen.
fn show_termination(schema: &mut Value) {
    for condition in conditions_mut(schema) {
        if condition["type"] == "Terminating" {
            condition["reason"] = "ANY".into();
            condition["message"] = "ANY".into();
        }
    }
}

/// Rewrites all texts, and leaves out the times of conditions.
fn rewrite(value: &mut Value, names: &Names) {
    match value {
        Value::String(text) => *text = names.shown(text),
        Value::Array(items) => items.iter_mut().for_each(|item| rewrite(item, names)),
        Value::Object(fields) => {
            fields.remove("lastTransitionTime");
            fields.values_mut().for_each(|value| rewrite(value, names));
        }
        _ => {}
    }
}

/// Cuts off what the messages of conditions quote from another program.
fn cut_messages(object: &mut Value) {
    for condition in conditions_mut(object) {
        if let Some(Value::String(text)) = condition.get_mut("message") {
            cut_message(text);
        }
    }
}

fn cut_message(text: &mut String) {
    let end = |quote: &str| text.find(quote).map(|at| at + quote.len());
    let ends = QUOTES.into_iter().filter_map(end);
    let quoted = ends.min().filter(|end| !text[*end..].starts_with(OWN));
    if let Some(end) = quoted {
        text.truncate(end);
    }
}

fn is_version(text: &str) -> bool {
    text.strip_prefix('v')
        .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

/// An empty map counts as absent.
pub(super) fn without_empty_maps(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(without_empty_maps);
            fields.retain(|_, value| !value.as_object().is_some_and(Map::is_empty));
        }
        Value::Array(items) => items.iter_mut().for_each(without_empty_maps),
        _ => {}
    }
}

// === fields ===

/// Returns the value at a JSON pointer, in which `[field=value]` picks an item of a list.
fn at<'a>(value: &'a Value, pointer: &str) -> Option<&'a Value> {
    let mut tokens = pointer.strip_prefix('/').into_iter().flat_map(|pointer| pointer.split('/'));
    tokens.try_fold(value, |value, token| {
        let token = token.replace("~1", "/").replace("~0", "~");
        let picked = token.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        match (value, picked.and_then(|picked| picked.split_once('='))) {
            (Value::Array(items), Some((field, wanted))) => {
                items.iter().find(|item| item.get(field).is_some_and(|found| found == wanted))
            }
            (Value::Array(items), None) => items.get(token.parse::<usize>().ok()?),
            (value, _) => value.get(&token),
        }
    })
}

/// Returns why a condition does not hold; `None` if it holds.
pub(super) fn unmet(condition: &Condition, state: &State) -> Option<String> {
    let Condition { side, kind, namespace, name, is_absent, values } = condition;
    let is_meant = |key: &&Key| {
        (&key.side, &key.kind, &key.namespace, &key.name) == (side, kind, namespace, name)
    };
    let title = format!("{side:?} {kind} {namespace}/{name}");
    match state.keys().find(is_meant).and_then(|key| state.get(key)) {
        None if *is_absent => None,
        None => Some(format!("{title} is not there")),
        Some(_) if *is_absent => Some(format!("{title} is still there")),
        Some(object) => values.iter().find_map(|(pointer, wanted)| {
            let found = at(object, pointer).unwrap_or(&Value::Null);
            (found != wanted).then(|| format!("{title} {pointer}: {found}, not {wanted}"))
        }),
    }
}

// === comparison ===

/// Returns the differences of two states, each with the object and the field.
pub(super) fn differences(expected: &State, actual: &State) -> Vec<String> {
    object_differences(expected, actual, |key, expected, actual, all| {
        with_differences(key, expected, actual, all);
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::goldens::scenario::merged;

    fn object(extra: &Value) -> Value {
        let object = json!({"apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceBinding", "metadata": {"name": "a"}});
        merged(&object, extra)
    }

    fn state(object: &Value) -> State {
        state_of(Side::C, std::slice::from_ref(object), &Names::default())
    }

    #[test]
    fn what_does_not_count_is_left_out() {
        let one = object(&json!({
            "metadata": {"uid": "1", "generation": 2, "labels": {}, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"conditions": [{"type": "Ready", "lastTransitionTime": "2026-01-01T00:00:00Z"}], "at": "2026-01-01T00:00:00Z"},
            "spec": {"empty": {"emptier": {}}},
        }));
        let other = object(
            &json!({"status": {"conditions": [{"type": "Ready"}], "at": "2027-01-01T00:00:00.5Z"}}),
        );
        assert_eq!(state(&one), state(&other));
    }

    #[test]
    fn each_difference_names_the_object_and_the_field() {
        let one = object(&json!({"spec": {"a/b": [{"c": 1}]}}));
        let cases = [
            (
                json!({"spec": {"a/b": [{"c": 2}]}}),
                "C APIServiceBinding a /spec/a~1b/0/c: expected 1, found 2",
            ),
            (
                json!({"spec": {"a/b": []}}),
                "C APIServiceBinding a /spec/a~1b: expected [{\"c\":1}], found []",
            ),
            (
                json!({"spec": null}),
                "C APIServiceBinding a /spec: expected {\"a/b\":[{\"c\":1}]}, found null",
            ),
            (
                json!({"metadata": {"labels": {"x": "y"}}}),
                "C APIServiceBinding a /metadata/labels: expected null, found {\"x\":\"y\"}",
            ),
        ];
        for (change, expected) in cases {
            let found = differences(&state(&one), &state(&merged(&one, &change)));
            assert_eq!(found, [expected]);
        }
        assert!(differences(&state(&one), &state(&one)).is_empty());
        assert_eq!(
            differences(&state(&one), &State::new()),
            ["C APIServiceBinding a: is not there"]
        );
        let [extra] = &differences(&State::new(), &state(&one))[..] else { panic!() };
        assert!(extra.contains("is there"), "{extra}");
    }

    #[test]
    fn conditions_pick_items_and_see_absence() {
        let held = state(&object(
            &json!({"status": {"conditions": [{"type": "A", "status": "True"}]}, "a/b": 1}),
        ));
        let condition = |pointer: &str, value: Value| Condition {
            side: Side::C,
            kind: "APIServiceBinding".to_owned(),
            namespace: String::new(),
            name: "a".to_owned(),
            is_absent: false,
            values: [(pointer.to_owned(), value)].into(),
        };
        let cases = [
            ("/status/conditions/[type=A]/status", json!("True"), true),
            ("/status/conditions/[type=A]/status", json!("False"), false),
            ("/status/conditions/[type=B]/status", json!("True"), false),
            ("/status/conditions/[type=B]", Value::Null, true),
            ("/status/conditions/0/type", json!("A"), true),
            ("/a~1b", json!(1), true),
            ("/spec", Value::Null, true),
            ("/status", Value::Null, false),
        ];
        for (pointer, value, holds) in cases {
            let unmet = unmet(&condition(pointer, value), &held);
            assert_eq!(unmet.is_none(), holds, "{pointer}: {unmet:?}");
        }
        let absent = Condition { is_absent: true, ..condition("/a", json!(1)) };
        assert!(unmet(&absent, &held).is_some());
        assert!(unmet(&absent, &State::new()).is_none());
    }

    #[test]
    fn only_what_the_record_holds_counts() {
        let of = |api_version: &str, kind: &str, namespace: &str, name: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": namespace, "name": name}});
        let cases = [
            (Side::C, of("v1", "Secret", "team", "a"), true),
            (Side::C, of("v1", "Secret", "kube-system", "a"), false),
            (Side::C, of("v1", "Secret", "kube-bind-a", "a"), true),
            (Side::C, of("v1", "Event", "team", "a"), false),
            (Side::C, of("v1", "ServiceAccount", "team", "default"), false),
            (Side::C, of("kube-bind.io/v1alpha2", "BoundSchema", "a", "a"), false),
            (Side::P, of("kube-bind.io/v1alpha2", "BoundSchema", "a", "a"), true),
            (Side::P, of("apps/v1", "Deployment", "a", "a"), false),
            (Side::P, of("golden.example.dev/v1", "Rocket", "a", "a"), true),
        ];
        let definition = json!({"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1", "spec": {"group": "golden.example.dev"}});
        for (side, object, counts) in cases {
            let key = Key::of(side, &object);
            let state = state_of(side, &[definition.clone(), object], &Names::default());
            assert_eq!(state.contains_key(&key), counts, "{key}");
        }
    }

    #[test]
    fn what_a_message_quotes_does_not_count() {
        let cut = |text: &str| {
            let mut text = text.to_owned();
            cut_message(&mut text);
            text
        };
        assert_eq!(
            cut("CustomResourceDefinition x cannot be created: because"),
            "CustomResourceDefinition x cannot be created: "
        );
        assert_eq!(
            cut("has an invalid kubeconfig: couldn't get: x"),
            "has an invalid kubeconfig: "
        );
        let own = "has an invalid kubeconfig: current context \"a\" not found";
        assert_eq!(cut(own), own);
    }
}
