//! The triggers: the dependencies of all runs, and the keys that a change queues again. Pure.
//!
//! *Guarantee.* A change of anything that a run has read or written, after the run has seen it,
//! queues the run's key again: at once if the run has ended, otherwise when it ends, by the causes
//! that `end` returns. This holds for every interleaving of changes and runs, because each store
//! numbers its changes: a snapshot knows the last number in it, and all events that arrive during
//! any run are kept until that run ends. `end` then compares the dependencies with the events after
//! the snapshots. Later events meet the registered dependencies, which carry the same numbers, so
//! that no change counts twice.
//!
//! *Assumption.* `begin` is called before the view of a run is made, and events are passed on in
//! the order of the stores.

mod compare;
mod index;
mod log;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use self::{compare::Compare, index::Index, log::Log};
use crate::{
    applied_fields::manager::{FieldManagers, Owner},
    contract::Kind,
    grant::DeclaredReconciler,
    key::{NamespacedName, ReconcilerId},
    queue::{ByProcessor, Cause, Key, Role, What},
    reads::{Dependency, DependsOn, IndexTerm, Reads, Wait},
    store::{Change, Claim, Entry, Event, StoreId, Stores},
};

/// The dependencies of all keys.
#[derive(Debug, Default)]
pub struct Triggers {
    /// The keys. The seeded fast hash of [`ByProcessor`] is enough: a user who can create the
    /// objects for an attack on the seed can overload the host with fewer.
    keys: ByProcessor<KeyState>,
    kinds: foldhash::HashMap<Arc<Kind>, OfKind>,
    reconcilers: Vec<Registration>,
    log: Log,
}

/// A run that has begun. [`Triggers::end`] must follow.
#[derive(Debug)]
#[must_use = "no change triggers the key until `end` is called"]
pub struct Began {
    key: Key,
    position: u64,
}

/// The dependencies and the state of one key.
#[derive(Debug, Default)]
struct KeyState {
    /// The position in the log at which the running run began, if any.
    running: Option<u64>,
    /// True if the key was removed while it ran.
    dropped: bool,
    /// The dependencies of the last run.
    dependencies: Box<[Dependency]>,
    waits: Box<[Arc<Kind>]>,
    /// True if the last run read the key's own object.
    follows_object: bool,
}

/// The dependencies on one kind.
#[derive(Debug, Default)]
struct OfKind {
    index: Index,
    /// Keys that wait for the kind; true if they wait for the cluster to serve it, false if they
    /// wait for its objects.
    waiting: BTreeMap<Key, bool>,
}

/// A reconciler: each object in its selection is a key.
#[derive(Clone, Debug)]
pub struct Registration {
    processor: Arc<str>,
    of: Arc<DeclaredReconciler>,
    /// The namespace and name of the Processor in the names of field managers; `None` if it adds no
    /// finalizers.
    writes_as: Option<NamespacedName>,
}

// === impl Triggers ===

impl Triggers {
    /// Returns triggers without keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a reconciler, replacing a former one of that name: from now on each of its objects
    /// is a key. Returns the keys of the objects in the stores, including objects that have left
    /// the selection and hold a finalizer of the reconciler.
    pub fn add_reconciler(&mut self, registration: Registration, stores: &Stores) -> Vec<Key> {
        let keys = registration.keys(stores);
        self.reconcilers.retain(|held| {
            held.processor != registration.processor || held.of.id != registration.of.id
        });
        self.reconcilers.push(registration);
        keys
    }

    /// Returns the keys of a processor that run, or whose dependencies are known.
    pub fn keys_of(&self, processor: &str) -> Vec<Key> {
        let of_processor = self.keys.of(processor).filter(|(_, state)| !state.dropped);
        of_processor.map(|(key, _)| key.clone()).collect()
    }

    /// Returns whether a key runs, or its dependencies are known.
    pub fn contains(&self, key: &Key) -> bool {
        self.keys.get(key).is_some_and(|state| !state.dropped)
    }

