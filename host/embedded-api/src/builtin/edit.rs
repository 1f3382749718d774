//! Small steps on JSON objects.

use serde_json::{Map, Value};

/// The members of an object; none for anything else.
pub(crate) fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// The items of a list; none for anything else.
pub(crate) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The items of the list under a key.
pub(crate) fn items_mut<'a>(
    value: &'a mut Value,
    key: &str,
) -> impl Iterator<Item = &'a mut Value> {
    value.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
}

/// The object under a key, made if it is not there; nothing if the value itself is no object.
pub(crate) fn child<'a>(value: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    let child = value.as_object_mut()?.entry(key).or_insert_with(|| Value::Object(Map::new()));
    if child.is_null() {
        *child = Value::Object(Map::new());
    }
    child.is_object().then_some(child)
}

/// Sets what is absent or null.
pub(crate) fn default(value: &mut Value, key: &str, wanted: impl Into<Value>) {
    if let Some(object) = value.as_object_mut()
        && object.get(key).is_none_or(Value::is_null)
    {
        object.insert(key.to_owned(), wanted.into());
    }
}

/// Sets, whatever was there.
pub(crate) fn set(value: &mut Value, key: &str, wanted: impl Into<Value>) {
    if let Some(object) = value.as_object_mut() {
        object.insert(key.to_owned(), wanted.into());
    }
}

/// Sets what another object has there, or removes it if that has nothing.
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

/// The text under a key, empty if there is none.
pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or("")
}

/// Whether there is nothing, or nothing in it.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The value at some keys, one below the other; null if there is none.
pub(crate) fn at<'a>(value: &'a Value, keys: &[&str]) -> &'a Value {
    keys.iter().fold(value, |value, key| &value[key])
}
