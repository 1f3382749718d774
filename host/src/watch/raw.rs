//! An object as a watch brings it.

use std::{borrow::Cow, fmt};

use kube::{
    Resource,
    api::{ApiResource, ObjectMeta, PartialObjectMeta},
    core::DynamicResourceScope,
};
use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

/// An object as it came: the store wants its JSON, kube's watcher its resourceVersion.
#[derive(Debug, Clone)]
pub(super) struct Raw {
    /// Boxed, since kube's streams hand an event on by value many times.
    metadata: Box<ObjectMeta>,
    pub(super) value: Value,
}

// === impl Raw ===

impl Raw {
    fn new(value: Value) -> Self {
        let metadata = value.get("metadata");
        let text = |field: &str| metadata?.get(field)?.as_str().map(str::to_owned);
        let metadata = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        Self { metadata: metadata.into(), value }
    }

    pub(super) fn from_metadata(partial: &PartialObjectMeta<Self>) -> Self {
        // ObjectMeta is made of texts, numbers and maps of texts: there is nothing in it that JSON cannot hold.
        let metadata = serde_json::to_value(&partial.metadata).unwrap_or_default();
        Self::new(serde_json::json!({ "metadata": metadata }))
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Part::Object.deserialize(deserializer).map(Self::new)
    }
}

impl Resource for Raw {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.kind)
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.group)
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.version)
    }

    fn api_version(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.api_version)
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.plural)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests;

/// Room for most sets of fields.
const ROOM: usize = 1024;

/// What of an object is read. Sets of fields (`fieldsV1` of `metadata.managedFields`) are left as text: they are as long as the rest
/// of most objects, and many objects have the same ones ([`crate::own_fields::FieldSets`]).
#[derive(Clone, Copy)]
enum Part {
    Object,
    Metadata,
    Managers,
    Manager,
    FieldSet,
    Other,
}

// === impl Part ===

impl Part {
    /// What stands under a key of it.
    fn under(self, key: &str) -> Self {
        match (self, key) {
            (Self::Object, "metadata") => Self::Metadata,
            (Self::Metadata, "managedFields") => Self::Managers,
            (Self::Manager, "fieldsV1") => Self::FieldSet,
            _ => Self::Other,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Part {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self {
            Self::Other => Value::deserialize(deserializer),
            _ => deserializer.deserialize_any(self),
        }
    }
}

/// Where the API does not hold what it does elsewhere, it is taken as it is.
impl<'de> Visitor<'de> for Part {
    type Value = Value;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an object of the Kubernetes API")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        if let Self::FieldSet = self {
            let mut text = Vec::with_capacity(ROOM);
            FieldSet(&mut text).visit_map(entries)?;
            return String::from_utf8(text).map(Value::String).map_err(A::Error::custom);
        }
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(self.under(&key))?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let part = if let Self::Managers = self { Self::Manager } else { Self::Other };
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(part)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

/// Writes a set of fields, which is maps of maps, as JSON.
struct FieldSet<'a>(&'a mut Vec<u8>);

/// Writes a key of one, and what comes before it.
struct Key<'a> {
    before: u8,
    to: &'a mut Vec<u8>,
}

// === impl FieldSet ===

impl<'de> DeserializeSeed<'de> for FieldSet<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for FieldSet<'_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a set of fields: a map of maps")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let Self(to) = self;
        let mut before = b'{';
        while entries.next_key_seed(Key { before, to: &mut *to })?.is_some() {
            to.push(b':');
            entries.next_value_seed(FieldSet(&mut *to))?;
            before = b',';
        }
        if before == b'{' {
            to.push(before);
        }
        to.push(b'}');
        Ok(())
    }
}

// === impl Key ===

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a field, a key or a value of a list")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<(), E> {
        self.to.push(self.before);
        serde_json::to_writer(self.to, key).map_err(E::custom)
    }
}
