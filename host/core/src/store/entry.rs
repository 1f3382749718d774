//! The entry of one object in a store: its JSON, projected to the requested fields, and the
//! metadata for selectors and indexes.

use std::{collections::BTreeSet, sync::Arc};

use serde::Serialize;
use serde_json::Value;

use super::{
    absence::Managers,
    indexed::Indexed,
    place::{self, NamespacedName, metadata},
    scope::Wanted,
    term::{Term, hashed},
};
use crate::{
    applied_fields::{self, Digests},
    contract::{Kind, ObjectRef},
    path::{Extent, Fields, NOT_COUNTED, Part, Path},
};

/// The approximate memory overhead of a string, in bytes.
const TEXT_OVERHEAD_BYTES: usize = 16;

/// The projection of a kind's objects: the fields that are kept and the paths that are indexed.
#[derive(Debug, PartialEq, Eq)]
pub struct Shape {
    /// The fields that are kept.
    pub fields: Fields,
    /// The indexed paths, sorted.
    pub(super) matching: Box<[Path]>,
}

/// An object as it is stored. Immutable.
#[derive(Clone, Debug)]
pub struct Entry {
    place: NamespacedName,
    /// Empty if the object has none.
    uid: Box<str>,
    resource_version: Box<str>,
    /// The resource version as a number; 0 if it is not a number.
    revision: u64,
    /// The labels as `kubectl get --show-labels` prints them: `app=web,tier=a`. The API server
    /// allows no comma and no equals sign in keys and values.
    labels: Box<str>,
    finalizers: Box<[Box<str>]>,
    /// The kept fields.
    rendered: Rendered,
    own: Digests,
    /// The field managers for which the object has a field that must be absent, if any.
    pub(super) broken: Option<Managers>,
    shape: Arc<Shape>,
    indexed: Indexed,
}

/// An object, or a part of it, as JSON.
///
/// The JSON holds `status` first, and `metadata` last with `generation` and `resourceVersion` at
/// its very end. So the fields that count as a change are one contiguous slice, and two versions
/// are compared without parsing.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// The JSON text.
    pub json: String,
    status_end: usize,
    counted_end: usize,
}

// === impl Shape ===

impl Shape {
    pub(super) fn new(fields: Fields, matching: BTreeSet<Path>) -> Arc<Self> {
        let fields = fields.with_few_conditions();
        Arc::new(Self { fields, matching: matching.into_iter().collect() })
    }

    /// Returns the position of an indexed path; `None` if the path is not indexed.
    pub(super) fn position(&self, path: &Path) -> Option<usize> {
        self.matching.binary_search(path).ok()
    }

    /// Returns whether the projection keeps an object's values at a path.
    pub fn can_match(&self, path: &Path) -> bool {
        self.fields.covers(path) || self.position(path).is_some()
    }
}

// === impl Entry ===

impl Entry {
    /// Builds the entry of an object. The object must be whole, with `metadata.managedFields`, of
    /// which only digests are kept.
    pub(super) fn new(object: &Value, place: NamespacedName, shape: &Arc<Shape>) -> Self {
        let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
        let label = |(key, value): (&String, &Value)| Some(format!("{key}={}", value.as_str()?));
        let labels: Vec<String> = labels.into_iter().flatten().filter_map(label).collect();
        let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
        let finalizers = finalizers.into_iter().flatten().filter_map(Value::as_str);
        Self {
            place,
            uid: metadata(object, "uid").into(),
            resource_version: metadata(object, "resourceVersion").into(),
            revision: place::revision(object),
            labels: labels.join(",").into(),
            finalizers: finalizers.map(Into::into).collect(),
            rendered: Rendered::of(&shape.fields.select(object, Extent::Shown)),
            own: applied_fields::of(object),
            broken: None,
            shape: Arc::clone(shape),
            indexed: Indexed::new(object, shape),
        }
    }

    /// Builds the entry of a whole object that is in no store.
    pub fn alone(object: &Value) -> Self {
        let shape = Shape::new(Fields::whole(), BTreeSet::new());
        Self::new(object, NamespacedName::of(object), &shape)
    }

    /// Returns the JSON of the kept fields.
    pub fn json(&self) -> &str {
        &self.rendered.json
    }

    /// Returns the JSON with the bounds of its slices.
    pub fn rendered(&self) -> &Rendered {
        &self.rendered
    }

    /// Parses the JSON.
    pub fn value(&self) -> Value {
        serde_json::from_str(self.json()).unwrap_or_default()
    }

