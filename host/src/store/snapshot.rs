//! The objects of one kind within one scope at one moment. Immutable for readers; clones cost
//! nothing.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::entry::{Entry, Shape, path_key};
use super::event::StoreId;
use super::hashed::{self, Space};
use super::query::Query;
use super::scope::Scope;
use super::sorted::Sorted;
use crate::contract::Kind;
use crate::path::{Fields, Path};

/// The number of objects up to which terms are compared; of terms with more, the first is used.
const WORTH_COUNTING: usize = 64;

/// The number of objects that are checked one by one rather than counting another term.
const FEW: usize = 2;

/// The most label keys of a kind that are indexed; selectors with other keys check all objects.
const MOST_INDEXED: usize = 256;

/// The number of samples for the estimate of a snapshot's size with other fields: within a tenth in
/// most cases, and at most 64 MiB of JSON are parsed for it.
const SAMPLED: usize = 64;

/// The bytes that an entry takes beside its own: its places in the list and in indexes.
const PLACES: usize = 64;

/// The objects of one kind within one scope at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    rows: Sorted<Arc<Entry>>,
    /// Sorted by term, then in the order of `rows`. Empty until the first list has ended, and built
    /// then in one go.
    index: Sorted<Posting>,
    /// The label keys (and the key of names) that are indexed besides the shape's paths.
    indexed: Arc<BTreeSet<u64>>,
    /// The keys and paths that readers looked for and that are not indexed yet.
    looked_for: Arc<Mutex<LookedFor>>,
    /// The parts that every entry holds at least.
    pub(super) shape: Arc<Shape>,
    /// True if the first list has ended.
    pub(super) complete: bool,
    /// The number of the last change in this snapshot.
    sequence: u64,
    /// The newest resource version that was reported to the table.
    revision: u64,
    /// The estimated bytes of the entries, with their places in lists and indexes.
    held: usize,
}

/// The keys and paths that readers have looked for.
#[derive(Debug, Default)]
struct LookedFor {
    /// Label keys, and the key of names.
    keys: BTreeSet<u64>,
    paths: BTreeSet<Path>,
}

/// An entry under one of its terms.
#[derive(Clone, Debug)]
struct Posting {
    term: u64,
    entry: Arc<Entry>,
}

/// A kind's stores at one moment.
#[derive(Clone, Debug)]
pub(crate) struct KindSnapshot {
    pub(crate) kind: Arc<Kind>,
    pub(crate) served: Option<bool>,
    pub(crate) unavailable: Option<Arc<str>>,
    pub(crate) stores: Vec<(StoreId, Arc<Scope>, Snapshot)>,
}

// === impl Snapshot ===

impl Snapshot {
    pub(super) fn new(shape: Arc<Shape>) -> Self {
        Self {
            rows: Sorted::default(),
            index: Sorted::default(),
            indexed: Arc::default(),
            looked_for: Arc::default(),
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

    /// Returns the newest resource version that lists, the watch or a write by this host have
    /// shown; 0 if versions are not numbers.
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
        self.rows.len()
    }

    /// Returns whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns one object, if it exists; the namespace of a cluster-scoped object is empty.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<Entry>> {
        self.rows.get(|entry| entry.order(namespace, name))
    }

