//! The stores: the last known state of the objects of each watched kind, projected to the fields
//! that processors request.
//!
//! A kind is watched within scopes, and each scope has a store of its own. Watches and the writer
//! report objects to the stores, which queue the resulting changes as ordered events for the
//! triggers. Readers take immutable snapshots. This module does no I/O and never replaces an object
//! with an older version.

mod absence;
mod entry;
mod event;
mod feed;
mod indexed;
mod label_keys;
mod memory;
mod overlay;
mod place;
mod query;
mod scope;
mod snapshot;
mod table;
mod term;
#[cfg(test)]
mod tests;
mod tombstones;

pub use entry::{Entry, Rendered, Shape};
pub use event::{Change, Claim, Claimed, Event, Source, StoreId};
pub use feed::Feed;
pub use label_keys::IndexUser;
pub use memory::Memory;
pub use overlay::{differs, lay_over};
pub use query::Query;
pub use scope::{Scope, Wanted};
pub use snapshot::{KindSnapshot, Snapshot};
pub use term::{Term, hashed};

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
};

use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio::sync::{Notify, watch};

use self::{
    absence::Absences,
    feed::{Store, Tables},
    place::NamespacedName,
    table::{Changes, Update},
};
use crate::{
    contract::{Kind, ObjectRef, Selection, bounds::account_of},
    key::Key,
    path::Path,
};

/// The stores of all kinds. Clones are handles of the same stores.
#[derive(Clone, Debug)]
pub struct Stores(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Hashed with a fast function: each run does many lookups, and an attacker gains nothing from
    /// kinds whose hashes collide.
    kinds: RwLock<foldhash::HashMap<Kind, Arc<OfKind>>>,
    events: Mutex<Events>,
    /// Notified when there are events to take.
    arrived: Notify,
    progress: watch::Sender<u64>,
}

/// The queued events, in order, and the numbers of the last change and the last store.
#[derive(Debug, Default)]
struct Events {
    waiting: VecDeque<Event>,
    sequence: u64,
    stores: u64,
}

/// A kind and its stores.
#[derive(Debug)]
struct OfKind {
    kind: Arc<Kind>,
    state: Mutex<KindState>,
    stores: RwLock<Vec<Arc<Store>>>,
    absences: Absences,
}

#[derive(Clone, Debug, Default)]
struct KindState {
    /// True if the cluster serves the kind; `None` if unknown.
    served: Option<bool>,
    /// The error of the last attempt to list or watch the objects; `None` once a list has ended.
    unavailable: Option<Arc<str>>,
}

/// The state of one object, as far as the stores know it.
#[derive(Clone, Debug)]
pub enum Known {
    /// The object is not covered by a complete store.
    Unwatched,
    /// The object does not exist.
    Absent,
    /// The object exists.
    Present(Arc<Entry>),
}

// === impl Stores ===

impl Default for Stores {
    fn default() -> Self {
        Self::new()
    }
}

impl Stores {
    /// Creates an empty set of stores.
    pub fn new() -> Self {
        Self(Arc::new(Shared {
            kinds: RwLock::default(),
            events: Mutex::default(),
            arrived: Notify::new(),
            progress: watch::Sender::new(0),
        }))
    }

    /// Opens the store of a kind within a scope, or widens the open one, so that it holds `wanted`.
    ///
    /// Returns the feed to fill if the objects must be listed for this. Until that list ends, the
    /// store serves the objects and fields that it already holds.
    pub fn open(&self, kind: &Kind, scope: &Scope, wanted: &Wanted) -> Option<Feed> {
        let of_kind = self.kept_kind(kind);
        if let Some(store) = of_kind.find(scope) {
            let must_list = store.tables.lock().widen(wanted);
            return must_list.then(|| Feed::new(self, &of_kind, &store));
        }
        let id = {
            let mut events = self.0.events.lock();
            events.stores += 1;
            StoreId(events.stores)
        };
        let store = Arc::new(Store::new(id, scope, wanted, &of_kind.absences));
        of_kind.stores.write().push(Arc::clone(&store));
        Some(Feed::new(self, &of_kind, &store))
    }

    /// Returns the feed of the newest table of a store; `None` if the kind has no open store within
    /// the scope.
    pub fn feed(&self, kind: &Kind, scope: &Scope) -> Option<Feed> {
        let of_kind = self.of_kind(kind);
        let store = of_kind.find(scope)?;
        Some(Feed::new(self, &of_kind, &store))
    }