    /// Returns the namespace; `None` for a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        Some(&*self.place.namespace).filter(|namespace| !namespace.is_empty())
    }

    pub fn name(&self) -> &str {
        &self.place.name
    }

    /// Returns the uid, if any.
    pub fn uid(&self) -> Option<&str> {
        Some(&*self.uid).filter(|uid| !uid.is_empty())
    }

    /// Returns the reference to the object, with this kind, in the host's cluster.
    pub fn reference(&self, kind: &Arc<Kind>) -> ObjectRef {
        ObjectRef {
            kind: Arc::clone(kind),
            namespace: self.namespace().map(str::to_owned),
            name: self.name().to_owned(),
        }
    }

    /// Returns the value of an annotation, if the object has it.
    pub fn annotation(&self, name: &str) -> Option<String> {
        // Few objects have any one annotation: a search for the name is cheaper than parsing each
        // object.
        if !self.json().contains(name) {
            return None;
        }
        let object = self.value();
        let held = object.get("metadata")?.get("annotations")?.get(name)?;
        held.as_str().map(str::to_owned)
    }

    /// Returns whether the object has a finalizer.
    pub fn holds_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|held| **held == *name)
    }

    pub fn resource_version(&self) -> &str {
        &self.resource_version
    }

    /// Returns the digests of the fields that `mortise/` managers own.
    pub fn own(&self) -> &Digests {
        &self.own
    }

    /// Returns whether the object has a field that must be absent according to `manager`.
    pub fn breaks_absence_of(&self, manager: &str) -> bool {
        self.broken.iter().flat_map(|managers| managers.iter()).any(|held| **held == *manager)
    }

    /// Returns the shape with which the entry was built.
    pub fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    /// Returns the value of a label, if the object has it.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels().find(|(held, _)| *held == key).map(|(_, value)| value)
    }

    /// Returns key and value of each label.
    pub(super) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.split(',').filter_map(|label| label.split_once('='))
    }

    /// Returns the bytes of all labels.
    pub(super) fn label_bytes(&self) -> usize {
        self.labels.len()
    }

    /// Returns the hashed terms of the texts at the indexed paths.
    pub(super) fn path_terms(&self) -> &[u64] {
        self.indexed.terms()
    }

    /// Returns whether the object holds the text of a term at its path; `None` if the path is not
    /// indexed.
    pub(super) fn holds(&self, path: &Path, term: u64) -> Option<bool> {
        self.indexed.holds(&self.shape, path, term, self.json())
    }

    /// Returns whether the object holds more texts at an indexed path than [`Entry::terms`] names.
    pub fn has_too_many_terms(&self) -> bool {
        self.indexed.has_too_many()
    }

    /// Returns the hashed terms of all labels, and of the texts at the indexed paths.
    pub fn terms(&self) -> impl Iterator<Item = u64> {
        let labels = self.labels().map(|(key, value)| hashed(Term::Label(key, value)));
        labels.chain(self.path_terms().iter().copied())
    }

    /// Returns the resource version as a number; 0 if it is not a number.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the namespace and name.
    pub(super) fn place(&self) -> &NamespacedName {
        &self.place
    }

    /// Returns the approximate bytes that the entry takes in memory, without shared parts.
    pub fn bytes(&self) -> usize {
        let of_place = [&*self.place.namespace, &self.place.name];
        let of_object = [&*self.uid, &self.resource_version, &self.labels, self.json()];
        let finalizers = self.finalizers.iter().map(|held| &**held);
        let own = self.own.iter().flat_map(|own| [&*own.manager, &own.subresource]);
        let texts = of_place.into_iter().chain(of_object).chain(finalizers).chain(own);
        size_of::<Self>()
            + texts.map(|text| TEXT_OVERHEAD_BYTES + text.len()).sum::<usize>()
            + size_of_val(&*self.finalizers)
            + self.indexed.bytes()
            + self.own.iter().map(size_of_val).sum::<usize>()
    }

    /// Returns the approximate bytes that the entry would take with only these fields and indexed
    /// paths, and the number of its terms at these paths.
    pub(super) fn bytes_with(&self, wanted: &Wanted) -> (usize, usize) {
        let (terms, indexed) = self.indexed.held_for(&self.shape, &wanted.matching);
        let json = if wanted.fields.covers_all(&self.shape.fields) {
            self.json().len()
        } else {
            Rendered::of(&wanted.fields.select(&self.value(), Extent::Shown)).json.len()
        };
        (self.bytes() - self.json().len() - self.indexed.bytes() + json + indexed, terms)
    }
}

// === impl Rendered ===

impl Rendered {
    /// Renders a part of an object.
    pub fn of(object: &Part<'_>) -> Self {
        let entries = object.entries();
        let metadata = entries.iter().find(|(key, _)| *key == "metadata");
        let metadata = metadata.map_or(&[][..], |(_, part)| part.entries());
        let mut json = b"{".to_vec();
        push(&mut json, entries, |key| key == "status");
        if json.len() > 1 {
            json.push(b',');
        }
        let status_end = json.len();
        push(&mut json, entries, |key| !["status", "metadata"].contains(&key));
        push_key(&mut json, "metadata");
        json.push(b'{');
        push(&mut json, metadata, |key| !NOT_COUNTED.contains(&key));
        let counted_end = json.len();
        push(&mut json, metadata, |key| NOT_COUNTED.contains(&key));
        json.extend(b"}}");
        // Copied, since the copy has no spare capacity.
        let json = String::from_utf8_lossy(&json).into_owned();
        Self { json, status_end, counted_end }
    }

    /// Returns the slice of the JSON in which a difference counts as a change.
    pub fn counted(&self, extent: Extent) -> &str {
        let piece = match extent {
            Extent::Shown => 0..self.json.len(),
            Extent::Counted => 0..self.counted_end,
            Extent::WithoutStatus => self.status_end..self.counted_end,
        };
        self.json.get(piece).unwrap_or_default()
    }
}

/// Appends the entries with the wanted keys to the JSON of a map.
fn push(json: &mut Vec<u8>, entries: &[(&str, Part<'_>)], is_wanted: impl Fn(&str) -> bool) {
    for (key, part) in entries.iter().filter(|(key, _)| is_wanted(key)) {
        push_key(json, key);
        push_value(json, part);
    }
}

fn push_key(json: &mut Vec<u8>, key: &str) {
    // No JSON key or value ends with these.
    if !json.ends_with(b"{") && !json.ends_with(b",") {
        json.push(b',');
    }
    push_value(json, key);
    json.push(b':');
}

fn push_value(json: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    serde_json::to_writer(json, value).expect("JSON values can be written to memory");
}
