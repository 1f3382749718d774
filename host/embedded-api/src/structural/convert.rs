//! Conversion of the values of objects to CEL values.
//!
//! The conversion follows the schema: texts with a format become times, durations or bytes, numbers
//! become floats, field names are escaped, and of a resource's metadata only the name is visible.

use std::{collections::HashMap, sync::Arc};

use base64::Engine as _;
use chrono::{DateTime, NaiveDate, TimeDelta};
use kube_cel::cel::{
    Value as Cel,
    objects::{Key, Map},
};
use serde_json::{Number, Value};

use super::{List, Node, Type, limit, prune::META_FIELDS};

/// Words that cannot be names in CEL.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Returns a value as rules see it; `resource` is true for the object itself and for embedded
/// resources.
pub(super) fn to_cel(value: &Value, node: &Node, resource: bool) -> Cel {
    match value {
        Value::Object(map) => object(map, node, resource || node.embedded),
        Value::Array(items) => {
            let item = |value: &Value| {
                node.items.as_ref().map_or_else(|| plain(value), |node| to_cel(value, node, false))
            };
            Cel::List(Arc::new(items.iter().map(item).collect()))
        }
        Value::String(text) => self::text(text, node),
        Value::Number(number) if node.kind == Some(Type::Number) => {
            number.as_f64().map_or(Cel::Null, Cel::Float)
        }
        other => plain(other),
    }
}

/// Returns the old value as rules see it beside a new one. In lists whose order does not matter,
/// the items are in the order of the new ones, so that equal lists compare as equal.
pub(super) fn old_to_cel(old: &Value, new: &Value, node: &Node, resource: bool) -> Cel {
    if !node.has.unique_lists {
        return to_cel(old, node, resource);
    }
    let mut ordered = old.clone();
    reorder(&mut ordered, new, node);
    to_cel(&ordered, node, resource)
}

fn reorder(old: &mut Value, new: &Value, node: &Node) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (name, old) in old {
                if let (Some(node), Some(new)) = (node.field(name), new.get(name)) {
                    reorder(old, new, node);
                }
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            let is_same = |one: &Value, other: &Value| match &node.list {
                List::Set => limit::equal(one, other),
                List::Map(keys) => keys.iter().all(|key| one.get(key) == other.get(key)),
                List::Unsaid | List::Atomic => false,
            };
            if matches!(node.list, List::Set | List::Map(_)) {
                old.sort_by_cached_key(|old| {
                    new.iter().position(|new| is_same(new, old)).unwrap_or(usize::MAX)
                });
            }
            if let Some(items) = &node.items {
                old.iter_mut().zip(new).for_each(|(old, new)| reorder(old, new, items));
            }
        }
        _ => {}
    }
}

fn object(map: &serde_json::Map<String, Value>, node: &Node, resource: bool) -> Cel {
    let values = node.values();
    let mut seen: HashMap<Key, Cel> = HashMap::with_capacity(map.len());
    for (name, value) in map {
        let (key, value) = if let Some(child) = node.properties.get(name) {
            let Some(escaped) = escape(name) else { continue };
            let is_metadata = resource && name == "metadata";
            (escaped, if is_metadata { metadata(value) } else { to_cel(value, child, false) })
        } else if let Some(values) = values {
            (name.clone(), to_cel(value, values, false))
        } else if resource && META_FIELDS.contains(&name.as_str()) {
            (name.clone(), if name == "metadata" { metadata(value) } else { plain(value) })
        } else {
            (name.clone(), plain(value))
        };
        seen.insert(key.into(), value);
    }
    Cel::Map(Map { map: Arc::new(seen) })
}

fn metadata(metadata: &Value) -> Cel {
    let seen: HashMap<Key, Cel> = ["name", "generateName"]
        .into_iter()
        .filter_map(|name| metadata.get(name).map(|value| (Key::from(name), plain(value))))
        .collect();
    Cel::Map(Map { map: Arc::new(seen) })
}

/// Converts a value that no schema describes.
fn plain(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(value) => Cel::Bool(*value),
        Value::Number(number) => self::number(number),
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(items) => Cel::List(Arc::new(items.iter().map(plain).collect())),
        Value::Object(map) => {
            let entries = map.iter().map(|(key, value)| (Key::from(key.clone()), plain(value)));
            Cel::Map(Map { map: Arc::new(entries.collect()) })
        }
    }
}

fn number(number: &Number) -> Cel {
    number.as_i64().map(Cel::Int).or_else(|| number.as_f64().map(Cel::Float)).unwrap_or(Cel::Null)
}

fn text(text: &str, node: &Node) -> Cel {
    let read = match node.limits.format.as_deref() {
        Some("date-time" | "datetime") => {
            DateTime::parse_from_rfc3339(text).ok().map(Cel::Timestamp)
        }
        Some("date") => NaiveDate::parse_from_str(text, "%Y-%m-%d")
            .ok()
            .and_then(|date| date.and_hms_opt(0, 0, 0))
            .map(|time| Cel::Timestamp(time.and_utc().fixed_offset())),
        Some("duration") => duration(text).map(Cel::Duration),
        Some("byte") => base64::engine::general_purpose::STANDARD
            .decode(text)
            .ok()
            .map(|bytes| Cel::Bytes(Arc::new(bytes))),
        _ => None,
    };
    read.unwrap_or_else(|| Cel::String(Arc::new(text.to_owned())))
}

/// Parses a duration as Go writes it: `1h30m`, `-1.5s`.
pub(super) fn duration(text: &str) -> Option<TimeDelta> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(TimeDelta::zero());
    }
    let mut nanoseconds = 0.0;
    while !rest.is_empty() {
        let (digits, after) = rest.split_at(
            rest.find(|character: char| !(character.is_ascii_digit() || character == '.'))?,
        );
        let end = after
            .find(|character: char| character.is_ascii_digit() || character == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let factor = match unit {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 6e10,
            "h" => 3.6e12,
            _ => return None,
        };
        nanoseconds += digits.parse::<f64>().ok()? * factor;
        rest = after;
    }
    #[expect(clippy::cast_possible_truncation, reason = "saturating; Go refuses durations beyond")]
    let whole = (sign * nanoseconds) as i64;
    Some(TimeDelta::nanoseconds(whole))
}

/// Returns a field name as rules write it; `None` if rules cannot name the field.
pub(super) fn escape(name: &str) -> Option<String> {
    let begins = name.starts_with(|first: char| {
        first.is_ascii_alphabetic() || matches!(first, '_' | '.' | '-' | '/')
    });
    if !begins
        || name.contains(|character: char| {
            !(character.is_ascii_alphanumeric() || matches!(character, '_' | '.' | '-' | '/'))
        })
    {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    if !name.contains(['.', '-', '/']) && !name.contains("__") {
        return Some(name.to_owned());
    }
    let escaped = name
        .replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__");
    Some(escaped)
}
