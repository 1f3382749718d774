//! The triggers of one processor: the dependencies of all its runs, and the keys that a change
//! queues again. Pure.
//!
//! *Guarantee.* A change of anything that a run has read or written, after the run has seen it,
//! queues the run's key again: at once if the run has ended, otherwise when it ends, by the causes
//! that `end` returns. This holds for every interleaving of changes and runs, because each store
//! numbers its changes: a snapshot knows the last number in it, and all events that arrive in the
//! log during any run are kept until that run ends. `end` then compares the dependencies with the
//! events after the snapshots. Events that come into the log later meet the registered
//! dependencies, which carry the same numbers, so that no change counts twice. Events of before are
//! skipped for this key, however late the triggers work them off.
//!
//! *Bounds.* A change is compared with equal queries and fields of the processor once, and with a
//! bounded number of them; with further ones, and at the end of a run that takes too much work, it
//! is assumed that the key is affected: keys run more often, and none is missed. The same holds for
//! triggers, and for a run, that are so late that the log has lost events or their objects.
//!
//! *Assumption.* `begin` is called before the view of a run is made, and events come into the log
//! in the order of the stores.

mod compare;
mod index;
mod log;
mod missed;
mod registration;
mod shared;
#[cfg(test)]
mod tests;

pub use log::Log;
pub use registration::Registration;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use foldhash::{HashMap, HashSet};
use tokio::time::Instant;

use self::{
    compare::{Compare, Spent, of_term},
    index::Index,
    log::{Logged, Position},
    missed::Run,
    shared::Shared,
};
use crate::{
    contract::Kind,
    key::ReconcilerId,
    queue::{Cause, Key, Role, What},
    reads::{Dependency, DependsOn, IndexTerm, Reads, Wait},
    store::{Change, Event, Scope, StoreId, Stores},
};

/// The number of events that are read from the log at once.
const EVENTS_AT_ONCE: usize = 64;
/// The most events at the end of a run; the key of a run with more is queued again.
const MAX_EVENTS_OF_RUN: usize = 50_000;
/// The steps of finding or queueing a key when events are skipped.
const OVERRUN_STEPS: usize = 16;
/// The time for which triggers count as limited after a change took too much work.
const LIMITED_PERIOD: Duration = Duration::from_mins(1);

/// The dependencies of all keys of one processor.
#[derive(Debug)]
pub struct Triggers {
    /// The keys. The seeded fast hash is enough: a user who can create the objects for an attack on
    /// the seed can overload the host with fewer.
    keys: HashMap<Key, KeyState>,
    kinds: HashMap<Arc<Kind>, OfKind>,
    reconcilers: Registrations,
    shared: Shared,
    log: Log,
    /// The first event that is not worked off.
    position: Position,
    /// The event at the position, if some of its keys were found already.
    pending: Option<Pending>,
    /// The keys that are still to be queued since events were skipped.
    overrun: Vec<Key>,
    /// The work so far.
    spent: Spent,
    /// The last change that took too much work, by its kind.
    limited: Option<(Instant, Arc<Kind>)>,
}

/// The reconcilers, by the kind of their objects.
type Registrations = HashMap<Arc<Kind>, Vec<Registration>>;

/// A run that has begun. [`Triggers::end`] must follow.
#[derive(Debug)]
#[must_use = "no change triggers the key until `end` is called"]
pub struct Began {
    key: Key,
    position: Position,
}

/// The dependencies and the state of one key.
#[derive(Debug, Default)]
struct KeyState {
    /// The number of the first event that may queue the key; `None` while it runs.
    since: Option<u64>,
    /// True if the key was removed while it ran.
    dropped: bool,
    /// The dependencies of the last run, sorted by index term.
    dependencies: Box<[Dependency]>,
    waits: Box<[Arc<Kind>]>,
    /// True if the last run read the key's own object.
    follows_object: bool,
}

/// A change that is being worked off.
#[derive(Debug)]
struct Pending {
    number: u64,
    compare: Compare,
    /// The keys that were found.
    found: HashSet<Key>,
    /// The index terms by which keys are found, if they are more than those of the object.
    all_texts: Option<Box<[IndexTerm]>>,
    /// The last key of the index that was compared, with its index term.
    after: Option<(IndexTerm, Key)>,
}

/// The dependencies on one kind.
#[derive(Debug, Default)]
struct OfKind {
    index: Index,
    /// Keys that wait for the kind; true if they wait for the cluster to serve it, false if they
    /// wait for its objects.
    waiting: BTreeMap<Key, bool>,
}

