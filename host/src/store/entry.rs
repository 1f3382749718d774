//! The entry of one object in a store: compact JSON, cut down to the requested fields, and the
//! terms that indexes need of the rest.

use std::cmp::Ordering;
use std::sync::Arc;

use serde_json::Value;

use super::absence::Managers;
use super::hashed::{self, HashedSelector, Space};
use super::interned::Interned;
use super::named::Named;
use crate::contract::{Kind, ObjectRef};
use crate::json::Json;
use crate::labels::LabelSelector;
use crate::own_fields::{self, Digests};
use crate::path::{Extent, Fields, Part, Path};

mod layout;

use layout::{FINALIZERS, Layout, NAME, NAMESPACE, UID};

/// The parts that are kept of the objects of a kind.
#[derive(Debug, PartialEq, Eq)]
pub struct Shape {
    /// The fields that are kept.
    pub fields: Fields,
    /// The indexed paths, each with its half of a term.
    pub(super) matching: Vec<(Path, u64)>,
}

/// The keys of an object's labels, hashed and sorted. Many objects share one set.
pub(super) type LabelKeys = Arc<Box<[u64]>>;

/// An object as it is stored. Immutable.
///
/// The JSON holds `status` first, and `metadata` last with `generation` and `resourceVersion` at
/// its very end. So the fields that count as a change are one piece of the JSON, and two versions
/// are compared without parsing them.
#[derive(Debug)]
pub struct Entry {
    /// Terms (labels in the order of `label_keys`, then those of `matching`, sorted), texts that
    /// the JSON holds only in an escaped form, then the JSON.
    data: Box<[u8]>,
    own: Digests,
    /// The field managers for which the object has a field that must be absent, if any.
    broken: Option<Managers>,
    label_keys: LabelKeys,
    shape: Arc<Shape>,
    /// The resource version as a number; 0 if it is not a number.
    revision: u64,
    /// Ends of pieces of the JSON, counted from the start of the JSON.
    status_end: u32,
    counted_end: u32,
    /// Places in `data`, counted from its start.
    starts: [u32; 4],
    lengths: [u32; 4],
    terms: u16,
    /// The length of the texts between terms and JSON.
    texts: u16,
    version_length: u16,
}

/// An object, or a part of it, as JSON in the order that an [`Entry`] has.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// The JSON text.
    pub json: String,
    counted_end: usize,
}

/// The reason why an object is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotKept {
    #[error("it has no `metadata.name`")]
    NoName,
    #[error("it is too large")]
    TooLarge,
}

// === impl Shape ===

impl Shape {
    pub(super) fn new(fields: Fields, matching: impl IntoIterator<Item = Path>) -> Arc<Self> {
        let matching = matching.into_iter().map(|path| {
            let key = path_key(&path);
            (path, key)
        });
        Arc::new(Self { fields, matching: matching.collect() })
    }

    /// Returns whether the kept parts of an object tell its values at a path.
    pub(crate) fn can_match(&self, path: &Path) -> bool {
        self.fields.covers(path) || self.indexes(path_key(path))
    }

    pub(super) fn indexes(&self, key: u64) -> bool {
        self.matching.iter().any(|(_, held)| *held == key)
    }
}

/// Returns a path's half of a term.
pub(super) fn path_key(path: &Path) -> u64 {
    hashed::key(Space::Path, &path.to_string())
}

// === impl Entry ===

impl Entry {
    /// Builds the entry of an object. The object must be whole, with its `metadata.managedFields`;
    /// the sets of fields in these may have been left as text.
    pub(super) fn new<'a, J: Json<'a>>(
        object: J,
        named: &Named<'a, J>,
        shape: &Arc<Shape>,
        interned: &mut Interned,
    ) -> Result<Self, NotKept> {
        if named.name.is_empty() {
            return Err(NotKept::NoName);
        }
        let mut labels: Vec<(u64, u64)> = named.label_terms().collect();
        labels.sort_unstable();
        let (keys, mut terms): (Vec<u64>, Vec<u64>) = labels.into_iter().unzip();
        terms.extend(matching_terms(object, shape));
        let mut layout = Layout::new(interned.room(), &terms, named);
        layout.write(&shape.fields.select(object, Extent::Shown)).ok_or(NotKept::TooLarge)?;
        let small = |length: usize| u16::try_from(length).map_err(|_| NotKept::TooLarge);
        let entry = Self {
            own: own_fields::of_with(object, &mut interned.field_sets),
            broken: None,
            label_keys: interned.label_keys(keys),
            shape: Arc::clone(shape),
            revision: named.revision(),
            status_end: layout.status_end,
            counted_end: layout.counted_end,
            starts: layout.starts,
            lengths: layout.lengths,
            terms: small(terms.len())?,
            texts: small(layout.json_at - terms.len() * size_of::<u64>())?,
            version_length: small(named.version.len())?,
            data: layout.data.as_slice().into(),
        };
        interned.take_back(layout.data);
        Ok(entry)
    }

