//! Bounds of single values: lengths, sizes, ranges, patterns, enumerations.

use regex::Regex;
use serde_json::{Map, Number, Value};

use super::{format, prune, re2};
use crate::field_error::go_float;

/// The bounds at one place of a schema.
#[derive(Debug, Default)]
pub(super) struct Limits {
    pub(super) required: Vec<String>,
    pub(super) one_of_values: Vec<Value>,
    pub(super) format: Option<String>,
    pub(super) pattern: Option<Pattern>,
    pub(super) length: Range,
    pub(super) items: Range,
    pub(super) properties: Range,
    pub(super) unique_items: bool,
    pub(super) minimum: Option<Bound>,
    pub(super) maximum: Option<Bound>,
    pub(super) multiple_of: Option<f64>,
}

/// A smallest and a largest count, if any.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Range {
    pub(super) least: Option<usize>,
    pub(super) most: Option<usize>,
}

/// A regular expression and its text; without the expression if the text is invalid.
#[derive(Debug)]
pub(super) struct Pattern {
    pub(super) text: String,
    regex: Option<Regex>,
}

/// A minimum or a maximum of a number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    value: f64,
    exclusive: bool,
}

/// The error of a number, with the bound as messages show it.
#[derive(Debug, PartialEq)]
pub(super) enum NumberFault {
    NotMultiple(String),
    TooBig { exclusive: bool, bound: String },
    TooSmall { exclusive: bool, bound: String },
}

// === impl Limits ===

impl Limits {
    pub(super) fn compile(schema: &Map<String, Value>) -> Self {
        let texts = |key: &str| -> Vec<String> {
            let list = schema.get(key).and_then(Value::as_array).into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            required: texts("required"),
            one_of_values: schema
                .get("enum")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default(),
            format: format::of_schema(schema).map(str::to_owned),
            pattern: schema
                .get("pattern")
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
                .map(Pattern::compile),
            length: Range::compile(schema, "minLength", "maxLength"),
            items: Range::compile(schema, "minItems", "maxItems"),
            properties: Range::compile(schema, "minProperties", "maxProperties"),
            unique_items: schema.get("uniqueItems").and_then(Value::as_bool).unwrap_or(false),
            minimum: Bound::compile(schema, "minimum", "exclusiveMinimum"),
            maximum: Bound::compile(schema, "maximum", "exclusiveMaximum"),
            multiple_of: schema.get("multipleOf").and_then(Value::as_f64),
        }
    }

    /// Returns the errors of a number.
    pub(super) fn check_number(&self, number: &Number) -> Vec<NumberFault> {
        let mut faults = Vec::new();
        let integer = number.as_i64();
        let Some(float) = number.as_f64() else { return faults };
        if let Some(factor) = self.multiple_of
            && !is_multiple(integer, float, factor)
        {
            faults.push(NumberFault::NotMultiple(shown(integer, factor)));
        }
        if let Some(bound) = self.maximum
            && bound.is_below(integer, float)
        {
            faults.push(NumberFault::TooBig {
                exclusive: bound.exclusive,
                bound: shown(integer, bound.value),
            });
        }
        if let Some(bound) = self.minimum
            && bound.is_above(integer, float)
        {
            faults.push(NumberFault::TooSmall {
                exclusive: bound.exclusive,
                bound: shown(integer, bound.value),
            });
        }
        faults
    }

    /// Returns whether the value is one of the listed values, or none are listed.
    pub(super) fn is_listed(&self, value: &Value) -> bool {
        self.one_of_values.is_empty()
            || (!value.is_null() && self.one_of_values.iter().any(|listed| equal(listed, value)))
    }
}

// === impl Range ===

impl Range {
    fn compile(schema: &Map<String, Value>, least: &str, most: &str) -> Self {
        let count = |key: &str| {
            schema.get(key).and_then(Value::as_u64).and_then(|count| usize::try_from(count).ok())
        };
        Self { least: count(least), most: count(most) }
    }

    /// Returns the lower bound if a count is below it.
    pub(super) fn under(self, count: usize) -> Option<usize> {
        self.least.filter(|least| count < *least)
    }

    /// Returns the upper bound if a count is above it.
    pub(super) fn over(self, count: usize) -> Option<usize> {
        self.most.filter(|most| count > *most)
    }
}

// === impl Pattern ===

impl Pattern {
    fn compile(text: &str) -> Self {
        Self { text: text.to_owned(), regex: re2::compile(text).ok() }
    }

    /// Returns whether the text contains a match of the pattern.
    pub(super) fn matches(&self, text: &str) -> bool {
        self.regex.as_ref().is_some_and(|regex| regex.is_match(text))
    }
}

// === impl Bound ===

impl Bound {
    fn compile(schema: &Map<String, Value>, key: &str, exclusive: &str) -> Option<Self> {
        let value = schema.get(key).and_then(Value::as_f64)?;
        Some(Self {
            value,
            exclusive: schema.get(exclusive).and_then(Value::as_bool).unwrap_or(false),
        })
    }

    /// Returns whether this maximum is below a number.
    fn is_below(self, integer: Option<i64>, float: f64) -> bool {
        match integer {
            Some(integer) if self.exclusive => integer >= truncated(self.value),
            Some(integer) => integer > truncated(self.value),
            None if self.exclusive => float >= self.value,
            None => float > self.value,
        }
    }

    /// Returns whether this minimum is above a number.
    fn is_above(self, integer: Option<i64>, float: f64) -> bool {
        match integer {
            Some(integer) if self.exclusive => integer <= truncated(self.value),
            Some(integer) => integer < truncated(self.value),
            None if self.exclusive => float <= self.value,
            None => float < self.value,
        }
    }
}

/// Returns a bound as integers are compared with it: the API server cuts off its fraction.
#[expect(
    clippy::cast_possible_truncation,
    reason = "saturating, as integers beyond are no integers for the API server"
)]
fn truncated(bound: f64) -> i64 {
    bound as i64
}

fn shown(integer: Option<i64>, bound: f64) -> String {
    if integer.is_some() { truncated(bound).to_string() } else { go_float(bound) }
}

fn is_multiple(integer: Option<i64>, float: f64, factor: f64) -> bool {
    if let Some(integer) = integer
        && factor.abs() >= 1.0
    {
        return integer.checked_rem(truncated(factor)) == Some(0);
    }
    let quotient = if factor < 1.0 { 1.0 / factor * float } else { float / factor };
    prune::integral(quotient).is_some()
}

/// Returns whether two values are equal; numbers are compared by value.
pub(super) fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || one.as_f64() == other.as_f64() && (one.is_f64() || other.is_f64())
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(key, one)| other.get(key).is_some_and(|other| equal(one, other)))
        }
        _ => one == other,
    }
}
