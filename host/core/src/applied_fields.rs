//! Digests of the fields that `mortise/…` field managers own of an object, and of manifests.
//!
//! Each such manager's entry in `metadata.managedFields` has two digests: of its set of fields, and
//! of the object's values in that set. The second is computed from the object reduced to the set,
//! as JSON, so it can be compared with the digest of a manifest without knowing the schema. They
//! are equal if we own exactly the manifest's fields with the manifest's values. If the API server
//! normalizes a value (`1000m` to `1`), they differ though no write is needed; the writer then
//! remembers which pair belongs to which manifest.
//!
//! Pure: no I/O, no clock.

pub mod manager;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_128;

use crate::path::Part;

/// The fields of `metadata` that name an object or are preconditions.
const NAMING: [&str; 4] = ["name", "namespace", "uid", "resourceVersion"];

/// The buffer size that holds the canonical form of a manager's fields on most objects.
const INITIAL_CAPACITY_BYTES: usize = 4096;

/// The work for the values of one manager's fields, in bytes of their canonical form, and for those
/// of further ones, of all managers of an object together. Users choose the managers of an object,
/// and each may own the same large value.
const MAX_MANAGER_WORK: usize = 4 << 10;
const MAX_OBJECT_WORK: usize = 16 << 20;
/// The bytes that can be written in the time in which an item of a list is looked up.
const ITEM_WORK: usize = 64;

/// The most sets of names of keys in one list: a schema names one. An element with another set
/// selects nothing.
const MAX_KEY_SETS: usize = 8;

/// The prefix of the names of all field managers of this host.
pub const MANAGER_PREFIX: &str = "mortise/";

/// The two digests of one manager's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pair {
    /// The digest of the set of fields.
    pub fields: u128,
    /// The digest of the object's values in these fields.
    pub values: u128,
}

/// An entry of `metadata.managedFields` whose manager is one of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// The full name of the manager.
    pub manager: Box<str>,
    /// The subresource: `status`, or empty for the object itself.
    pub subresource: Box<str>,
    /// True if the entry came from server-side apply; false if it came from a create or a patch.
    pub applied: bool,
    /// The digests; `values` is 0 if the entry did not come from server-side apply.
    pub pair: Pair,
}

/// The entries of all `mortise/…` managers on one object. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Digests(Option<Arc<[Own]>>);

// === impl Digests ===

impl Digests {
    /// Returns all entries, in the order of the object.
    pub fn iter(&self) -> impl Iterator<Item = &Own> {
        self.0.iter().flat_map(|all| all.iter())
    }

    /// Returns whether none of our managers has an entry on the object.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the digests of the fields that a manager applied to the object (`subresource` empty)
    /// or to its status (`status`).
    pub fn get(&self, manager: &str, subresource: &str) -> Option<Pair> {
        self.iter()
            .find(|own| own.applied && &*own.manager == manager && &*own.subresource == subresource)
            .map(|own| own.pair)
    }

    /// Returns whether the manager has any entry on the object.
    pub fn holds(&self, manager: &str) -> bool {
        self.iter().any(|own| &*own.manager == manager)
    }
}

// === digests of objects ===

/// Computes the digests of all `mortise/…` managers on an object, which must be whole and with its
/// `metadata.managedFields`.
pub fn of(object: &Value) -> Digests {
    let is_ours = |entry: &&Value| text(entry, "manager").starts_with(MANAGER_PREFIX);
    let (ours, mut left) = (entries(object).filter(is_ours), MAX_OBJECT_WORK);
    let all: Vec<Own> = ours.map(|entry| own(object, entry, &mut left)).collect();
    Digests((!all.is_empty()).then(|| all.into()))
}

/// Returns the entries of `metadata.managedFields`.
pub fn entries(object: &Value) -> impl Iterator<Item = &Value> {
    let managed = object.get("metadata").and_then(|metadata| metadata.get("managedFields"));
    managed.and_then(Value::as_array).into_iter().flatten()
}

/// Returns the set of fields (`FieldsV1`) that a manager applied to the object itself.
pub fn applied_fields<'a>(object: &'a Value, manager: &str) -> Option<&'a Value> {
    entries(object)
        .find(|entry| {
            text(entry, "manager") == manager
                && is_apply(entry)
                && text(entry, "subresource").is_empty()
        })?
        .get("fieldsV1")
}

