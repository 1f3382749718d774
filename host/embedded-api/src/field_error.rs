//! Errors of single fields, with the texts that Kubernetes gives them, and the paths that name
//! fields.
//!
//! A [`FieldError`] becomes a [`Cause`] of a `Status` with the reason `Invalid`.

#[cfg(test)]
mod tests;

use std::fmt::{self, Display, Write as _};

use serde_json::Value;

use crate::Cause;

/// The kind of a field error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// The value is not acceptable.
    Invalid,
    /// The field is required.
    Required,
    /// The value occurs more than once.
    Duplicate,
    /// The value is not one of the supported values.
    NotSupported,
    /// The text has too many bytes or characters.
    TooLong,
    /// The list or map has too many items.
    TooMany,
    /// The field must not be set, or not in this way.
    Forbidden,
    /// The value has the wrong type or format.
    TypeInvalid,
    /// The target that the value names does not exist.
    NotFound,
}

/// The value that the message of an error shows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shown {
    /// No value.
    Omitted,
    /// The value as Go prints it: texts quoted, objects and lists as JSON, null as the text
    /// `"null"`.
    Value(Value),
    /// A text that is printed unchanged, for what is not plain JSON (a nil list is `null`).
    Raw(String),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FieldError {
    pub(crate) kind: Kind,
    /// The path of the field, `spec.ports[0].name`; `<nil>` for the object itself.
    pub(crate) field: String,
    pub(crate) shown: Shown,
    /// The rule that the value breaks, or the supported values; may be empty.
    pub(crate) detail: String,
}

/// A path to a field, built while walking an object: each step borrows its parent, and nothing is
/// allocated until the path is printed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FieldPath<'a> {
    parent: Option<&'a FieldPath<'a>>,
    step: Step<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    Root,
    Child(&'a str),
    Index(usize),
    Key(&'a str),
}

// === impl Kind ===

impl Kind {
    /// Returns the reason of the cause in a `Status`.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Invalid => "FieldValueInvalid",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotSupported => "FieldValueNotSupported",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::Forbidden => "FieldValueForbidden",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotFound => "FieldValueNotFound",
        }
    }

    /// Returns the words that the message begins with.
    fn words(self) -> &'static str {
        match self {
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::NotSupported => "Unsupported value",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "Not found",
        }
    }

    fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong)
    }
}

// === impl Shown ===

impl<T: Into<Value>> From<T> for Shown {
    fn from(value: T) -> Self {
        Self::Value(value.into())
    }
}

// === impl FieldError ===

impl FieldError {
    /// Returns an error of any kind.
    pub(crate) fn new(
        kind: Kind,
        field: impl Display,
        shown: impl Into<Shown>,
        detail: impl Into<String>,
    ) -> Self {
        Self { kind, field: field.to_string(), shown: shown.into(), detail: detail.into() }
    }

    /// Returns the error `Invalid value: …: detail`.
    pub(crate) fn invalid(
        field: impl Display,
        value: impl Into<Shown>,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(Kind::Invalid, field, value, detail)
    }

    /// Returns the error `Invalid value: …: detail`, with the reason for wrong types.
    pub(crate) fn type_invalid(
        field: impl Display,
        value: impl Into<Shown>,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(Kind::TypeInvalid, field, value, detail)
    }

    /// Returns the error `Required value: detail`.
    pub(crate) fn required(field: impl Display, detail: impl Into<String>) -> Self {
        Self::new(Kind::Required, field, Shown::Omitted, detail)
    }

    /// Returns the error `Duplicate value: …`.
    pub(crate) fn duplicate(field: impl Display, value: impl Into<Shown>) -> Self {
        Self::new(Kind::Duplicate, field, value, "")
    }

    /// Returns the error `Not found: …`.
    pub(crate) fn not_found(field: impl Display, value: impl Into<Shown>) -> Self {
        Self::new(Kind::NotFound, field, value, "")
    }

    /// Returns the error `Unsupported value: …: supported values: "a", "b"`, with the values in the
    /// given order.
    pub(crate) fn not_supported<T: Display>(
        field: impl Display,
        value: impl Into<Shown>,
        supported: impl IntoIterator<Item = T>,
    ) -> Self {
        let quoted: Vec<String> =
            supported.into_iter().map(|value| go_quote(&value.to_string())).collect();
        let detail = if quoted.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", quoted.join(", "))
        };
        Self::new(Kind::NotSupported, field, value, detail)
    }

    /// Returns the error `Forbidden: detail`.
    pub(crate) fn forbidden(field: impl Display, detail: impl Into<String>) -> Self {
        Self::new(Kind::Forbidden, field, Shown::Omitted, detail)
    }

    /// Returns the error `Too long: may not be more than 63 bytes`.
    pub(crate) fn too_long(field: impl Display, most: usize) -> Self {
        let unit = if most == 1 { "byte" } else { "bytes" };
        Self::new(
            Kind::TooLong,
            field,
            Shown::Omitted,
            format!("may not be more than {most} {unit}"),
        )
    }

    /// Returns the error `Too many: 3: must have at most 2 items`.
    pub(crate) fn too_many(field: impl Display, actual: usize, most: usize) -> Self {
        let unit = if most == 1 { "item" } else { "items" };
        Self::new(Kind::TooMany, field, actual, format!("must have at most {most} {unit}"))
    }

    /// Returns the text without the field: the `message` of a cause.
    pub(crate) fn body(&self) -> String {
        let mut text = self.kind.words().to_owned();
        if self.kind.shows_value() {
            match &self.shown {
                Shown::Omitted => {}
                Shown::Value(value) => text = format!("{text}: {}", go_value(value)),
                Shown::Raw(raw) => text = format!("{text}: {raw}"),
            }
        }
        if self.detail.is_empty() { text } else { format!("{text}: {}", self.detail) }
    }
}

