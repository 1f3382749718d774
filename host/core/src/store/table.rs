//! The objects of one kind within one scope, and the rules for applying lists, watch events and
//! writes.
//!
//! *Guarantees.* An object is never replaced by an older version of itself. A late event does not
//! bring a deleted object back. When a list ends, objects that are not in it are removed, unless
//! they are newer than the list.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use serde_json::Value;

use super::{
    absence::Absences,
    entry::{Entry, Shape},
    place::{NamespacedName, metadata, revision},
    snapshot::Snapshot,
    tombstones::Tombstones,
};
use crate::path::{Fields, Path};

/// A change: the object before and after.
pub(super) type Difference = (Option<Arc<Entry>>, Option<Arc<Entry>>);

/// The changes that readers see after an update.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) differences: Vec<Difference>,
    /// True if the first list ended, or a table with more fields replaced this one.
    pub(super) is_complete: bool,
}

/// An update of a table, by a watch or by a write of this host.
#[derive(Clone, Copy, Debug)]
pub(super) enum Update<'a> {
    /// A list of all objects begins.
    BeginList,
    /// An object of the running list.
    ListItem(&'a Value),
    /// The running list ends.
    EndList,
    /// The watch reports an object as added or modified.
    Upsert(&'a Value),
    /// The watch reports the last state of an object that was deleted or left the scope.
    Delete(&'a Value),
    /// The API server returned an object for a write by this host.
    Wrote(&'a Value),
    /// The API server returned an object that a write by this host moved out of the scope.
    Left(&'a Value),
    /// The API server confirmed that a deletion by this host removed an object.
    Deleted(&'a NamespacedName, Option<&'a str>),
}

/// The objects of one kind within one scope.
#[derive(Debug)]
pub(super) struct Table {
    /// The objects that readers see.
    pub(super) current: Snapshot,
    listing: Option<Listing>,
    tombstones: Tombstones,
    /// The resource version that lists and the watch have reached: all changes up to it were
    /// reported.
    seen: u64,
    /// Writes by this host, by resource version, that neither a list nor the watch has confirmed.
    /// If the watch reports a later version of any object first, the written object was deleted
    /// before the list from which the watch continues.
    unconfirmed: BTreeMap<u64, NamespacedName>,
    absences: Absences,
}

/// A list that is running.
#[derive(Debug, Default)]
struct Listing {
    places: HashSet<NamespacedName>,
    /// The newest object version in the list: a lower bound of the list's own version.
    newest: u64,
}

// === impl Changes ===

impl<T: IntoIterator<Item = Difference>> From<T> for Changes {
    fn from(differences: T) -> Self {
        Self { differences: differences.into_iter().collect(), is_complete: false }
    }
}

// === impl Update ===

impl Update<'_> {
    /// Returns the name of the object that a write by this host changed, and its new resource
    /// version unless it is gone; `None` for an update by a watch.
    pub(super) fn written(&self) -> Option<(NamespacedName, Option<Box<str>>)> {
        match self {
            Self::Wrote(object) => {
                let version = metadata(object, "resourceVersion").into();
                Some((NamespacedName::of(object), Some(version)))
            }
            Self::Left(object) => Some((NamespacedName::of(object), None)),
            Self::Deleted(place, _) => Some(((*place).clone(), None)),
            _ => None,
        }
    }

    /// Returns the object to be stored, if any.
    pub(super) fn object(&self) -> Option<&Value> {
        match self {
            Self::ListItem(object) | Self::Upsert(object) | Self::Wrote(object) => Some(object),
            _ => None,
        }
    }

    /// Builds the entries of the object to be stored, one for each shape.
    pub(super) fn entries(&self, shapes: &[Arc<Shape>]) -> Vec<Entry> {
        let Some(object) = self.object() else { return Vec::new() };
        let entry = |shape| Entry::new(object, NamespacedName::of(object), shape);
        shapes.iter().map(entry).collect()
    }
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
        }
    }

    /// Creates an empty table with more fields and paths, which replaces this one once it is
    /// listed.
    pub(super) fn successor(&self, fields: &Fields, matching: &BTreeSet<Path>) -> Self {
        // Paths by which the triggers find dependencies stay indexed.
        let held = &self.current.shape;
        let held_paths = held.matching.iter().chain(matching).cloned().collect();
        let shape = Shape::new(held.fields.union(fields), held_paths);
        // The list starts later, so it includes all changes up to this version.
        Self { seen: self.seen, ..Self::new(shape, self.absences.clone()) }
    }

    /// Returns whether the table keeps these fields and indexes these paths, without a new list: a
    /// list adds one object at a time to an index.
    pub(super) fn covers(&self, fields: &Fields, matching: &BTreeSet<Path>) -> bool {
        let shape = &self.current.shape;
        shape.fields.covers_all(fields)
            && matching.iter().all(|path| shape.position(path).is_some())
    }

    /// Returns whether this table can replace `former`: its list has ended, and no object would
    /// move back to an older version. If one would, a later watch event resolves that.
    pub(super) fn can_follow(&self, former: &Self) -> bool {
        let is_known = |entry: &Arc<Entry>| {
            let newer = self.current.row(entry.place()).map(|held| held.revision());
            newer.unwrap_or(self.seen) >= entry.revision()
        };
        let is_past = |entry: &Arc<Entry>| {
            former.current.row(entry.place()).is_none()
                && former.tombstones.bar(entry.place(), entry.revision(), entry.uid())
        };
        self.current.is_complete()
            && former.current.entries().all(is_known)
            && !self.current.entries().any(is_past)
    }

    /// Replaces a former table. Returns the changes that readers see.
    pub(super) fn follow(&mut self, former: &Self) -> Vec<Difference> {
        let mut differences = Vec::new();
        for old in former.current.entries() {
            let new = self.current.row(old.place());
            if new.is_none_or(|new| new.resource_version() != old.resource_version()) {
                differences.push((Some(Arc::clone(old)), new.cloned()));
            }
        }
        let is_new = |entry: &&Arc<Entry>| former.current.row(entry.place()).is_none();
        let new = self.current.entries().filter(is_new);
        differences.extend(new.map(|new| (None, Some(Arc::clone(new)))));
        self.tombstones.inherit(&former.tombstones);
        differences
    }

    /// Returns a snapshot of the objects, with the number of the last change.
    pub(super) fn snapshot(&mut self, sequence: u64) -> Snapshot {
        self.current.index_labels();
        let written = self.unconfirmed.last_key_value().map_or(0, |(revision, _)| *revision);
        self.current.at(sequence, self.seen.max(written))
    }

    /// Returns whether an object is known in the same or a newer version.
    pub(super) fn is_known(&self, object: &Value) -> bool {
        let revision = revision(object);
        revision != 0 && revision <= self.revision_of(&NamespacedName::of(object))
    }

    /// Applies an update. Returns the changes that readers see. Takes the entry of its object from
    /// `entries`; if none has the shape of the table, builds one.
    pub(super) fn update(&mut self, update: Update<'_>, entries: &mut Vec<Entry>) -> Changes {
        self.current.index_labels();
        match update {
            Update::BeginList => {
                self.listing = Some(Listing::default());
                Changes::default()
            }
            Update::ListItem(object) => self.list_item(object, entries).into(),
            Update::EndList => self.end_list(),
            Update::Upsert(object) => self.upsert(object, entries).into(),
            Update::Delete(object) => self.delete(object).into(),
            Update::Wrote(object) => self.wrote(object, entries).into(),
            Update::Left(object) => self.left(object).into(),
            Update::Deleted(place, uid) => self.deleted(place, uid).into(),
        }
    }

    /// Stores an object of the running list.
    fn list_item(&mut self, object: &Value, entries: &mut Vec<Entry>) -> Option<Difference> {
        let (place, revision) = (NamespacedName::of(object), revision(object));
        let held = self.revision_of(&place);
        if let Some(listing) = &mut self.listing {
            if held <= revision {
                self.unconfirmed.remove(&held);
            }
            listing.places.insert(place.clone());
            listing.newest = listing.newest.max(revision);
        }
        self.put(object, place, entries)
    }

    /// Ends the running list: objects that were not in it are removed. The first list makes the
    /// table complete.
    fn end_list(&mut self) -> Changes {
        let Some(Listing { places, newest }) = self.listing.take() else {
            return Changes::default();
        };
        let is_gone = |entry: &&Arc<Entry>| {
            // A write that may be newer than the list stays unconfirmed.
            let is_newer =
                entry.revision() > newest && self.unconfirmed.contains_key(&entry.revision());
            !places.contains(entry.place()) && !is_newer
        };
        let gone = self.current.entries().filter(is_gone).map(|entry| entry.place().clone());
        let gone: Vec<NamespacedName> = gone.collect();
        self.seen = self.seen.max(newest);
        let mut differences = Vec::new();
        for place in gone {
            // Only versions up to the list's are certain to be outdated.
            differences.extend(self.take(place, newest, None));
        }
        let was_complete = std::mem::replace(&mut self.current.complete, true);
        Changes { differences, is_complete: !was_complete }
    }

    /// Stores an object that a watch reports.
    fn upsert(&mut self, object: &Value, entries: &mut Vec<Entry>) -> Vec<Difference> {
        let place = NamespacedName::of(object);
        self.confirm(&place);
        let put = self.put(object, place, entries);
        put.into_iter().chain(self.passed(revision(object))).collect()
    }

    /// Stores an object that the API server returned for a write by this host.
    fn wrote(&mut self, object: &Value, entries: &mut Vec<Entry>) -> Option<Difference> {
        let (place, revision) = (NamespacedName::of(object), revision(object));
        let is_past = revision != 0 && revision <= self.seen;
        let held = self.current.row(&place).map(|held| held.revision());
        if is_past && held.is_none() {
            // The answer is late: the watch has already reported the deletion.
            return None;
        }
        let put = self.put(object, place.clone(), entries)?;
        self.unconfirmed.remove(&held.unwrap_or_default());
        if !is_past && revision != 0 {
            self.unconfirmed.insert(revision, place);
        }
        Some(put)
    }

    /// Removes an object that a write by this host moved out of the scope.
    fn left(&mut self, object: &Value) -> Option<Difference> {
        let (place, revision) = (NamespacedName::of(object), revision(object));
        let last = self.current.row(&place)?.revision().max(revision);
        if is_older(revision, last) { None } else { self.take(place, last, None) }
    }

    /// Removes an object that was deleted or left the scope, given its last state.
    fn delete(&mut self, object: &Value) -> Vec<Difference> {
        let (place, revision) = (NamespacedName::of(object), revision(object));
        self.confirm(&place);
        let held = self.revision_of(&place);
        let is_late = is_older(revision, held);
        let taken = if is_late { None } else { self.take(place, held.max(revision), None) };
        taken.into_iter().chain(self.passed(revision)).collect()
    }

    /// Removes an object after the API server has confirmed a deletion by this host.
    fn deleted(&mut self, place: &NamespacedName, uid: Option<&str>) -> Option<Difference> {
        let held = self.current.row(place);
        let held_uid = held.and_then(|held| held.uid());
        if uid.is_some() && held_uid.is_some() && held_uid != uid {
            return None;
        }
        let uid = uid.or(held_uid).map(Box::from);
        self.take(place.clone(), self.revision_of(place), uid)
    }

    /// Drops all objects without reporting changes, because the kind is not served any more.
    pub(super) fn clear(&mut self) {
        self.current = Snapshot::new(Arc::clone(&self.current.shape));
        self.listing = None;
        self.unconfirmed.clear();
    }

    /// Removes an object's known version from the unconfirmed writes.
    fn confirm(&mut self, place: &NamespacedName) {
        self.unconfirmed.remove(&self.revision_of(place));
    }

    /// Returns the known version of an object as a number; 0 if there is none.
    fn revision_of(&self, place: &NamespacedName) -> u64 {
        self.current.row(place).map_or(0, |held| held.revision())
    }

    /// Stores an object, unless the known version is the same or newer.
    fn put(
        &mut self,
        object: &Value,
        place: NamespacedName,
        entries: &mut Vec<Entry>,
    ) -> Option<Difference> {
        let (revision, uid) = (revision(object), metadata(object, "uid"));
        if self.tombstones.bar(&place, revision, Some(uid).filter(|uid| !uid.is_empty())) {
            return None;
        }
        let held = self.current.row(&place).cloned();
        if revision != 0 && held.as_ref().is_some_and(|held| revision <= held.revision()) {
            return None;
        }
        // Fields that must be absent are looked for under the lock: a writer that registers some
        // afterwards finds this version of the object in the store.
        let broken = self.absences.broken(&place, object);
        let shape = &self.current.shape;
        let built = entries.iter().position(|entry| Arc::ptr_eq(entry.shape(), shape));
        let entry = built.map(|at| entries.swap_remove(at));
        let mut entry = entry.unwrap_or_else(|| Entry::new(object, place, shape));
        entry.broken = broken;
        let entry = Arc::new(entry);
        if held.as_ref().is_some_and(|held| held.json() == entry.json()) {
            return None;
        }
        self.current.put(&entry);
        Some((held, Some(entry)))
    }

    /// Removes an object and leaves a tombstone for the versions up to `last`.
    fn take(
        &mut self,
        place: NamespacedName,
        last: u64,
        uid: Option<Box<str>>,
    ) -> Option<Difference> {
        self.confirm(&place);
        let held = self.current.remove(&place);
        self.tombstones.add(place, last, uid);
        held.map(|held| (Some(held), None))
    }

    /// Records that the watch has reached a version. Removes objects whose earlier writes are still
    /// unconfirmed: the watch would have reported these.
    fn passed(&mut self, revision: u64) -> Vec<Difference> {
        self.seen = self.seen.max(revision);
        let open = self.unconfirmed.split_off(&revision);
        let passed = std::mem::replace(&mut self.unconfirmed, open);
        let mut differences = Vec::new();
        for (written, place) in passed {
            if self.revision_of(&place) == written {
                differences.extend(self.take(place, written, None));
            }
        }
        differences
    }
}

/// Returns whether a version is known to be older; never true for a version that is not a number.
fn is_older(revision: u64, than: u64) -> bool {
    revision != 0 && revision < than
}
