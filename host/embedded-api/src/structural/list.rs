//! Validation of lists whose items must differ: sets, and maps with keys.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{List, Node};
use crate::field_error::{FieldError, FieldPath};

/// Returns an error for each duplicate below a value.
pub(super) fn validate(node: &Node, value: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    visit(node, value, &FieldPath::root(), &mut errors);
    errors
}

fn visit(node: &Node, value: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if !node.has.unique_lists {
        return;
    }
    match value {
        Value::Object(map) => {
            if let Some(values) = node.values() {
                map.iter().for_each(|(key, value)| visit(values, value, &path.key(key), errors));
            }
            for (name, value) in map {
                if let Some(child) = node.properties.get(name) {
                    visit(child, value, &path.child(name), errors);
                }
            }
        }
        Value::Array(items) => {
            match &node.list {
                List::Set => add_duplicates(items.iter().cloned(), path, errors),
                List::Map(keys) => map_list(keys, items, path, errors),
                List::Unsaid | List::Atomic => {}
            }
            if let Some(child) = &node.items {
                items
                    .iter()
                    .enumerate()
                    .for_each(|(index, item)| visit(child, item, &path.index(index), errors));
            }
        }
        _ => {}
    }
}

fn map_list(keys: &[String], items: &[Value], path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let wrong = items.iter().enumerate().find(|(_, item)| !item.is_object() && !item.is_null());
    if let Some((index, item)) = wrong {
        errors.push(FieldError::invalid(
            path.index(index),
            item.clone(),
            "must be an object for an array of list-type map",
        ));
        return;
    }
    add_duplicates(items.iter().map(|item| key_of(keys, item)), path, errors);
}

/// Returns the key of an item: those of its key fields that are present.
fn key_of(keys: &[String], item: &Value) -> Value {
    let key: Map<String, Value> = keys
        .iter()
        .filter_map(|key| item.get(key).map(|value| (key.clone(), value.clone())))
        .collect();
    Value::Object(key)
}

/// Adds an error for the second of equal values; further ones are not reported.
fn add_duplicates(
    values: impl ExactSizeIterator<Item = Value>,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    if values.len() <= 1 {
        return;
    }
    let mut seen: HashMap<String, usize> = HashMap::with_capacity(values.len());
    for (index, value) in values.enumerate() {
        let times = seen.entry(value.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            errors.push(FieldError::duplicate(path.index(index), value));
        }
    }
}
