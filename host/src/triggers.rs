//! The triggers: the dependencies of all runs, and the keys that a change queues again. Pure.
//!
//! *Guarantee.* A change of anything that a run has read or written, after the run has seen it,
//! queues the run's key again: at once if the run has ended, otherwise when it ends, by the causes
//! that `ran` returns. This holds for every interleaving of changes and runs, because each store
//! numbers its changes: a snapshot knows the last number in it, and all events that arrive while
//! any run is under way are kept until that run ends. `ran` then compares the dependencies with the
//! events after the snapshots. Later events meet the registered dependencies, which carry the same
//! numbers, so that no change counts twice.
//!
//! *Assumption.* `begin` is called before the view of a run is made, and events are handed on in
//! the order of the stores.

mod compare;
mod index;
mod log;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use self::compare::Compare;
use self::index::{Index, Registered};
use self::log::Log;
use crate::contract::{Kind, Reconciler};
use crate::outcome::Reconciled;
use crate::path::{Extent, Fields};
use crate::queue::{Cause, Key, Role, What};
use crate::store::{Change, Claim, Entry, Event, Query, StoreId, Stores};
use crate::view::{Concern, Reads, Wait};
use crate::write::{self, field_manager::FieldManagers};

/// The dependencies of all keys.
#[derive(Debug, Default)]
pub struct Triggers {
    /// The keys, in a map with a fast hash. The hash is made with a seed, since people choose the
    /// names. A user who may make as many objects as an attack on the seed would take can keep the
    /// host busy with fewer.
    keys: foldhash::HashMap<Key, KeyState>,
    kinds: foldhash::HashMap<Arc<Kind>, OfKind>,
    reconcilers: Vec<Standing>,
    log: Log,
}

/// A run that has begun. [`Triggers::ran`] must follow.
#[derive(Debug)]
#[must_use = "the key is not triggered until `ran` is told how the run ended"]
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
    interests: Vec<(Arc<Kind>, u32)>,
    waits: Vec<Arc<Kind>>,
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

/// A reconciler and its selection: each object in it is a key.
#[derive(Debug)]
pub struct Standing {
    processor: Arc<str>,
    name: Arc<str>,
    kind: Kind,
    query: Query,
    fields: Arc<Fields>,
    extent: Extent,
    /// The query without labels and fields: an object may leave these while it holds a finalizer.
    anywhere: Query,
    has_finalizers: bool,
    /// The namespace and name of the Processor in the names of field managers; `None` if it puts
    /// finalizers on nothing.
    writes_as: Option<(Box<str>, Box<str>)>,
}

// === impl Triggers ===

impl Triggers {
    /// Returns triggers without keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes each object of a reconciler a key from now on, in place of a former reconciler of that
    /// name. Returns the keys of the objects that are there already, including objects that have
    /// left the selection and hold a finalizer of the reconciler.
    pub fn add_reconciler(&mut self, standing: Standing, stores: &Stores) -> Vec<Key> {
        let keys = standing.keys(stores);
        self.reconcilers
            .retain(|held| held.processor != standing.processor || held.name != standing.name);
        self.reconcilers.push(standing);
        keys
    }

    /// Returns the keys of a processor that run, or whose dependencies are known.
    pub fn keys_of(&self, processor: &str) -> Vec<Key> {
        let is_its =
            |(key, state): &(&Key, &KeyState)| &**key.processor() == processor && !state.dropped;
        self.keys.iter().filter(is_its).map(|(key, _)| key.clone()).collect()
    }

    /// Returns the number of keys of each processor that run, or whose dependencies are known.
    pub fn counts(&self) -> BTreeMap<Arc<str>, usize> {
        let mut counts = BTreeMap::new();
        for (key, _) in self.keys.iter().filter(|(_, state)| !state.dropped) {
            *counts.entry(Arc::clone(key.processor())).or_default() += 1;
        }
        counts
    }

    /// Forgets all keys of a reconciler. Runs of it that are under way leave nothing behind.
    pub fn remove_reconciler(&mut self, processor: &str, reconciler: &str) {
        self.reconcilers.retain(|held| &*held.processor != processor || &*held.name != reconciler);
        self.remove(|key| &**key.processor() == processor && &**key.reconciler() == reconciler);
    }