    /// Returns the number of keys of a processor that run, or whose dependencies are known. The
    /// cost grows with that number.
    pub fn count_of(&self, processor: &str) -> usize {
        self.keys.of(processor).filter(|(_, state)| !state.dropped).count()
    }

    /// Drops all keys of a reconciler. Runs in progress leave no dependencies behind.
    pub fn remove_reconciler(&mut self, processor: &str, reconciler: &ReconcilerId) {
        self.reconcilers.retain(|held| &*held.processor != processor || held.of.id != *reconciler);
        self.remove(processor, |key| key.reconciler() == reconciler);
    }

    /// Drops all keys of a processor. Runs in progress leave no dependencies behind.
    pub fn remove_processor(&mut self, processor: &str) {
        self.reconcilers.retain(|registration| &*registration.processor != processor);
        self.remove(processor, |_| true);
    }

    fn remove(&mut self, processor: &str, which: impl Fn(&Key) -> bool) {
        let keys = self.keys.of(processor).map(|(key, _)| key).filter(|key| which(key));
        for key in keys.cloned().collect::<Vec<_>>() {
            self.forget(&key);
            if let Some(state) = self.keys.get_mut(&key) {
                state.dropped = true;
            }
        }
    }

    /// Begins a run of a key. Must be called before the view of the run is made. Until `end`, no
    /// event queues the key.
    pub fn begin(&mut self, key: &Key) -> Began {
        let position = self.log.begin();
        let state = self.keys.get_or_default(key);
        state.running = Some(position);
        state.dropped = false;
        Began { key: key.clone(), position }
    }

    /// Ends a run, whether it succeeded or failed, and takes its dependencies out of `reads`.
    /// Returns the causes that the run has not seen: if there are any, the key must run again.
    pub fn end(&mut self, began: Began, reads: &mut Reads) -> Vec<Cause> {
        let Began { key, position } = began;
        self.drop_dependencies(&key);
        let dropped = self.keys.get(&key).is_none_or(|state| state.dropped);
        let dependencies = reads.take_dependencies().into_boxed_slice();
        let causes =
            if dropped { Vec::new() } else { self.missed(&key, position, reads, &dependencies) };
        self.log.end(position);
        if dropped || reads.is_last() {
            // An object that comes back is found by the `Registration` of its reconciler.
            self.keys.remove(&key);
            return causes;
        }
        self.register(key, dependencies, reads.waits());
        causes
    }

    /// Returns the keys that an event queues, each once. Running keys are not among them: `end`
    /// returns their causes.
    pub fn on_event(&mut self, event: &Event) -> Vec<(Key, Cause)> {
        self.log.push(event);
        match event {
            Event::Object(change) => self.on_change(change),
            // The watch event has already triggered all readers except the writer.
            Event::Claimed(_) => Vec::new(),
            Event::Known(kind) => self.on_known(kind, true),
            Event::Complete(kind) => self.on_known(kind, false),
            Event::Unknown(kind) => self.on_unknown(kind),
            Event::Closed(kind, store) => self.on_closed(kind, *store),
        }
    }

    /// Forgets the dependencies of a key's last run.
    pub fn forget(&mut self, key: &Key) {
        self.drop_dependencies(key);
        if self.keys.get(key).is_some_and(|state| state.running.is_none()) {
            self.keys.remove(key);
        }
    }

    fn on_change(&self, change: &Change) -> Vec<(Key, Cause)> {
        let mut compare = Compare::new(change);
        let mut found: Vec<(Key, Cause)> = Vec::new();
        if let Some(of_kind) = self.kinds.get(&change.kind) {
            let mut seen: foldhash::HashSet<&Key> = foldhash::HashSet::default();
            for (index_term, key) in of_kind.index.candidates(change) {
                if !seen.contains(key)
                    && let Some(state) = self.keys.get(key).filter(|state| state.running.is_none())
                    && let Some(hit) = state.hit(key, index_term, &mut compare)
                {
                    seen.insert(key);
                    found.push((key.clone(), cause(change, role(&hit.depends_on))));
                }
            }
        }
        let registered =
            self.reconcilers.iter().filter_map(|registration| registration.key_of(&mut compare));
        let is_new = |key: &Key| {
            self.keys.get(key).is_none_or(|state| state.running.is_none() && !state.follows_object)
        };
        for key in registered.filter(is_new) {
            if !found.iter().any(|(held, _)| *held == key) {
                found.push((key, cause(change, Role::Reconciled)));
            }
        }
        found
    }

