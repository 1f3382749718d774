//! The elements of paths.

use std::{cmp::Ordering, fmt, sync::Arc};

use serde_json::{Number, Value};

use super::Key;
use crate::field_error::go_quote;

/// An element of a path.
#[derive(Debug, Clone)]
pub(crate) enum Element {
    /// A field of an object or a key of a map (`f:`).
    Field(Arc<str>),
    /// The item of a list map with these keys, sorted by name (`k:`).
    Key(Key),
    /// The item of a set (`v:`).
    Value(Arc<Value>),
    /// The item of an atomic list (`i:`); only in messages.
    Index(usize),
}

// === impl Element ===

impl Element {
    /// Returns the element of a field.
    pub(crate) fn field(name: &str) -> Self {
        Self::Field(Arc::from(name))
    }

    /// Returns the element of a list item, by its keys.
    pub(crate) fn key(mut keys: Vec<(String, Value)>) -> Self {
        keys.sort_by(|(a, _), (b, _)| a.cmp(b));
        Self::Key(Arc::new(keys))
    }

    /// Returns the element of an item of a set.
    pub(crate) fn value(value: Value) -> Self {
        Self::Value(Arc::new(value))
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Element {}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => compare_keys(a, b),
            (Self::Value(a), Self::Value(b)) => compare_values(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            (a, b) => a.rank().cmp(&b.rank()),
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                let each: Vec<_> =
                    keys.iter().map(|(name, value)| format!("{name}={}", Text(value))).collect();
                write!(f, "[{}]", each.join(","))
            }
            Self::Value(value) => write!(f, "[={}]", Text(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// Displays a value inside of a path.
struct Text<'a>(&'a Value);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Array(items) => {
                let each: Vec<_> = items.iter().map(|item| Text(item).to_string()).collect();
                write!(f, "[{}]", each.join(","))
            }
            Value::Object(map) => {
                map.iter().try_for_each(|(key, value)| write!(f, "{key}={}", Text(value)))
            }
            Value::String(text) => f.write_str(&go_quote(text)),
            scalar => write!(f, "{scalar}"),
        }
    }
}

fn compare_keys(a: &[(String, Value)], b: &[(String, Value)]) -> Ordering {
    let pairs = a.iter().zip(b);
    let first = pairs
        .map(|((a_name, a), (b_name, b))| a_name.cmp(b_name).then_with(|| compare_values(a, b)))
        .find(|order| order.is_ne());
    first.unwrap_or_else(|| a.len().cmp(&b.len()))
}

/// Returns whether two values are equal; `1` and `1.0` are.
pub(crate) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || compare_numbers(a, b).is_eq(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| equal(a, b)))
        }
        (a, b) => a == b,
    }
}

/// Compares two values in an order of all values: numbers, texts, booleans, lists, maps, null.
pub(crate) fn compare_values(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let first =
                a.iter().zip(b).map(|(a, b)| compare_values(a, b)).find(|order| order.is_ne());
            first.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let pairs = a.iter().zip(b);
            let first = pairs
                .map(|((a_key, a), (b_key, b))| a_key.cmp(b_key).then_with(|| compare_values(a, b)))
                .find(|order| order.is_ne());
            first.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (a, b) => rank(a).cmp(&rank(b)),
    }
}

fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        },
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}