    /// Returns the selected objects, ordered by namespace and name, from the first one after a
    /// place.
    ///
    /// The cost follows the number of objects that have the rarest of the wanted texts and labels;
    /// a label that was not asked for before is indexed from the next snapshot on.
    pub fn select<'a>(
        &'a self,
        query: &'a Query,
        after: Option<(&'a str, &'a str)>,
    ) -> impl Iterator<Item = &'a Arc<Entry>> {
        self.candidates(query, after).filter(|entry| query.matches(entry))
    }

    fn candidates<'a>(
        &'a self,
        query: &'a Query,
        after: Option<(&'a str, &'a str)>,
    ) -> Box<dyn Iterator<Item = &'a Arc<Entry>> + 'a> {
        let namespace = query.namespace.as_deref();
        let is_after = move |entry: &&Arc<Entry>| {
            after.is_none_or(|(namespace, name)| entry.order(namespace, name).is_gt())
        };
        if let (Some(namespace), Some(name)) = (namespace, query.name.as_deref()) {
            return Box::new(self.get(namespace, name).into_iter().filter(is_after));
        }
        // The later of the namespace's first object and the place to continue from.
        let first = after
            .into_iter()
            .chain(namespace.map(|namespace| (namespace, "")))
            .max()
            .unwrap_or_default();
        let is_within =
            move |entry: &&Arc<Entry>| namespace.is_none_or(|namespace| entry.is_within(namespace));
        if let Some(of_term) = self.rarest(query, first).filter(|_| self.complete) {
            return Box::new(of_term.take_while(is_within).filter(is_after));
        }
        Box::new(
            self.rows
                .from(move |entry| entry.order(first.0, first.1))
                .take_while(is_within)
                .filter(is_after),
        )
    }

    /// Returns the objects from a place on that have the rarest of the query's indexed terms, if
    /// any is indexed.
    fn rarest<'a>(
        &'a self,
        query: &Query,
        first: (&'a str, &'a str),
    ) -> Option<impl Iterator<Item = &'a Arc<Entry>> + use<'a>> {
        let of_term = |term: u64| {
            let postings = self.index.from(move |posting| posting.order(term, first.0, first.1));
            let postings = postings.take_while(move |posting| posting.term == term);
            postings.map(|posting| &posting.entry)
        };
        let mut terms = Vec::new();
        for (key, term) in query.terms().chain(query.name_term()) {
            if self.indexed.contains(&key) || self.shape.indexes(key) {
                terms.push(term);
            } else if !query.is_of_path(key) && self.indexed.len() < MOST_INDEXED {
                self.looked_for.lock().keys.insert(key);
            }
        }
        for (path, _) in query.matching() {
            if !self.shape.indexes(path_key(path)) && self.shape.fields.covers(path) {
                self.looked_for.lock().paths.insert(path.clone());
            }
        }
        if terms.len() < 2 {
            return terms.pop().map(of_term);
        }
        let mut rarest = (None, WORTH_COUNTING);
        for entries in terms.into_iter().map(of_term) {
            let found = entries.clone().take(rarest.1).count();
            if rarest.0.is_none() || found < rarest.1 {
                rarest = (Some(entries), found);
            }
            // Looking for a rarer term would take longer than checking these objects.
            if rarest.1 <= FEW {
                break;
            }
        }
        rarest.0
    }

    /// Returns a term that every object selected by the query has, now and later, if any.
    pub(crate) fn anchor(&self, query: &Query) -> Option<u64> {
        let is_kept = |key: &u64| self.shape.indexes(*key) || !query.is_of_path(*key);
        query.terms().find(|(key, _)| is_kept(key)).map(|(_, term)| term)
    }

    /// Replaces each entry with the one that `again` returns, built with the new shape.
    pub(super) fn reshape(
        &mut self,
        shape: &Arc<Shape>,
        again: impl Fn(&Arc<Entry>) -> Arc<Entry>,
    ) {
        let entries: Vec<Arc<Entry>> = self.rows.iter().map(again).collect();
        for entry in &entries {
            self.put(entry);
        }
        self.shape = Arc::clone(shape);
    }

    pub(super) fn rows(&self) -> &Sorted<Arc<Entry>> {
        &self.rows
    }

    /// Returns roughly how many bytes the entries take, without visiting them.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Returns roughly how many bytes the entries would take with only these fields. The estimate
    /// samples entries at random, each in proportion to its size, so that the samples cannot be
    /// chosen from outside.
    pub(super) fn held_with(&self, fields: &Fields) -> usize {
        if self.held == 0 || fields.covers_all(&self.shape.fields) {
            return self.held;
        }
        let mut looked_at = [(); SAMPLED].map(|()| rand::random_range(0..self.held));
        looked_at.sort_unstable();
        let mut looked_at = looked_at.into_iter().peekable();
        let (mut before, mut held) = (0, 0);
        for entry in self.rows.iter() {
            before += held_by(entry);
            let times = std::iter::from_fn(|| looked_at.next_if(|at| *at < before)).count();
            if times > 0 {
                held += times * self.held / SAMPLED * entry.bytes_with(fields) / entry.bytes();
            }
        }
        held
    }

    pub(super) fn index_bytes(&self) -> usize {
        self.rows.bytes() + self.index.bytes()
    }

    /// Marks the snapshot as complete and builds its index. Returns whether it was incomplete
    /// before.
    pub(super) fn complete(&mut self) -> bool {
        let is_news = !std::mem::replace(&mut self.complete, true);
        if is_news {
            self.index = ordered(self.rows.iter().flat_map(|entry| postings(entry, &self.indexed)));
        }
        is_news
    }

    pub(super) fn put(&mut self, entry: &Arc<Entry>) {
        let held = self.rows.insert(Arc::clone(entry), |held| held.order_to(entry));
        self.held += held_by(entry);
        self.held -= held.as_ref().map_or(0, held_by);
        if !self.complete {
            return;
        }
        let new = postings(entry, &self.indexed);
        for old in held.iter().flat_map(|held| postings(held, &self.indexed)) {
            if !new.iter().any(|posting| posting.term == old.term) {
                self.index.remove(|posting| posting.order_to(&old));
            }
        }
        for posting in new {
            let order = posting.clone();
            self.index.insert(posting, |held| held.order_to(&order));
        }
    }

    pub(super) fn remove(&mut self, namespace: &str, name: &str) -> Option<Arc<Entry>> {
        let held = self.rows.remove(|entry| entry.order(namespace, name))?;
        self.held -= held_by(&held);
        if self.complete {
            for old in postings(&held, &self.indexed) {
                self.index.remove(|posting| posting.order_to(&old));
            }
        }
        Some(held)
    }

    /// Indexes the label keys that readers have looked for. Returns the paths that they have looked
    /// for.
    pub(super) fn index_what_was_looked_for(&mut self) -> BTreeSet<Path> {
        let looked_for = std::mem::take(&mut *self.looked_for.lock());
        let keys = looked_for.keys.into_iter().filter(|key| !self.indexed.contains(key));
        let keys: BTreeSet<u64> = keys.collect();
        if keys.is_empty() {
            return looked_for.paths;
        }
        if self.complete {
            let new =
                self.rows.iter().flat_map(|entry| postings_of(entry, asked_terms(entry, &keys)));
            self.index = ordered(self.index.iter().cloned().chain(new));
        }
        Arc::make_mut(&mut self.indexed).extend(keys);
        looked_for.paths
    }
}