    /// Builds the entry of a whole object that is in no store; `None` if the object has no name or
    /// is too large.
    pub(crate) fn alone(object: &Value) -> Option<Self> {
        let shape = Shape::new(Fields::whole(), []);
        Self::new(object, &Named::of(object), &shape, &mut Interned::default()).ok()
    }

    /// Returns the JSON, with all fields that some processor asks for.
    pub fn json(&self) -> &str {
        text(self.data.get(self.json_at()..))
    }

    /// Returns a copy of the JSON, to be given away.
    pub(crate) fn rendered(&self) -> Rendered {
        Rendered { json: self.json().to_owned(), counted_end: self.counted_end as usize }
    }

    /// Returns the entry with the paths of `shape` indexed; the kept fields must cover these paths.
    pub(super) fn with_shape(&self, shape: &Arc<Shape>) -> Result<Self, NotKept> {
        let object = self.value();
        let labels = self.label_terms().map(|(_, term)| term);
        let terms: Vec<u64> = labels.chain(matching_terms(&object, shape)).collect();
        let old = usize::from(self.terms) * size_of::<u64>();
        let mut data: Vec<u8> = terms.iter().flat_map(|term| term.to_ne_bytes()).collect();
        let moved =
            |start: u32| u32::try_from(start as usize + data.len() - old).unwrap_or(u32::MAX);
        let starts = self.starts.map(moved);
        data.extend_from_slice(self.data.get(old..).unwrap_or_default());
        Ok(Self {
            data: data.into(),
            own: self.own.clone(),
            broken: self.broken.clone(),
            label_keys: Arc::clone(&self.label_keys),
            shape: Arc::clone(shape),
            starts,
            terms: u16::try_from(terms.len()).map_err(|_| NotKept::TooLarge)?,
            ..*self
        })
    }

    /// Parses the JSON.
    pub fn value(&self) -> Value {
        serde_json::from_slice(self.data.get(self.json_at()..).unwrap_or_default())
            .unwrap_or_default()
    }

    /// Returns the piece of the JSON that counts as a change for a reader of all kept fields.
    pub fn counted(&self, extent: Extent) -> &[u8] {
        let (from, to) = match extent {
            Extent::Shown => (0, self.data.len()),
            Extent::Counted => (0, self.json_at() + self.counted_end as usize),
            Extent::WithoutStatus => {
                (self.status_end as usize, self.json_at() + self.counted_end as usize)
            }
        };
        self.data.get(self.json_at() + from..to).unwrap_or_default()
    }

