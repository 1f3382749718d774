//! The index of the dependencies on one kind, by properties that a changed object has.

use std::collections::{BTreeSet, hash_map::Entry};
use std::sync::Arc;

use super::compare::Compare;
use crate::queue::Key;
use crate::store::{Change, Query, StoreId};
use crate::view::{Anchor, Concern, Interest};

/// The number of dependencies in one block: a few pages of memory, since a kind that is hardly read
/// has a block too.
const BLOCK: usize = 64;

/// The dependencies on one kind.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// The dependencies by number, in blocks: those that are there are not moved when more come, as
    /// there may be hundreds of thousands.
    interests: Vec<Vec<Option<Registered>>>,
    free: Vec<u32>,
    /// The dependencies by anchor, in a map with a fast hash: the parts of an anchor that people
    /// choose are hashed with a seed already.
    by_anchor: foldhash::HashMap<Anchor, Ids>,
}

/// The dependencies of one anchor. Most anchors have one; some have one for each key.
#[derive(Debug)]
enum Ids {
    One(u32),
    Many(BTreeSet<u32>),
}

/// A dependency of a key.
#[derive(Debug)]
pub(super) struct Registered {
    pub(super) key: Key,
    pub(super) interest: Interest,
    /// Queries for what the key's run has written, which is not pruned. Empty unless the dependency
    /// is on what would be pruned.
    written: Box<[Arc<Query>]>,
}

// === impl Index ===

impl Index {
    pub(super) fn insert(&mut self, registered: Registered) -> u32 {
        let anchor = registered.interest.anchor;
        let id = self.free.pop().unwrap_or_else(|| self.grow());
        if let Some(slot) = self.slot(id) {
            *slot = Some(registered);
        }
        self.by_anchor.entry(anchor).and_modify(|ids| ids.insert(id)).or_insert(Ids::One(id));
        id
    }

    /// Adds a slot and returns its number.
    fn grow(&mut self) -> u32 {
        if self.interests.last().is_none_or(|last| last.len() == BLOCK) {
            self.interests.push(Vec::with_capacity(BLOCK));
        }
        let full = (self.interests.len() - 1) * BLOCK;
        let last = self.interests.last_mut();
        let at = last.map_or(0, |last| {
            last.push(None);
            last.len() - 1
        });
        u32::try_from(full + at).unwrap_or(u32::MAX)
    }

    fn slot(&mut self, id: u32) -> Option<&mut Option<Registered>> {
        self.interests.get_mut(id as usize / BLOCK)?.get_mut(id as usize % BLOCK)
    }

    fn get(&self, id: u32) -> Option<&Registered> {
        self.interests.get(id as usize / BLOCK)?.get(id as usize % BLOCK)?.as_ref()
    }

    pub(super) fn remove(&mut self, id: u32) {
        let Some(registered) = self.slot(id).and_then(Option::take) else { return };
        self.free.push(id);
        let anchor = registered.interest.anchor;
        if let Entry::Occupied(mut ids) = self.by_anchor.entry(anchor)
            && !ids.get_mut().remove(id)
        {
            ids.remove();
        }
    }

    /// Returns all dependencies that a change may concern. The cost grows with their number.
    pub(super) fn candidates<'a>(
        &'a self,
        change: &Change,
    ) -> impl Iterator<Item = &'a Registered> {
        let entries = change.old.iter().chain(&change.new);
        let anchors = entries.flat_map(|entry| Anchor::all_of(entry)).chain([Anchor::Any]);
        // An object has most anchors before and after the change, and many keys may have the same
        // anchor.
        let anchors: BTreeSet<Anchor> = anchors.collect();
        let found = anchors.iter().filter_map(|anchor| self.by_anchor.get(anchor));
        let ids: BTreeSet<u32> = found.flat_map(Ids::iter).collect();
        let (store, sequence) = (change.store, change.sequence);
        ids.into_iter()
            .filter_map(|id| self.get(id))
            .filter(move |registered| registered.is_open(store, sequence))
    }

    /// Returns the keys that have read from a store.
    pub(super) fn keys_of(&self, store: StoreId) -> impl Iterator<Item = &Key> {
        let of_store = move |registered: &&Registered| registered.interest.store == Some(store);
        self.interests.iter().flatten().flatten().filter(of_store).map(|registered| &registered.key)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.interests.iter().flatten().flatten().map(|registered| &registered.key)
    }
}

// === impl Ids ===

impl Ids {
    fn insert(&mut self, id: u32) {
        match self {
            Self::One(held) => *self = Self::Many(BTreeSet::from([*held, id])),
            Self::Many(held) => drop(held.insert(id)),
        }
    }

    /// Removes a number. Returns whether one is left.
    fn remove(&mut self, id: u32) -> bool {
        match self {
            Self::One(held) => *held != id,
            Self::Many(held) => {
                held.remove(&id);
                !held.is_empty()
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = u32> {
        let (one, many) = match self {
            Self::One(id) => (Some(*id), None),
            Self::Many(ids) => (None, Some(ids)),
        };
        one.into_iter().chain(many.into_iter().flatten().copied())
    }
}

// === impl Registered ===

impl Registered {
    /// Returns the dependencies of a key: what its run has read and written.
    pub(super) fn all_of(key: &Key, interests: Vec<Interest>) -> Vec<Self> {
        let written: Vec<_> = interests.iter().map(|of| written_of_kind(of, &interests)).collect();
        let registered = interests.into_iter().zip(written);
        registered.map(|(interest, written)| Self { key: key.clone(), interest, written }).collect()
    }

    /// Returns whether a change in this store, with this number, is one that the run has not seen.
    fn is_open(&self, store: crate::store::StoreId, sequence: u64) -> bool {
        self.interest.store.is_none_or(|held| held == store)
            && self.interest.sequence.is_none_or(|seen| seen < sequence)
    }

    /// Returns whether a change may concern this dependency; `candidates` answers this for all.
    pub(super) fn is_about(&self, change: &Change) -> bool {
        let selects = |entry: &crate::store::Entry| self.interest.concern.query().matches(entry);
        self.interest.kind == change.kind
            && self.is_open(change.store, change.sequence)
            && change.old.iter().chain(&change.new).any(|entry| selects(entry))
    }

    /// Returns whether only the last state of an object counts, not each change on the way to it.
    pub(super) fn is_state(&self) -> bool {
        matches!(self.interest.concern, Concern::Written { .. })
    }

    pub(super) fn concerns(&self, compare: &mut Compare<'_>) -> bool {
        let is_written = || {
            let new = compare.change.new.as_ref();
            new.is_some_and(|new| self.written.iter().any(|query| query.matches(new)))
        };
        match &self.interest.concern {
            Concern::Pruned { .. } if is_written() => false,
            concern => compare.concerns(concern, &self.key),
        }
    }
}

/// Returns queries for what the same run has written of the kind, if the dependency is on what
/// would be pruned.
fn written_of_kind(interest: &Interest, all: &[Interest]) -> Box<[Arc<Query>]> {
    let Concern::Pruned { .. } = interest.concern else { return Box::default() };
    let of_kind = all.iter().filter(|held| held.kind == interest.kind);
    let written = of_kind.filter_map(|held| match &held.concern {
        Concern::Written { query, .. } => Some(Arc::clone(query)),
        _ => None,
    });
    written.collect()
}