// === impl KindSnapshot ===

impl KindSnapshot {
    /// Returns the store that covers a query, if any; a complete one that has the fields is
    /// preferred.
    pub(crate) fn covering(
        &self,
        query: &Query,
        fields: Option<&Fields>,
    ) -> Option<(StoreId, &Snapshot)> {
        let covering = self.stores.iter().filter(|(_, scope, _)| scope.covers(query));
        let rank = |snapshot: &Snapshot| {
            let has_fields = fields.is_none_or(|fields| snapshot.shape().fields.covers_all(fields));
            (snapshot.is_complete(), has_fields)
        };
        // With one store, `max_by` calls no comparison, so no fields are compared.
        let best = covering.max_by(|(.., one), (.., other)| rank(one).cmp(&rank(other)));
        best.map(|(id, _, snapshot)| (*id, snapshot))
    }
}

fn held_by(entry: &Arc<Entry>) -> usize {
    entry.bytes() + PLACES
}

// === postings ===

/// Sorts postings. The sort is stable: postings of one term stay in the order of their rows.
fn ordered(postings: impl Iterator<Item = Posting>) -> Sorted<Posting> {
    let mut all: Vec<Posting> = postings.collect();
    all.sort_by_key(|posting| posting.term);
    Sorted::of(all)
}

/// Returns an entry's postings: one for each term by which it is found.
fn postings(entry: &Arc<Entry>, indexed: &BTreeSet<u64>) -> Vec<Posting> {
    postings_of(entry, entry.matching_terms().chain(asked_terms(entry, indexed))).collect()
}

fn postings_of(
    entry: &Arc<Entry>,
    terms: impl Iterator<Item = u64>,
) -> impl Iterator<Item = Posting> {
    terms.map(|term| Posting { term, entry: Arc::clone(entry) })
}

/// Returns the terms of an entry's indexed labels, and of its name if names are indexed.
fn asked_terms(entry: &Entry, indexed: &BTreeSet<u64>) -> impl Iterator<Item = u64> {
    let labels = entry.label_terms().filter(|(key, _)| indexed.contains(key));
    labels.map(|(_, term)| term).chain(name_term(entry, indexed))
}

/// Returns the term of an entry's name, if names are indexed.
fn name_term(entry: &Entry, indexed: &BTreeSet<u64>) -> Option<u64> {
    if indexed.is_empty() {
        return None;
    }
    let key = hashed::key(Space::Place, "name");
    indexed.contains(&key).then(|| hashed::term(key, entry.name()))
}

// === impl Posting ===

impl Posting {
    fn order(&self, term: u64, namespace: &str, name: &str) -> Ordering {
        self.term.cmp(&term).then_with(|| self.entry.order(namespace, name))
    }

    fn order_to(&self, other: &Self) -> Ordering {
        self.term.cmp(&other.term).then_with(|| self.entry.order_to(&other.entry))
    }
}
