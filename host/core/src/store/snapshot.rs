//! The objects of one kind within one scope at one moment. Immutable for readers; cheap to clone.

use std::{collections::BTreeSet, ops::Bound, sync::Arc};

use parking_lot::Mutex;
use rpds::RedBlackTreeMapSync;

use super::{
    entry::{Entry, Shape},
    event::StoreId,
    memory::Memory,
    place::NamespacedName,
    query::Query,
    scope::Scope,
    term::{Term, hashed},
};
use crate::{
    contract::Kind,
    path::{Fields, Path},
};

/// The most label keys of a kind that are indexed; selectors with other keys check all objects.
const MAX_INDEXED_LABELS: usize = 256;

/// The most paths of a kind that are indexed because queries used them.
const MAX_INDEXED_PATHS: usize = 32;

/// The number of samples for estimating a snapshot's size with other fields: the error is mostly
/// below 10 %, and at most 64 MiB of JSON are parsed.
const SAMPLES: usize = 64;

/// The approximate bytes of a row in a map: the node, and the key and value that it refers to.
const ROW_OVERHEAD_BYTES: usize = 112;

/// Objects by namespace and name. A persistent map: a clone shares what has not changed since.
type Rows = RedBlackTreeMapSync<NamespacedName, Arc<Entry>>;

/// The objects of one kind within one scope at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    rows: Rows,
    /// The inverted index: the objects that have a term, by the term's hash.
    index: RedBlackTreeMapSync<u64, Rows>,
    /// The indexed label keys; the indexed paths are in the shape.
    labels: Arc<BTreeSet<Box<str>>>,
    missing: Arc<Mutex<Missing>>,
    /// The parts that every entry holds at least.
    pub(super) shape: Arc<Shape>,
    /// True if the first list has ended.
    pub(super) complete: bool,
    /// The number of the last change in this snapshot.
    sequence: u64,
    /// The newest resource version that was reported to the table.
    revision: u64,
    /// The estimated bytes of the entries and their rows.
    held: usize,
}

/// The label keys and paths that queries used and that are not indexed yet.
#[derive(Debug, Default)]
struct Missing {
    labels: BTreeSet<Box<str>>,
    paths: BTreeSet<Path>,
}

/// A kind's stores at one moment.
#[derive(Clone, Debug)]
pub struct KindSnapshot {
    pub kind: Arc<Kind>,
    pub served: Option<bool>,
    pub unavailable: Option<Arc<str>>,
    pub stores: Vec<(StoreId, Arc<Scope>, Snapshot)>,
}

// === impl Snapshot ===

impl Snapshot {
    pub(super) fn new(shape: Arc<Shape>) -> Self {
        Self {
            rows: Rows::default(),
            index: RedBlackTreeMapSync::default(),
            labels: Arc::default(),
            missing: Arc::default(),
            shape,
            complete: false,
            sequence: 0,
            revision: 0,
            held: 0,
        }
    }

    /// Returns a copy with the number of the last change and the newest reported version.
    pub(super) fn at(&self, sequence: u64, revision: u64) -> Self {
        Self { sequence, revision, ..self.clone() }
    }