    fn on_known(&self, kind: &Arc<Kind>, itself: bool) -> Vec<(Key, Cause)> {
        let waiting = self.kinds.get(kind).map(|of_kind| &of_kind.waiting);
        let concerned =
            waiting.into_iter().flatten().filter(|(_, for_itself)| !itself || **for_itself);
        concerned
            .filter(|(key, _)| !self.is_running(key))
            .map(|(key, _)| (key.clone(), known(kind, itself)))
            .collect()
    }

    fn on_unknown(&self, kind: &Arc<Kind>) -> Vec<(Key, Cause)> {
        let Some(of_kind) = self.kinds.get(kind) else { return Vec::new() };
        let waiting =
            of_kind.waiting.iter().filter(|(_, for_itself)| !**for_itself).map(|(key, _)| key);
        let keys: BTreeSet<&Key> = of_kind.index.keys().chain(waiting).collect();
        let idle = keys.into_iter().filter(|key| !self.is_running(key));
        idle.map(|key| (key.clone(), Cause::KindUnknown(Arc::clone(kind)))).collect()
    }

    /// Returns the keys that have read from a closed store: a new run makes them depend on the
    /// store that now reports the changes.
    fn on_closed(&self, kind: &Arc<Kind>, store: StoreId) -> Vec<(Key, Cause)> {
        let Some(of_kind) = self.kinds.get(kind) else { return Vec::new() };
        let of_store = |state: &KeyState| {
            let mut stores = state.dependencies.iter().map(|dependency| dependency.store);
            state.running.is_none() && stores.any(|held| held == Some(store))
        };
        let keys: BTreeSet<&Key> = of_kind.index.keys().collect();
        let idle = keys.into_iter().filter(|key| self.keys.get(key).is_some_and(of_store));
        idle.map(|key| (key.clone(), Cause::Moved(Arc::clone(kind)))).collect()
    }

    fn is_running(&self, key: &Key) -> bool {
        self.keys.get(key).is_some_and(|state| state.running.is_some())
    }

    /// Returns the causes that arrived during a run and that the run has not seen.
    fn missed(
        &self,
        key: &Key,
        position: u64,
        reads: &Reads,
        dependencies: &[Dependency],
    ) -> Vec<Cause> {
        let (Some(events), Some(claims)) = (self.log.since(position), self.log.since(position))
        else {
            return vec![Cause::Overrun];
        };
        let mut events = events.peekable();
        if events.peek().is_none() {
            return Vec::new();
        }
        let claims: Vec<&Claim> = claims.filter_map(|event| claimed(event, key)).collect();
        let follows_object = dependencies.iter().any(is_own_object);
        let asked: Vec<&Dependency> =
            dependencies.iter().filter(|of| !reads.is_last() || is_own_object(of)).collect();
        // Grouped by dependency, so that only the last state of a written object counts.
        let mut hits: Vec<Option<Cause>> = vec![None; asked.len()];
        let mut causes = Vec::new();
        for event in events {
            match event {
                Event::Claimed(_) => {}
                Event::Object(change) => {
                    let own = claims.iter().find_map(|claim| claim.own(change));
                    let change = own.as_ref().unwrap_or(change);
                    let mut compare = Compare::new(change);
                    for (of, hit) in asked.iter().zip(&mut hits) {
                        let is_final = hit.is_some() && !is_state(of);
                        if !is_final && compare.is_about(of) {
                            let affects = compare.affects(of, dependencies, key);
                            *hit = affects.then(|| cause(change, role(&of.depends_on)));
                        }
                    }
                    if !follows_object
                        && self
                            .reconcilers
                            .iter()
                            .any(|of| of.key_of(&mut compare).as_ref() == Some(key))
                    {
                        causes.push(cause(change, Role::Reconciled));
                    }
                }
                Event::Known(kind) => {
                    causes.extend(waits(reads, kind, true).then(|| known(kind, true)));
                }
                Event::Complete(kind) => {
                    causes.extend(waits(reads, kind, false).then(|| known(kind, false)));
                }
                Event::Unknown(kind) => {
                    let read = dependencies.iter().any(|of| of.kind == *kind);
                    causes.extend(read.then(|| Cause::KindUnknown(Arc::clone(kind))));
                }
                Event::Closed(kind, store) => {
                    let read = dependencies.iter().any(|of| of.store == Some(*store));
                    causes.extend(read.then(|| Cause::Moved(Arc::clone(kind))));
                }
            }
        }
        causes.extend(hits.into_iter().flatten());
        causes
    }