impl Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

impl From<FieldError> for Cause {
    fn from(error: FieldError) -> Self {
        Self { reason: error.kind.reason().to_owned(), message: error.body(), field: error.field }
    }
}

// === impl FieldPath ===

impl<'a> FieldPath<'a> {
    /// Returns the path of the object itself; printed as `<nil>`.
    pub(crate) fn root() -> Self {
        Self { parent: None, step: Step::Root }
    }

    /// Returns a path that begins with a field (or with several, separated by dots).
    pub(crate) fn new(name: &'a str) -> Self {
        Self { parent: None, step: Step::Child(name) }
    }

    /// Returns the path of a field of this value: `this.name`.
    pub(crate) fn child(&'a self, name: &'a str) -> Self {
        Self { parent: Some(self), step: Step::Child(name) }
    }

    /// Returns the path of an item of this list: `this[3]`.
    pub(crate) fn index(&'a self, index: usize) -> Self {
        Self { parent: Some(self), step: Step::Index(index) }
    }

    /// Returns the path of a value of this map: `this[key]`.
    pub(crate) fn key(&'a self, key: &'a str) -> Self {
        Self { parent: Some(self), step: Step::Key(key) }
    }

    /// Returns whether this is the path of the object itself.
    pub(crate) fn is_root(&self) -> bool {
        matches!(self.step, Step::Root)
    }
}

impl Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parent = self.parent.filter(|parent| !parent.is_root());
        if let Some(parent) = parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Root => f.write_str("<nil>"),
            Step::Child(name) if parent.is_some() => write!(f, ".{name}"),
            Step::Child(name) => f.write_str(name),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) => write!(f, "[{key}]"),
        }
    }
}

// === texts ===

/// Returns a value as Go prints it in messages: texts quoted, numbers and booleans plain, null as
/// `"null"`, the rest as JSON.
pub(crate) fn go_value(value: &Value) -> String {
    match value {
        Value::Null => "\"null\"".to_owned(),
        Value::String(text) => go_quote(text),
        Value::Number(number) => go_number(number),
        Value::Bool(value) => value.to_string(),
        Value::Array(_) | Value::Object(_) => go_json(value),
    }
}

/// Returns a number as Go's `%v` prints it.
pub(crate) fn go_number(number: &serde_json::Number) -> String {
    if number.is_i64() || number.is_u64() {
        return number.to_string();
    }
    number.as_f64().map_or_else(|| number.to_string(), go_float)
}

/// Returns a float as Go's `%v` prints it: shortest digits, an exponent below 1e-4 and from 1e21.
pub(crate) fn go_float(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || (1e-4..1e21).contains(&size) {
        return value.to_string();
    }
    let text = format!("{value:e}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
    format!("{digits}e{sign}{exponent:0>2}")
}

/// Returns a text in double quotes, escaped as Go's `%q` does.
pub(crate) fn go_quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\u{b}' => quoted.push_str("\\v"),
            other if is_printable(other) => quoted.push(other),
            other => push_escape(&mut quoted, other),
        }
    }
    quoted.push('"');
    quoted
}

fn is_printable(character: char) -> bool {
    character == ' '
        || !(character.is_control()
            || character.is_whitespace()
            || matches!(character, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
            || matches!(character, '\u{e000}'..='\u{f8ff}'))
}

fn push_escape(text: &mut String, character: char) {
    let code = u32::from(character);
    let written = match code {
        0..0x80 => write!(text, "\\x{code:02x}"),
        0x80..0x1_0000 => write!(text, "\\u{code:04x}"),
        _ => write!(text, "\\U{code:08x}"),
    };
    debug_assert!(written.is_ok(), "a String takes every text");
}

/// Returns errors as one, as Go writes an aggregate; `None` if there are none.
pub(crate) fn aggregate(errors: &[String]) -> Option<String> {
    match errors {
        [] => None,
        [only] => Some(only.clone()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}

/// Returns compact JSON as Go writes it: sorted keys, `<`, `>` and `&` escaped.
pub(crate) fn go_json(value: &Value) -> String {
    let mut text = String::new();
    push_json(&mut text, value);
    text
}

fn push_json(text: &mut String, value: &Value) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| key.as_str());
            text.push('{');
            for (position, (key, value)) in entries.into_iter().enumerate() {
                if position > 0 {
                    text.push(',');
                }
                push_json_text(text, key);
                text.push(':');
                push_json(text, value);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    text.push(',');
                }
                push_json(text, item);
            }
            text.push(']');
        }
        Value::String(plain) => push_json_text(text, plain),
        Value::Number(number) => text.push_str(&go_number(number)),
        Value::Null | Value::Bool(_) => text.push_str(&value.to_string()),
    }
}

fn push_json_text(text: &mut String, plain: &str) {
    let escaped = Value::from(plain).to_string();
    for character in escaped.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let written = write!(text, "\\u{:04x}", u32::from(character));
                debug_assert!(written.is_ok(), "a String takes every text");
            }
            other => text.push(other),
        }
    }
}