    /// Drops the wider table that a store is still listing if the served table covers `wanted`.
    /// Returns whether a table was dropped.
    pub fn narrow(&self, kind: &Kind, scope: &Scope, wanted: &Wanted) -> bool {
        let Some(store) = self.of_kind(kind).find(scope) else { return false };
        let mut tables = store.tables.lock();
        let is_narrow = tables.narrow(wanted);
        store.held.store(tables.held(), Ordering::Relaxed);
        is_narrow
    }

    /// Returns roughly how many bytes the objects and indexes of a store take; 0 if no such store is open.
    pub fn held(&self, kind: &Kind, scope: &Scope) -> usize {
        let store = self.of_kind(kind).find(scope);
        store.map_or(0, |store| store.held.load(Ordering::Relaxed))
    }

    /// Returns roughly how many bytes the objects and indexes of a store would take if it kept only
    /// what one user wants.
    pub fn held_with(
        &self,
        kind: &Kind,
        scope: &Scope,
        wanted: &Wanted,
        user: &IndexUser,
    ) -> usize {
        let store = self.of_kind(kind).find(scope);
        let newest = store.map(|store| store.tables.lock().newest().table.current.clone());
        let wanted =
            Wanted { fields: wanted.fields.clone().with_few_conditions(), ..wanted.clone() };
        newest.map_or(0, |newest| newest.held_with(&wanted, user))
    }

    /// Gives back the indexes of users that have ended, with the next snapshots and updates of each
    /// store.
    pub fn check_index_users(&self) {
        let kinds: Vec<Arc<OfKind>> = self.0.kinds.read().values().cloned().collect();
        for store in kinds.iter().flat_map(|of_kind| of_kind.stores.read().clone()) {
            store.tables.lock().served.table.current.check_index_users();
        }
    }

    /// Closes the store of a kind within a scope, and ends its feeds.
    pub fn close(&self, kind: &Kind, scope: &Scope) {
        let of_kind = self.of_kind(kind);
        let closed: Vec<Arc<Store>> =
            of_kind.stores.write().extract_if(.., |store| *store.scope == *scope).collect();
        for store in closed {
            store.tables.lock().close();
            self.publish([Event::Closed(Arc::clone(&of_kind.kind), store.id)]);
        }
        self.notify_progress();
    }

    /// Records that the cluster serves a kind.
    pub fn set_known(&self, kind: &Kind) {
        let of_kind = self.kept_kind(kind);
        let before = of_kind.state.lock().served.replace(true);
        if before != Some(true) {
            self.publish([Event::Known(Arc::clone(&of_kind.kind))]);
        }
        self.notify_progress();
    }

    /// Records that the cluster does not serve a kind, as the watch of a scope reported. Drops the
    /// objects of that scope without change events, since this watch lists them again. Watches of
    /// other scopes go on until they report the same.
    pub fn set_unknown(&self, kind: &Kind, scope: &Scope) {
        let of_kind = self.kept_kind(kind);
        let before = of_kind.state.lock().served.replace(false);
        if let Some(store) = of_kind.find(scope) {
            store.tables.lock().clear();
            store.held.store(0, Ordering::Relaxed);
        }
        if before != Some(false) {
            self.publish([Event::Unknown(Arc::clone(&of_kind.kind))]);
        }
        self.notify_progress();
    }

    /// Records why the objects of a kind could not be listed or watched. The known objects are
    /// still served.
    pub fn set_unavailable(&self, kind: &Kind, why: &str) {
        self.kept_kind(kind).state.lock().unavailable = Some(why.into());
        self.notify_progress();
    }

    /// Returns whether the cluster is known not to serve a kind.
    pub fn is_unknown(&self, kind: &Kind) -> bool {
        self.of_kind(kind).state.lock().served == Some(false)
    }

    /// Returns whether no list is pending: the store is complete with all wanted fields, or is not
    /// open, or the cluster is known not to serve the kind.
    pub fn is_settled(&self, kind: &Kind, scope: &Scope) -> bool {
        let store = self.of_kind(kind).find(scope);
        self.is_unknown(kind) || store.is_none_or(|store| store.tables.lock().is_settled())
    }

    /// Stores the object that the API server returned for a write by this host; reads see it from
    /// now on.
    pub fn wrote(&self, kind: &Kind, object: &Value, by: &Key, sent: &Arc<Value>) {
        let of_kind = self.of_kind(kind);
        let source = Source::Write { by: by.clone(), sent: Some(Arc::clone(sent)) };
        for store in of_kind.with_place(&NamespacedName::of(object)) {
            let is_within = store.scope.holds(object);
            let update = if is_within { Update::Wrote(object) } else { Update::Left(object) };
            self.update(&of_kind.kind, &store, None, update, &source);
        }
    }