    /// Returns the namespace; `None` for a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        Some(self.part(NAMESPACE)).filter(|namespace| !namespace.is_empty())
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.part(NAME)
    }

    /// Returns the uid, if any.
    pub fn uid(&self) -> Option<&str> {
        Some(self.part(UID)).filter(|uid| !uid.is_empty())
    }

    /// Returns the reference to the object, as one of this kind in the home cluster.
    pub(crate) fn reference(&self, kind: &Kind) -> ObjectRef {
        ObjectRef {
            cluster: String::new(),
            kind: kind.clone(),
            namespace: self.namespace().map(str::to_owned),
            name: self.name().to_owned(),
        }
    }

    /// Returns the value of an annotation, if the object has it.
    pub(crate) fn annotation(&self, name: &str) -> Option<String> {
        // Few objects have any one annotation: a search for the name is cheaper than parsing each
        // object.
        if !self.json().contains(name) {
            return None;
        }
        let object = self.value();
        let held = object.get("metadata")?.get("annotations")?.get(name)?;
        held.as_str().map(str::to_owned)
    }

    /// Returns the finalizers, as far as they are kept.
    pub(crate) fn finalizers(&self) -> Vec<String> {
        // Finalizers are stored as a JSON list of texts; anything else reads as no finalizers.
        serde_json::from_slice(self.bytes_of(FINALIZERS)).unwrap_or_default()
    }

    /// Returns the resource version.
    pub fn resource_version(&self) -> &str {
        let length = usize::from(self.version_length);
        // `"}}` follows.
        let end = self.data.len().saturating_sub(3);
        text(self.data.get(end.saturating_sub(length)..end))
    }

    /// Returns the digests of the fields that `mortise/` managers own.
    pub fn own(&self) -> &Digests {
        &self.own
    }

    /// Returns the entry with the field managers for which it has a field that must be absent.
    pub(super) fn breaking(self, managers: Option<Managers>) -> Self {
        Self { broken: managers, ..self }
    }

    /// Returns whether the object has a field that must be absent according to `manager`.
    pub fn breaks_absence_of(&self, manager: &str) -> bool {
        self.broken.iter().flat_map(|managers| managers.iter()).any(|held| **held == *manager)
    }

    /// Returns the shape with which the entry was built.
    pub fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    /// Returns whether a selector selects the object's labels.
    pub fn matches_labels(&self, selector: &LabelSelector) -> bool {
        HashedSelector::new(selector).matches(|key| self.label_term(key))
    }

    /// Returns the resource version as a number; 0 if it is not a number.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the term of the label with this key, if any.
    pub(super) fn label_term(&self, key: u64) -> Option<u64> {
        let at = self.label_keys.binary_search(&key).ok()?;
        self.terms().nth(at)
    }

    pub(crate) fn label_terms(&self) -> impl Iterator<Item = (u64, u64)> {
        self.label_keys.iter().copied().zip(self.terms())
    }

    pub(crate) fn matching_terms(&self) -> impl Iterator<Item = u64> {
        self.terms().skip(self.label_keys.len())
    }

    /// Returns roughly how many bytes the entry takes in memory, without the parts that it shares.
    pub(crate) fn bytes(&self) -> usize {
        let own =
            self.own.iter().map(|own| size_of_val(own) + own.manager.len() + own.subresource.len());
        size_of::<Self>() + 2 * size_of::<usize>() + self.data.len() + own.sum::<usize>()
    }

    /// Returns roughly how many bytes the entry would take with only these fields.
    pub(super) fn bytes_with(&self, fields: &Fields) -> usize {
        let object = self.value();
        let part = fields.select(&object, Extent::Shown);
        // A part of an object that was parsed from JSON can always be written as JSON.
        let json = serde_json::to_vec(&part).map_or(self.json_bytes(), |json| json.len());
        self.bytes() - self.json_bytes() + json
    }

    pub(crate) fn json_bytes(&self) -> usize {
        self.data.len() - self.json_at()
    }

    /// Returns the namespace (empty for a cluster-scoped object) and the name.
    pub(super) fn place(&self) -> (&str, &str) {
        (self.part(NAMESPACE), self.part(NAME))
    }

    /// Returns whether the object has this name.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.bytes_of(NAME) == name.as_bytes()
    }

    /// Returns whether the object has this namespace; empty: whether it is cluster-scoped.
    pub(crate) fn is_within(&self, namespace: &str) -> bool {
        self.bytes_of(NAMESPACE) == namespace.as_bytes()
    }

    /// Compares the object's place with another in the order of lists: by namespace, then by name.
    pub(super) fn order(&self, namespace: &str, name: &str) -> Ordering {
        let (namespace, name) = (namespace.as_bytes(), name.as_bytes());
        // Compares bytes: texts sort as their bytes do, and checking UTF-8 for each comparison
        // would be wasted.
        self.bytes_of(NAMESPACE).cmp(namespace).then_with(|| self.bytes_of(NAME).cmp(name))
    }

    pub(super) fn order_to(&self, other: &Self) -> Ordering {
        let by = |which| self.bytes_of(which).cmp(other.bytes_of(which));
        by(NAMESPACE).then_with(|| by(NAME))
    }

    fn terms(&self) -> impl Iterator<Item = u64> {
        let end = usize::from(self.terms) * size_of::<u64>();
        let terms = self.data.get(..end).unwrap_or_default().as_chunks().0;
        terms.iter().map(|bytes| u64::from_ne_bytes(*bytes))
    }

    fn json_at(&self) -> usize {
        usize::from(self.terms) * size_of::<u64>() + usize::from(self.texts)
    }

    fn part(&self, which: usize) -> &str {
        text(Some(self.bytes_of(which)))
    }

    fn bytes_of(&self, which: usize) -> &[u8] {
        let start = self.starts.get(which).copied().unwrap_or_default() as usize;
        let length = self.lengths.get(which).copied().unwrap_or_default() as usize;
        self.data.get(start..start + length).unwrap_or_default()
    }
}

// === impl Rendered ===

impl Rendered {
    /// Renders a part of an object.
    pub(crate) fn of(object: &Part<'_>) -> Self {
        let mut layout = Layout::default();
        // Fails only for an object that is too large, and such an object is not stored.
        let _written: Option<()> = layout.write(object);
        Self {
            json: String::from_utf8(layout.data).unwrap_or_default(),
            counted_end: layout.counted_end as usize,
        }
    }

    /// Returns the piece of the JSON that counts as a change.
    pub fn counted(&self) -> &str {
        self.json.get(..self.counted_end).unwrap_or_default()
    }
}

/// Returns bytes of the data, which were written from strings, as a string.
fn text(bytes: Option<&[u8]>) -> &str {
    bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
}

fn matching_terms<'a>(object: impl Json<'a>, shape: &Shape) -> Vec<u64> {
    let of = |(path, key): &(Path, u64)| {
        let terms: Vec<u64> =
            path.texts(object).iter().map(|text| hashed::term(*key, text)).collect();
        terms
    };
    let mut terms: Vec<u64> = shape.matching.iter().flat_map(of).collect();
    terms.sort_unstable();
    terms.dedup();
    terms
}
