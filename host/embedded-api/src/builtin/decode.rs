//! Decoding of objects of built-in kinds: checks types, drops unknown fields and reports their
//! paths, and brings values to the form in which Kubernetes answers them.

#[cfg(test)]
mod tests;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    definition::{self, Field, Object, Shape},
    quantity::Quantity,
};

/// The error of a value of the wrong type, with the message of Kubernetes' decoder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct WrongType(String);

/// The message of Kubernetes for a text that is no quantity.
const QUANTITY: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// The position of the decoder.
struct At<'a> {
    parent: Option<&'a At<'a>>,
    step: Step<'a>,
    /// The type that declares the field of this position.
    owner: &'a Object,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Key(&'a str),
    Index(usize),
}

/// Decodes an object. The paths of unknown fields are added to `unknown`, in the order of the
/// object.
pub(crate) fn object(
    definition: &Object,
    value: Value,
    unknown: &mut Vec<String>,
) -> Result<Value, WrongType> {
    fields(definition, value, None, unknown)
}

fn fields(
    object: &Object,
    value: Value,
    at: Option<&At<'_>>,
    unknown: &mut Vec<String>,
) -> Result<Value, WrongType> {
    let Value::Object(members) = value else {
        return Err(wrong(&value, at, &object.name));
    };
    let mut kept = Map::new();
    for (name, value) in members {
        let here = At { parent: at, step: Step::Field(&name), owner: object };
        let Some(field) = object.fields.get(&name) else {
            unknown.push(here.path());
            continue;
        };
        if value.is_null() {
            continue;
        }
        let value = read(&field.shape, value, &here, unknown)?;
        if !is_omitted(field, &value) {
            kept.insert(name, value);
        }
    }
    for (name, field) in &object.fields {
        if let Some(absent) = &field.always
            && !kept.contains_key(name)
        {
            kept.insert(name.clone(), filled(&field.shape, absent));
        }
    }
    Ok(Value::Object(kept))
}

/// Replaces empty lists by null in the fields that are written as null when absent: both are stored
/// as the same.
pub(crate) fn without_empty_lists(definition: &Object, object: &mut Value) {
    let Value::Object(members) = object else { return };
    for (name, value) in members {
        let Some(field) = definition.fields.get(name) else { continue };
        if field.always == Some(Value::Null) && *value == json!([]) {
            *value = Value::Null;
        } else {
            without_empty_lists_in(&field.shape, value);
        }
    }
}

fn without_empty_lists_in(shape: &Shape, value: &mut Value) {
    match (shape, value) {
        (Shape::Object(index) | Shape::ObjectOr(index), value) => {
            if let Some(object) = definition::object(*index) {
                without_empty_lists(object, value);
            }
        }
        (Shape::List(item), Value::Array(items)) => {
            for value in items {
                without_empty_lists_in(item, value);
            }
        }
        (Shape::Map(item), Value::Object(members)) => {
            for value in members.values_mut() {
                without_empty_lists_in(item, value);
            }
        }
        _ => {}
    }
}

/// Returns whether a value is the same as an absent one: empty lists and maps always, empty texts,
/// zeros and false mostly.
fn is_omitted(field: &Field, value: &Value) -> bool {
    match value {
        Value::Array(items) => {
            items.is_empty() && matches!(field.shape, Shape::List(_)) && field.always.is_none()
        }
        Value::Object(members) => members.is_empty() && matches!(field.shape, Shape::Map(_)),
        _ if field.keep => false,
        Value::String(text) => {
            text.is_empty()
                && matches!(field.shape, Shape::Text | Shape::Bytes)
                && field.always.is_none()
        }
        Value::Bool(value) => !value && field.shape == Shape::Boolean && field.always.is_none(),
        Value::Number(number) => {
            number.as_f64() == Some(0.0)
                && matches!(field.shape, Shape::Integer { .. } | Shape::Number)
                && field.always.is_none()
        }
        Value::Null => false,
    }
}

/// Returns the value that stands for an absent field: an object with such values for its own
/// fields.
fn filled(shape: &Shape, absent: &Value) -> Value {
    match (shape, absent) {
        (Shape::Object(index), Value::Object(_)) => definition::object(*index)
            .and_then(|object| fields(object, json!({}), None, &mut Vec::new()).ok())
            .unwrap_or_else(|| absent.clone()),
        _ => absent.clone(),
    }
}

fn read(
    shape: &Shape,
    value: Value,
    at: &At<'_>,
    unknown: &mut Vec<String>,
) -> Result<Value, WrongType> {
    match shape {
        Shape::Object(index) => match definition::object(*index) {
            Some(object) => fields(object, value, Some(at), unknown),
            None => Ok(value),
        },
        Shape::ObjectOr(index) => match (definition::object(*index), &value) {
            (Some(object), Value::Object(_)) => fields(object, value, Some(at), unknown),
            _ => Ok(value),
        },
        Shape::List(item) => list(item, value, at, unknown),
        Shape::Map(item) => map(item, value, at, unknown),
        Shape::Any => Ok(value),
        _ => scalar(shape, &value).ok_or_else(|| shape.refusal(&value, at)),
    }
}

