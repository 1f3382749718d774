//! What is known of one kind within one scope at one moment. Immutable where it is read; copies cost nothing.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::entry::{Entry, Shape, path_key};
use super::hashed::{self, Space};
use super::query::Query;
use super::sorted::Sorted;
use super::table::postings;
use crate::path::Path;

/// Terms are compared by how many objects have them up to this number, then the first one is taken.
const WORTH_COUNTING: usize = 64;

/// How many label keys of a kind are indexed at most; selectors with others look at all objects.
const MOST_INDEXED: usize = 256;

/// The objects of one kind within one scope at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    rows: Sorted<Arc<Entry>>,
    /// By term, then in the order of the rows.
    index: Sorted<Posting>,
    /// The label keys (and the key of names) that are indexed besides the shape's paths.
    indexed: Arc<HashSet<u64>>,
    /// What was looked for and is not indexed yet.
    looked_for: Arc<Mutex<LookedFor>>,
    /// What every entry holds at least.
    pub(super) shape: Arc<Shape>,
    /// Whether the first list has ended.
    pub(super) complete: bool,
    /// The number of the last change that is in it.
    sequence: u64,
    /// The newest resource version that its table had been shown.
    revision: u64,
}

/// What readers have looked for.
#[derive(Debug, Default)]
struct LookedFor {
    /// Label keys, and the key of names.
    keys: HashSet<u64>,
    paths: BTreeSet<Path>,
}

/// An entry under one of its terms.
#[derive(Clone, Debug)]
pub(super) struct Posting {
    pub(super) term: u64,
    pub(super) entry: Arc<Entry>,
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
        }
    }

    /// A copy, with the number of the last change and the newest version that was shown.
    pub(super) fn at(&self, sequence: u64, revision: u64) -> Self {
        Self { sequence, revision, ..self.clone() }
    }

    /// The newest resource version that lists, the watch or a write of ours had shown; 0 where these are no numbers.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The number of the last change that is in it.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether all objects are in it.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// What every entry holds at least.
    pub fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// One object; the namespace of a cluster-scoped one is empty.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<Entry>> {
        self.rows.get(|entry| entry.order(namespace, name))
    }

    /// The selected objects, ordered by namespace and name, from the first one after a place. The cost follows the number of
    /// objects that have the rarest of the wanted texts and labels; a label that was never asked for is indexed from the
    /// next snapshot on.
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
        // Of the namespace's first object and the place to go on from, the later one.
        let first = after
            .into_iter()
            .chain(namespace.map(|namespace| (namespace, "")))
            .max()
            .unwrap_or_default();
        let is_within = move |entry: &&Arc<Entry>| {
            namespace.is_none_or(|namespace| entry.namespace().unwrap_or_default() == namespace)
        };
        if let Some(term) = self.rarest(query) {
            let postings = self.index.from(move |posting| posting.order(term, first.0, first.1));
            let of_term = postings
                .take_while(move |posting| posting.term == term)
                .map(|posting| &posting.entry);
            return Box::new(of_term.take_while(is_within).filter(is_after));
        }
        Box::new(
            self.rows
                .from(move |entry| entry.order(first.0, first.1))
                .take_while(is_within)
                .filter(is_after),
        )
    }

    /// Of the wanted terms that are indexed, the one that the fewest objects have.
    fn rarest(&self, query: &Query) -> Option<u64> {
        let count = |term: u64, most: usize| {
            let from = self.index.from(move |posting| posting.term.cmp(&term));
            from.take_while(|posting| posting.term == term).take(most).count()
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
            return terms.pop();
        }
        let mut rarest = (None, WORTH_COUNTING);
        for term in terms {
            let found = count(term, rarest.1);
            if rarest.0.is_none() || found < rarest.1 {
                rarest = (Some(term), found);
            }
        }
        rarest.0
    }

    /// A term that every object which the query selects has, now and later.
    pub(crate) fn anchor(&self, query: &Query) -> Option<u64> {
        let is_kept = |key: &u64| self.shape.indexes(*key) || !query.is_of_path(*key);
        query.terms().find(|(key, _)| is_kept(key)).map(|(_, term)| term)
    }

    /// The same objects, each as it is given back.
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

    pub(super) fn index_bytes(&self) -> usize {
        self.rows.bytes() + self.index.bytes()
    }

    pub(super) fn put(&mut self, entry: &Arc<Entry>) {
        let held = self.rows.insert(Arc::clone(entry), |held| held.order_to(entry));
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
        for old in postings(&held, &self.indexed) {
            self.index.remove(|posting| posting.order_to(&old));
        }
        Some(held)
    }

    /// Indexes the labels that a reader has looked for; says which paths one has looked for.
    pub(super) fn index_what_was_looked_for(&mut self) -> BTreeSet<Path> {
        let looked_for = std::mem::take(&mut *self.looked_for.lock());
        let keys = looked_for.keys.into_iter().filter(|key| !self.indexed.contains(key));
        let keys: HashSet<u64> = keys.collect();
        if keys.is_empty() {
            return looked_for.paths;
        }
        for entry in self.rows.iter() {
            let labels =
                entry.label_terms().filter(|(key, _)| keys.contains(key)).map(|(_, term)| term);
            for term in labels.chain(name_term(entry, &keys)) {
                let posting = Posting { term, entry: Arc::clone(entry) };
                let order = posting.clone();
                self.index.insert(posting, |held| held.order_to(&order));
            }
        }
        Arc::make_mut(&mut self.indexed).extend(keys);
        looked_for.paths
    }
}

/// The term of an entry's name, where names are indexed.
pub(super) fn name_term(entry: &Entry, indexed: &HashSet<u64>) -> Option<u64> {
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
