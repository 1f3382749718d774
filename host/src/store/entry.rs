//! One object as it is kept: compact JSON, cut down to what is asked for, and what indexes need of the rest.

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

/// What is kept of the objects of a kind.
#[derive(Debug, PartialEq, Eq)]
pub struct Shape {
    /// The fields.
    pub fields: Fields,
    /// The paths that are indexed, with their half of a term.
    pub(super) matching: Vec<(Path, u64)>,
}

/// The keys of an object's labels, hashed and sorted. Many objects share one.
pub(super) type LabelKeys = Arc<Box<[u64]>>;

/// One object as it is kept. Immutable.
///
/// The JSON holds `status` first, and `metadata` last with `generation` and `resourceVersion` at its very end, so that what
/// counts as a change is one piece of it and two versions are compared without parsing them.
#[derive(Debug)]
pub struct Entry {
    /// Terms (labels in the order of `label_keys`, then those of `matching`, sorted), texts that the JSON holds only in
    /// an escaped form, then the JSON.
    data: Box<[u8]>,
    own: Digests,
    /// On whose behalf something must be absent that it has.
    broken: Option<Managers>,
    label_keys: LabelKeys,
    shape: Arc<Shape>,
    /// The resource version as a number; 0 where it is none.
    revision: u64,
    /// Ends of pieces of the JSON, counted from its start.
    status_end: u32,
    counted_end: u32,
    /// Counted from the start of the data.
    starts: [u32; 4],
    lengths: [u32; 4],
    terms: u16,
    /// Length of the texts between terms and JSON.
    texts: u16,
    version_length: u16,
}

/// An object, or a part of it, as JSON in the same order as that of an entry.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// The JSON.
    pub json: String,
    counted_end: usize,
}

/// Why a value is not kept.
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

    /// Whether it can be told what an object holds at a path.
    pub(crate) fn can_match(&self, path: &Path) -> bool {
        self.fields.covers(path) || self.indexes(path_key(path))
    }

    pub(super) fn indexes(&self, key: u64) -> bool {
        self.matching.iter().any(|(_, held)| *held == key)
    }
}

/// A path's half of a term.
pub(super) fn path_key(path: &Path) -> u64 {
    hashed::key(Space::Path, &path.to_string())
}

// === impl Entry ===

impl Entry {
    /// What is kept of an object, which must be whole and with its `metadata.managedFields`; the sets of fields in these may have been
    /// left as text.
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

    /// An object, whole, that is in no store; none of what has no name.
    pub(crate) fn alone(object: &Value) -> Option<Self> {
        let shape = Shape::new(Fields::whole(), []);
        Self::new(object, &Named::of(object), &shape, &mut Interned::default()).ok()
    }

    /// Its JSON, with all fields that some processor asks for.
    pub fn json(&self) -> &str {
        text(self.data.get(self.json_at()..))
    }

    /// Its JSON, to be given away.
    pub(crate) fn rendered(&self) -> Rendered {
        Rendered { json: self.json().to_owned(), counted_end: self.counted_end as usize }
    }

    /// The same with a path indexed too, which the fields cover.
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

    /// Its JSON, parsed.
    pub fn value(&self) -> Value {
        serde_json::from_slice(self.data.get(self.json_at()..).unwrap_or_default())
            .unwrap_or_default()
    }

    /// The piece of its JSON that counts as a change where everything kept of it is read.
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

