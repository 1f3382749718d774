//! Splits a JSON value by the contract's paths; the writer does so for `leave`.

use serde_json::{Map, Value};

use crate::path::{Path, Segment};

/// Returns `value` without the fields that the paths select, and without maps and lists that became
/// empty by their removal.
pub fn without(mut value: Value, paths: &[Path]) -> Value {
    for path in paths {
        remove(&mut value, path.segments());
    }
    value
}

/// Removes the selected fields from `value`. Returns whether nothing is left of it.
fn remove(value: &mut Value, segments: &[Segment]) -> bool {
    let Some((first, rest)) = segments.split_first() else {
        return true;
    };
    match (first, value) {
        (Segment::Key(key), Value::Object(object)) => {
            let emptied = object.get_mut(&**key).is_some_and(|held| remove(held, rest));
            emptied && object.remove(&**key).is_some() && object.is_empty()
        }
        (Segment::Each | Segment::Where(_), Value::Array(items)) => {
            let before = items.len();
            items.retain_mut(|item| !(first.selects(&*item) && remove(item, rest)));
            items.is_empty() && before > 0
        }
        _ => false,
    }
}

/// Returns only the fields that the paths select, and the keys by which the paths select elements
/// of lists.
pub fn only(value: &Value, paths: &[Path]) -> Value {
    let segments: Vec<&[Segment]> = paths.iter().map(Path::segments).collect();
    pick(value, &segments).unwrap_or_else(|| Value::Object(Map::new()))
}

fn pick(value: &Value, paths: &[&[Segment]]) -> Option<Value> {
    if paths.iter().any(|path| path.is_empty()) {
        return Some(value.clone());
    }
    match value {
        Value::Object(object) => {
            let picked: Map<String, Value> = object
                .iter()
                .filter_map(|(key, held)| {
                    let below = below(
                        paths,
                        |segment| matches!(segment, Segment::Key(wanted) if **wanted == **key),
                    );
                    Some((key.clone(), pick(held, &below)?))
                })
                .collect();
            (!picked.is_empty()).then_some(Value::Object(picked))
        }
        Value::Array(items) => {
            let picked: Vec<Value> =
                items.iter().filter_map(|item| pick_item(item, paths)).collect();
            (!picked.is_empty()).then_some(Value::Array(picked))
        }
        _ => None,
    }
}

fn pick_item(item: &Value, paths: &[&[Segment]]) -> Option<Value> {
    let mut picked = pick(item, &below(paths, |segment| segment.selects(item)))?;
    if let (Some(picked), Some(item)) = (picked.as_object_mut(), item.as_object()) {
        for segment in paths.iter().filter_map(|path| path.first()) {
            if let Segment::Where(keys) = segment {
                let held = keys.iter().filter_map(|(key, _)| item.get_key_value(&**key));
                picked.extend(held.map(|(key, value)| (key.clone(), value.clone())));
            }
        }
    }
    Some(picked)
}

fn below<'a>(paths: &[&'a [Segment]], selected: impl Fn(&Segment) -> bool) -> Vec<&'a [Segment]> {
    paths
        .iter()
        .filter_map(|path| path.split_first())
        .filter(|(first, _)| selected(first))
        .map(|(_, rest)| rest)
        .collect()
}