fn list(
    item: &Shape,
    value: Value,
    at: &At<'_>,
    unknown: &mut Vec<String>,
) -> Result<Value, WrongType> {
    let Value::Array(items) = value else {
        return Err(wrong(&value, Some(at), &format!("[]{}", item.go_name())));
    };
    let items = items.into_iter().enumerate().map(|(index, value)| {
        let here = At { parent: Some(at), step: Step::Index(index), owner: at.owner };
        let value = if value.is_null() { item.zero() } else { value };
        read(item, value, &here, unknown)
    });
    items.collect()
}

fn map(
    item: &Shape,
    value: Value,
    at: &At<'_>,
    unknown: &mut Vec<String>,
) -> Result<Value, WrongType> {
    let Value::Object(members) = value else {
        return Err(wrong(&value, Some(at), &format!("map[string]{}", item.go_name())));
    };
    let mut kept = Map::new();
    for (name, value) in members {
        let here = At { parent: Some(at), step: Step::Key(&name), owner: at.owner };
        let value = if value.is_null() { item.zero() } else { value };
        let mut value = read(item, value, &here, unknown)?;
        if let Some(amount) = value.as_str().filter(|_| *item == Shape::Quantity) {
            value = Quantity::parse(amount).map(|amount| amount.in_thousandths().text()).into();
        }
        kept.insert(name, value);
    }
    Ok(Value::Object(kept))
}

/// Returns a scalar in its canonical form; `None` if the value is of another type.
fn scalar(shape: &Shape, value: &Value) -> Option<Value> {
    match (shape, value) {
        (Shape::Text | Shape::IntOrText, Value::String(_)) | (Shape::Boolean, Value::Bool(_)) => {
            Some(value.clone())
        }
        (Shape::Bytes, Value::String(text)) => bytes(text).map(Value::from),
        (Shape::Bytes, Value::Array(items)) => listed_bytes(items).map(Value::from),
        (Shape::Time { micro }, Value::String(text)) => time(text, *micro).map(Value::from),
        (Shape::Quantity, Value::String(text)) => {
            Quantity::parse(text).map(|quantity| quantity.text().into())
        }
        (Shape::Quantity, Value::Number(number)) => {
            Quantity::parse(&number.to_string()).map(|quantity| quantity.text().into())
        }
        (Shape::Integer { long: true }, Value::Number(number)) => {
            whole(number).filter(Value::is_i64)
        }
        (Shape::Integer { long: false } | Shape::IntOrText, Value::Number(number)) => {
            let fits =
                |value: &Value| value.as_i64().is_some_and(|value| i32::try_from(value).is_ok());
            whole(number).filter(fits)
        }
        (Shape::Number, Value::Number(number)) => {
            Some(whole(number).unwrap_or_else(|| value.clone()))
        }
        _ => None,
    }
}

/// Returns a number as an integer, also if it is written as `1.0`; `None` if it has a fraction.
fn whole(number: &serde_json::Number) -> Option<Value> {
    if number.is_i64() || number.is_u64() {
        return Some(Value::from(number.clone()));
    }
    let float = number.as_f64()?;
    let is_whole = float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0;
    #[expect(clippy::cast_possible_truncation, reason = "it is whole and in the range of i64")]
    is_whole.then(|| Value::from(float as i64))
}

/// Returns base64 without the line breaks that may be in it; `None` if the text is invalid.
fn bytes(text: &str) -> Option<String> {
    let text: String = text.chars().filter(|letter| !matches!(letter, '\r' | '\n')).collect();
    STANDARD.decode(&text).ok().map(|bytes| STANDARD.encode(bytes))
}

/// Returns the base64 of bytes in a list of numbers, which the decoder of Go accepts, too.
fn listed_bytes(items: &[Value]) -> Option<String> {
    let byte = |item: &Value| match item {
        Value::Null => Some(0),
        item => item.as_u64().and_then(|number| u8::try_from(number).ok()),
    };
    let bytes: Option<Vec<u8>> = items.iter().map(byte).collect();
    bytes.map(|bytes| STANDARD.encode(bytes))
}

