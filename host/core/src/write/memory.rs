//! Remembers former writes of each reconciled object, so that they are not sent again. Lost at a
//! restart.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;

use crate::{
    applied_fields::Pair,
    contract::{ObjectRef, SameObject},
};

/// The memory of all reconciled objects, by the identity of their managers.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<HashMap<String, HashMap<ManagedObject, Remembered>>>);

/// A field manager on an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ManagedObject {
    pub(super) manager: String,
    pub(super) of: SameObject<ObjectRef>,
}

#[derive(Clone, Debug, Default)]
struct Remembered {
    /// The digest of a manifest, and the digests of our own fields after it was sent.
    sent: Option<(u128, Option<Pair>)>,
    /// The `resourceVersion` at which no field of `absent` existed.
    nothing_present: Option<String>,
    /// The object of which fields must be absent.
    absent_from: Option<ObjectRef>,
}

impl Memory {
    /// Remembers our own fields after a manifest was applied, unless their digest equals that of
    /// the manifest: a later comparison then needs no memory.
    pub(super) fn sent(
        &self,
        key: &str,
        managed: ManagedObject,
        manifest: u128,
        own: Option<Pair>,
    ) {
        let mut all = self.0.lock();
        if own.is_some_and(|own| own.values == manifest) {
            if let Some(remembered) = all.get_mut(key).and_then(|of_key| of_key.get_mut(&managed)) {
                remembered.sent = None;
            }
            return;
        }
        all.entry(key.to_owned()).or_default().entry(managed).or_default().sent =
            Some((manifest, own));
    }

    /// Returns whether applying a manifest resulted in exactly these own fields.
    pub(super) fn led_to(
        &self,
        key: &str,
        managed: &ManagedObject,
        manifest: u128,
        own: Option<Pair>,
    ) -> bool {
        self.0.lock().get(key).and_then(|of_key| of_key.get(managed)?.sent) == Some((manifest, own))
    }

    /// Remembers the `resourceVersion` at which no field of `absent` existed.
    pub(super) fn nothing_present(
        &self,
        key: &str,
        managed: ManagedObject,
        resource_version: &str,
    ) {
        self.0
            .lock()
            .entry(key.to_owned())
            .or_default()
            .entry(managed)
            .or_default()
            .nothing_present = Some(resource_version.to_owned());
    }

    /// Returns whether no field of `absent` existed at that `resourceVersion`.
    pub(super) fn is_nothing_present(
        &self,
        key: &str,
        managed: &ManagedObject,
        resource_version: &str,
    ) -> bool {
        self.0
            .lock()
            .get(key)
            .and_then(|of_key| of_key.get(managed)?.nothing_present.as_ref())
            .is_some_and(|known| known == resource_version)
    }

    /// Remembers the object of which fields must be absent, or forgets it. Returns whether fields
    /// must be absent now, or had to be before.
    pub(super) fn absent_from(
        &self,
        key: &str,
        managed: &ManagedObject,
        of: Option<&ObjectRef>,
    ) -> bool {
        let mut all = self.0.lock();
        if of.is_none() {
            let held = all.get_mut(key).and_then(|of_key| of_key.get_mut(managed));
            return held.is_some_and(|held| held.absent_from.take().is_some());
        }
        let of_key = all.entry(key.to_owned()).or_default();
        of_key.entry(managed.clone()).or_default().absent_from = of.cloned();
        true
    }

    /// Forgets the entries that a run did not touch. Returns the objects of which fields had to be
    /// absent, each with the manager.
    pub(super) fn keep_only(
        &self,
        key: &str,
        touched: &HashSet<ManagedObject>,
    ) -> Vec<(ObjectRef, String)> {
        let mut all = self.0.lock();
        let Some(of_key) = all.get_mut(key) else { return Vec::new() };
        let gone = of_key.extract_if(|managed, _| !touched.contains(managed)).filter_map(absence);
        let gone = gone.collect();
        if of_key.is_empty() {
            all.remove(key);
        }
        gone
    }

    /// Forgets a reconciled object. Returns the same as [`Memory::keep_only`].
    pub(super) fn forget(&self, key: &str) -> Vec<(ObjectRef, String)> {
        self.0.lock().remove(key).into_iter().flatten().filter_map(absence).collect()
    }
}

fn absence((managed, remembered): (ManagedObject, Remembered)) -> Option<(ObjectRef, String)> {
    Some((remembered.absent_from?, managed.manager))
}