    /// Sets the fields that a field manager requires to be absent from an object, replacing its
    /// former ones. Entries stored from now on record whether the object has such a field (see
    /// [`Entry::breaks_absence_of`]).
    pub fn must_be_absent(&self, of: &ObjectRef, manager: &str, paths: &[Path]) {
        let place = NamespacedName::new(of.namespace.as_deref().unwrap_or_default(), &of.name);
        self.kept_kind(&of.kind).absences.set(&place, manager, paths);
    }

    /// Removes an object after the API server confirmed that a deletion by this host removed it.
    pub fn deleted(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
        uid: Option<&str>,
        by: &Key,
    ) {
        let of_kind = self.of_kind(kind);
        let source = Source::Write { by: by.clone(), sent: None };
        let place = NamespacedName::new(namespace.unwrap_or_default(), name);
        for store in of_kind.with_place(&place) {
            self.update(&of_kind.kind, &store, None, Update::Deleted(&place, uid), &source);
        }
    }

    /// Returns the known state of an object.
    pub fn known(&self, of: &ObjectRef) -> Known {
        self.known_by_name(&of.kind, of.namespace.as_deref(), &of.name)
    }

    /// Returns the known state of the object with this kind, namespace and name: from a store with
    /// whole objects if one has it, since nothing else tells what our field managers hold.
    pub fn known_by_name(&self, kind: &Kind, namespace: Option<&str>, name: &str) -> Known {
        let mut known = Known::Unwatched;
        let place = NamespacedName::new(namespace.unwrap_or_default(), name);
        let of_kind = self.of_kind(kind);
        for store in of_kind.stores.read().iter().filter(|store| store.scope.may_hold(&place)) {
            let tables = store.tables.lock();
            let current = &tables.served.table.current;
            let covers = || store.scope.covers(&Query::object(namespace, name));
            if let Some(entry) = current.row(&place) {
                known = Known::Present(Arc::clone(entry));
                if !tables.served.wanted.is_metadata_only() {
                    break;
                }
            } else if matches!(known, Known::Unwatched) && current.is_complete() && covers() {
                known = Known::Absent;
            }
        }
        known
    }

    /// Returns the objects of a selection that a field manager has applied, ordered by namespace and
    /// name; `None` if no complete store covers the selection. The error message names the part of
    /// the selection that does not parse.
    pub fn applied(
        &self,
        selection: &Selection,
        manager: &str,
    ) -> Result<Option<Vec<Arc<Entry>>>, String> {
        let query = Query::new(selection)?;
        let snapshots = self.snapshots(&selection.kind, |scope| scope.covers(&query));
        let covering = snapshots.covering(&query, None);
        let covering = covering.filter(|(_, snapshot)| snapshot.is_complete());
        // The manager is compared first, since that needs no JSON.
        let is_one = |entry: &&Arc<Entry>| entry.own().holds(manager) && query.matches(entry);
        Ok(covering.map(|(_, snapshot)| {
            snapshot.candidates(&query, None).filter(is_one).cloned().collect()
        }))
    }

    /// Returns the objects of a selection, as [`Stores::selected`] does.
    #[cfg(test)]
    pub(crate) fn candidates(
        &self,
        selection: &Selection,
    ) -> Result<Option<Vec<Arc<Entry>>>, String> {
        Ok(self.selected(&selection.kind, &Query::new(selection)?))
    }

    /// Returns the objects that a query finds, ordered by namespace and name; `None` if no complete
    /// store covers the query.
    pub fn selected(&self, kind: &Kind, query: &Query) -> Option<Vec<Arc<Entry>>> {
        let snapshots = self.snapshots(kind, |scope| scope.covers(query));
        let covering =
            snapshots.covering(query, None).filter(|(_, snapshot)| snapshot.is_complete());
        covering.map(|(_, snapshot)| snapshot.select(query, None).cloned().collect())
    }

    /// Returns the objects that a query finds so far, ordered by namespace and name: also those of a
    /// list that is not complete.
    pub(crate) fn selected_so_far(&self, kind: &Kind, query: &Query) -> Vec<Arc<Entry>> {
        let snapshots = self.snapshots(kind, |scope| scope.covers(query));
        let covering = snapshots.covering(query, None);
        covering
            .map_or_else(Vec::new, |(_, snapshot)| snapshot.select(query, None).cloned().collect())
    }