// === impl Triggers ===

impl Triggers {
    /// Returns triggers without keys, which work off the events that come into the log from now on.
    pub fn new(log: &Log) -> Self {
        Self {
            keys: HashMap::default(),
            kinds: HashMap::default(),
            reconcilers: HashMap::default(),
            shared: Shared::default(),
            log: log.clone(),
            position: log.end(),
            pending: None,
            overrun: Vec::new(),
            spent: Spent::default(),
            limited: None,
        }
    }

    /// Registers a reconciler, replacing a former one of that name: from now on each of its objects
    /// is a key. Returns the keys of the objects in the stores, including objects that have left
    /// the selection and hold a finalizer of the reconciler.
    pub fn add_reconciler(&mut self, registration: Registration, stores: &Stores) -> Vec<Key> {
        let keys = registration.keys(stores);
        self.register_reconciler(registration);
        keys
    }

    /// Registers a reconciler that was started for other selections than before, replacing its
    /// former registration. Returns the keys of the objects in the stores that are its own now and
    /// were not before.
    pub fn change_reconciler(&mut self, registration: &Registration, stores: &Stores) -> Vec<Key> {
        let former = self.register_reconciler(registration.clone());
        registration.entered(former.as_ref(), stores)
    }

    /// Registers a reconciler. Returns the former registration under its identity.
    fn register_reconciler(&mut self, registration: Registration) -> Option<Registration> {
        let former = self.take_reconciler(&registration.reconciler().id, registration.kind());
        let kind = Arc::clone(registration.kind());
        self.reconcilers.entry(kind).or_default().push(registration);
        former
    }

    /// Takes a registration out; that of a reconciler which is not on-demand may be for another
    /// kind.
    fn take_reconciler(&mut self, id: &ReconcilerId, kind: &Arc<Kind>) -> Option<Registration> {
        let take = |of: &mut Vec<Registration>| {
            let at = of.iter().position(|held| held.reconciler().id == *id)?;
            Some(of.swap_remove(at))
        };
        let taken = self.reconcilers.get_mut(kind).and_then(take);
        if taken.is_some() || id.is_on_demand() {
            return taken;
        }
        self.reconcilers.values_mut().find_map(take)
    }

