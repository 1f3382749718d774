//! Decoding of bodies: JSON, YAML or protobuf to a value, with the keys that occur twice.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::{Failure, builtin::protobuf, yaml};

/// The encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Yaml,
    /// The encoding that typed clients use for built-in kinds.
    Protobuf,
}

/// A decoded body.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) value: Value,
    /// The paths of fields that occur twice, such as `spec.x`; the last occurrence counts.
    pub(crate) duplicates: Vec<String>,
}

/// Deserializes a value and collects the keys that occur twice. Numbers without a fraction become
/// integers, as Kubernetes shows them.
pub(crate) struct Tracked<'a> {
    path: &'a mut Vec<Step>,
    duplicates: &'a mut Vec<String>,
}

/// Deserializes the key of a map. YAML has keys of other types than text, which become texts.
struct Key;

/// Collects the paths of fields in the order of the text.
struct Ordered<'a> {
    path: &'a mut Vec<Step>,
    fields: &'a mut Vec<String>,
}

enum Step {
    Key(String),
    Index(usize),
}

// === impl Encoding ===

impl Encoding {
    /// Returns the encoding of a content type; JSON if there is none.
    pub(crate) fn of(content_type: Option<&str>) -> Option<Self> {
        let media_type =
            content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        match media_type {
            "" | "application/json" | "*/*" => Some(Self::Json),
            "application/yaml" => Some(Self::Yaml),
            "application/vnd.kubernetes.protobuf" => Some(Self::Protobuf),
            _ => None,
        }
    }
}

// === impl Body ===

impl Body {
    /// Decodes a whole body.
    pub(crate) fn read(bytes: &[u8], encoding: Encoding) -> Result<Self, Failure> {
        match encoding {
            Encoding::Json => Self::read_json(bytes),
            Encoding::Yaml => Self::read_yaml(bytes),
            Encoding::Protobuf => {
                let value = protobuf::read(bytes)
                    .map_err(|fault| Failure::bad_request(fault.to_string()))?;
                Ok(Self { value, duplicates: Vec::new() })
            }
        }
    }

    fn read_json(bytes: &[u8]) -> Result<Self, Failure> {
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        let (value, duplicates) = Tracked::read(&mut deserializer)
            .and_then(|read| deserializer.end().map(|()| read))
            .map_err(|fault| Failure::bad_request(format!("the body is no JSON: {fault}")))?;
        Ok(Self { value, duplicates })
    }

    /// Returns the paths of all fields of a JSON text in the order of the text, with repeated ones
    /// as often as they occur.
    pub(crate) fn order(bytes: &[u8]) -> Vec<String> {
        let (mut path, mut fields) = (Vec::new(), Vec::new());
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        let ordered = Ordered { path: &mut path, fields: &mut fields };
        // The text was decoded before: it is valid.
        let _ = ordered.deserialize(&mut deserializer);
        fields
    }

    fn read_yaml(bytes: &[u8]) -> Result<Self, Failure> {
        let fault =
            |fault: &dyn fmt::Display| Failure::bad_request(format!("error parsing YAML: {fault}"));
        let text = std::str::from_utf8(bytes).map_err(|why| fault(&why))?;
        let is_json = text.trim_start().starts_with(['{', '[']);
        if is_json && let Ok(body) = Self::read_json(bytes) {
            return Ok(body);
        }
        let (value, duplicates) = yaml::first(text).map_err(|why| fault(&why))?;
        Ok(Self { value, duplicates })
    }
}

// === impl Tracked ===

impl Tracked<'_> {
    /// Returns the value, and the paths of the keys that occur twice.
    pub(crate) fn read<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<(Value, Vec<String>), D::Error> {
        let (mut path, mut duplicates) = (Vec::new(), Vec::new());
        let tracked = Tracked { path: &mut path, duplicates: &mut duplicates };
        let value = tracked.deserialize(deserializer)?;
        Ok((value, duplicates))
    }

    fn inner(&mut self) -> Tracked<'_> {
        Tracked { path: self.path, duplicates: self.duplicates }
    }

    fn record_duplicate(&mut self, key: &str) {
        let text = path_text(self.path, key);
        if !self.duplicates.contains(&text) {
            self.duplicates.push(text);
        }
    }
}

/// Returns the path as text: `spec.list[0].key`.
fn path_text(path: &[Step], key: &str) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Key(key) if text.is_empty() => text.push_str(key),
            Step::Key(key) => text.extend([".", key]),
            Step::Index(index) => text.extend(["[", &index.to_string(), "]"]),
        }
    }
    if !text.is_empty() {
        text.push('.');
    }
    text.push_str(key);
    text
}

impl<'de> DeserializeSeed<'de> for Ordered<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Ordered<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        for index in 0.. {
            self.path.push(Step::Index(index));
            let item = items.next_element_seed(Ordered { path: self.path, fields: self.fields })?;
            self.path.pop();
            if item.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(key) = entries.next_key::<String>()? {
            self.fields.push(path_text(self.path, &key));
            self.path.push(Step::Key(key));
            entries.next_value_seed(Ordered { path: self.path, fields: self.fields })?;
            self.path.pop();
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Tracked<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tracked<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;
        if value.fract() == 0.0 && value.abs() <= MAX_EXACT_INTEGER {
            return Ok(Value::from(value as i64));
        }
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            self.path.push(Step::Index(list.len()));
            let item = items.next_element_seed(self.inner())?;
            self.path.pop();
            let Some(item) = item else { return Ok(Value::Array(list)) };
            list.push(item);
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key_seed(Key)? {
            if map.contains_key(&key) {
                self.record_duplicate(&key);
            }
            self.path.push(Step::Key(key));
            let value = entries.next_value_seed(self.inner())?;
            if let Some(Step::Key(key)) = self.path.pop() {
                map.insert(key, value);
            }
        }
        Ok(Value::Object(map))
    }
}

impl<'de> DeserializeSeed<'de> for Key {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for Key {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key: a text, a number or a truth value")
    }

    fn visit_str<E>(self, key: &str) -> Result<String, E> {
        Ok(key.to_owned())
    }

    fn visit_string<E>(self, key: String) -> Result<String, E> {
        Ok(key)
    }

    fn visit_bool<E>(self, key: bool) -> Result<String, E> {
        Ok(key.to_string())
    }

    fn visit_i64<E>(self, key: i64) -> Result<String, E> {
        Ok(key.to_string())
    }

    fn visit_u64<E>(self, key: u64) -> Result<String, E> {
        Ok(key.to_string())
    }

    #[expect(clippy::cast_possible_truncation, reason = "Kubernetes shortens such keys, too")]
    fn visit_f64<E>(self, key: f64) -> Result<String, E> {
        Ok((key as f32).to_string())
    }
}
