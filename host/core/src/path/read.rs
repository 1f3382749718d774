//! Parses from JSON only what a set of paths selects; the rest is passed over without being built.

use std::fmt;

use serde::{
    Deserialize as _,
    de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

use super::fields::{Fields, Node, select};

impl Fields {
    /// Parses the selected part of an object in JSON; of a text that is not JSON, nothing is
    /// selected.
    pub fn read(&self, json: &str) -> Value {
        let mut deserializer = serde_json::Deserializer::from_str(json);
        let selected =
            Selecting { node: self.root(), is_element: false }.deserialize(&mut deserializer);
        selected.ok().flatten().unwrap_or_default()
    }
}

/// Parses the part of a value that a node selects; gives nothing if nothing is selected, unless the
/// value is a map in a list.
struct Selecting<'a> {
    node: &'a Node,
    is_element: bool,
}

impl<'de> DeserializeSeed<'de> for Selecting<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        if self.node.is_whole() {
            return Value::deserialize(deserializer).map(Some);
        }
        if self.node.selects_elements() {
            // The content of an element decides whether it is selected, so the value is parsed
            // whole.
            let value = Value::deserialize(deserializer)?;
            let selected = select(&[self.node], &value).map(|part| part.to_value());
            let is_empty = || (self.is_element && value.is_object()).then(|| Map::new().into());
            return Ok(selected.or_else(is_empty));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Selecting<'_> {
    type Value = Option<Value>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<std::borrow::Cow<'de, str>>()? {
            match self.node.under(&key) {
                None => drop(access.next_value::<IgnoredAny>()?),
                Some(node) => {
                    if let Some(value) =
                        access.next_value_seed(Selecting { node, is_element: false })?
                    {
                        map.insert(key.into_owned(), value);
                    }
                }
            }
        }
        Ok((self.is_element || !map.is_empty()).then_some(Value::Object(map)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let Some(node) = self.node.each() else {
            while access.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(None);
        };
        let mut list = Vec::new();
        while let Some(element) = access.next_element_seed(Selecting { node, is_element: true })? {
            list.extend(element);
        }
        Ok((!list.is_empty()).then_some(Value::Array(list)))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}
