//! Small operations on JSON values.

use serde_json::{Map, Value};

/// Returns the members of an object; none for other values.
pub(crate) fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// Returns the items of a list; none for other values.
pub(crate) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the items of the list under a key.
pub(crate) fn items_mut<'a>(
    value: &'a mut Value,
    key: &str,
) -> impl Iterator<Item = &'a mut Value> {
    value.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Returns the object under a key, added if absent; `None` if the value itself, or the value under
/// the key, is no object.
pub(crate) fn child<'a>(value: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    let child = value.as_object_mut()?.entry(key).or_insert_with(|| Value::Object(Map::new()));
    if child.is_null() {
        *child = Value::Object(Map::new());
    }
    child.is_object().then_some(child)
}

/// Sets a member that is absent or null.
pub(crate) fn default(value: &mut Value, key: &str, wanted: impl Into<Value>) {
    if let Some(object) = value.as_object_mut()
        && object.get(key).is_none_or(Value::is_null)
    {
        object.insert(key.to_owned(), wanted.into());
    }
}

/// Sets a member, replacing the present value.
pub(crate) fn set(value: &mut Value, key: &str, wanted: impl Into<Value>) {
    if let Some(object) = value.as_object_mut() {
        object.insert(key.to_owned(), wanted.into());
    }
}

/// Sets a member to that of another object, or removes it if the other has none.
pub(crate) fn copy(value: &mut Value, key: &str, from: &Value) {
    match from.get(key) {
        Some(wanted) => set(value, key, wanted.clone()),
        None => {
            remove(value, key);
        }
    }
}

pub(crate) fn remove(value: &mut Value, key: &str) -> Option<Value> {
    value.as_object_mut()?.remove(key)
}

/// Returns the text under a key, empty if there is none.
pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or("")
}

/// Returns whether a value is null, or an empty text, list or object.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Returns the value at nested keys; null if there is none.
pub(crate) fn at<'a>(value: &'a Value, keys: &[&str]) -> &'a Value {
    keys.iter().fold(value, |value, key| &value[key])
}