    /// Returns the newest resource version that a list, the watch or a write by this host reported;
    /// 0 if versions are not numbers.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the number of the last change in this snapshot.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns whether the first list has ended, so that all objects are in the snapshot.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Returns the parts that every entry holds at least.
    pub fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.rows.size()
    }

    /// Returns whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns one object, if it exists; the namespace of a cluster-scoped object is empty.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<Entry>> {
        self.row(&NamespacedName::new(namespace, name))
    }

    pub(super) fn row(&self, place: &NamespacedName) -> Option<&Arc<Entry>> {
        self.rows.get(place)
    }

    /// Returns all objects, ordered by namespace and name.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.rows.values()
    }

    /// Returns the selected objects, ordered by namespace and name, starting after the name
    /// `after`.
    ///
    /// The cost is linear in the number of objects that have the query's rarest indexed term.
    /// Labels and paths that are not indexed yet are indexed from the next snapshot on.
    pub fn select<'a>(
        &'a self,
        query: &'a Query,
        after: Option<(&str, &str)>,
    ) -> impl Iterator<Item = &'a Arc<Entry>> + use<'a> {
        let (namespace, name) = (query.namespace.as_deref(), query.name.as_deref());
        let name = name.filter(|_| namespace.is_some());
        let rows = if name.is_some() { Some(&self.rows) } else { self.fewest(query) };
        let first = NamespacedName::new(namespace.unwrap_or_default(), name.unwrap_or_default());
        let after = after.map(|(namespace, name)| NamespacedName::new(namespace, name));
        let from = match after {
            Some(after) if after >= first => Bound::Excluded(after),
            _ => Bound::Included(first),
        };
        let is_within = move |place: &NamespacedName| {
            namespace.is_none_or(|namespace| *place.namespace == *namespace)
                && name.is_none_or(|name| *place.name == *name)
        };
        let rows = rows.map(|rows| rows.range((from, Bound::Unbounded)));
        let rows = rows.into_iter().flatten().take_while(move |(place, _)| is_within(place));
        rows.map(|(_, entry)| entry).filter(|entry| query.matches(entry))
    }

    /// Returns the objects that have the rarest of the query's indexed terms, or all objects if no
    /// term is indexed. `None` if there are no objects with a term.
    fn fewest(&self, query: &Query) -> Option<&Rows> {
        let mut fewest = &self.rows;
        for term in query.terms() {
            if self.indexes(term) {
                let rows = self.index.get(&hashed(term))?;
                fewest = if rows.size() < fewest.size() { rows } else { fewest };
            } else {
                self.record_missing(term);
            }
        }
        Some(fewest)
    }

    fn indexes(&self, term: Term<'_>) -> bool {
        match term {
            Term::Path(path, _) => self.shape.matching.contains(path),
            Term::Label(key, _) => self.labels.contains(key),
        }
    }

    #[cfg(test)]
    pub(super) fn indexed_labels(&self) -> usize {
        self.labels.len()
    }

    fn record_missing(&self, term: Term<'_>) {
        let mut missing = self.missing.lock();
        match term {
            Term::Label(key, _) if missing.labels.len() < MAX_INDEXED_LABELS => {
                missing.labels.insert(key.into());
            }
            Term::Path(path, _) if missing.paths.len() < MAX_INDEXED_PATHS => {
                missing.paths.insert(path.clone());
            }
            Term::Label(..) | Term::Path(..) => {}
        }
    }

    /// Returns the hash of a term that every object selected by the query has, now and later, if
    /// there is such a term.
    pub fn index_term(&self, query: &Query) -> Option<u64> {
        let is_kept = |term: &Term<'_>| matches!(term, Term::Label(..)) || self.indexes(*term);
        query.terms().find(is_kept).map(hashed)
    }

    /// Returns the approximate bytes of the entries, without visiting them.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Returns the approximate bytes that the entries would take with only these fields. Samples
    /// entries at random, weighted by size, so that nobody can predict the samples.
    pub(super) fn held_with(&self, fields: &Fields) -> usize {
        if self.held == 0 || fields.covers_all(&self.shape.fields) {
            return self.held;
        }
        let mut looked_at = [(); SAMPLES].map(|()| rand::random_range(0..self.held));
        looked_at.sort_unstable();
        let mut looked_at = looked_at.into_iter().peekable();
        let (mut before, mut held) = (0, 0);
        for entry in self.entries() {
            before += held_by(entry);
            let times = std::iter::from_fn(|| looked_at.next_if(|at| *at < before)).count();
            if times > 0 {
                held += times * self.held / SAMPLES * entry.bytes_with(fields) / entry.bytes();
            }
        }
        held
    }

    /// Returns the memory that the entries and indexes use.
    pub(super) fn memory(&self) -> Memory {
        let indexed =
            self.index.values().map(|rows| ROW_OVERHEAD_BYTES + rows.size() * ROW_OVERHEAD_BYTES);
        Memory {
            objects: self.len(),
            json: self.entries().map(|entry| entry.json().len()).sum(),
            total: self.held + indexed.sum::<usize>(),
        }
    }

    /// Stores an entry in place of the former one of its object.
    pub(super) fn put(&mut self, entry: &Arc<Entry>) {
        let terms = self.terms(entry);
        if let Some(former) = self.row(entry.place()).cloned() {
            self.held -= held_by(&former);
            self.remove_from_index(&former, &terms);
        }
        self.held += held_by(entry);
        self.rows.insert_mut(entry.place().clone(), Arc::clone(entry));
        self.add_to_index(entry, terms);
    }

    pub(super) fn remove(&mut self, place: &NamespacedName) -> Option<Arc<Entry>> {
        let held = self.row(place).cloned()?;
        self.held -= held_by(&held);
        self.rows.remove_mut(place);
        self.remove_from_index(&held, &[]);
        Some(held)
    }

    /// Indexes the label keys and paths that queries used without an index.
    pub(super) fn index_missing(&mut self) {
        let Missing { labels, paths } = std::mem::take(&mut *self.missing.lock());
        let room = MAX_INDEXED_LABELS.saturating_sub(self.labels.len());
        let new: BTreeSet<Box<str>> =
            labels.into_iter().filter(|label| !self.labels.contains(label)).take(room).collect();
        if !new.is_empty() {
            for entry in self.rows.clone().values() {
                self.add_to_index(entry, label_terms(entry, &new));
            }
            Arc::make_mut(&mut self.labels).extend(new);
        }
        let indexed = &self.shape.matching;
        let room = MAX_INDEXED_PATHS.saturating_sub(indexed.len());
        let new = paths.into_iter().filter(|path| !indexed.contains(path)).take(room).collect();
        self.index_paths(&new);
    }

    /// Indexes these paths, except those outside the kept fields.
    pub(super) fn index_paths(&mut self, paths: &BTreeSet<Path>) {
        let Shape { fields, matching } = &*self.shape;
        let is_new = |path: &&Path| fields.covers(path) && !matching.contains(*path);
        let new: Vec<&Path> = paths.iter().filter(is_new).collect();
        if new.is_empty() {
            return;
        }
        let all = matching.iter().chain(new).cloned().collect();
        self.shape = Shape::new(fields.clone(), all);
        let again = |entry: &Arc<Entry>| Arc::new(entry.with_shape(&self.shape));
        self.rows = self.entries().map(again).map(|entry| (entry.place().clone(), entry)).collect();
        self.held = self.entries().map(held_by).sum();
        self.index = RedBlackTreeMapSync::default();
        for entry in self.rows.clone().values() {
            self.add_to_index(entry, self.terms(entry));
        }
    }

    fn add_to_index(&mut self, entry: &Arc<Entry>, terms: impl IntoIterator<Item = u64>) {
        for term in terms {
            if !self.index.contains_key(&term) {
                self.index.insert_mut(term, Rows::default());
            }
            if let Some(rows) = self.index.get_mut(&term) {
                rows.insert_mut(entry.place().clone(), Arc::clone(entry));
            }
        }
    }

    /// Removes an entry from the index, except under the `kept` terms.
    fn remove_from_index(&mut self, entry: &Entry, kept: &[u64]) {
        for term in self.terms(entry).iter().filter(|term| !kept.contains(term)) {
            if let Some(rows) = self.index.get_mut(term) {
                rows.remove_mut(entry.place());
                if rows.is_empty() {
                    self.index.remove_mut(term);
                }
            }
        }
    }

    /// Returns the hashes of the indexed terms of an entry.
    fn terms(&self, entry: &Entry) -> Vec<u64> {
        label_terms(entry, &self.labels).chain(entry.matching().iter().copied()).collect()
    }
}