    /// Its namespace; none of a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        Some(self.part(NAMESPACE)).filter(|namespace| !namespace.is_empty())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.part(NAME)
    }

    /// Its uid.
    pub fn uid(&self) -> Option<&str> {
        Some(self.part(UID)).filter(|uid| !uid.is_empty())
    }

    /// What it is called by, as an object of this kind in the home cluster.
    pub(crate) fn reference(&self, kind: &Kind) -> ObjectRef {
        ObjectRef {
            cluster: String::new(),
            kind: kind.clone(),
            namespace: self.namespace().map(str::to_owned),
            name: self.name().to_owned(),
        }
    }

    /// What one of its annotations says.
    pub(crate) fn annotation(&self, name: &str) -> Option<String> {
        // Few objects have any one annotation: it is cheaper to look for the name than to parse all of them.
        if !self.json().contains(name) {
            return None;
        }
        let object = self.value();
        let held = object.get("metadata")?.get("annotations")?.get(name)?;
        held.as_str().map(str::to_owned)
    }

    /// Its finalizers.
    pub(crate) fn finalizers(&self) -> Vec<String> {
        // They are written as a list of texts; of what is none, nothing is known.
        serde_json::from_slice(self.bytes_of(FINALIZERS)).unwrap_or_default()
    }

    /// Its resource version.
    pub fn resource_version(&self) -> &str {
        let length = usize::from(self.version_length);
        // `"}}` follows.
        let end = self.data.len().saturating_sub(3);
        text(self.data.get(end.saturating_sub(length)..end))
    }

    /// The digests of what `mortise/` managers own of it.
    pub fn own(&self) -> &Digests {
        &self.own
    }

    /// The same, holding what must be absent on behalf of these.
    pub(super) fn breaking(self, managers: Option<Managers>) -> Self {
        Self { broken: managers, ..self }
    }

    /// Whether it has something that must be absent on behalf of a field manager.
    pub fn breaks_absence_of(&self, manager: &str) -> bool {
        self.broken.iter().flat_map(|managers| managers.iter()).any(|held| **held == *manager)
    }

    /// What is kept of it.
    pub fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    /// Whether its labels are selected.
    pub fn matches_labels(&self, selector: &LabelSelector) -> bool {
        HashedSelector::new(selector).matches(|key| self.label_term(key))
    }

    /// Its resource version as a number; 0 where it is none.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// The term of the label with this key.
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

    /// Roughly what it takes in memory, without what is shared.
    pub(crate) fn bytes(&self) -> usize {
        let own =
            self.own.iter().map(|own| size_of_val(own) + own.manager.len() + own.subresource.len());
        size_of::<Self>() + 2 * size_of::<usize>() + self.data.len() + own.sum::<usize>()
    }

    /// Roughly what it would take with these fields alone.
    pub(super) fn bytes_with(&self, fields: &Fields) -> usize {
        let object = self.value();
        let part = fields.select(&object, Extent::Shown);
        // What is an object in JSON can be written as such.
        let json = serde_json::to_vec(&part).map_or(self.json_bytes(), |json| json.len());
        self.bytes() - self.json_bytes() + json
    }

    pub(crate) fn json_bytes(&self) -> usize {
        self.data.len() - self.json_at()
    }

    /// Its namespace, empty of a cluster-scoped one, and its name.
    pub(super) fn place(&self) -> (&str, &str) {
        (self.part(NAMESPACE), self.part(NAME))
    }

    /// Whether this is its name.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.bytes_of(NAME) == name.as_bytes()
    }

    /// Whether this is its namespace; empty: none.
    pub(crate) fn is_within(&self, namespace: &str) -> bool {
        self.bytes_of(NAMESPACE) == namespace.as_bytes()
    }

    /// The order of lists: by namespace and name.
    pub(super) fn order(&self, namespace: &str, name: &str) -> Ordering {
        let (namespace, name) = (namespace.as_bytes(), name.as_bytes());
        // As bytes: the order of texts is that of their bytes, and what is compared so often is not checked each time.
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
    /// A part of an object.
    pub(crate) fn of(object: &Part<'_>) -> Self {
        let mut layout = Layout::default();
        // What is too large to be kept is not there to be rendered.
        let _written: Option<()> = layout.write(object);
        Self {
            json: String::from_utf8(layout.data).unwrap_or_default(),
            counted_end: layout.counted_end as usize,
        }
    }

    /// The piece that counts as a change.
    pub fn counted(&self) -> &str {
        self.json.get(..self.counted_end).unwrap_or_default()
    }
}

/// The data are made of strings, so this gives them back.
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