    /// Returns the keys that run, or whose dependencies are known.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.keys.iter().filter(|(_, state)| !state.dropped).map(|(key, _)| key)
    }

    /// Returns whether a key runs, or its dependencies are known.
    pub fn contains(&self, key: &Key) -> bool {
        self.keys.get(key).is_some_and(|state| !state.dropped)
    }

    /// Returns whether a key depends on objects within a scope, or waits for their kind. The cost
    /// grows with the dependencies on the kind.
    pub fn depends_on(&self, kind: &Kind, scope: &Scope) -> bool {
        let Some(of_kind) = self.kinds.get(kind) else { return false };
        let is_within = |of: &Dependency| *of.kind == *kind && scope.covers(of.depends_on.query());
        let mut states = of_kind.index.keys().filter_map(|key| self.keys.get(key));
        !of_kind.waiting.is_empty() || states.any(|state| state.dependencies.iter().any(is_within))
    }

    /// Returns the number of the first event that is not worked off.
    pub fn position(&self) -> u64 {
        self.position.at()
    }

    /// Returns all work so far, in steps.
    pub fn work(&self) -> usize {
        self.spent.work()
    }

    /// Returns the kind of which the last change in the last minute took too much work, if any.
    pub fn limited(&self) -> Option<&Arc<Kind>> {
        let last = self.limited.as_ref().filter(|(last, _)| last.elapsed() < LIMITED_PERIOD);
        last.map(|(_, kind)| kind)
    }

    /// Drops all keys of a reconciler. Runs in progress leave no dependencies behind.
    pub fn remove_reconciler(&mut self, reconciler: &ReconcilerId) {
        self.reconcilers.retain(|_, of| {
            of.retain(|held| held.reconciler().id != *reconciler);
            !of.is_empty()
        });
        self.remove(|key| key.reconciler() == reconciler);
    }

    /// Drops all keys and reconcilers. Runs in progress leave no dependencies behind.
    pub fn remove_all(&mut self) {
        self.reconcilers.clear();
        self.remove(|_| true);
    }

    fn remove(&mut self, which: impl Fn(&Key) -> bool) {
        self.overrun.retain(|key| !which(key));
        for key in self.keys.keys().filter(|key| which(key)).cloned().collect::<Vec<_>>() {
            self.forget(&key);
            if let Some(state) = self.keys.get_mut(&key) {
                state.dropped = true;
            }
        }
    }

    /// Begins a run of a key. Must be called before the view of the run is made. Until `end`, no
    /// event queues the key.
    pub fn begin(&mut self, key: &Key) -> Began {
        let position = self.log.end();
        let state = self.keys.entry(key.clone()).or_default();
        state.since = None;
        state.dropped = false;
        Began { key: key.clone(), position }
    }

    /// Ends a run, whether it succeeded or failed, and takes its dependencies out of `reads`.
    /// Returns the causes in the log that the run has not seen: if there are any, the key must run
    /// again.
    pub fn end(&mut self, began: Began, reads: &mut Reads) -> Vec<Cause> {
        let Began { key, position } = began;
        self.drop_dependencies(&key);
        let dropped = self.keys.get(&key).is_none_or(|state| state.dropped);
        let mut dependencies = reads.take_dependencies().into_boxed_slice();
        dependencies.sort_by_key(|of| of.index_term);
        self.shared.share(&mut dependencies);
        let mut since = position.at();
        let mut causes = Vec::new();
        if !dropped {
            let run = Run {
                key: &key,
                reads,
                dependencies: &dependencies,
                follows_object: dependencies.iter().any(is_own_object),
                reconcilers: &self.reconcilers,
            };
            let events = position.read(MAX_EVENTS_OF_RUN);
            let events = events.filter(|events| events.len() < MAX_EVENTS_OF_RUN);
            since += events.as_ref().map_or(0, Vec::len) as u64;
            causes = events.map_or_else(|| vec![Cause::Overrun], |events| run.missed(&events));
        }
        if dropped || reads.is_last() {
            // An object that comes back is found by the `Registration` of its reconciler.
            self.keys.remove(&key);
            return causes;
        }
        self.register(key, since, dependencies, reads.waits());
        causes
    }

    /// Works off the events in the log until there are none, or this much work is done: a number of
    /// steps of some nanoseconds each. Passes each key that an event queues to `queue`, once for
    /// each event. Running keys are not among them: `end` returns their causes.
    ///
    /// Returns whether events may be left.
    pub fn work_off(
        &mut self,
        stores: &Stores,
        steps: usize,
        mut queue: impl FnMut(&Key, Cause),
    ) -> bool {
        let until = self.spent.work().saturating_add(steps);
        loop {
            while self.spent.work() < until
                && let Some(key) = self.overrun.pop()
            {
                self.spent.steps += OVERRUN_STEPS;
                if self.keys.get(&key).is_none_or(|state| state.since.is_some()) {
                    queue(&key, Cause::Overrun);
                }
            }
            if !self.overrun.is_empty() {
                return true;
            }
            let events = self.position.read(EVENTS_AT_ONCE);
            let events = events.filter(|events| !events.iter().any(|event| self.is_lost(event)));
            let Some(events) = events else {
                self.overrun(stores);
                continue;
            };
            let (first, count) = (self.position.at(), events.len() as u64);
            let done = (first..).zip(&events).take_while(|(number, event)| {
                self.spent.work() < until && self.on_event(*number, event, until, &mut queue)
            });
            let done = done.count() as u64;
            self.position.advance(first + done);
            if done < count || count == 0 {
                return count > 0;
            }
        }
    }

    /// Returns whether the objects of a change that may affect keys are no longer known.
    fn is_lost(&self, logged: &Logged) -> bool {
        matches!(&logged.event, Event::Object(of) if of.has_lost_objects() && self.concerns(&of.kind))
    }

    /// Returns whether changes of a kind may affect keys.
    fn concerns(&self, kind: &Arc<Kind>) -> bool {
        self.kinds.contains_key(kind) || self.reconcilers.contains_key(kind)
    }

    /// Skips all events in the log. Keeps the keys that they may affect: all but those that run when
    /// they are queued.
    fn overrun(&mut self, stores: &Stores) {
        // First, so that no change in the stores comes between.
        self.position = self.log.end();
        self.pending = None;
        let of_stores = self.reconcilers.values().flatten().flat_map(|of| of.keys(stores));
        let keys: BTreeSet<Key> = self.keys.keys().cloned().chain(of_stores).collect();
        self.spent.steps += OVERRUN_STEPS * keys.len();
        // The last one is queued first.
        self.overrun = keys.into_iter().rev().collect();
    }

    /// Passes the keys that an event with this number queues to `queue`, each once. Returns false if
    /// the event is to be passed again, since so much work was done before its last key.
    fn on_event(
        &mut self,
        number: u64,
        logged: &Logged,
        until: usize,
        queue: &mut impl FnMut(&Key, Cause),
    ) -> bool {
        self.spent.steps += 1;
        let found = match &logged.event {
            Event::Object(change) => return self.on_change(number, logged, change, until, queue),
            // The watch event has already triggered all readers except the writer.
            Event::Claimed(_) => Vec::new(),
            Event::Known(kind) => self.on_known(number, kind, true),
            Event::Complete(kind) => self.on_known(number, kind, false),
            Event::Unknown(kind) => self.on_unknown(number, kind),
            Event::Closed(kind, store) => self.on_closed(number, kind, *store),
        };
        self.spent.steps += found.len();
        for (key, cause) in found {
            queue(&key, cause);
        }
        true
    }

    /// Forgets the dependencies of a key's last run.
    pub fn forget(&mut self, key: &Key) {
        self.drop_dependencies(key);
        if self.keys.get(key).is_some_and(|state| state.since.is_some()) {
            self.keys.remove(key);
        }
    }

    fn on_change(
        &mut self,
        number: u64,
        logged: &Logged,
        change: &Change,
        until: usize,
        queue: &mut impl FnMut(&Key, Cause),
    ) -> bool {
        if !self.concerns(&change.kind) {
            return true;
        }
        let held = self.pending.take().filter(|pending| pending.number == number);
        let mut pending = held.unwrap_or_else(|| self.registered(number, logged, change, queue));
        let left = until.saturating_sub(self.spent.work());
        let (all_texts, after) = (pending.all_texts.take(), pending.after.take());
        let terms = all_texts.as_deref().unwrap_or_else(|| logged.terms());
        let of_kind = self.kinds.get(&change.kind).into_iter();
        for (term, key) in of_kind.flat_map(|of| of.index.candidates(terms, after.as_ref())) {
            pending.compare.spent.steps += 1;
            if !pending.found.contains(key)
                && let Some(state) = self.idle(key, number)
                && let Some(hit) = state.hit(key, term, &mut pending.compare)
            {
                queue(key, cause(change, role(&hit.depends_on)));
                pending.found.insert(key.clone());
            }
            if pending.compare.spent.work() > left {
                pending.after = Some((term, key.clone()));
                break;
            }
        }
        self.spent += std::mem::take(&mut pending.compare.spent);
        if pending.compare.is_exhausted() {
            self.limited = Some((Instant::now(), Arc::clone(&change.kind)));
        }
        let is_done = pending.after.is_none();
        if !is_done {
            pending.compare.suspend();
            self.pending = Some(Pending { all_texts, ..pending });
        }
        is_done
    }

    /// Begins to work off a change: finds the keys of reconciled objects that are not known yet.
    fn registered(
        &self,
        number: u64,
        logged: &Logged,
        change: &Change,
        queue: &mut impl FnMut(&Key, Cause),
    ) -> Pending {
        let (mut compare, mut found) = (Compare::new(change.clone()), HashSet::default());
        let reconcilers = self.reconcilers.get(&change.kind).into_iter().flatten();
        for key in reconcilers.filter_map(|of| of.key_of(&mut compare)) {
            let is_free = |state: &KeyState| !state.follows_object;
            let is_new = self.idle(&key, number).map_or(!self.keys.contains_key(&key), is_free);
            if is_new && found.insert(key.clone()) {
                queue(&key, cause(change, Role::Reconciled));
            }
        }
        let has_too_many =
            change.old.iter().chain(&change.new).any(|entry| entry.has_too_many_terms());
        let of_kind = self.kinds.get(&change.kind).filter(|_| has_too_many);
        let all_texts = of_kind.map(|of| of.index.with_all_texts(logged.terms()));
        compare.spent.steps += all_texts.as_ref().map_or(0, |all| all.len());
        Pending { number, compare, found, all_texts, after: None }
    }

    fn on_known(&self, number: u64, kind: &Arc<Kind>, itself: bool) -> Vec<(Key, Cause)> {
        let waiting = self.kinds.get(kind).map(|of_kind| &of_kind.waiting);
        let concerned =
            waiting.into_iter().flatten().filter(|(_, for_itself)| !itself || **for_itself);
        concerned
            .filter(|(key, _)| self.idle(key, number).is_some())
            .map(|(key, _)| (key.clone(), known(kind, itself)))
            .collect()
    }

    fn on_unknown(&mut self, number: u64, kind: &Arc<Kind>) -> Vec<(Key, Cause)> {
        let waiting = self.kinds.get(kind).map(|of_kind| &of_kind.waiting);
        let waiting = waiting.into_iter().flatten().filter(|(_, for_itself)| !**for_itself);
        let waiting = waiting.map(|(key, _)| key).filter(|key| self.idle(key, number).is_some());
        let mut keys: BTreeSet<Key> = waiting.cloned().collect();
        keys.extend(self.depending(number, kind, |of| of.kind == *kind));
        keys.into_iter().map(|key| (key, Cause::KindUnknown(Arc::clone(kind)))).collect()
    }

    /// Returns the keys that have read from a closed store: a new run makes them depend on the
    /// store that now reports the changes.
    fn on_closed(&mut self, number: u64, kind: &Arc<Kind>, store: StoreId) -> Vec<(Key, Cause)> {
        let keys = self.depending(number, kind, |of| of.store == Some(store));
        keys.into_iter().map(|key| (key, Cause::Moved(Arc::clone(kind)))).collect()
    }

    /// Returns the keys that an event with this number may queue, and that have such a dependency
    /// on a kind, sorted. Looks at each dependency once: an index has a key many times.
    fn depending(
        &mut self,
        number: u64,
        kind: &Arc<Kind>,
        is_it: impl Fn(&Dependency) -> bool,
    ) -> Vec<Key> {
        if !self.kinds.contains_key(kind) {
            return Vec::new();
        }
        let mut found = Vec::new();
        for (key, state) in &self.keys {
            self.spent.steps += 1 + state.dependencies.len();
            let is_idle = state.since.is_some_and(|since| since <= number);
            if is_idle && state.dependencies.iter().any(&is_it) {
                found.push(key.clone());
            }
        }
        found.sort();
        found
    }

    /// Returns the state of a key that an event with this number may queue.
    fn idle(&self, key: &Key, number: u64) -> Option<&KeyState> {
        self.keys.get(key).filter(|state| state.since.is_some_and(|since| since <= number))
    }

    fn register(&mut self, key: Key, since: u64, dependencies: Box<[Dependency]>, waits: &[Wait]) {
        for Dependency { kind, index_term, .. } in &dependencies {
            self.kinds.entry(Arc::clone(kind)).or_default().index.insert(*index_term, &key);
        }
        for Wait { kind, for_itself } in waits {
            let waiting = &mut self.kinds.entry(Arc::clone(kind)).or_default().waiting;
            waiting.insert(key.clone(), *for_itself);
        }
        let waits = waits.iter().map(|wait| Arc::clone(&wait.kind)).collect();
        let follows_object = dependencies.iter().any(is_own_object);
        let (since, dropped) = (Some(since), false);
        self.keys.insert(key, KeyState { since, dropped, dependencies, waits, follows_object });
    }

    fn drop_dependencies(&mut self, key: &Key) {
        let Some(state) = self.keys.get_mut(key) else { return };
        state.follows_object = false;
        for Dependency { kind, index_term, .. } in std::mem::take(&mut state.dependencies) {
            leave(&mut self.kinds, &kind, |of_kind| of_kind.index.remove(index_term, key));
        }
        for kind in std::mem::take(&mut state.waits) {
            leave(&mut self.kinds, &kind, |of_kind| _ = of_kind.waiting.remove(key));
        }
    }
}

// === impl KeyState ===

impl KeyState {
    /// Returns the first dependency with an index term that a change affects.
    fn hit(&self, key: &Key, index_term: IndexTerm, compare: &mut Compare) -> Option<&Dependency> {
        let (_, of_term) = of_term(&self.dependencies, index_term);
        of_term.iter().find(|of| {
            of.kind == compare.change.kind
                && compare.is_open(of)
                && compare.affects(of, &self.dependencies, key)
        })
    }
}

/// Takes a key out of a kind, which is forgotten if nothing is left: processors name any number of
/// kinds.
fn leave(
    kinds: &mut HashMap<Arc<Kind>, OfKind>,
    kind: &Arc<Kind>,
    take_out: impl FnOnce(&mut OfKind),
) {
    let Some(of_kind) = kinds.get_mut(kind) else { return };
    take_out(of_kind);
    if of_kind.index.is_empty() && of_kind.waiting.is_empty() {
        kinds.remove(kind);
    }
}

fn is_own_object(of: &Dependency) -> bool {
    matches!(of.depends_on, DependsOn::Reconciled { .. })
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