/// Returns a time in UTC, with seconds or with microseconds. The latter must have six digits of a
/// second.
pub(crate) fn time(text: &str, micro: bool) -> Option<String> {
    if time_fault(text, micro).is_some() {
        return None;
    }
    let time: Timestamp = text.parse().ok()?;
    let format = if micro { "%Y-%m-%dT%H:%M:%S.%6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
    Some(time.strftime(format).to_string())
}

/// Returns the rest of a time from where Go cannot read it, and the part of its layout that should
/// be there; `None` if all of it can be read. A time in microseconds has six digits of a second.
fn time_fault(text: &str, micro: bool) -> Option<(&str, &'static str)> {
    let is_digit = |letter: char| letter.is_ascii_digit();
    let mut rest = text;
    for part in ["2006", "-", "01", "-", "02", "T", "15", ":", "04", ":", "05"] {
        let digits = rest.chars().take(part.len()).take_while(|letter| is_digit(*letter)).count();
        let fits = match part {
            "15" => digits > 0,
            "05" => digits == 2 && rest < "6",
            _ if part.starts_with(is_digit) => digits == part.len(),
            _ => rest.starts_with(part),
        };
        if !fits {
            return Some((rest, part));
        }
        rest = rest.get(if digits > 0 { digits } else { part.len() }..).unwrap_or_default();
    }
    let fraction = rest.strip_prefix(['.', ',']).filter(|rest| rest.starts_with(is_digit));
    let zone = fraction.map_or(rest, |fraction| fraction.trim_start_matches(is_digit));
    let is_offset = |offset: &str| {
        offset.len() == 5
            && offset
                .char_indices()
                .all(|(at, letter)| if at == 2 { letter == ':' } else { is_digit(letter) })
    };
    if zone != "Z" && !zone.strip_prefix(['+', '-']).is_some_and(is_offset) {
        return Some((zone, "Z07:00"));
    }
    let digits = fraction.map_or(0, |fraction| fraction.len() - zone.len());
    (micro && digits != 6).then_some((rest, ".000000"))
}

/// Returns the error of Go's decoder for a value that does not fit a type.
fn wrong(value: &Value, at: Option<&At<'_>>, wanted: &str) -> WrongType {
    let found = match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(number) if wanted.starts_with("int") => format!("number {number}"),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    };
    let place = match at {
        Some(at) => {
            let name = at.owner.name.rsplit('.').next().unwrap_or_default();
            format!("struct field {name}.{}", at.fields())
        }
        None => "value".to_owned(),
    };
    WrongType(format!("json: cannot unmarshal {found} into Go {place} of type {wanted}"))
}

// === impl At ===

impl At<'_> {
    fn path(&self) -> String {
        let above = self.parent.map(At::path).unwrap_or_default();
        match self.step {
            Step::Field(name) | Step::Key(name) if above.is_empty() => name.to_owned(),
            Step::Field(name) | Step::Key(name) => format!("{above}.{name}"),
            Step::Index(index) => format!("{above}[{index}]"),
        }
    }

    /// Returns the path without keys of maps and indexes of lists.
    fn fields(&self) -> String {
        let above = self.parent.map(At::fields).unwrap_or_default();
        match self.step {
            Step::Field(name) if above.is_empty() => name.to_owned(),
            Step::Field(name) => format!("{above}.{name}"),
            Step::Key(_) | Step::Index(_) => above,
        }
    }
}

// === impl Shape ===

impl Shape {
    /// Returns the type in Go. Named text types are given as plain ones, since the definitions do
    /// not name them.
    fn go_name(&self) -> String {
        let object = |index: usize| definition::object(index).map_or("", |object| &object.name);
        match self {
            Self::Object(index) | Self::ObjectOr(index) => object(*index).to_owned(),
            Self::List(item) => format!("[]{}", item.go_name()),
            Self::Map(item) => format!("map[string]{}", item.go_name()),
            Self::Bytes => "[]uint8".to_owned(),
            Self::Text | Self::Time { .. } => "string".to_owned(),
            Self::Quantity => "resource.Quantity".to_owned(),
            Self::IntOrText => "intstr.IntOrString".to_owned(),
            Self::Integer { long } => if *long { "int64" } else { "int32" }.to_owned(),
            Self::Number => "float64".to_owned(),
            Self::Boolean => "bool".to_owned(),
            Self::Any => "interface {}".to_owned(),
        }
    }

    /// Returns the error for a value that is no such scalar. Types with their own decoder do not
    /// know the field that they are in.
    fn refusal(&self, value: &Value, at: &At<'_>) -> WrongType {
        match (self, value) {
            (Self::Bytes, Value::String(_)) => {
                WrongType("illegal base64 data at input byte 0".to_owned())
            }
            (Self::Time { micro }, Value::String(text)) => {
                let layout = if *micro {
                    "2006-01-02T15:04:05.000000Z07:00"
                } else {
                    "2006-01-02T15:04:05Z07:00"
                };
                let (rest, part) = time_fault(text, *micro).unwrap_or((text, "2006"));
                WrongType(format!(
                    "parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {part:?}"
                ))
            }
            (Self::Quantity, _) => WrongType(QUANTITY.to_owned()),
            (Self::Time { .. }, _) => wrong(value, None, "string"),
            (Self::IntOrText, _) => wrong(value, None, "int32"),
            _ => wrong(value, Some(at), &self.go_name()),
        }
    }

    /// Returns the value that null means as an item of a list or map.
    pub(super) fn zero(&self) -> Value {
        match self {
            Self::Object(_) | Self::ObjectOr(_) | Self::Map(_) => json!({}),
            Self::List(_) => json!([]),
            Self::Text | Self::Bytes => json!(""),
            Self::Quantity => json!("0"),
            Self::Integer { .. } | Self::Number | Self::IntOrText => json!(0),
            Self::Boolean => json!(false),
            Self::Time { .. } | Self::Any => Value::Null,
        }
    }
}
