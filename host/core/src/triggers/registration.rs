//! The reconcilers, whose objects are keys.

use std::sync::Arc;

use foldhash::HashSet;

use super::compare::Compare;
use crate::{
    applied_fields::manager::{FieldManagers, Home, Owner},
    contract::Kind,
    grant::{DeclaredReconciler, Selected},
    key::NamespacedName,
    queue::Key,
    store::{Entry, Stores},
};

/// A reconciler: each object in its selection is a key.
#[derive(Clone, Debug)]
pub struct Registration {
    processor: Arc<str>,
    of: Arc<DeclaredReconciler>,
    /// The namespace and name of the Processor in the names of field managers; `None` if it adds no
    /// finalizers.
    writes_as: Option<(NamespacedName, Home)>,
}

// === impl Registration ===

impl Registration {
    pub fn new(processor: &Arc<str>, of: &Arc<DeclaredReconciler>) -> Self {
        Self { processor: Arc::clone(processor), of: Arc::clone(of), writes_as: None }
    }

    /// Returns the name of the processor.
    pub fn processor(&self) -> &Arc<str> {
        &self.processor
    }

    /// Returns the reconciler.
    pub fn reconciler(&self) -> &Arc<DeclaredReconciler> {
        &self.of
    }

    /// Returns the keys of the objects in the stores, ordered by namespace and name.
    pub fn keys(&self, stores: &Stores) -> Vec<Key> {
        self.entries(stores).iter().map(|entry| self.key(entry)).collect()
    }

    /// Returns whether the keys of all objects in the stores fulfil a condition.
    pub fn all_keys(&self, stores: &Stores, fulfils: impl Fn(&Key) -> bool) -> bool {
        self.entries(stores).iter().all(|entry| fulfils(&self.key(entry)))
    }

    /// Returns the keys of the objects in the stores, ordered by `rank`.
    pub fn ranked_keys(&self, stores: &Stores, rank: impl Fn(&Entry) -> u64) -> Vec<Key> {
        let mut entries = self.entries(stores);
        entries.sort_by_cached_key(|entry| rank(entry));
        entries.iter().map(|entry| self.key(entry)).collect()
    }

    fn entries(&self, stores: &Stores) -> Vec<Arc<Entry>> {
        self.entries_of(stores, self.of.watched())
    }

    fn entries_of<'a>(
        &'a self,
        stores: &Stores,
        selections: impl Iterator<Item = &'a Arc<Selected>>,
    ) -> Vec<Arc<Entry>> {
        let has_finalizers = self.has_finalizers();
        let query = |of: &'a Arc<Selected>| if has_finalizers { &of.anywhere } else { &of.query };
        let mut there = self.of.found_in(stores, selections.map(query));
        there.retain(|entry| self.has(entry));
        there
    }

    /// Returns the keys of the objects in the stores that are its own and were not those of a
    /// former registration of the same reconciler.
    pub(super) fn entered(&self, former: Option<&Self>, stores: &Stores) -> Vec<Key> {
        let Some(former) = former else { return self.keys(stores) };
        let known: HashSet<&Arc<Selected>> = former.of.selections().iter().collect();
        let new = self.of.selections().iter().filter(|of| !known.contains(of));
        let mut there = self.entries_of(stores, new);
        there.retain(|entry| !former.has(entry));
        there.iter().map(|entry| self.key(entry)).collect()
    }

    /// Sets the namespace and name of the Processor. The names of its field managers show which
    /// finalizers it has added to objects.
    #[must_use]
    pub fn writing_as(self, namespace: &str, processor: &str, home: &Home) -> Self {
        let processor = NamespacedName::new(namespace, processor);
        Self { writes_as: Some((processor, home.clone())), ..self }
    }

    /// Returns whether an object is one of the reconciler's.
    fn has(&self, entry: &Entry) -> bool {
        self.of.selects(entry) || self.is_held(entry)
    }

    /// Returns the kind of the objects.
    pub(super) fn kind(&self) -> &Arc<Kind> {
        &self.of.spec.of.kind
    }

    fn has_finalizers(&self) -> bool {
        !self.of.spec.finalizers.is_empty()
    }

    /// Returns whether an object that is not selected holds a finalizer that the reconciler has
    /// added. The name of the finalizer does not prove it: another reconciler may have a finalizer
    /// of the same name on objects that this one never selects.
    fn is_held(&self, entry: &Entry) -> bool {
        let Some((processor, home)) = self.writes_as.as_ref().filter(|_| self.has_finalizers())
        else {
            return false;
        };
        if entry.own().is_empty() || !self.of.is_anywhere(entry) {
            return false;
        }
        let reference = entry.reference(&self.of.spec.of.kind);
        let managers = FieldManagers::new(&Owner {
            namespace: &processor.namespace,
            processor: &processor.name,
            reconciler: self.of.id.name(),
            object: &reference,
            home: home.of_writes_to(&reference.kind.cluster),
        });
        // This manager owns nothing but finalizers on the reconciled object.
        entry.own().iter().any(|own| *own.manager == *managers.edit)
    }

    fn key(&self, entry: &Entry) -> Key {
        Key::new(&self.processor, &self.of.id, entry.namespace(), entry.name())
    }

    /// Returns the key of a changed object, if the object is one of the reconciler's and has
    /// entered the selection or differs in the selected fields.
    pub(super) fn key_of(&self, compare: &mut Compare) -> Option<Key> {
        if *self.kind() != compare.change.kind {
            return None;
        }
        let new = compare.change.new.clone()?;
        let (mut was, mut is) = (false, false);
        for of in self.of.selections() {
            let (saw, sees) = compare.selects_once(&of.query);
            (was, is) = (was || saw, is || sees);
            if was && is {
                break;
            }
        }
        if !is && !self.is_held(&new) {
            return None;
        }
        let was_in = was || compare.change.old.as_ref().is_some_and(|old| self.is_held(old));
        (!was_in || compare.differ(&self.of.readable.fields, self.of.extent()))
            .then(|| self.key(&new))
    }
}
