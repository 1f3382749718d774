//! Objects and kinds of somebody else: ours keeps away from them.

use serde_json::{Map, Value, json};

use super::{
    super::{
        format::Side,
        state::{GROUP, Key, State},
    },
    Facts,
    objects::{CLUSTER_NAMESPACE, PROVIDER_UID, has_place, marked, own_namespaces, source_of},
    rules::{SYNCER, is_of_syncer},
};
use crate::goldens::scenario::{merged, text};

/// The marks on an object at home.
const OF_PROVIDER: [&str; 2] = ["kube-bind.io/provider-namespace", "kube-bind.io/provider-uid"];

/// The marks on an object at the provider.
const MARKS: [&str; 3] = [
    "kube-bind.io/cluster-namespace",
    "kube-bind.io/consumer-namespace",
    "kube-bind.io/consumer-uid",
];

/// Brings what the synchronisation leaves on an object at home to what ours had there before.
fn untouched(object: &mut Value, before: Option<&Value>) {
    let Some(fields) = object.as_object_mut() else { return };
    match before.and_then(|before| before.get("status")) {
        Some(status) => fields.insert("status".to_owned(), status.clone()),
        None => fields.remove("status"),
    };
    let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        for mark in OF_PROVIDER {
            match before.and_then(|before| before["metadata"]["annotations"].get(mark)) {
                Some(held) => annotations.insert(mark.to_owned(), held.clone()),
                None => annotations.remove(mark),
            };
        }
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    if before.is_some_and(is_of_syncer) {
        return;
    }
    if let Some(Value::Array(finalizers)) = metadata.get_mut("finalizers") {
        finalizers.retain(|held| held != SYNCER);
        if finalizers.is_empty() {
            metadata.remove("finalizers");
        }
    }
}

/// The status of an object of another consumer does not come home, nor does a mark.
pub(super) fn objects_of_others_are_not_read(facts: &Facts<'_>, expected: &mut State) {
    let own = own_namespaces(expected);
    let is_of_others = |(key, object): &(&Key, &Value)| {
        let namespace = text(object, CLUSTER_NAMESPACE);
        key.side == Side::P && key.is_custom() && !namespace.is_empty() && !own.contains(namespace)
    };
    let all = expected.iter().chain(facts.removed.iter());
    let others: Vec<Key> = all.filter(is_of_others).map(|(key, _)| key.clone()).collect();
    let homes = expected.iter_mut().filter(|(key, _)| key.side == Side::C && key.is_custom());
    for (key, home) in homes {
        if marked(home, PROVIDER_UID, Side::P).is_some_and(|there| others.contains(&there)) {
            untouched(home, facts.before.get(key));
        }
    }
}

/// Objects of another consumer stay where an object at home has the same place. One without marks
/// is taken over as it is, and not made anew.
pub(super) fn others_keep_their_places(facts: &Facts<'_>, expected: &mut State) {
    let own = own_namespaces(expected);
    for (key, given) in facts.given {
        if key.side != Side::P || !key.is_custom() || !has_place(key, expected) {
            continue;
        }
        let namespace = text(given, CLUSTER_NAMESPACE);
        if !namespace.is_empty() && !own.contains(namespace) && source_of(given).is_none() {
            expected.insert(key.clone(), given.clone());
        }
        if !namespace.is_empty() || !facts.lost.contains(key) {
            continue;
        }
        let Some(made) = expected.get(key) else { continue };
        let Some(home) = source_of(made) else { continue };
        let taken = taken_over(given, made);
        let home = expected.get_mut(&home).and_then(Value::as_object_mut);
        if let (Some(home), Some(status)) = (home, taken.get("status")) {
            home.insert("status".to_owned(), status.clone());
        }
        expected.insert(key.clone(), taken);
    }
}

/// Returns an object of the provider that is taken over instead of being made like `made`.
fn taken_over(given: &Value, made: &Value) -> Value {
    let marks = made.pointer("/metadata/annotations").and_then(Value::as_object);
    let is_mark = |(key, _): &(&String, &Value)| MARKS.contains(&key.as_str());
    let marks: Map<String, Value> = marks
        .into_iter()
        .flatten()
        .filter(is_mark)
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let spec = made.get("spec").cloned().unwrap_or_else(|| json!({}));
    let mut taken = merged(given, &json!({"metadata": {"annotations": marks}, "spec": spec}));
    if let (Some(status), Some(fields)) = (made.get("status"), taken.as_object_mut()) {
        fields.insert("status".to_owned(), status.clone());
    }
    taken
}

/// Objects of a kind whose definition no binding owns stay at home, and ask for no namespace.
pub(super) fn foreign_kinds_are_not_synced(facts: &Facts<'_>, expected: &mut State) {
    let is_foreign = |definition: &Value| {
        let owners = definition.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        !owners.into_iter().flatten().any(|owner| owner["kind"] == "APIServiceBinding")
    };
    let kinds: Vec<(String, String)> = expected
        .iter()
        .filter(|(key, definition)| key.is_definition() && is_foreign(definition))
        .map(|(_, of)| (text(of, "/spec/group").into(), text(of, "/spec/names/kind").into()))
        .collect();
    let is_of =
        |key: &Key| kinds.iter().any(|(group, kind)| (group, kind) == (&key.group, &key.kind));
    let mut asked = Vec::new();
    for (key, home) in expected.iter_mut().filter(|(key, _)| key.side == Side::C && is_of(key)) {
        untouched(home, facts.before.get(key));
        asked.push(key.namespace.clone());
    }
    let homes: Vec<Key> = facts
        .removed
        .keys()
        .chain(expected.keys())
        .filter(|key| key.side == Side::C && is_of(key))
        .cloned()
        .collect();
    asked.extend(homes.iter().map(|home| home.namespace.clone()));
    expected.retain(|key, object| {
        let is_copy = key.side == Side::P && is_of(key);
        if !is_copy || source_of(object).is_none_or(|source| !homes.contains(&source)) {
            return true;
        }
        // One that was made before stays as it was.
        let before = facts.before.get(key);
        let spec = before.and_then(|before| before.get("spec"));
        if let (Some(fields), Some(spec)) = (object.as_object_mut(), spec) {
            fields.insert("spec".to_owned(), spec.clone());
        }
        before.is_some()
    });
    without_namespaces(facts, expected, &asked);
}

/// Takes away the namespaces that were asked for in vain: nothing stands in them, and the
/// consumer's side has made the request.
pub(super) fn without_namespaces(facts: &Facts<'_>, expected: &mut State, asked: &[String]) {
    let unused: Vec<(Key, String)> = expected
        .iter()
        .filter(|(key, _)| key.is(Side::P, GROUP, "APIServiceNamespace"))
        .filter(|(key, object)| {
            let is_ours = object.pointer("/metadata/ownerReferences").is_some();
            asked.contains(&key.name) && is_ours && !facts.before.contains_key(key)
        })
        .map(|(key, object)| (key.clone(), text(object, "/status/namespace").to_owned()))
        .filter(|(_, namespace)| {
            !expected.keys().any(|key| key.side == Side::P && key.namespace == *namespace)
        })
        .collect();
    for (key, namespace) in unused {
        expected.remove(&key);
        expected.retain(|key, _| !key.is(Side::P, "", "Namespace") || key.name != namespace);
    }
}