    fn register(&mut self, key: Key, dependencies: Box<[Dependency]>, waits: &[Wait]) {
        for Dependency { kind, index_term, .. } in &dependencies {
            self.kinds.entry(Arc::clone(kind)).or_default().index.insert(*index_term, &key);
        }
        for Wait { kind, for_itself } in waits {
            let waiting = &mut self.kinds.entry(Arc::clone(kind)).or_default().waiting;
            waiting.insert(key.clone(), *for_itself);
        }
        let waits = waits.iter().map(|wait| Arc::clone(&wait.kind)).collect();
        let follows_object = dependencies.iter().any(is_own_object);
        self.keys
            .insert(key, KeyState { dependencies, waits, follows_object, ..KeyState::default() });
    }

    fn drop_dependencies(&mut self, key: &Key) {
        let Some(state) = self.keys.get_mut(key) else { return };
        state.follows_object = false;
        for Dependency { kind, index_term, .. } in std::mem::take(&mut state.dependencies) {
            if let Some(of_kind) = self.kinds.get_mut(&kind) {
                of_kind.index.remove(index_term, key);
            }
        }
        for kind in std::mem::take(&mut state.waits) {
            if let Some(of_kind) = self.kinds.get_mut(&kind) {
                of_kind.waiting.remove(key);
            }
        }
    }
}

// === impl KeyState ===

impl KeyState {
    /// Returns the first dependency with an index term that a change affects.
    fn hit(
        &self,
        key: &Key,
        index_term: IndexTerm,
        compare: &mut Compare<'_>,
    ) -> Option<&Dependency> {
        let mut of_kind = self.dependencies.iter().filter(|of| of.index_term == index_term);
        of_kind.find(|of| {
            of.kind == compare.change.kind
                && compare.is_open(of)
                && compare.affects(of, &self.dependencies, key)
        })
    }
}

// === impl Registration ===

impl Registration {
    pub fn new(processor: &Arc<str>, of: &Arc<DeclaredReconciler>) -> Self {
        Self { processor: Arc::clone(processor), of: Arc::clone(of), writes_as: None }
    }

    /// Returns the reconciler.
    pub fn reconciler(&self) -> &Arc<DeclaredReconciler> {
        &self.of
    }

    /// Returns the keys of the objects in the stores, ordered by namespace and name.
    pub fn keys(&self, stores: &Stores) -> Vec<Key> {
        self.entries(stores).iter().map(|entry| self.key(entry)).collect()
    }

    /// Returns the keys of the objects in the stores, ordered by `rank`.
    pub fn ranked_keys(&self, stores: &Stores, rank: impl Fn(&Entry) -> u64) -> Vec<Key> {
        let mut entries = self.entries(stores);
        entries.sort_by_cached_key(|entry| rank(entry));
        entries.iter().map(|entry| self.key(entry)).collect()
    }

    fn entries(&self, stores: &Stores) -> Vec<Arc<Entry>> {
        let of = &*self.of;
        let query = if self.has_finalizers() { &of.anywhere } else { &of.readable.of.query };
        let mut there = stores.selected(&of.spec.of.kind, query).unwrap_or_default();
        there.retain(|entry| self.has(entry));
        there
    }

