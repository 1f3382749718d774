//! Parts of objects: what a manager owns, what paths select, what a manifest or a merge patch makes of an object.

use serde_json::{Map, Value};

use super::path::{Path, Step};

// === merge patches ===

/// Lays a JSON merge patch (RFC 7386) over a value.
pub(super) fn merge(value: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *value = patch.clone();
        return;
    };
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let Some(map) = value.as_object_mut() else { return };
    for (key, part) in patch {
        if part.is_null() {
            map.remove(key);
        } else {
            merge(map.entry(key.as_str()).or_insert(Value::Null), part);
        }
    }
}

/// The smallest merge patch that makes `new` of `old`; none if they are the same.
pub(super) fn merge_patch(old: &Value, new: &Value) -> Option<Value> {
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

/// Drops nulls, and maps and lists in which there is nothing.
pub(super) fn drop_empty(value: &mut Value) {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    match value {
        Value::Object(map) => {
            map.values_mut().for_each(drop_empty);
            map.retain(|_, value| !is_empty(value));
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

// === manifests ===

/// Keys by which the elements of a list are told apart, where its schema is not known.
const KEYS: [&str; 5] = ["name", "type", "key", "uid", "port"];

/// The object with the fields of a manifest laid over it: maps are merged, elements of lists too where they can be told apart.
pub(super) fn lay_over(live: Option<&Value>, sent: &Value) -> Value {
    match (live, sent) {
        (Some(Value::Object(live)), Value::Object(sent)) => {
            let mut laid = live.clone();
            laid.extend(
                sent.iter().map(|(key, value)| (key.clone(), lay_over(live.get(key), value))),
            );
            Value::Object(laid)
        }
        (Some(Value::Array(live)), Value::Array(sent)) => lay_list(live, sent),
        (_, sent) => sent.clone(),
    }
}

fn lay_list(live: &[Value], sent: &[Value]) -> Value {
    let tells = |key: &&&str| {
        let is_plain = |item: &Value| {
            item.get(**key).is_some_and(|value| !value.is_object() && !value.is_array())
        };
        live.iter().chain(sent).all(is_plain)
    };
    let Some(key) = KEYS.iter().find(tells).filter(|_| !live.is_empty()) else {
        return Value::Array(sent.to_vec());
    };
    let same = |a: &Value, b: &Value| a.get(key) == b.get(key);
    let kept = live.iter().map(|item| match sent.iter().find(|sent| same(sent, item)) {
        Some(sent) => lay_over(Some(item), sent),
        None => item.clone(),
    });
    let added = sent.iter().filter(|sent| !live.iter().any(|item| same(sent, item))).cloned();
    Value::Array(kept.chain(added).collect())
}

/// A manifest without what names the object and without preconditions.
pub(super) fn sent_fields(manifest: &Value) -> Value {
    let mut fields = manifest.clone();
    if let Some(object) = fields.as_object_mut() {
        object.remove("apiVersion");
        object.remove("kind");
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|key, _| {
                !["name", "namespace", "uid", "resourceVersion"].contains(&key.as_str())
            });
            if metadata.is_empty() {
                object.remove("metadata");
            }
        }
    }
    fields
}

// === what managers own ===

/// The entries of `metadata.managedFields`, by manager, whether it applied, and subresource.
pub(super) fn managers(object: &Value) -> impl Iterator<Item = (&str, bool, &str, &Value)> {
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    entries.into_iter().flatten().map(|entry| {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        (
            text("manager"),
            text("operation") == "Apply",
            text("subresource"),
            entry.get("fieldsV1").unwrap_or(&Value::Null),
        )
    })
}

/// What of an object is a manager's.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Own {
    /// Which fields (`FieldsV1`).
    pub(super) fields: Value,
    /// What the object holds there; none where something of it is not there.
    pub(super) values: Option<Value>,
}

/// What a manager has applied to the object (`subresource` empty) or its status (`/status`); none if it has applied none.
pub(super) fn own(object: &Value, manager: &str, subresource: &str) -> Option<Own> {
    let subresource = subresource.trim_start_matches('/');
    let (.., fields) = managers(object)
        .find(|(name, applied, of, _)| *name == manager && *applied && *of == subresource)?;
    let values = cut(object, fields).unwrap_or_else(|| Value::Object(Map::new()));
    let is_whole = holds_all(object, fields);
    Some(Own { fields: fields.clone(), values: is_whole.then_some(values) })
}

/// Whether an object has something at each of these fields (`FieldsV1`).
fn holds_all(value: &Value, fields: &Value) -> bool {
    let mut children = fields.as_object().into_iter().flatten().filter(|(key, _)| *key != ".");
    children.all(|(element, below)| match value {
        Value::Object(map) => {
            let held = element.strip_prefix("f:").and_then(|key| map.get(key));
            held.is_some_and(|held| holds_all(held, below))
        }
        Value::Array(items) => {
            let is_it = |(index, item): &(usize, &Value)| selects(element, *index, item);
            items.iter().enumerate().find(is_it).is_some_and(|(_, item)| holds_all(item, below))
        }
        _ => false,
    })
}

/// What the object holds at the fields that a manager has applied; none if it has applied none.
pub(super) fn applied(object: &Value, manager: &str) -> Option<Value> {
    let (.., fields) = managers(object).find(|(name, applied, subresource, _)| {
        *name == manager && *applied && subresource.is_empty()
    })?;
    Some(cut(object, fields).unwrap_or_else(|| Value::Object(Map::new())))
}

/// A value cut down to a set of fields (`FieldsV1`).
fn cut(value: &Value, fields: &Value) -> Option<Value> {
    let children: Vec<(&String, &Value)> =
        fields.as_object().into_iter().flatten().filter(|(key, _)| *key != ".").collect();
    if children.is_empty() {
        let only_itself = fields.get(".").is_some();
        return Some(match value {
            Value::Object(_) if only_itself => Value::Object(Map::new()),
            Value::Array(_) if only_itself => Value::Array(Vec::new()),
            value => value.clone(),
        });
    }
    match value {
        Value::Object(map) => {
            let held = children.iter().filter_map(|(element, below)| {
                let key = element.strip_prefix("f:")?;
                Some((key.to_owned(), cut(map.get(key)?, below)?))
            });
            Some(Value::Object(held.collect()))
        }
        Value::Array(items) => {
            let held = items.iter().enumerate().filter_map(|(index, item)| {
                let (_, below) =
                    children.iter().find(|(element, _)| selects(element, index, item))?;
                cut(item, below)
            });
            Some(Value::Array(held.collect()))
        }
        _ => None,
    }
}

/// Whether an element of `FieldsV1` means this item of a list.
fn selects(element: &str, index: usize, item: &Value) -> bool {
    match element.split_once(':') {
        Some(("k", keys)) => serde_json::from_str::<Map<String, Value>>(keys)
            .is_ok_and(|keys| keys.iter().all(|(key, value)| item.get(key) == Some(value))),
        Some(("v", value)) => {
            serde_json::from_str::<Value>(value).is_ok_and(|value| value == *item)
        }
        Some(("i", at)) => at.parse() == Ok(index),
        _ => false,
    }
}

// === what paths select ===

/// Takes away what the paths select, and maps and lists that became empty by it.
pub(super) fn without(mut value: Value, paths: &[Path]) -> Value {
    for path in paths {
        remove(&mut value, path.steps());
    }
    value
}

/// Whether nothing is left of `value`.
fn remove(value: &mut Value, steps: &[Step]) -> bool {
    let Some((step, rest)) = steps.split_first() else { return true };
    match (step, value) {
        (Step::Key(key), Value::Object(map)) => {
            let emptied = map.get_mut(key).is_some_and(|held| remove(held, rest));
            emptied && map.remove(key).is_some() && map.is_empty()
        }
        (Step::Every | Step::Item(..), Value::Array(items)) => {
            let before = items.len();
            items.retain_mut(|item| !(step.is_item(item) && remove(item, rest)));
            items.is_empty() && before > 0
        }
        _ => false,
    }
}

/// Only what the paths select, and the keys by which they select the elements of lists.
pub(super) fn only(value: &Value, paths: &[Path]) -> Value {
    let steps: Vec<&[Step]> = paths.iter().map(Path::steps).collect();
    pick(value, &steps).unwrap_or_else(|| Value::Object(Map::new()))
}

fn pick(value: &Value, paths: &[&[Step]]) -> Option<Value> {
    if paths.iter().any(|path| path.is_empty()) {
        return Some(value.clone());
    }
    let below = |selects: &dyn Fn(&Step) -> bool| -> Vec<&[Step]> {
        let split = paths.iter().filter_map(|path| path.split_first());
        split.filter(|(step, _)| selects(step)).map(|(_, rest)| rest).collect()
    };
    match value {
        Value::Object(map) => {
            let picked: Map<String, Value> = map
                .iter()
                .filter_map(|(key, held)| {
                    let is_key = |step: &Step| matches!(step, Step::Key(wanted) if wanted == key);
                    Some((key.clone(), pick(held, &below(&is_key))?))
                })
                .collect();
            (!picked.is_empty()).then_some(Value::Object(picked))
        }
        Value::Array(items) => {
            let picked: Vec<Value> = items
                .iter()
                .filter_map(|item| {
                    let picked = pick(item, &below(&|step| step.is_item(item)))?;
                    Some(with_keys(picked, item, paths))
                })
                .collect();
            (!picked.is_empty()).then_some(Value::Array(picked))
        }
        _ => None,
    }
}

fn with_keys(mut picked: Value, item: &Value, paths: &[&[Step]]) -> Value {
    let keys = paths.iter().filter_map(|path| match path.first() {
        Some(Step::Item(pairs)) => Some(pairs.iter().map(|(key, _)| key)),
        _ => None,
    });
    if let Some(picked) = picked.as_object_mut() {
        let held = keys.flatten().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
        picked.extend(held);
    }
    picked
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_merge_patch_leads_from_one_value_to_the_other() {
        let cases = [
            (json!({"a": 1}), json!({"a": 1}), None),
            (
                json!({"a": 1, "b": {"c": 1, "d": 2}}),
                json!({"b": {"c": 1, "d": 3}, "e": []}),
                Some(json!({"a": null, "b": {"d": 3}, "e": []})),
            ),
            (json!({"a": [1, 2]}), json!({"a": [2]}), Some(json!({"a": [2]}))),
            (json!({"a": {"b": 1}}), json!({"a": "text"}), Some(json!({"a": "text"}))),
        ];
        for (old, new, patch) in cases {
            assert_eq!(merge_patch(&old, &new), patch);
            let mut merged = old;
            merge(&mut merged, &patch.unwrap_or(json!({})));
            assert_eq!(merged, new);
        }
    }

    #[test]
    fn what_a_manager_has_applied_is_cut_out() {
        let fields = json!({"f:data": {".": {}, "f:a": {}}, "f:ports": {"k:{\"port\":80}": {".": {}, "f:port": {}, "f:name": {}}}, "f:set": {"v:\"x\"": {}}});
        let object = json!({
            "metadata": {"managedFields": [
                {"manager": "me", "operation": "Update", "fieldsV1": {"f:other": {}}},
                {"manager": "me", "operation": "Apply", "fieldsV1": fields},
            ]},
            "data": {"a": 1, "b": 2}, "ports": [{"port": 81}, {"port": 80, "name": "http", "protocol": "TCP"}], "set": ["x", "y"], "other": 1,
        });
        let expected =
            json!({"data": {"a": 1}, "ports": [{"port": 80, "name": "http"}], "set": ["x"]});
        assert_eq!(applied(&object, "me"), Some(expected));
        assert_eq!(applied(&object, "you"), None);
    }

    #[test]
    fn paths_part_an_object_in_two() {
        let object = json!({"spec": {"replicas": 2, "containers": [{"name": "a", "image": "x", "tty": true}, {"name": "b"}]}});
        let paths = ["spec.replicas", "spec.containers[name=a].image"]
            .map(|path| Path::parse(path).unwrap());
        assert_eq!(
            only(&object, &paths),
            json!({"spec": {"replicas": 2, "containers": [{"name": "a", "image": "x"}]}})
        );
        let rest = json!({"spec": {"containers": [{"name": "a", "tty": true}, {"name": "b"}]}});
        assert_eq!(without(object.clone(), &paths), rest);
        let all = [Path::parse("spec").unwrap()];
        assert_eq!(without(object, &all), json!({}));
    }
}