    /// Forgets all keys of a processor. Runs of it that are under way leave nothing behind.
    pub fn remove_processor(&mut self, processor: &str) {
        self.reconcilers.retain(|standing| &*standing.processor != processor);
        self.remove(|key| &**key.processor() == processor);
    }

    fn remove(&mut self, which: impl Fn(&Key) -> bool) {
        let keys: Vec<Key> = self.keys.keys().filter(|key| which(key)).cloned().collect();
        for key in keys {
            self.forget(&key);
            if let Some(state) = self.keys.get_mut(&key) {
                state.dropped = true;
            }
        }
    }

    /// Begins a run of a key. Must be called before the view of the run is made. Until `ran`, the
    /// key is not triggered.
    pub fn begin(&mut self, key: &Key) -> Began {
        let position = self.log.begin();
        let state = self.keys.entry(key.clone()).or_default();
        state.running = Some(position);
        state.dropped = false;
        Began { key: key.clone(), position }
    }

    /// Ends a run, whether it succeeded or failed, and takes its dependencies out of `reads`.
    /// Returns the changes of these that the run has not seen: if there are any, the key must run
    /// again.
    pub fn ran(&mut self, began: Began, reads: &mut Reads) -> Vec<Cause> {
        let Began { key, position } = began;
        self.drop_interests(&key);
        let dropped = self.keys.get(&key).is_none_or(|state| state.dropped);
        let registered = Registered::all_of(&key, reads.take_interests());
        let causes =
            if dropped { Vec::new() } else { self.missed(&key, position, reads, &registered) };
        self.log.end(position);
        if dropped || reads.is_last() {
            // An object that comes back is found by the `Standing` of its reconciler.
            self.keys.remove(&key);
            return causes;
        }
        self.register(key, registered, reads.waits());
        causes
    }

    /// Returns the keys that an event queues, each once. Running keys are not among them: `ran`
    /// returns their causes.
    pub fn on_event(&mut self, event: &Event) -> Vec<(Key, Cause)> {
        self.log.push(event);
        match event {
            Event::Object(change) => self.on_change(change),
            // The readers were triggered when the watch showed the change, all but the writer.
            Event::Claimed(_) => Vec::new(),
            Event::Known(kind) => self.on_known(kind, true),
            Event::Complete(kind) => self.on_known(kind, false),
            Event::Unknown(kind) => self.on_unknown(kind),
            Event::Closed(kind, store) => self.on_closed(kind, *store),
        }
    }

    /// Forgets the dependencies of a key's last run.
    pub fn forget(&mut self, key: &Key) {
        self.drop_interests(key);
        if self.keys.get(key).is_some_and(|state| state.running.is_none()) {
            self.keys.remove(key);
        }
    }

