//! The objects of one kind within one scope, and the rules by which reports change them.
//!
//! *Guarantees.* An object is never replaced by an older version of itself. A late event does not
//! bring a deleted object back. When a list ends, objects that are not in it are removed, unless
//! they are newer than the list.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use tokio::time::Instant;

use super::absence::Absences;
use super::entry::{Entry, NotKept, Shape};
use super::hashed;
use super::interned::Interned;
use super::named::Named;
use super::snapshot::Snapshot;
use super::tombstones::Tombstones;
use crate::json::Json;
use crate::path::{Fields, Path};

/// The most paths of a kind that are indexed because readers looked for them.
const MOST_PATHS: usize = 32;

/// An object's namespace and name.
type Place = (Box<str>, Box<str>);

/// A change: the object before and after.
pub(super) type Difference = (Option<Arc<Entry>>, Option<Arc<Entry>>);

/// The objects of one kind within one scope.
#[derive(Debug)]
pub(super) struct Table {
    /// The objects that readers see.
    current: Snapshot,
    listing: Option<Listing>,
    tombstones: Tombstones,
    /// The version that lists and the watch have reached: all changes up to it were seen.
    seen: u64,
    /// Our own writes, by version, that neither a list nor the watch has shown yet. If the watch
    /// shows a later version of any object first, the written object was deleted before the list
    /// from which the watch continues.
    unconfirmed: BTreeMap<u64, Place>,
    absences: Absences,
    interned: Interned,
}

/// A list that is running.
#[derive(Debug)]
struct Listing {
    /// The places in the list, hashed; sorted when the list ends.
    seen: Vec<u64>,
    /// The newest version in the list; the list itself is no older.
    newest: u64,
}

// === impl Table ===

impl Table {
    pub(super) fn new(shape: Arc<Shape>, absences: Absences) -> Self {
        Self {
            current: Snapshot::new(shape),
            listing: None,
            tombstones: Tombstones::default(),
            seen: 0,
            unconfirmed: BTreeMap::new(),
            absences,
            interned: Interned::default(),
        }
    }

    /// Creates an empty table with more fields and paths, to be listed and to replace this one.
    pub(super) fn successor(&self, fields: &Fields, matching: &BTreeSet<Path>) -> Self {
        // Paths by which the triggers find dependencies stay indexed.
        let held = self.current.shape.matching.iter().map(|(path, _)| path.clone());
        let paths: BTreeSet<Path> = held.chain(matching.iter().cloned()).collect();
        let shape = Shape::new(self.current.shape.fields.union(fields), paths);
        // The list is requested later, so it holds everything up to this version.
        Self { seen: self.seen, ..Self::new(shape, self.absences.clone()) }
    }

    /// Returns whether the table holds all these fields and paths, without a new list.
    pub(super) fn covers(&self, fields: &Fields, matching: &BTreeSet<Path>) -> bool {
        let shape = &self.current.shape;
        shape.fields.covers_all(fields) && matching.iter().all(|path| shape.can_match(path))
    }

    /// Returns whether this table can take over from `former`: its list has ended, and no object
    /// would move back to an older version. If an object would, an event that is still to come
    /// changes that.
    pub(super) fn can_follow(&self, former: &Self) -> bool {
        let is_known = |entry: &Arc<Entry>| {
            let (namespace, name) = entry.place();
            let newer = self.current.get(namespace, name).map(|held| held.revision());
            newer.unwrap_or(self.seen) >= entry.revision()
        };
        let is_past = |entry: &Arc<Entry>| {
            let (namespace, name) = entry.place();
            former.current.get(namespace, name).is_none()
                && former.tombstones.bar(namespace, name, entry.revision(), entry.uid())
        };
        self.current.is_complete()
            && former.current.rows().iter().all(is_known)
            && !self.current.rows().iter().any(is_past)
    }

    /// Takes over from a former table. Returns the changes that readers see by that.
    pub(super) fn follow(&mut self, former: &Self) -> Vec<Difference> {
        let mut differences = Vec::new();
        for old in former.current.rows().iter() {
            let (namespace, name) = old.place();
            let new = self.current.get(namespace, name);
            if new.is_none_or(|new| new.resource_version() != old.resource_version()) {
                differences.push((Some(Arc::clone(old)), new.cloned()));
            }
        }
        let is_new = |entry: &&Arc<Entry>| {
            let (namespace, name) = entry.place();
            former.current.get(namespace, name).is_none()
        };
        let new = self.current.rows().iter().filter(is_new);
        differences.extend(new.map(|new| (None, Some(Arc::clone(new)))));
        self.tombstones.inherit(&former.tombstones, |namespace, name| {
            self.current.get(namespace, name).is_none()
        });
        differences
    }