/// Returns the digests of an entry. Takes the work of many values off `left`.
fn own(object: &Value, entry: &Value, left: &mut usize) -> Own {
    let fields = entry.get("fieldsV1").unwrap_or(&Value::Null);
    let applied = is_apply(entry);
    let values = if applied { values_digest(object, fields, left) } else { 0 };
    Own {
        manager: text(entry, "manager").into(),
        subresource: text(entry, "subresource").into(),
        applied,
        pair: Pair { fields: digest(fields), values },
    }
}

fn is_apply(entry: &Value) -> bool {
    text(entry, "operation") == "Apply"
}

fn text<'a>(entry: &'a Value, key: &str) -> &'a str {
    entry.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn values_digest(object: &Value, fields: &Value, left: &mut usize) -> u128 {
    let (few, _) = values_digest_within(object, fields, MAX_MANAGER_WORK);
    let digest = few.or_else(|| {
        let (many, work) = values_digest_within(object, fields, *left);
        *left -= work;
        many
    });
    // Too much is owned to be compared: each version of the object counts as another one.
    digest.unwrap_or_else(|| {
        let version = object.get("metadata").and_then(|metadata| metadata.get("resourceVersion"));
        !self::digest(version.unwrap_or(&Value::Null))
    })
}

/// Returns the digest of the object's values in a set of fields, unless that takes more than `most`
/// of work; and the work that was done.
fn values_digest_within(object: &Value, fields: &Value, most: usize) -> (Option<u128>, usize) {
    let mut cut = Cut { missing: false, left: most };
    let part = cut.object(object, fields);
    let digest = digest_within(&part, &mut cut.left).filter(|_| cut.left > 0);
    // We own a field that the object does not have: the digest must not equal that of any manifest.
    (digest.map(|digest| if cut.missing { !digest } else { digest }), most - cut.left)
}

/// Cuts an object down to a set of fields.
pub fn project(object: &Value, fields: &Value) -> Value {
    Cut { missing: false, left: usize::MAX }.object(object, fields).to_value()
}

struct Cut {
    missing: bool,
    /// The work that may still be done, in bytes; with 0, the part is not whole.
    left: usize,
}

impl Cut {
    fn object<'a>(&mut self, object: &'a Value, fields: &'a Value) -> Part<'a> {
        if let (Value::Object(object), Value::Object(fields)) = (object, fields) {
            return self.map(object, fields);
        }
        Part::Map(Vec::new())
    }

    /// Returns the part of `value` that `fields` selects. Returns `None`, and sets `missing`, if
    /// the value is not of the form that the fields ask for.
    fn at<'a>(&mut self, value: &'a Value, fields: &'a Value) -> Option<Part<'a>> {
        let Some(fields) = fields.as_object().filter(|fields| !fields.is_empty()) else {
            return Some(Part::Whole(value));
        };
        if fields.keys().all(|key| key == ".") {
            return Some(emptied(value));
        }
        let cut = match value {
            Value::Object(object) => Some(self.map(object, fields)),
            Value::Array(list) => Some(self.list(list, fields)),
            _ => None,
        };
        self.missing |= cut.is_none();
        cut
    }

    /// Cuts a map down. The entries are ordered by key, as the children are.
    fn map<'a>(
        &mut self,
        object: &'a Map<String, Value>,
        children: &'a Map<String, Value>,
    ) -> Part<'a> {
        let mut result = Vec::with_capacity(children.len());
        for (element, below) in children {
            self.left = self.left.saturating_sub(element.len());
            if element == "." || self.left == 0 {
                continue;
            }
            let found = element.strip_prefix("f:").and_then(|key| Some((key, object.get(key)?)));
            match found.and_then(|(key, value)| Some((key, self.at(value, below)?))) {
                Some(entry) => result.push(entry),
                None => self.missing = true,
            }
        }
        Part::Map(result)
    }

    /// Cuts a list down, in the order of the list, so that a manifest with the same items in
    /// another order is not taken for the same.
    fn list<'a>(&mut self, list: &'a [Value], children: &'a Map<String, Value>) -> Part<'a> {
        let wanted = Wanted::of(children);
        let mut found = 0;
        let mut result = Vec::with_capacity(wanted.len.min(list.len()));
        for (index, item) in list.iter().enumerate() {
            if self.left == 0 {
                break;
            }
            if let Some(below) = wanted.find(index, item, &mut self.left) {
                found += 1;
                result.extend(self.at(item, below));
            }
        }
        self.missing |= found < wanted.len;
        Part::List(result)
    }
}