    /// Returns whether the cluster serves a kind; `None` if that is not known yet.
    pub fn serves(&self, kind: &Kind) -> Option<bool> {
        self.of_kind(kind).state.lock().served
    }

    /// Returns a snapshot of a kind and of its stores within these scopes. No other store is locked.
    pub fn snapshots(&self, kind: &Kind, is_wanted: impl Fn(&Scope) -> bool) -> KindSnapshot {
        let of_kind = self.of_kind(kind);
        let KindState { served, unavailable } = of_kind.state.lock().clone();
        let kind = Arc::clone(&of_kind.kind);
        let mut snapshots = KindSnapshot { kind, served, unavailable, stores: Vec::new() };
        self.add_snapshots(&mut snapshots, is_wanted);
        snapshots
    }

    /// Adds the stores within these scopes that a snapshot of a kind does not have.
    pub(crate) fn add_snapshots(&self, to: &mut KindSnapshot, is_wanted: impl Fn(&Scope) -> bool) {
        let of_kind = self.of_kind(&to.kind);
        let snapshot = |store: &Arc<Store>| {
            let mut tables = store.tables.lock();
            let sequence = tables.sequence;
            let snapshot = tables.served.table.snapshot(sequence);
            // The index of labels may have grown.
            store.held.store(tables.held(), Ordering::Relaxed);
            (store.id, Arc::clone(&store.scope), snapshot)
        };
        let is_new = |store: &&Arc<Store>| to.stores.iter().all(|(id, ..)| *id != store.id);
        let stores = of_kind.stores.read();
        let wanted = stores.iter().filter(|store| is_wanted(&store.scope)).filter(is_new);
        let new: Vec<_> = wanted.map(snapshot).collect();
        to.stores.extend(new);
    }

    /// Indexes the labels that queries have requested for some more objects of a store. Returns
    /// whether others are left.
    pub(crate) fn index_labels(&self, kind: &Kind, id: StoreId) -> bool {
        let of_kind = self.of_kind(kind);
        let store = of_kind.stores.read().iter().find(|store| store.id == id).cloned();
        let Some(store) = store else { return false };
        let mut tables = store.tables.lock();
        let is_left = tables.served.table.current.index_labels();
        store.held.store(tables.held(), Ordering::Relaxed);
        is_left
    }

    /// Returns the shared kind and the best store that covers a query (complete before incomplete),
    /// with the hash of an index term that all objects of the query have in that store, if any.
    /// Requests an index for `user`.
    pub fn best_for(
        &self,
        kind: &Kind,
        query: &Query,
        user: &IndexUser,
    ) -> (Arc<Kind>, Option<(StoreId, Option<u64>)>) {
        let of_kind = self.of_kind(kind);
        let stores = of_kind.stores.read();
        let covering = stores.iter().filter(|store| store.scope.covers(query)).map(|store| {
            let tables = store.tables.lock();
            let current = &tables.served.table.current;
            current.request_index(query, user);
            (current.is_complete(), (store.id, current.index_term(query)))
        });
        let best = covering.max_by_key(|(is_complete, _)| *is_complete).map(|(_, best)| best);
        (Arc::clone(&of_kind.kind), best)
    }

    /// Returns namespace, name and resource version of each object of a store.
    pub fn resource_versions(
        &self,
        kind: &Kind,
        scope: &Scope,
    ) -> Vec<(Option<String>, String, String)> {
        let Some(store) = self.of_kind(kind).find(scope) else { return Vec::new() };
        let snapshot = store.tables.lock().served.table.current.clone();
        let version = |entry: &Arc<Entry>| {
            let namespace = entry.namespace().map(str::to_owned);
            (namespace, entry.name().to_owned(), entry.resource_version().to_owned())
        };
        snapshot.entries().map(version).collect()
    }