    /// Returns a snapshot of the objects, with the number of the last change.
    pub(super) fn snapshot(&mut self, sequence: u64) -> Snapshot {
        self.index_what_was_looked_for();
        let written = self.unconfirmed.last_key_value().map_or(0, |(revision, _)| *revision);
        self.current.at(sequence, self.seen.max(written))
    }

    /// Indexes the label keys and paths that readers have looked for.
    pub(super) fn index_what_was_looked_for(&mut self) {
        let paths = self.current.index_what_was_looked_for();
        self.index_paths(&paths);
    }

    /// Indexes paths that are within the kept fields, without a new list.
    pub(super) fn index_paths(&mut self, paths: &BTreeSet<Path>) {
        if paths.is_empty() {
            return;
        }
        let shape = &self.current.shape;
        let held: BTreeSet<&Path> = shape.matching.iter().map(|(path, _)| path).collect();
        let all: BTreeSet<Path> = held.iter().copied().chain(paths).cloned().collect();
        if all.len() == held.len() || all.len() > MOST_PATHS {
            return;
        }
        let shape = Shape::new(shape.fields.clone(), all);
        let again = |entry: &Arc<Entry>| {
            entry.with_shape(&shape).map_or_else(|_| Arc::clone(entry), Arc::new)
        };
        self.current.reshape(&shape, again);
    }

    pub(super) fn current(&self) -> &Snapshot {
        &self.current
    }

    pub(super) fn begin_list(&mut self) {
        self.listing = Some(Listing { seen: Vec::new(), newest: 0 });
    }

