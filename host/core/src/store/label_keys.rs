//! The label keys that a store indexes, each for the processors whose queries use it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;

use super::{entry::Entry, place::NamespacedName};
use crate::contract::bounds::INDEXED_LABELS;

/// A loaded version of a processor, as a user of indexes. What is indexed for it alone is given back
/// once all clones are dropped, or [`IndexUser::end`] was called.
#[derive(Clone, Debug, Default)]
pub struct IndexUser(Arc<AtomicBool>);

/// The indexed label keys of a snapshot. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct LabelKeys {
    indexed: Arc<Keys>,
    changing: Option<Arc<Changing>>,
    /// The keys that queries used and that are not indexed yet for their user.
    requests: Arc<Mutex<Requests>>,
    /// True if users may have ended since the keys were last checked.
    is_outdated: bool,
}

/// A change of the indexed keys, which is made for a few objects at a time.
#[derive(Clone, Debug)]
pub(super) struct Changing {
    pub(super) keys: Keys,
    /// True if rows are added to the index, false if they are removed.
    pub(super) adds: bool,
    /// The last object for which the change was made.
    pub(super) upto: Option<NamespacedName>,
}

type Requests = Vec<(Box<str>, User)>;
/// Label keys, each with its users.
type Keys = BTreeMap<Box<str>, Vec<User>>;
type User = Weak<AtomicBool>;

// === impl IndexUser ===

impl PartialEq for IndexUser {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl IndexUser {
    /// Gives back what is indexed for this user alone.
    pub fn end(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is(&self, user: &User) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.0), user.as_ptr())
    }
}

// === impl LabelKeys ===

impl LabelKeys {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.indexed.len()
    }

    /// Returns whether all objects are indexed by the label key.
    pub(super) fn contains(&self, key: &str) -> bool {
        self.indexed.contains_key(key)
    }

    /// Returns whether the index has rows for an object's label with this key.
    pub(super) fn has_row(&self, key: &str, entry: &Entry) -> bool {
        let is_changed = |of: &&Arc<Changing>| of.keys.contains_key(key);
        self.contains(key)
            || self.changing.as_ref().filter(is_changed).is_some_and(|of| of.has_row(entry))
    }

    /// Returns whether a key is indexed for a user.
    pub(super) fn is_for(&self, key: &str, user: &IndexUser) -> bool {
        let users = self.indexed.get(key).into_iter().flatten();
        users.chain(self.added_for(key)).any(|of| user.is(of))
    }

    /// Returns whether no key is indexed for others only.
    pub(super) fn are_all_for(&self, user: &IndexUser) -> bool {
        let changing = self.changing.iter().flat_map(|of| of.keys.values());
        self.indexed.values().chain(changing).all(|users| users.iter().any(|of| user.is(of)))
    }

    /// Requests an index of a key for a user; it is built with the next snapshots and updates.
    pub(super) fn request(&self, key: &str, user: &IndexUser) {
        let mut requests = self.requests.lock();
        let his = || requests.iter().filter(|(_, by)| user.is(by));
        if his().count() < INDEXED_LABELS && !his().any(|(of, _)| **of == *key) {
            requests.push((key.into(), Arc::downgrade(&user.0)));
        }
    }

    /// Checks at the next snapshot or update whether keys have lost all their users.
    pub(super) fn check_users(&mut self) {
        self.is_outdated = true;
    }

    /// Begins the next change of the indexed keys unless one is being made, and returns it.
    pub(super) fn changing(&mut self) -> Option<&mut Changing> {
        if self.changing.is_none() {
            self.changing = self.begin().map(Arc::new);
        }
        self.changing.as_mut().map(Arc::make_mut)
    }

    /// Ends the change: it was made for all objects.
    pub(super) fn changed(&mut self) {
        if let Some(Changing { keys, adds: true, .. }) =
            self.changing.take().map(Arc::unwrap_or_clone)
        {
            Arc::make_mut(&mut self.indexed).extend(keys);
        }
    }

    fn begin(&mut self) -> Option<Changing> {
        if self.requests.lock().is_empty() && !self.is_outdated {
            return None;
        }
        self.is_outdated = false;
        let mut indexed = (*self.indexed).clone();
        for users in indexed.values_mut() {
            users.retain(|user| !is_over(user));
        }
        let unused: Keys = indexed.extract_if(.., |_, users| users.is_empty()).collect();
        if !unused.is_empty() {
            self.indexed = Arc::new(indexed);
            return Some(Changing { keys: unused, adds: false, upto: None });
        }
        let mut new = Keys::new();
        for (key, user) in std::mem::take(&mut *self.requests.lock()) {
            let is_his = |users: &Vec<User>| users.iter().any(|of| of.ptr_eq(&user));
            let held = indexed.values().chain(new.values()).filter(|users| is_his(users)).count();
            if is_over(&user) || held >= INDEXED_LABELS {
                continue;
            }
            let users = match indexed.get_mut(&key) {
                Some(users) => users,
                None => new.entry(key).or_default(),
            };
            if !is_his(users) {
                users.push(user);
            }
        }
        self.indexed = Arc::new(indexed);
        (!new.is_empty()).then_some(Changing { keys: new, adds: true, upto: None })
    }

    fn added_for(&self, key: &str) -> impl Iterator<Item = &User> {
        let adds = self.changing.as_ref().filter(|of| of.adds);
        adds.and_then(|of| of.keys.get(key)).into_iter().flatten()
    }
}

// === impl Changing ===

impl Changing {
    fn has_row(&self, entry: &Entry) -> bool {
        self.adds == (Some(entry.place()) <= self.upto.as_ref())
    }
}

fn is_over(user: &User) -> bool {
    user.upgrade().is_none_or(|is_over| is_over.load(Ordering::Relaxed))
}