/// Returns an empty map or list, for one that is owned without its content.
fn emptied(value: &Value) -> Part<'_> {
    match value {
        Value::Object(_) => Part::Map(Vec::new()),
        Value::Array(_) => Part::List(Vec::new()),
        _ => Part::Whole(value),
    }
}

/// The elements of a list that are wanted, by what selects an item. Users choose their number and
/// that of the items, so each item is looked up, and not compared with each element.
#[derive(Default)]
struct Wanted<'a> {
    /// The number of elements, also of those that select nothing.
    len: usize,
    by_index: HashMap<usize, &'a Value>,
    by_value: HashMap<u128, &'a Value>,
    /// By the names of keys, and the digest of their values.
    by_keys: BTreeMap<Vec<String>, HashMap<u128, &'a Value>>,
}

impl<'a> Wanted<'a> {
    fn of(children: &'a Map<String, Value>) -> Self {
        let mut wanted = Self::default();
        for (element, below) in children.iter().filter(|(element, _)| *element != ".") {
            wanted.len += 1;
            // What does not parse selects nothing.
            let _ = wanted.add(element, below);
        }
        wanted
    }

    fn add(&mut self, element: &str, below: &'a Value) -> Option<()> {
        let (kind, rest) = element.split_once(':')?;
        match kind {
            "i" => self.by_index.entry(rest.parse().ok()?).or_insert(below),
            "v" => {
                let value: Value = serde_json::from_str(rest).ok()?;
                self.by_value.entry(digest(&value)).or_insert(below)
            }
            "k" => {
                let keys: Map<String, Value> = serde_json::from_str(rest).ok()?;
                let names: Vec<String> = keys.keys().cloned().collect();
                if self.by_keys.len() == MAX_KEY_SETS && !self.by_keys.contains_key(&names) {
                    return None;
                }
                let values = Part::List(keys.values().map(Part::Whole).collect());
                let by_digest = self.by_keys.entry(names).or_default();
                by_digest.entry(digest_of(&values)).or_insert(below)
            }
            _ => return None,
        };
        Some(())
    }

    /// Returns what is wanted of an item of the list. Takes the work off `left`.
    fn find(&self, index: usize, item: &Value, left: &mut usize) -> Option<&'a Value> {
        *left = left.saturating_sub(ITEM_WORK);
        if let Some(below) = self.by_index.get(&index) {
            return Some(below);
        }
        for (names, by_digest) in &self.by_keys {
            let held = names.iter().map(|name| item.get(name).map(Part::Whole));
            let Some(held) = held.collect::<Option<_>>() else { continue };
            if let Some(below) = by_digest.get(&digest_within(&Part::List(held), left)?) {
                return Some(below);
            }
        }
        // Most lists have no elements that are selected by their value.
        if self.by_value.is_empty() {
            return None;
        }
        self.by_value.get(&digest_within(&Part::Whole(item), left)?).copied()
    }
}

// === digests of manifests ===

/// Computes the digest of a manifest, to compare with [`Pair::values`]: without the fields that
/// name the object, and without preconditions.
pub fn of_manifest(manifest: &Value) -> u128 {
    digest_of(&sent(manifest))
}

/// Returns a manifest without the fields that name the object (`apiVersion`, `kind`, name,
/// namespace) and without preconditions.
pub fn sent_fields(manifest: &Value) -> Value {
    sent(manifest).to_value()
}

fn sent(manifest: &Value) -> Part<'_> {
    let Some(object) = manifest.as_object() else { return Part::Whole(manifest) };
    let mut fields = Vec::with_capacity(object.len());
    for (key, value) in object {
        match (key.as_str(), value) {
            ("apiVersion" | "kind", _) => {}
            ("metadata", Value::Object(metadata)) => {
                let is_said = |key: &str| !NAMING.contains(&key);
                let said: Vec<_> = metadata
                    .iter()
                    .filter(|(key, _)| is_said(key))
                    .map(|(key, value)| (key.as_str(), Part::Whole(value)))
                    .collect();
                if !said.is_empty() {
                    fields.push(("metadata", Part::Map(said)));
                }
            }
            (key, value) => fields.push((key, Part::Whole(value))),
        }
    }
    Part::Map(fields)
}