    fn on_change(&self, change: &Change) -> Vec<(Key, Cause)> {
        let mut compare = Compare::new(change);
        let mut found: Vec<(Key, Cause)> = Vec::new();
        if let Some(of_kind) = self.kinds.get(&change.kind) {
            let mut seen: HashSet<&Key> = HashSet::new();
            for registered in of_kind.index.candidates(change) {
                if !self.is_running(&registered.key)
                    && !seen.contains(&registered.key)
                    && registered.concerns(&mut compare)
                {
                    seen.insert(&registered.key);
                    let cause = cause(change, role(&registered.interest.concern));
                    found.push((registered.key.clone(), cause));
                }
            }
        }
        let standing = self.reconcilers.iter().filter_map(|standing| standing.key_of(&mut compare));
        let is_new = |key: &Key| {
            self.keys.get(key).is_none_or(|state| state.running.is_none() && !state.follows_object)
        };
        for key in standing.filter(is_new) {
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
        let keys: std::collections::BTreeSet<&Key> = of_kind.index.keys().chain(waiting).collect();
        let idle = keys.into_iter().filter(|key| !self.is_running(key));
        idle.map(|key| (key.clone(), Cause::KindUnknown(Arc::clone(kind)))).collect()
    }

    /// Returns the keys that have read from a store that is closed. Changes of what they read come
    /// from another store now, which a new run reads.
    fn on_closed(&self, kind: &Arc<Kind>, store: StoreId) -> Vec<(Key, Cause)> {
        let Some(of_kind) = self.kinds.get(kind) else { return Vec::new() };
        let keys: std::collections::BTreeSet<&Key> = of_kind.index.keys_of(store).collect();
        let idle = keys.into_iter().filter(|key| !self.is_running(key));
        idle.map(|key| (key.clone(), Cause::Moved(Arc::clone(kind)))).collect()
    }

    fn is_running(&self, key: &Key) -> bool {
        self.keys.get(key).is_some_and(|state| state.running.is_some())
    }

    /// Returns the causes that came during a run and that the run has not seen.
    fn missed(
        &self,
        key: &Key,
        position: u64,
        reads: &Reads,
        registered: &[Registered],
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
        let is_of_object = |registered: &Registered| is_own_object(&registered.interest.concern);
        let follows_object = registered.iter().any(is_of_object);
        let asked: Vec<&Registered> =
            registered.iter().filter(|of| !reads.is_last() || is_of_object(of)).collect();
        // By dependency, so that only the last state of a written object counts.
        let mut hits: Vec<Option<Cause>> = vec![None; asked.len()];
        let mut causes = Vec::new();
        for event in events {
            match event {
                Event::Claimed(_) => {}
                Event::Object(change) => {
                    let own = claims.iter().find_map(|claim| claim.own(change));
                    let change = own.as_ref().unwrap_or(change);
                    let mut compare = Compare::new(change);
                    for (registered, hit) in asked.iter().zip(&mut hits) {
                        if registered.is_about(change) {
                            let concerns = registered.concerns(&mut compare);
                            let cause = || cause(change, role(&registered.interest.concern));
                            let is_final = hit.is_some() && !registered.is_state();
                            if !is_final {
                                *hit = concerns.then(cause);
                            }
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
                    let read = registered.iter().any(|of| of.interest.kind == *kind);
                    causes.extend(read.then(|| Cause::KindUnknown(Arc::clone(kind))));
                }
                Event::Closed(kind, store) => {
                    let read = registered.iter().any(|of| of.interest.store == Some(*store));
                    causes.extend(read.then(|| Cause::Moved(Arc::clone(kind))));
                }
            }
        }
        causes.extend(hits.into_iter().flatten());
        causes
    }

    fn register(&mut self, key: Key, registered: Vec<Registered>, waits: &[Wait]) {
        let mut state =
            KeyState { interests: Vec::with_capacity(registered.len()), ..KeyState::default() };
        for registered in registered {
            state.follows_object |= is_own_object(&registered.interest.concern);
            let kind = Arc::clone(&registered.interest.kind);
            let index = &mut self.kinds.entry(Arc::clone(&kind)).or_default().index;
            state.interests.push((kind, index.insert(registered)));
        }
        for Wait { kind, for_itself } in waits {
            let waiting = &mut self.kinds.entry(Arc::clone(kind)).or_default().waiting;
            waiting.insert(key.clone(), *for_itself);
            state.waits.push(Arc::clone(kind));
        }
        self.keys.insert(key, state);
    }

    fn drop_interests(&mut self, key: &Key) {
        let Some(state) = self.keys.get_mut(key) else { return };
        state.follows_object = false;
        for (kind, id) in std::mem::take(&mut state.interests) {
            if let Some(of_kind) = self.kinds.get_mut(&kind) {
                of_kind.index.remove(id);
            }
        }
        for kind in std::mem::take(&mut state.waits) {
            if let Some(of_kind) = self.kinds.get_mut(&kind) {
                of_kind.waiting.remove(key);
            }
        }
    }
}

// === impl Standing ===

impl Standing {
    /// Parses the selection of a reconciler. The error says which part does not parse.
    pub fn new(processor: &Arc<str>, reconciler: &Reconciler) -> Result<Self, String> {
        let mut of = reconciler.of.clone();
        of.matching.retain(|(_, value)| value != "*");
        let extent =
            if reconciler.triggered_by_status { Extent::Counted } else { Extent::WithoutStatus };
        let query = Query::new(&of)?;
        Ok(Self {
            processor: Arc::clone(processor),
            name: reconciler.name.as_str().into(),
            anywhere: query.anywhere(),
            query,
            fields: Arc::new(Fields::parse(&of.fields).map_err(|invalid| invalid.to_string())?),
            kind: of.kind,
            extent,
            has_finalizers: !reconciler.finalizers.is_empty(),
            writes_as: None,
        })
    }

    /// Returns the keys of the objects that are there, ordered by namespace and name.
    pub fn keys(&self, stores: &Stores) -> Vec<Key> {
        self.entries(stores).iter().map(|entry| self.key(entry)).collect()
    }

    /// Returns the keys of the objects that are there, ordered by a rank of each object.
    pub fn ranked_keys(&self, stores: &Stores, rank: impl Fn(&Entry) -> u64) -> Vec<Key> {
        let mut entries = self.entries(stores);
        entries.sort_by_cached_key(|entry| rank(entry));
        entries.iter().map(|entry| self.key(entry)).collect()
    }

    fn entries(&self, stores: &Stores) -> Vec<Arc<Entry>> {
        let query = if self.has_finalizers { &self.anywhere } else { &self.query };
        let mut there = stores.selected(&self.kind, query).unwrap_or_default();
        there.retain(|entry| self.has(entry));
        there
    }

    /// Sets the namespace and name of the Processor. The names of its field managers tell which
    /// finalizers it has put on objects.
    #[must_use]
    pub fn writing_as(self, namespace: &str, processor: &str) -> Self {
        Self { writes_as: Some((namespace.into(), processor.into())), ..self }
    }

    /// Returns whether an object is one of the reconciler's.
    fn has(&self, entry: &Entry) -> bool {
        self.query.matches(entry) || self.is_held(entry)
    }

    /// Returns whether an object that is not selected holds a finalizer that the reconciler has put
    /// there. The name of the finalizer does not prove it: another reconciler may have a finalizer
    /// of the same name on objects that this one never selects.
    fn is_held(&self, entry: &Entry) -> bool {
        let Some((namespace, processor)) = self.writes_as.as_ref().filter(|_| self.has_finalizers)
        else {
            return false;
        };
        if entry.own().is_empty() || !self.anywhere.matches(entry) {
            return false;
        }
        let key = self.key(entry);
        let reconciled = Reconciled { reference: entry.reference(&self.kind), object: None };
        let managers = FieldManagers::new(&write::Context {
            key: &key,
            namespace,
            processor,
            reconciled: &reconciled,
            take_over: &[],
            rights: None,
        });
        // This manager owns nothing but finalizers on the reconciled object.
        entry.own().iter().any(|own| *own.manager == *managers.edit)
    }

    fn key(&self, entry: &Entry) -> Key {
        Key::new(&self.processor, &self.name, entry.namespace(), entry.name())
    }

    /// Returns the key of a changed object, if the object is one of the reconciler's and has
    /// entered the selection or differs in the selected fields.
    fn key_of(&self, compare: &mut Compare<'_>) -> Option<Key> {
        let new = compare.change.new.as_ref().filter(|_| *compare.change.kind == self.kind)?;
        if !self.has(new) {
            return None;
        }
        let was_in = compare.change.old.as_ref().is_some_and(|old| self.has(old));
        (!was_in || compare.differ(&self.fields, self.extent)).then(|| self.key(new))
    }
}

/// Returns the claim in an event, if it is for a write of this key: a change that a watch showed
/// before the answer to the write came.
fn claimed<'a>(event: &'a Event, key: &Key) -> Option<&'a Claim> {
    match event {
        Event::Claimed(claim) => Some(claim).filter(|claim| claim.is_by(key)),
        _ => None,
    }
}

fn is_own_object(concern: &Concern) -> bool {
    matches!(concern, Concern::Reconciled { .. })
}

fn waits(reads: &Reads, kind: &Arc<Kind>, itself: bool) -> bool {
    reads.waits().iter().any(|wait| wait.kind == *kind && (!itself || wait.for_itself))
}

fn known(kind: &Arc<Kind>, itself: bool) -> Cause {
    if itself { Cause::KindKnown(Arc::clone(kind)) } else { Cause::Complete(Arc::clone(kind)) }
}

fn role(concern: &Concern) -> Role {
    match concern {
        Concern::Reconciled { .. } => Role::Reconciled,
        Concern::Read { .. } => Role::Read,
        Concern::Written { .. } => Role::Written,
        Concern::Pruned { .. } => Role::Prunable,
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