    /// Takes the events since the last call, in order.
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.0.events.lock().waiting).into()
    }

    /// Waits until there are events to take. Only one task may wait.
    pub async fn changed(&self) {
        while self.0.events.lock().waiting.is_empty() {
            self.0.arrived.notified().await;
        }
    }

    /// Returns a counter that increases with each report to the stores, even one that changes no
    /// object.
    pub fn progress(&self) -> watch::Receiver<u64> {
        self.0.progress.subscribe()
    }

    /// Returns the copy of a kind that its stores and events share.
    pub fn shared_kind(&self, kind: &Kind) -> Arc<Kind> {
        Arc::clone(&self.of_kind(kind).kind)
    }

    /// Returns a reference with the shared copy of its kind, to save memory in long-lived
    /// references.
    pub fn shared_ref(&self, of: &ObjectRef) -> ObjectRef {
        ObjectRef { kind: self.shared_kind(&of.kind), ..of.clone() }
    }

    /// Returns the stores of a kind. Does not add an unknown kind to the map: processors are
    /// untrusted and can name any number of kinds.
    fn of_kind(&self, kind: &Kind) -> Arc<OfKind> {
        let held = self.0.kinds.read().get(kind).cloned();
        held.unwrap_or_else(|| OfKind::new(kind))
    }

    fn kept_kind(&self, kind: &Kind) -> Arc<OfKind> {
        if let Some(of_kind) = self.0.kinds.read().get(kind) {
            return Arc::clone(of_kind);
        }
        let mut kinds = self.0.kinds.write();
        Arc::clone(kinds.entry(kind.clone()).or_insert_with(|| OfKind::new(kind)))
    }

    /// Applies an update to one table of a store, or to both for a write by this host; replaces the
    /// served table if the next one is ready; and publishes the changes that readers see.
    fn update(
        &self,
        kind: &Arc<Kind>,
        store: &Store,
        table: Option<u64>,
        update: Update<'_>,
        source: &Source,
    ) {
        // Rendering a large object takes long, so that is done without the lock.
        let shapes = update.object().map(|object| store.tables.lock().shapes_for(table, object));
        let mut entries = update.entries(&shapes.unwrap_or_default());
        let mut tables = store.tables.lock();
        let changes = tables.update(table, update, &mut entries);
        let is_seen = self.record(kind, store, &mut tables, changes, source);
        if matches!(update, Update::ListItem(_)) {
            return;
        }
        if let Some((place, version)) = update.written().filter(|_| !is_seen) {
            // The watch event arrived before the API server's answer, or the write changed nothing.
            let sent = if let Source::Write { sent, .. } = source { sent.as_deref() } else { None };
            let (store, bytes) = (store.id, sent.map_or(0, account_of));
            let claim = Claim { store, place, version, source: source.clone(), bytes };
            self.0.events.lock().waiting.push_back(Event::Claimed(claim));
        }
        let changes = tables.replace();
        self.record(kind, store, &mut tables, changes, &Source::Watch);
        drop(tables);
        self.wake();
        self.notify_progress();
    }

    /// Records changes as events, and wakes no task. Returns whether readers see any.
    fn record(
        &self,
        kind: &Arc<Kind>,
        store: &Store,
        tables: &mut Tables,
        changes: Changes,
        source: &Source,
    ) -> bool {
        store.held.store(tables.held(), Ordering::Relaxed);
        let Changes { differences, is_complete } = changes;
        if differences.is_empty() && !is_complete {
            return false;
        }
        let mut events = self.0.events.lock();
        for (old, new) in differences {
            events.sequence += 1;
            tables.sequence = events.sequence;
            let (kind, source) = (Arc::clone(kind), source.clone());
            let change =
                Change { sequence: events.sequence, store: store.id, kind, old, new, source };
            events.waiting.push_back(Event::Object(change));
        }
        if is_complete {
            events.waiting.push_back(Event::Complete(Arc::clone(kind)));
        }
        true
    }

    fn publish(&self, events: impl IntoIterator<Item = Event>) {
        self.0.events.lock().waiting.extend(events);
        self.wake();
    }

    /// Wakes the task that takes events.
    fn wake(&self) {
        self.0.arrived.notify_one();
    }

    fn notify_progress(&self) {
        self.0.progress.send_modify(|number| *number += 1);
    }
}

// === impl OfKind ===

impl OfKind {
    fn new(kind: &Kind) -> Arc<Self> {
        Arc::new(Self {
            kind: Arc::new(kind.clone()),
            state: Mutex::default(),
            stores: RwLock::default(),
            absences: Absences::default(),
        })
    }

    /// Returns the stores that may hold the object of this namespace and name.
    fn with_place(&self, place: &NamespacedName) -> Vec<Arc<Store>> {
        let stores = self.stores.read();
        stores.iter().filter(|store| store.scope.may_hold(place)).cloned().collect()
    }

    fn find(&self, scope: &Scope) -> Option<Arc<Store>> {
        self.stores.read().iter().find(|store| *store.scope == *scope).cloned()
    }
}
