//! The objects of one kind within one scope at one moment. Immutable for readers; cheap to clone.

use std::{ops::Bound, sync::Arc};

use rpds::RedBlackTreeMapSync;

use super::{
    entry::{Entry, Shape},
    event::StoreId,
    label_keys::{IndexUser, LabelKeys},
    place::NamespacedName,
    query::Query,
    scope::{Scope, Wanted},
    term::{Term, hashed},
};
use crate::{contract::Kind, path::Fields};

/// The steps in which the indexed labels are changed at once, under the lock of the store: a part of
/// a millisecond. An object takes a step, and one for each [`LABEL_BYTES_PER_STEP`] of its labels,
/// each of which may be indexed.
const CHANGED_AT_ONCE: usize = 512;

/// The bytes of a label, roughly.
const LABEL_BYTES_PER_STEP: usize = 32;

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
    /// The number of rows in the maps of the index.
    index_rows: usize,
    /// The indexed label keys; the indexed paths are in the shape.
    labels: LabelKeys,
    /// The parts that every entry holds at least.
    pub(super) shape: Arc<Shape>,
    /// True if the first list has ended.
    pub(super) complete: bool,
    /// The number of the last change in this snapshot.
    sequence: u64,
    /// The newest resource version that was reported to the table.
    revision: u64,
    /// The estimated bytes of the entries and their rows, without the index.
    entries: usize,
    /// The bytes of the entries' JSON.
    json: usize,
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
            index_rows: 0,
            labels: LabelKeys::default(),
            shape,
            complete: false,
            sequence: 0,
            revision: 0,
            entries: 0,
            json: 0,
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
    pub fn select<'a>(
        &'a self,
        query: &'a Query,
        after: Option<(&str, &str)>,
    ) -> impl Iterator<Item = &'a Arc<Entry>> + use<'a> {
        self.candidates(query, after).filter(|entry| query.matches(entry))
    }

    /// Returns the objects to be compared with a query, ordered by namespace and name, starting
    /// after the name `after`.
    ///
    /// Their number is that of the objects that have the query's rarest indexed term, or too many
    /// terms.
    pub(crate) fn candidates<'a>(
        &'a self,
        query: &'a Query,
        after: Option<(&str, &str)>,
    ) -> impl Iterator<Item = &'a Arc<Entry>> + use<'a> {
        let (namespace, name) = (query.namespace.as_deref(), query.name.as_deref());
        let name = name.filter(|_| namespace.is_some());
        let rows = if name.is_some() { [Some(&self.rows), None] } else { self.fewest(query) };
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
        let ranges = rows.map(|rows| {
            let rows = rows.map(|rows| rows.range((from.clone(), Bound::Unbounded)));
            rows.into_iter().flatten().peekable()
        });
        let [mut one, mut other] = ranges;
        let merged = std::iter::from_fn(move || match (one.peek(), other.peek()) {
            (Some((first, _)), Some((second, _))) if first > second => other.next(),
            (None, _) => other.next(),
            _ => one.next(),
        });
        merged.take_while(move |(place, _)| is_within(place)).map(|(_, entry)| entry)
    }

    /// Returns the objects that have the rarest of the query's indexed terms, and those that have
    /// too many terms at its path; all objects if no term is indexed.
    fn fewest(&self, query: &Query) -> [Option<&Rows>; 2] {
        let size = |rows: &[Option<&Rows>; 2]| {
            rows.iter().flatten().map(|rows| rows.size()).sum::<usize>()
        };
        let mut fewest = [Some(&self.rows), None];
        for term in query.terms().filter(|term| self.indexes(*term)) {
            let too_many = match term {
                Term::Path(path, _) => self.index.get(&hashed(Term::TooMany(path))),
                Term::Label(..) | Term::TooMany(_) => None,
            };
            let rows = [self.index.get(&hashed(term)), too_many];
            fewest = if size(&rows) < size(&fewest) { rows } else { fewest };
        }
        fewest
    }

    fn indexes(&self, term: Term<'_>) -> bool {
        match term {
            Term::Path(path, _) | Term::TooMany(path) => self.shape.position(path).is_some(),
            Term::Label(key, _) => self.labels.contains(key),
        }
    }

    /// Requests an index of the label keys of a query for a user.
    pub(crate) fn request_index(&self, query: &Query, user: &IndexUser) {
        for term in query.terms() {
            if let Term::Label(key, _) = term
                && !self.labels.is_for(key, user)
            {
                self.labels.request(key, user);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn indexed_labels(&self) -> usize {
        self.labels.len()
    }

    /// Returns the hash of a term that every object selected by the query has, now and later, if
    /// there is such a term.
    pub fn index_term(&self, query: &Query) -> Option<u64> {
        let is_kept = |term: &Term<'_>| matches!(term, Term::Label(..)) || self.indexes(*term);
        query.terms().find(is_kept).map(hashed)
    }

    /// Returns the approximate bytes of the entries and the index, without visiting them.
    pub(super) fn held(&self) -> usize {
        self.entries + (self.index_rows + self.index.size()) * ROW_OVERHEAD_BYTES
    }

    /// Counts [`Snapshot::held`] again from all entries and rows.
    #[cfg(test)]
    pub(super) fn recount(&self) -> usize {
        let index = self.index.values().map(|rows| (1 + rows.size()) * ROW_OVERHEAD_BYTES);
        self.entries().map(held_by).sum::<usize>() + index.sum::<usize>()
    }

    /// Returns the bytes of the entries' JSON.
    pub(super) fn json(&self) -> usize {
        self.json
    }

    /// Returns the approximate bytes that the entries and the index would take with only these
    /// fields and indexed paths, and the labels that are indexed for this user. Samples entries at
    /// random, weighted by size, so that nobody can predict the samples.
    pub(super) fn held_with(&self, wanted: &Wanted, user: &IndexUser) -> usize {
        let needs_all = wanted.fields.covers_all(&self.shape.fields)
            && self.shape.matching.iter().all(|path| wanted.matching.contains(path))
            && self.labels.are_all_for(user);
        if self.entries == 0 || needs_all {
            return self.held();
        }
        let mut looked_at = [(); SAMPLES].map(|()| rand::random_range(0..self.entries));
        looked_at.sort_unstable();
        let mut looked_at = looked_at.into_iter().peekable();
        // A row of the index, with its part of the term's own row.
        let of_row = (self.held() - self.entries) / self.index_rows.max(1);
        let (mut before, mut held) = (0, 0);
        for entry in self.entries() {
            before += held_by(entry);
            let times = std::iter::from_fn(|| looked_at.next_if(|at| *at < before)).count();
            if times > 0 {
                let (bytes, terms) = entry.bytes_with(wanted);
                let labels = entry.labels().filter(|(key, _)| self.labels.is_for(key, user));
                let part = bytes + ROW_OVERHEAD_BYTES + (terms + labels.count()) * of_row;
                held += times * self.entries / SAMPLES * part / held_by(entry);
            }
        }
        held.min(self.held())
    }

    /// Stores an entry in place of the former one of its object.
    pub(super) fn put(&mut self, entry: &Arc<Entry>) {
        let terms = self.terms(entry);
        if let Some(former) = self.row(entry.place()).cloned() {
            self.left(&former);
            self.remove_from_index(entry.place(), &self.terms(&former), &terms);
        }
        self.entries += held_by(entry);
        self.json += entry.json().len();
        self.rows.insert_mut(entry.place().clone(), Arc::clone(entry));
        self.add_to_index(entry, terms);
    }

    pub(super) fn remove(&mut self, place: &NamespacedName) -> Option<Arc<Entry>> {
        let held = self.row(place).cloned()?;
        self.left(&held);
        self.rows.remove_mut(place);
        self.remove_from_index(place, &self.terms(&held), &[]);
        Some(held)
    }

    fn left(&mut self, entry: &Arc<Entry>) {
        self.entries -= held_by(entry);
        self.json -= entry.json().len();
    }

    /// Returns whether the query has a label that is not indexed.
    pub(crate) fn lacks_index(&self, query: &Query) -> bool {
        query.terms().any(|term| matches!(term, Term::Label(..)) && !self.indexes(term))
    }

    /// Indexes label keys that queries have requested, and gives back those that nobody uses any
    /// more, for the next few objects. Returns whether others are left.
    pub(super) fn index_labels(&mut self) -> bool {
        let Some(changing) = self.labels.changing() else { return false };
        let (keys, adds) = (changing.keys.clone(), changing.adds);
        let from = changing.upto.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let mut steps = 0;
        let mut next = Vec::new();
        for (_, entry) in self.rows.range((from, Bound::Unbounded)) {
            if steps >= CHANGED_AT_ONCE {
                break;
            }
            steps += 1 + entry.label_bytes() / LABEL_BYTES_PER_STEP;
            next.push(Arc::clone(entry));
        }
        changing.upto = next.last().map(|entry| entry.place().clone());
        for entry in &next {
            let labels = entry.labels().filter(|(key, _)| keys.contains_key(*key));
            let terms: Vec<u64> =
                labels.map(|(key, value)| hashed(Term::Label(key, value))).collect();
            if adds {
                self.add_to_index(entry, terms);
            } else {
                self.remove_from_index(entry.place(), &terms, &[]);
            }
        }
        let is_complete = steps < CHANGED_AT_ONCE;
        if is_complete {
            self.labels.changed();
        }
        !is_complete
    }

    /// Checks whether indexed label keys have lost all their users.
    pub(super) fn check_index_users(&mut self) {
        self.labels.check_users();
    }

    fn add_to_index(&mut self, entry: &Arc<Entry>, terms: impl IntoIterator<Item = u64>) {
        for term in terms {
            if !self.index.contains_key(&term) {
                self.index.insert_mut(term, Rows::default());
            }
            if let Some(rows) = self.index.get_mut(&term) {
                self.index_rows -= rows.size();
                rows.insert_mut(entry.place().clone(), Arc::clone(entry));
                self.index_rows += rows.size();
            }
        }
    }

    /// Removes an object from the index under these terms, except the `kept` ones.
    fn remove_from_index(&mut self, place: &NamespacedName, terms: &[u64], kept: &[u64]) {
        for term in terms.iter().filter(|term| kept.binary_search(term).is_err()) {
            if let Some(rows) = self.index.get_mut(term) {
                self.index_rows -= usize::from(rows.remove_mut(place));
                if rows.is_empty() {
                    self.index.remove_mut(term);
                }
            }
        }
    }

    /// Returns the hashes of the terms under which an entry is indexed, sorted.
    fn terms(&self, entry: &Entry) -> Vec<u64> {
        let labels = entry.labels().filter(|(key, _)| self.labels.has_row(key, entry));
        let labels = labels.map(|(key, value)| hashed(Term::Label(key, value)));
        let mut terms: Vec<u64> = labels.chain(entry.path_terms().iter().copied()).collect();
        terms.sort_unstable();
        terms
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