    /// Stores an object of the running list.
    pub(super) fn list_item<'a>(
        &mut self,
        object: impl Json<'a>,
    ) -> Result<Option<Difference>, NotKept> {
        let named = Named::of(object);
        if let Some(listing) = &mut self.listing {
            let ((namespace, name), revision) = (named.place(), named.revision());
            let held = self.current.get(namespace, name).map_or(0, |held| held.revision());
            if held <= revision {
                self.unconfirmed.remove(&held);
            }
            listing.seen.push(hashed::place(namespace, name));
            listing.newest = listing.newest.max(revision);
        }
        self.put(object, &named)
    }

    /// Ends the running list: objects that were not in it are removed. Returns the changes, and
    /// whether this was the first list.
    pub(super) fn end_list(&mut self) -> (Vec<Difference>, bool) {
        let Some(mut listing) = self.listing.take() else { return (Vec::new(), false) };
        listing.seen.sort_unstable();
        let is_missing = |entry: &&Arc<Entry>| {
            let (namespace, name) = entry.place();
            listing.seen.binary_search(&hashed::place(namespace, name)).is_err()
        };
        let missing = self.current.rows().iter().filter(is_missing);
        let mut gone = Vec::new();
        for entry in missing {
            // A write that may be newer than the list stays unconfirmed.
            let revision = entry.revision();
            if revision <= listing.newest || !self.unconfirmed.contains_key(&revision) {
                gone.push(boxed(entry.place()));
            }
        }
        self.seen = self.seen.max(listing.newest);
        let now = Instant::now();
        let mut differences = Vec::new();
        for place in gone {
            self.confirm((&place.0, &place.1));
            // Only versions up to the list's are certain to be outdated.
            differences.extend(self.take(&place, listing.newest, None, now));
        }
        (differences, self.current.complete())
    }

    /// Stores an object that a watch reports.
    pub(super) fn upsert<'a>(&mut self, object: impl Json<'a>) -> Result<Vec<Difference>, NotKept> {
        let named = Named::of(object);
        self.confirm(named.place());
        let put = self.put(object, &named)?;
        let mut differences: Vec<Difference> = put.into_iter().collect();
        differences.extend(self.passed(named.revision()));
        Ok(differences)
    }

    /// Stores an object that the API server returned for a write by this host.
    pub(super) fn wrote(&mut self, object: &Value) -> Result<Option<Difference>, NotKept> {
        let named = Named::of(object);
        let ((namespace, name), revision) = (named.place(), named.revision());
        let is_past = revision != 0 && revision <= self.seen;
        if is_past && self.current.get(namespace, name).is_none() {
            // The answer is late: the watch has already shown that the object is gone.
            return Ok(None);
        }
        let put = self.put(object, &named)?;
        if let Some((held, _)) = &put {
            self.unconfirmed.remove(&held.as_ref().map_or(0, |held| held.revision()));
            if !is_past && revision != 0 {
                self.unconfirmed.insert(revision, boxed(named.place()));
            }
        }
        Ok(put)
    }

    /// Removes an object that a write by this host moved out of the scope.
    pub(super) fn left(&mut self, object: &Value) -> Option<Difference> {
        let named = Named::of(object);
        let ((namespace, name), revision) = (named.place(), named.revision());
        let held = self.current.get(namespace, name)?;
        let last = held.revision().max(revision);
        if is_older(revision, last) {
            return None;
        }
        self.confirm(named.place());
        self.take(&boxed(named.place()), last, None, Instant::now())
    }

    /// Removes an object that was deleted or left the scope, given its last state.
    pub(super) fn delete<'a>(&mut self, object: impl Json<'a>) -> Vec<Difference> {
        let named = Named::of(object);
        let ((namespace, name), revision) = (named.place(), named.revision());
        self.confirm(named.place());
        let held = self.current.get(namespace, name).map_or(0, |held| held.revision());
        let mut differences = Vec::new();
        if !is_older(revision, held) {
            let place = boxed(named.place());
            differences.extend(self.take(&place, held.max(revision), None, Instant::now()));
        }
        differences.extend(self.passed(revision));
        differences
    }

    /// Removes an object after the API server has confirmed a deletion by this host.
    pub(super) fn deleted(
        &mut self,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
    ) -> Option<Difference> {
        let held = self.current.get(namespace, name);
        if let (Some(held), Some(uid)) = (held.and_then(|held| held.uid()), uid)
            && held != uid
        {
            return None;
        }
        let uid = uid.or_else(|| held.and_then(|held| held.uid())).map(Box::from);
        let last = held.map_or(0, |held| held.revision());
        self.confirm((namespace, name));
        self.take(&boxed((namespace, name)), last, uid, Instant::now())
    }

    /// Drops all objects without reporting changes, because the kind is not served any more.
    pub(super) fn clear(&mut self) {
        self.current = Snapshot::new(Arc::clone(&self.current.shape));
        self.listing = None;
        self.unconfirmed.clear();
    }

    /// Removes an object's known version from the unconfirmed writes.
    fn confirm(&mut self, (namespace, name): (&str, &str)) {
        if let Some(held) = self.current.get(namespace, name) {
            self.unconfirmed.remove(&held.revision());
        }
    }

    /// Stores an object, unless the known version is newer.
    fn put<'a, J: Json<'a>>(
        &mut self,
        object: J,
        named: &Named<'a, J>,
    ) -> Result<Option<Difference>, NotKept> {
        let ((namespace, name), revision) = (named.place(), named.revision());
        let uid = Some(named.uid).filter(|uid| !uid.is_empty());
        if self.tombstones.bar(namespace, name, revision, uid) {
            return Ok(None);
        }
        let held = self.current.get(namespace, name).cloned();
        let is_known = |held: &Arc<Entry>| {
            let same = revision != 0
                && held.revision() == revision
                && Arc::ptr_eq(held.shape(), &self.current.shape);
            same || is_older(revision, held.revision())
        };
        if held.as_ref().is_some_and(is_known) {
            return Ok(None);
        }
        let entry = Entry::new(object, named, &self.current.shape, &mut self.interned)?;
        let entry = Arc::new(entry.breaking(self.absences.broken(named.place(), object)));
        self.current.put(&entry);
        self.tombstones.remove(namespace, name);
        self.interned.drop_label_keys();
        let is_same = |held: &Arc<Entry>| {
            held.resource_version() == entry.resource_version()
                && (revision != 0 || held.json() == entry.json())
        };
        if held.as_ref().is_some_and(is_same) {
            // The version is the same, but more of it is kept now.
            return Ok(None);
        }
        Ok(Some((held, Some(entry))))
    }

    /// Removes an object and leaves a tombstone for the versions up to `last`.
    fn take(
        &mut self,
        place: &Place,
        last: u64,
        uid: Option<Box<str>>,
        now: Instant,
    ) -> Option<Difference> {
        self.tombstones.add(place.clone(), last, uid, now);
        let held = self.current.remove(&place.0, &place.1);
        held.map(|held| (Some(held), None))
    }

    /// Records that the watch has reached a version. The watch would have shown earlier versions,
    /// so objects whose unconfirmed writes it did not show are removed.
    fn passed(&mut self, revision: u64) -> Vec<Difference> {
        self.seen = self.seen.max(revision);
        let open = self.unconfirmed.split_off(&revision);
        let passed = std::mem::replace(&mut self.unconfirmed, open);
        let mut differences = Vec::new();
        for (written, place) in passed {
            if self.current.get(&place.0, &place.1).is_some_and(|held| held.revision() == written) {
                differences.extend(self.take(&place, written, None, Instant::now()));
            }
        }
        differences
    }
}

/// Returns whether a version is known to be older; never true for a version that is not a number.
fn is_older(revision: u64, than: u64) -> bool {
    revision != 0 && revision < than
}

fn boxed((namespace, name): (&str, &str)) -> Place {
    (namespace.into(), name.into())
}
