//! JSON values: fields, merge patches, and differences.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    sync::LazyLock,
};

use regex::Regex;
use serde_json::{Map, Value};

/// The most differences of one object that are printed.
const MAX_DIFFERENCES: usize = 12;

/// A uid, or another random identity of this form.
pub(in crate::goldens) static UID: LazyLock<Regex> =
    LazyLock::new(|| regex("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
/// A time in RFC 3339.
pub(in crate::goldens) static TIME: LazyLock<Regex> =
    LazyLock::new(|| regex(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"));

/// Returns a regular expression.
///
/// # Panics
///
/// If the text is none.
pub(in crate::goldens) fn regex(text: &str) -> Regex {
    Regex::new(text).unwrap()
}

/// Returns the text at a JSON pointer, or "".
pub(in crate::goldens) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns a value with a JSON merge patch applied.
pub(in crate::goldens) fn merged(value: &Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else { return patch.clone() };
    let mut fields = value.as_object().cloned().unwrap_or_default();
    for (key, patch) in patch {
        if patch.is_null() {
            fields.remove(key);
        } else {
            let merged = merged(fields.get(key).unwrap_or(&Value::Null), patch);
            fields.insert(key.clone(), merged);
        }
    }
    Value::Object(fields)
}

/// Returns the JSON merge patch that makes `to` of `from`.
pub(in crate::goldens) fn change(from: &Value, to: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (from, to) else { return to.clone() };
    let changed = new.iter().filter(|(key, value)| old.get(*key) != Some(value));
    let changed = changed
        .map(|(key, value)| (key.clone(), change(old.get(key).unwrap_or(&Value::Null), value)));
    let gone = old.keys().filter(|key| !new.contains_key(*key));
    changed.chain(gone.map(|key| (key.clone(), Value::Null))).collect()
}

/// Returns the value with all texts mapped.
///
/// # Errors
///
/// Fails if the mapping of a text does.
pub(in crate::goldens) fn mapped(
    value: &Value,
    map: &mut impl FnMut(&str) -> anyhow::Result<String>,
) -> anyhow::Result<Value> {
    Ok(match value {
        Value::String(text) => Value::String(map(text)?),
        Value::Array(items) => {
            items.iter().map(|item| mapped(item, map)).collect::<Result<_, _>>()?
        }
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| Ok((key.clone(), mapped(value, map)?));
            Value::Object(fields.iter().map(field).collect::<anyhow::Result<_>>()?)
        }
        other => other.clone(),
    })
}

/// Returns the conditions of an object.
pub(in crate::goldens) fn conditions_mut(object: &mut Value) -> impl Iterator<Item = &mut Value> {
    let conditions = object.pointer_mut("/status/conditions");
    conditions.and_then(Value::as_array_mut).into_iter().flatten()
}

/// Returns the names of the top-level fields of two objects.
pub(in crate::goldens) fn fields<'a>(
    one: &'a Value,
    other: &'a Value,
) -> impl Iterator<Item = &'a String> {
    let fields = [one, other].into_iter().filter_map(Value::as_object);
    fields.flat_map(Map::keys)
}

/// Adds the differences of two values to a list, each with the name of the value and the field. Of
/// many, only the first are told.
pub(in crate::goldens) fn with_differences(
    name: &dyn Display,
    expected: &Value,
    actual: &Value,
    all: &mut Vec<String>,
) {
    let mut found = Vec::new();
    compare("", expected, actual, &mut found);
    let more = found.len().saturating_sub(MAX_DIFFERENCES);
    found.truncate(MAX_DIFFERENCES);
    all.extend(found.into_iter().map(|difference| format!("{name} {difference}")));
    if more > 0 {
        all.push(format!("{name}: {more} more differences"));
    }
}

/// Returns the differences of two sets of objects. `compare` adds those of an object that both have.
pub(in crate::goldens) fn object_differences<K: Ord + Display>(
    expected: &BTreeMap<K, Value>,
    actual: &BTreeMap<K, Value>,
    compare: impl Fn(&K, &Value, &Value, &mut Vec<String>),
) -> Vec<String> {
    let keys: BTreeSet<&K> = expected.keys().chain(actual.keys()).collect();
    let mut all = Vec::new();
    for key in keys {
        match (expected.get(key), actual.get(key)) {
            (Some(expected), Some(actual)) => compare(key, expected, actual, &mut all),
            (Some(_), None) => all.push(format!("{key}: is not there")),
            (None, Some(object)) => {
                all.push(format!("{key}: is there, which it is not in the record: {object}"));
            }
            (None, None) => {}
        }
    }
    all
}

/// Adds the differences of two values to a list, each with the path of the field from `at`.
fn compare(at: &str, expected: &Value, actual: &Value, found: &mut Vec<String>) {
    match (expected, actual) {
        (Value::Object(wanted), Value::Object(held)) => {
            let keys: BTreeSet<&String> = wanted.keys().chain(held.keys()).collect();
            for key in keys {
                let at = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
                let of =
                    |fields: &Map<String, Value>| fields.get(key).cloned().unwrap_or(Value::Null);
                compare(&at, &of(wanted), &of(held), found);
            }
        }
        (Value::Array(wanted), Value::Array(held)) if wanted.len() == held.len() => {
            for (index, (expected, actual)) in wanted.iter().zip(held).enumerate() {
                compare(&format!("{at}/{index}"), expected, actual, found);
            }
        }
        _ if expected == actual => {}
        _ => found.push(format!("{at}: expected {expected}, found {actual}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_is_what_has_to_be_merged() {
        let cases = [
            (
                json!({"a": 1, "b": {"c": [1], "d": 2}}),
                json!({"b": {"c": [2], "d": 2}, "e": {"f": 3}}),
            ),
            (json!({"a": {"b": 1}}), json!({"a": 2})),
            (json!({"a": 1}), json!({"a": {"b": 1}})),
            (json!({"a": 1}), json!({"a": 1})),
        ];
        for (from, to) in cases {
            assert_eq!(merged(&from, &change(&from, &to)), to, "{from}");
        }
        assert_eq!(change(&json!({"a": 1, "b": 2}), &json!({"a": 1, "b": 3})), json!({"b": 3}));
    }
}