/// Computes the digest of a JSON value. It depends neither on the order of keys nor on how a number
/// is written.
pub fn digest(value: &Value) -> u128 {
    digest_of(&Part::Whole(value))
}

fn digest_of(part: &Part<'_>) -> u128 {
    let mut left = usize::MAX;
    digest_within(part, &mut left).unwrap_or_default()
}

/// Returns the digest of a value, unless its canonical form has more bytes than `left`, off which
/// they are taken.
fn digest_within(part: &Part<'_>, left: &mut usize) -> Option<u128> {
    let mut form = Form::of_at_most(*left);
    form.part(part);
    *left = if form.is_cut { 0 } else { form.room() };
    (!form.is_cut).then(|| xxh3_128(&form.bytes))
}

/// The canonical form of a value.
struct Form {
    bytes: Vec<u8>,
    most: usize,
    /// True if the form has more than `most` bytes, and is not whole.
    is_cut: bool,
}

// === impl Form ===

impl Form {
    fn of_at_most(most: usize) -> Self {
        Self { bytes: Vec::with_capacity(INITIAL_CAPACITY_BYTES), most, is_cut: false }
    }

    /// Writes the canonical form of the value that the part is a copy of.
    fn part(&mut self, part: &Part<'_>) {
        match part {
            _ if self.is_cut => {}
            Part::Whole(value) => self.value(value),
            Part::Map(entries) => {
                self.begin(b'o', entries.len());
                for (key, held) in entries {
                    self.text(key);
                    self.part(held);
                }
            }
            Part::List(items) => {
                self.begin(b'a', items.len());
                for item in items {
                    self.part(item);
                }
            }
        }
    }

    /// Writes an unambiguous form of a value: each value begins with a letter for its type, each
    /// text and collection with its length.
    fn value(&mut self, value: &Value) {
        match value {
            _ if self.is_cut => {}
            Value::Null => self.push(b"n"),
            Value::Bool(held) => self.push(if *held { b"t" } else { b"f" }),
            Value::Number(number) => {
                self.push(b"#");
                canonical_number(number, &mut self.bytes);
            }
            Value::String(held) => {
                self.push(b"s");
                self.text(held);
            }
            Value::Array(items) => {
                self.begin(b'a', items.len());
                for item in items.iter().take(self.room().saturating_add(1)) {
                    self.value(item);
                }
            }
            Value::Object(entries) => {
                self.begin(b'o', entries.len());
                // The map is ordered by key (a test checks that), so equal maps have equal bytes.
                for (key, held) in entries.iter().take(self.room().saturating_add(1)) {
                    self.text(key);
                    self.value(held);
                }
            }
        }
    }

    fn begin(&mut self, letter: u8, length: usize) {
        self.push(&[letter]);
        self.push(&length.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.push(&text.len().to_le_bytes());
        self.push(text.as_bytes());
    }

    fn push(&mut self, more: &[u8]) {
        self.is_cut |= more.len() > self.room();
        if !self.is_cut {
            self.bytes.extend_from_slice(more);
        }
    }

    fn room(&self) -> usize {
        self.most.saturating_sub(self.bytes.len())
    }
}

fn canonical_number(number: &serde_json::Number, bytes: &mut Vec<u8>) {
    let whole = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    match (whole, number.as_f64()) {
        (Some(whole), _) => bytes.extend_from_slice(&whole.to_le_bytes()),
        (None, Some(float)) => canonical_float(float, bytes),
        (None, None) => bytes.extend_from_slice(number.to_string().as_bytes()),
    }
}

/// Writes a float. One without a fraction is written as the integer: the API server gives `1.0`
/// back as `1`.
fn canonical_float(float: f64, bytes: &mut Vec<u8>) {
    /// The greatest number up to which floats represent every integer exactly.
    const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;
    if float.fract() == 0.0 && float.abs() <= MAX_EXACT_INTEGER {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a whole number within the range checked above"
        )]
        let whole = float as i64;
        bytes.extend_from_slice(&i128::from(whole).to_le_bytes());
    } else {
        bytes.push(b'.');
        bytes.extend_from_slice(&float.to_bits().to_le_bytes());
    }
}