    /// Sets the namespace and name of the Processor. The names of its field managers show which
    /// finalizers it has added to objects.
    #[must_use]
    pub fn writing_as(self, namespace: &str, processor: &str) -> Self {
        Self { writes_as: Some(NamespacedName::new(namespace, processor)), ..self }
    }

    /// Returns whether an object is one of the reconciler's.
    fn has(&self, entry: &Entry) -> bool {
        self.of.selects(entry) || self.is_held(entry)
    }

    fn has_finalizers(&self) -> bool {
        !self.of.spec.finalizers.is_empty()
    }

    /// Returns whether an object that is not selected holds a finalizer that the reconciler has
    /// added. The name of the finalizer does not prove it: another reconciler may have a finalizer
    /// of the same name on objects that this one never selects.
    fn is_held(&self, entry: &Entry) -> bool {
        let Some(writes_as) = self.writes_as.as_ref().filter(|_| self.has_finalizers()) else {
            return false;
        };
        if entry.own().is_empty() || !self.of.anywhere.matches(entry) {
            return false;
        }
        let reference = entry.reference(&self.of.spec.of.kind);
        let managers = FieldManagers::new(&Owner {
            namespace: &writes_as.namespace,
            processor: &writes_as.name,
            reconciler: self.of.id.name(),
            object: &reference,
        });
        // This manager owns nothing but finalizers on the reconciled object.
        entry.own().iter().any(|own| *own.manager == *managers.edit)
    }

    fn key(&self, entry: &Entry) -> Key {
        Key::new(&self.processor, &self.of.id, entry.namespace(), entry.name())
    }

    /// Returns the key of a changed object, if the object is one of the reconciler's and has
    /// entered the selection or differs in the selected fields.
    fn key_of(&self, compare: &mut Compare<'_>) -> Option<Key> {
        let new =
            compare.change.new.as_ref().filter(|_| compare.change.kind == self.of.spec.of.kind)?;
        if !self.has(new) {
            return None;
        }
        let was_in = compare.change.old.as_ref().is_some_and(|old| self.has(old));
        (!was_in || compare.differ(&self.of.readable.fields, self.of.extent()))
            .then(|| self.key(new))
    }
}

/// Returns the claim in an event, if it is for a write of this key: a change that a watch reported
/// before the answer to the write arrived.
fn claimed<'a>(event: &'a Event, key: &Key) -> Option<&'a Claim> {
    match event {
        Event::Claimed(claim) => Some(claim).filter(|claim| claim.is_by(key)),
        _ => None,
    }
}

fn is_own_object(of: &Dependency) -> bool {
    matches!(of.depends_on, DependsOn::Reconciled { .. })
}

/// Returns whether only the last state of an object counts, not each change on the way to it.
fn is_state(of: &Dependency) -> bool {
    matches!(of.depends_on, DependsOn::Written { .. })
}

fn waits(reads: &Reads, kind: &Arc<Kind>, itself: bool) -> bool {
    reads.waits().iter().any(|wait| wait.kind == *kind && (!itself || wait.for_itself))
}

fn known(kind: &Arc<Kind>, itself: bool) -> Cause {
    if itself { Cause::KindKnown(Arc::clone(kind)) } else { Cause::Complete(Arc::clone(kind)) }
}

fn role(depends_on: &DependsOn) -> Role {
    match depends_on {
        DependsOn::Reconciled { .. } => Role::Reconciled,
        DependsOn::Read { .. } => Role::Read,
        DependsOn::Written { .. } => Role::Written,
        DependsOn::Pruned { .. } => Role::Prunable,
    }
}

fn cause(change: &Change, role: Role) -> Cause {
    let entry = change.new.as_ref().or(change.old.as_ref());
    let what = match (&change.old, &change.new) {
        (None, _) => What::Created,
        (Some(_), Some(_)) => What::Changed,
        (Some(_), None) => What::Deleted,
    };
    Cause::Object {
        kind: Arc::clone(&change.kind),
        namespace: entry.and_then(|entry| entry.namespace()).map(Arc::from),
        name: entry.map_or("", |entry| entry.name()).into(),
        what,
        role,
    }
}
