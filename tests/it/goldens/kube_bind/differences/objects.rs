//! Objects of a state: whose they are, and their conditions.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::{
    format::Side,
    state::{GROUP, Key, State},
};
use crate::goldens::scenario::{conditions_mut, text};

pub(super) const CLUSTER_NAMESPACE: &str = "/metadata/annotations/kube-bind.io~1cluster-namespace";
pub(super) const CONSUMER_UID: &str = "/metadata/annotations/kube-bind.io~1consumer-uid";
pub(super) const PROVIDER_UID: &str = "/metadata/annotations/kube-bind.io~1provider-uid";

pub(super) fn bindings_mut(state: &mut State) -> impl Iterator<Item = (&Key, &mut Value)> {
    state.iter_mut().filter(|(key, _)| key.is(Side::C, GROUP, "APIServiceBinding"))
}

pub(super) fn is_deleting(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

/// Returns the cluster namespaces to which the Secrets of the consumer lead.
pub(super) fn own_namespaces(state: &State) -> BTreeSet<String> {
    let secrets = state.iter().filter(|(key, _)| key.is(Side::C, "", "Secret"));
    let data = secrets.filter_map(|(_, secret)| secret.get("data")?.as_object());
    let texts = data.flat_map(|data| data.values().filter_map(Value::as_str));
    texts.filter_map(namespace_of).collect()
}

/// Returns the namespace that the placeholder of a kubeconfig names.
fn namespace_of(kubeconfig: &str) -> Option<String> {
    let words = kubeconfig.strip_prefix("${KUBECONFIG ")?.strip_suffix('}')?;
    words.split(' ').nth(1).map(str::to_owned)
}

/// Returns the cluster namespace to which the Secret of a binding leads.
pub(super) fn place_of(binding: &Value, state: &State) -> Option<String> {
    let of = |field: &str| text(binding, &format!("/spec/kubeconfigSecretRef/{field}"));
    let is_meant = |key: &Key| {
        key.is(Side::C, "", "Secret") && key.namespace == of("namespace") && key.name == of("name")
    };
    let (_, secret) = state.iter().find(|(key, _)| is_meant(key))?;
    namespace_of(secret.get("data")?.get(of("key"))?.as_str()?)
}

/// Returns whether an object at the provider is marked as made for an object at home.
pub(super) fn is_marked(object: &Value, state: &State) -> bool {
    let is_ours = own_namespaces(state).contains(text(object, CLUSTER_NAMESPACE));
    is_ours && !text(object, CONSUMER_UID).is_empty()
}

/// Returns whether the namespace of an object is there.
pub(super) fn has_place(key: &Key, state: &State) -> bool {
    let is_place = |place: &Key| place.is(key.side, "", "Namespace") && place.name == key.namespace;
    key.namespace.is_empty() || state.keys().any(is_place)
}

/// Returns the object at home that an object at the provider was made for, by the mark.
pub(super) fn source_of(object: &Value) -> Option<Key> {
    marked(object, CONSUMER_UID, Side::C)
}

/// Returns the definitions of a binding and all objects of their kinds at home.
pub(super) fn of_binding(binding: &Key, state: &State) -> Vec<Key> {
    let is_owned = |definition: &Value| {
        let owners = definition.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        owners.into_iter().flatten().any(|owner| {
            owner["kind"] == "APIServiceBinding" && owner["name"] == binding.name.as_str()
        })
    };
    let definitions = state.iter().filter(|(key, object)| key.is_definition() && is_owned(object));
    let mut keys = Vec::new();
    for (definition, object) in definitions {
        let (group, kind) = (text(object, "/spec/group"), text(object, "/spec/names/kind"));
        keys.push(definition.clone());
        keys.extend(state.keys().filter(|key| key.is(Side::C, group, kind)).cloned());
    }
    keys
}

/// Returns the objects at the provider that were made for these objects at home.
pub(super) fn copies(owned: &[Key], state: &State) -> Vec<Key> {
    let is_copy = |(key, object): &(&Key, &Value)| {
        key.side == Side::P && source_of(object).is_some_and(|source| owned.contains(&source))
    };
    state.iter().filter(is_copy).map(|(key, _)| key.clone()).collect()
}

pub(super) fn add_finalizer(object: &mut Value, name: &str) {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    let finalizers = metadata.map(|metadata| metadata.entry("finalizers").or_insert(json!([])));
    if let Some(finalizers) = finalizers.and_then(Value::as_array_mut)
        && !finalizers.iter().any(|held| held == name)
    {
        finalizers.push(name.into());
    }
}

pub(super) fn condition<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions?.iter().find(|condition| condition["type"] == name)
}

/// Adds a condition that is True, in the order of conditions, unless it is there.
pub(super) fn add_condition(object: &mut Value, name: &str) {
    if condition(object, name).is_none() && object.pointer("/status/conditions").is_some() {
        set_condition(object, json!({"type": name, "status": "True"}));
    }
}

/// Sets a condition, in the order of conditions.
pub(super) fn set_condition(object: &mut Value, condition: Value) {
    let order = |condition: &Value| {
        let name = text(condition, "/type").to_owned();
        (name != "Ready", name)
    };
    let mut conditions: Vec<Value> = conditions_mut(object).map(|of| of.clone()).collect();
    conditions.retain(|of| of["type"] != condition["type"]);
    conditions.push(condition);
    conditions.sort_by_key(order);
    object["status"]["conditions"] = conditions.into();
}

/// Sets the summary of the conditions of an object anew.
pub(super) fn summarize(binding: &mut Value) {
    let rank = |of: &Value| match (text(of, "/status"), text(of, "/severity")) {
        ("False", "Error") => 0,
        ("False", "Warning") => 1,
        ("False", "Info") => 2,
        ("True", _) => 3,
        ("Unknown", _) => 4,
        _ => 5,
    };
    let others: Vec<Value> =
        conditions_mut(binding).filter(|of| of["type"] != "Ready").map(|of| of.clone()).collect();
    let Some(worst) = others.into_iter().min_by_key(rank) else { return };
    if let Some(ready) = conditions_mut(binding).find(|of| of["type"] == "Ready") {
        *ready = if worst["status"] == "True" {
            json!({"type": "Ready", "status": "True"})
        } else {
            named(&worst, "Ready")
        };
        let is_unknown = ready["status"] == "Unknown";
        ready.as_object_mut().filter(|_| is_unknown).map(|ready| ready.remove("severity"));
    }
}

/// Returns a condition as one of another type.
pub(super) fn named(condition: &Value, name: &str) -> Value {
    let mut named = condition.clone();
    named["type"] = name.into();
    named
}

/// Returns the object that a mark with a uid names, which may be gone.
pub(super) fn marked(object: &Value, mark: &str, side: Side) -> Option<Key> {
    let group = text(object, "/apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
    let title = text(object, mark).strip_prefix(&format!("${{UID {side:?} "))?.strip_suffix('}')?;
    let (kind, name) = title.split_once(' ')?;
    let name = name.split_once(' ').map_or(name, |(name, _)| name);
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    let [group, kind, namespace, name] = [group, kind, namespace, name].map(str::to_owned);
    Some(Key { side, group, kind, namespace, name })
}
