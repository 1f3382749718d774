//! What is remembered of former writes, so that they are not sent again: per reconciled object, lost at a restart.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;

use crate::{contract::ObjectRef, own_fields::Pair};

/// The memory of all reconciled objects, by what their managers have in common.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<HashMap<String, HashMap<Place, Remembered>>>);

/// One manager on one object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) manager: String,
    pub(super) of: Identity,
}

/// An object, in whatever version of its kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    group: String,
    kind: String,
    namespace: Option<String>,
    name: String,
}

#[derive(Clone, Debug, Default)]
struct Remembered {
    /// The digest of a manifest, and what was ours after it was sent.
    sent: Option<(u128, Option<Pair>)>,
    /// The `resourceVersion` at which nothing that must be absent was there.
    nothing_present: Option<String>,
    /// The object of which something must be absent.
    absent_from: Option<ObjectRef>,
}

impl From<&ObjectRef> for Identity {
    fn from(of: &ObjectRef) -> Self {
        Self {
            group: of.kind.group.clone(),
            kind: of.kind.kind.clone(),
            namespace: of.namespace.clone(),
            name: of.name.clone(),
        }
    }
}

impl Memory {
    /// Remembers what a manifest led to, where the two cannot be compared.
    pub(super) fn sent(&self, key: &str, place: Place, manifest: u128, own: Option<Pair>) {
        let mut all = self.0.lock();
        if own.is_some_and(|own| own.values == manifest) {
            if let Some(remembered) = all.get_mut(key).and_then(|of_key| of_key.get_mut(&place)) {
                remembered.sent = None;
            }
            return;
        }
        all.entry(key.to_owned()).or_default().entry(place).or_default().sent =
            Some((manifest, own));
    }

    /// Whether a manifest led to just this.
    pub(super) fn led_to(
        &self,
        key: &str,
        place: &Place,
        manifest: u128,
        own: Option<Pair>,
    ) -> bool {
        self.0.lock().get(key).and_then(|of_key| of_key.get(place)?.sent) == Some((manifest, own))
    }

    /// Remembers that nothing was there that must be absent.
    pub(super) fn nothing_present(&self, key: &str, place: Place, resource_version: &str) {
        self.0
            .lock()
            .entry(key.to_owned())
            .or_default()
            .entry(place)
            .or_default()
            .nothing_present = Some(resource_version.to_owned());
    }

    /// Whether nothing was there at that `resourceVersion`.
    pub(super) fn is_nothing_present(
        &self,
        key: &str,
        place: &Place,
        resource_version: &str,
    ) -> bool {
        self.0
            .lock()
            .get(key)
            .and_then(|of_key| of_key.get(place)?.nothing_present.as_ref())
            .is_some_and(|known| known == resource_version)
    }

    /// Remembers whether something of an object must be absent. Says whether something must, or had to before.
    pub(super) fn absent_from(&self, key: &str, place: &Place, of: Option<&ObjectRef>) -> bool {
        let mut all = self.0.lock();
        if of.is_none() {
            let held = all.get_mut(key).and_then(|of_key| of_key.get_mut(place));
            return held.is_some_and(|held| held.absent_from.take().is_some());
        }
        let of_key = all.entry(key.to_owned()).or_default();
        of_key.entry(place.clone()).or_default().absent_from = of.cloned();
        true
    }

    /// Forgets what a run did not touch. Gives back from what objects something had to be absent, and for which manager.
    pub(super) fn keep_only(
        &self,
        key: &str,
        touched: &HashSet<Place>,
    ) -> Vec<(ObjectRef, String)> {
        let mut all = self.0.lock();
        let Some(of_key) = all.get_mut(key) else { return Vec::new() };
        let gone = of_key.extract_if(|place, _| !touched.contains(place)).filter_map(absence);
        let gone = gone.collect();
        if of_key.is_empty() {
            all.remove(key);
        }
        gone
    }

    /// Forgets a reconciled object. Gives back what [`Memory::keep_only`] does.
    pub(super) fn forget(&self, key: &str) -> Vec<(ObjectRef, String)> {
        self.0.lock().remove(key).into_iter().flatten().filter_map(absence).collect()
    }
}

fn absence((place, remembered): (Place, Remembered)) -> Option<(ObjectRef, String)> {
    Some((remembered.absent_from?, place.manager))
}