// === impl KindSnapshot ===

impl KindSnapshot {
    /// Returns the store that covers a query, if any; a complete one that has the fields is
    /// preferred.
    pub fn covering(&self, query: &Query, fields: Option<&Fields>) -> Option<(StoreId, &Snapshot)> {
        let covering = self.stores.iter().filter(|(_, scope, _)| scope.covers(query));
        let rank = |snapshot: &Snapshot| {
            let has_fields = fields.is_none_or(|fields| snapshot.shape().fields.covers_all(fields));
            (snapshot.is_complete(), has_fields)
        };
        // `max_by` makes no comparison with one store, so no fields are compared.
        let best = covering.max_by(|(.., one), (.., other)| rank(one).cmp(&rank(other)));
        best.map(|(id, _, snapshot)| (*id, snapshot))
    }
}

fn held_by(entry: &Arc<Entry>) -> usize {
    entry.bytes() + ROW_OVERHEAD_BYTES
}

/// Returns the hashes of the labels of an entry with these keys.
fn label_terms(entry: &Entry, keys: &BTreeSet<Box<str>>) -> impl Iterator<Item = u64> {
    let labels = entry.labels().filter(|(key, _)| keys.contains(*key));
    labels.map(|(key, value)| hashed(Term::Label(key, value)))
}
