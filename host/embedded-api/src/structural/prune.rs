//! Pruning: drops unknown fields and nulls from objects before they are stored.

use serde_json::Value;

use super::{Additional, Node};
use crate::field_error::FieldPath;

/// The fields of every resource that need no schema.
pub(super) const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Drops the unknown fields of an object whose schema is that of a whole resource, and returns
/// their paths, sorted.
pub(super) fn prune(object: &mut Value, root: &Node) -> Vec<String> {
    let mut pruning = Pruning { unknown: Vec::new() };
    let known = Known { node: Some(root), embedded: true, keep: root.preserve_unknown };
    pruning.value(object, known, &FieldPath::root());
    pruning.unknown.sort();
    pruning.unknown
}

/// Drops the unknown fields of a value that is no resource, and returns their paths.
pub(super) fn prune_plain(value: &mut Value, node: &Node) -> Vec<String> {
    let mut pruning = Pruning { unknown: Vec::new() };
    pruning.value(value, Known::of(Some(node)), &FieldPath::root());
    pruning.unknown
}

/// Drops null where the schema has a type that is not nullable.
pub(super) fn drop_nulls(value: &mut Value, node: &Node) {
    match value {
        Value::Object(map) => {
            map.retain(|name, value| {
                let Some(child) = node.field(name) else { return true };
                if value.is_null() && !child.nullable && child.default.is_none() {
                    return false;
                }
                drop_nulls(value, child);
                true
            });
        }
        Value::Array(items) => {
            if let Some(child) = &node.items {
                for value in items {
                    drop_nulls(value, child);
                }
            }
        }
        _ => {}
    }
}

/// Replaces floats without a fraction by integers, everywhere in a value, as a server shows them
/// after reading and writing them.
pub(crate) fn integral_floats(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(integer) = number.as_f64().and_then(integral) {
                *value = integer.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(integral_floats),
        Value::Object(map) => map.values_mut().for_each(integral_floats),
        _ => {}
    }
}

/// Returns a float as an integer, if it is an integer that floats represent exactly.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
pub(super) fn integral(float: f64) -> Option<i64> {
    /// The largest integer up to which all integers are different floats.
    const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_991.0;
    (float.fract() == 0.0 && float.abs() <= MAX_EXACT_INTEGER).then_some(float as i64)
}

struct Pruning {
    unknown: Vec<String>,
}

/// The schema of a value while pruning.
#[derive(Clone, Copy)]
struct Known<'a> {
    /// The schema; `None` if every field is unknown.
    node: Option<&'a Node>,
    /// True for a resource, whose `apiVersion`, `kind` and `metadata` are not pruned.
    embedded: bool,
    /// True if fields that are not in the schema stay.
    keep: bool,
}

impl<'a> Known<'a> {
    fn of(node: Option<&'a Node>) -> Self {
        Self {
            node,
            embedded: node.is_some_and(|node| node.embedded),
            keep: node.is_some_and(|node| node.preserve_unknown),
        }
    }

    /// Returns the schema of a field; `None` if the field is unknown.
    fn field(self, name: &str) -> Option<Known<'a>> {
        let node = self.node?;
        if let Some(child) = node.properties.get(name) {
            return Some(Self::of(Some(child)));
        }
        match &node.additional {
            Additional::Values(values) => Some(Self::of(Some(values))),
            Additional::Allowed(_) => Some(Self::of(None)),
            Additional::Unsaid => None,
        }
    }

    fn items(self) -> Known<'a> {
        let items = self.node.and_then(|node| node.items.as_deref());
        let known = Self::of(items);
        Known { keep: known.keep || self.keep, ..known }
    }
}

impl Pruning {
    fn value(&mut self, value: &mut Value, known: Known<'_>, path: &FieldPath<'_>) {
        match value {
            Value::Object(map) => map.retain(|name, value| {
                if known.embedded && META_FIELDS.contains(&name.as_str()) {
                    return true;
                }
                let here = path.child(name);
                if let Some(child) = known.field(name) {
                    self.value(value, child, &here);
                    return true;
                }
                if !known.keep {
                    self.unknown.push(here.to_string());
                }
                known.keep
            }),
            Value::Array(items) => {
                for (index, value) in items.iter_mut().enumerate() {
                    self.value(value, known.items(), &path.index(index));
                }
            }
            _ => {}
        }
    }
}
