//! Deserializes a document.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Number, Value};

use super::document::{Child, Document, Held, Span};

/// Initial room for texts, in bytes: enough for most objects.
const TEXTS: usize = 4096;
/// Initial room for the items of lists and the entries of maps: enough for most objects.
const CHILDREN: usize = 128;

/// The part of a document that has been read.
struct Builder {
    texts: Vec<u8>,
    children: Vec<Child>,
    /// The children of lists and maps that are still being read.
    open: Vec<Child>,
}

struct Reading<'a> {
    position: Position,
    to: &'a mut Builder,
}

/// The position of a value in an object.
#[derive(Clone, Copy)]
enum Position {
    Object,
    Metadata,
    Managers,
    Manager,
    FieldSet,
    Other,
}

/// Reads a key of a map.
struct Key<'a>(&'a mut Builder);

/// Writes a set of fields, which is maps of maps, as JSON.
struct FieldSet<'a>(&'a mut Vec<u8>);

/// Writes a key of a set of fields, and the byte before the key.
struct FieldKey<'a> {
    before: u8,
    to: &'a mut Vec<u8>,
}

// === impl Document ===

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::read(Position::Object, deserializer)
    }
}

impl Document {
    /// Reads a value as it is: sets of fields are maps in it.
    ///
    /// # Errors
    ///
    /// Fails for more than 4 GiB of keys and texts.
    pub(crate) fn of(value: &Value) -> serde_json::Result<Self> {
        Self::read(Position::Other, value)
    }

    fn read<'de, D: Deserializer<'de>>(
        position: Position,
        deserializer: D,
    ) -> Result<Self, D::Error> {
        let mut builder = Builder {
            texts: Vec::with_capacity(TEXTS),
            children: Vec::with_capacity(CHILDREN),
            open: Vec::with_capacity(CHILDREN),
        };
        let root = Reading { position, to: &mut builder }.deserialize(deserializer)?;
        let Builder { mut texts, mut children, .. } = builder;
        // A large object takes no more memory than it needs.
        texts.shrink_to(TEXTS);
        children.shrink_to(CHILDREN);
        let texts = String::from_utf8(texts).map_err(D::Error::custom)?;
        Ok(Self { texts, children, root })
    }
}

// === impl Builder ===

impl Builder {
    /// Returns the span of the text that was written from `start` on.
    fn text_from<E: de::Error>(&self, start: usize) -> Result<Span, E> {
        Span::new(start..self.texts.len()).ok_or_else(too_large)
    }

    fn text<E: de::Error>(&mut self, text: &str) -> Result<Span, E> {
        let start = self.texts.len();
        self.texts.extend_from_slice(text.as_bytes());
        self.text_from(start)
    }

    /// Moves the children that were opened from `from` on to the document, as those of one list.
    fn close<E: de::Error>(&mut self, from: usize) -> Result<Span, E> {
        let start = self.children.len();
        self.children.extend(self.open.drain(from..));
        Span::new(start..self.children.len()).ok_or_else(too_large)
    }

    /// Does the same for a map, ordered by key. Of entries with the same key the last one counts.
    fn close_map<E: de::Error>(&mut self, from: usize) -> Result<Span, E> {
        let texts = &self.texts;
        let key = |child: &Child| texts.get(child.key.range()).unwrap_or_default();
        let is_ordered = |entries: &[Child]| entries.is_sorted_by(|one, next| key(one) < key(next));
        let entries = self.open.get_mut(from..).unwrap_or_default();
        if !is_ordered(entries) {
            entries.sort_by(|one, other| key(one).cmp(key(other)));
            if !is_ordered(entries) {
                let mut entries = self.open.split_off(from);
                entries.dedup_by(|next, last| {
                    let is_same = key(next) == key(last);
                    if is_same {
                        std::mem::swap(next, last);
                    }
                    is_same
                });
                self.open.append(&mut entries);
            }
        }
        self.close(from)
    }
}

fn too_large<E: de::Error>() -> E {
    E::custom("an object with more than 4 GiB of keys and texts is not read")
}

// === impl Position ===

impl Position {
    /// Returns the position of the value under a key.
    fn under(self, key: &[u8]) -> Self {
        match (self, key) {
            (Self::Object, b"metadata") => Self::Metadata,
            (Self::Metadata, b"managedFields") => Self::Managers,
            (Self::Manager, b"fieldsV1") => Self::FieldSet,
            _ => Self::Other,
        }
    }
}

// === impl Reading ===

impl<'de> DeserializeSeed<'de> for Reading<'_> {
    type Value = Held;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Held, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Reads values of an unexpected shape (such as `managedFields` that is not a list) as they are.
impl<'de> Visitor<'de> for Reading<'_> {
    type Value = Held;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an object of the Kubernetes API")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Held, A::Error> {
        let Self { position, to } = self;
        if let Position::FieldSet = position {
            let start = to.texts.len();
            FieldSet(&mut to.texts).visit_map(entries)?;
            return to.text_from(start).map(Held::Text);
        }
        let from = to.open.len();
        while let Some(key) = entries.next_key_seed(Key(&mut *to))? {
            let position = position.under(to.texts.get(key.range()).unwrap_or_default());
            let held = entries.next_value_seed(Reading { position, to: &mut *to })?;
            to.open.push(Child { key, held });
        }
        to.close_map(from).map(Held::Map)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Held, A::Error> {
        let Self { position, to } = self;
        let position =
            if let Position::Managers = position { Position::Manager } else { Position::Other };
        let from = to.open.len();
        while let Some(held) = items.next_element_seed(Reading { position, to: &mut *to })? {
            to.open.push(Child { key: Span::default(), held });
        }
        to.close(from).map(Held::List)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Held, E> {
        Ok(Held::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Held, E> {
        Ok(Held::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Held, E> {
        Ok(Held::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Held, E> {
        Ok(Number::from_f64(value).map_or(Held::Null, Held::Number))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Held, E> {
        self.to.text(value).map(Held::Text)
    }

    fn visit_unit<E>(self) -> Result<Held, E> {
        Ok(Held::Null)
    }
}

// === impl Key ===

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Span;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Span, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Span;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<Span, E> {
        self.0.text(key)
    }
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
        while entries.next_key_seed(FieldKey { before, to: &mut *to })?.is_some() {
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

// === impl FieldKey ===

impl<'de> DeserializeSeed<'de> for FieldKey<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for FieldKey<'_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a field, a key or a value of a list")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<(), E> {
        self.to.push(self.before);
        serde_json::to_writer(self.to, key).map_err(E::custom)
    }
}
