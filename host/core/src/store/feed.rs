//! The feed of a store: a watch reports its lists and events here.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use parking_lot::Mutex;
use serde_json::Value;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use super::{
    OfKind, Scope, Source, StoreId, Stores, Wanted,
    absence::Absences,
    entry::{Entry, Shape},
    table::{Changes, Table, Update},
};

/// The growth of a store, in bytes, that is reported: small against the memory limit of a
/// processor.
const REPORTED_GROWTH_BYTES: usize = 1 << 20;

/// The store of one kind within one scope.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) id: StoreId,
    pub(super) scope: Arc<Scope>,
    /// Locked briefly. Lock order: tables before events.
    pub(super) tables: Mutex<Tables>,
    /// The approximate bytes of the objects and indexes.
    pub(super) held: AtomicUsize,
    /// The value of `held` when growth was last reported.
    reported: AtomicUsize,
}

/// The table that is served, and the one that will replace it.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) served: FedTable,
    /// The number of the last change.
    pub(super) sequence: u64,
    /// A table with more fields, while it is being listed.
    pub(super) next: Option<FedTable>,
}

/// A table that a watch fills.
#[derive(Debug)]
pub(super) struct FedTable {
    pub(super) table: Table,
    pub(super) wanted: Wanted,
    /// The number of the table within its store.
    number: u64,
    /// Cancelled when the table is no longer needed.
    over: CancellationToken,
}

/// Fills one table of a store until the table is no longer needed. Clones fill the same table.
#[derive(Clone, Debug)]
pub struct Feed {
    stores: Stores,
    kind: Arc<OfKind>,
    store: Arc<Store>,
    metadata_only: bool,
    number: u64,
    over: CancellationToken,
}

// === impl Store ===

impl Store {
    pub(super) fn new(id: StoreId, scope: &Scope, wanted: &Wanted, absences: &Absences) -> Self {
        let shape = Shape::new(wanted.fields.clone(), wanted.matching.clone());
        let table = Table::new(shape, absences.clone());
        let tables = Tables { served: FedTable::new(table, wanted, 0), sequence: 0, next: None };
        Self {
            id,
            scope: Arc::new(scope.clone()),
            tables: Mutex::new(tables),
            held: AtomicUsize::new(0),
            reported: AtomicUsize::new(0),
        }
    }
}

// === impl Tables ===

impl Tables {
    /// Ensures that `wanted` will be served. Returns whether a new table must be listed for this.
    pub(super) fn widen(&mut self, wanted: &Wanted) -> bool {
        let newest = self.newest();
        if newest.covers(wanted) {
            return false;
        }
        let wanted = newest.wanted.union(wanted);
        let table = self.served.table.successor(&wanted.fields, &wanted.matching);
        let next = FedTable::new(table, &wanted, newest.number + 1);
        if let Some(never) = self.next.replace(next) {
            never.over.cancel();
        }
        true
    }

    /// Drops the table that is being listed if the served one covers `wanted`. Returns whether it
    /// was dropped.
    pub(super) fn narrow(&mut self, wanted: &Wanted) -> bool {
        if self.next.is_none() || !self.served.covers(wanted) {
            return false;
        }
        if let Some(never) = self.next.take() {
            never.over.cancel();
        }
        true
    }

    /// Returns roughly how many bytes the objects and indexes of both tables take: the bytes that
    /// the bound on stores and the metric count.
    pub(super) fn held(&self) -> usize {
        let next = self.next.as_ref().map_or(0, |next| next.table.current.held());
        self.served.table.current.held() + next
    }

    pub(super) fn newest(&self) -> &FedTable {
        self.next.as_ref().unwrap_or(&self.served)
    }

    /// Applies an update to one table, or to both for a write by this host. Returns the changes
    /// that readers see. Ignores updates of a table that is no longer needed.
    ///
    /// `entries` are entries of the update's object, which are taken.
    pub(super) fn update(
        &mut self,
        table: Option<u64>,
        update: Update<'_>,
        entries: &mut Vec<Entry>,
    ) -> Changes {
        if let Some(next) = self.next.as_mut().filter(|next| next.is_meant(table)) {
            next.table.update(update, entries);
        }
        if self.served.is_meant(table) {
            self.served.table.update(update, entries)
        } else {
            Changes::default()
        }
    }

    /// Returns the shapes of those tables that an update with this object is for, unless they hold
    /// it already.
    pub(super) fn shapes_for(&self, table: Option<u64>, object: &Value) -> Vec<Arc<Shape>> {
        let tables = self.next.iter().chain([&self.served]).filter(|fed| fed.is_meant(table));
        let without = tables.filter(|fed| !fed.table.is_known(object));
        without.map(|fed| Arc::clone(fed.table.current.shape())).collect()
    }

    /// Replaces the served table with the next one if that is complete and moves no object back to
    /// an older version.
    pub(super) fn replace(&mut self) -> Changes {
        let can_follow = |next: &mut FedTable| next.table.can_follow(&self.served.table);
        let Some(mut next) = self.next.take_if(can_follow) else { return Changes::default() };
        let differences = next.table.follow(&self.served.table);
        let former = std::mem::replace(&mut self.served, next);
        former.over.cancel();
        Changes { differences, is_complete: true }
    }

    /// Drops all objects without reporting changes, because the kind is not served any more.
    pub(super) fn clear(&mut self) {
        self.served.table.clear();
        if let Some(next) = &mut self.next {
            next.table.clear();
        }
    }

    pub(super) fn is_settled(&self) -> bool {
        self.next.is_none() && self.served.table.current.is_complete()
    }

    /// Ends the feeds of both tables.
    pub(super) fn close(&self) {
        self.served.over.cancel();
        if let Some(next) = &self.next {
            next.over.cancel();
        }
    }
}

// === impl FedTable ===

impl FedTable {
    fn new(table: Table, wanted: &Wanted, number: u64) -> Self {
        Self { table, wanted: wanted.clone(), number, over: CancellationToken::new() }
    }

    /// Returns whether an update is for this table: it names the table, or all tables.
    fn is_meant(&self, table: Option<u64>) -> bool {
        table.is_none_or(|number| self.number == number && !self.over.is_cancelled())
    }

    fn covers(&self, wanted: &Wanted) -> bool {
        let brings_enough = wanted.is_metadata_only() || !self.wanted.is_metadata_only();
        brings_enough && self.table.covers(&wanted.fields, &wanted.matching)
    }
}

// === impl Feed ===

impl Feed {
    /// Creates a feed for the newest table of a store.
    pub(super) fn new(stores: &Stores, kind: &Arc<OfKind>, store: &Arc<Store>) -> Self {
        let tables = store.tables.lock();
        let newest = tables.newest();
        Self {
            stores: stores.clone(),
            kind: Arc::clone(kind),
            store: Arc::clone(store),
            metadata_only: newest.wanted.is_metadata_only(),
            number: newest.number,
            over: newest.over.clone(),
        }
    }

    /// Returns whether a watch of metadata is enough to fill the table.
    pub fn is_metadata_only(&self) -> bool {
        self.metadata_only
    }

    /// Waits until the feed is no longer needed: another table has replaced its table, or the store
    /// was closed.
    pub fn over(&self) -> WaitForCancellationFuture<'_> {
        self.over.cancelled()
    }

    /// Begins a list of all objects. Readers still see the former objects until the list ends.
    pub fn begin_list(&self) {
        self.update(Update::BeginList);
    }

    /// Stores an object of the list. Wakes no task: the next item or the end of the list follows.
    pub fn list_item(&self, object: &Value) {
        self.update(Update::ListItem(object));
    }

    /// Ends the list: objects that were not in it are removed.
    pub fn end_list(&self) {
        self.stores.set_known(&self.kind.kind);
        self.kind.state.lock().unavailable = None;
        self.update(Update::EndList);
    }

    /// Stores an object that the watch reports as added or modified; the object must be whole, with
    /// `metadata.managedFields`.
    pub fn upsert(&self, object: &Value) {
        self.update(Update::Upsert(object));
    }

    /// Removes an object that the watch reports as deleted or as having left the scope, given its
    /// last state.
    pub fn delete(&self, object: &Value) {
        self.update(Update::Delete(object));
    }

    /// Returns whether the store takes at least `REPORTED_GROWTH_BYTES` bytes more than when this
    /// last returned true.
    pub fn has_grown(&self) -> bool {
        let held = self.store.held.load(Ordering::Relaxed);
        let reported = self.store.reported.load(Ordering::Relaxed);
        // After the store has shrunk, growth is measured from the lower value.
        let is_news = held < reported || held >= reported + REPORTED_GROWTH_BYTES;
        if is_news {
            self.store.reported.store(held, Ordering::Relaxed);
        }
        is_news && held > reported
    }

    fn update(&self, update: Update<'_>) {
        self.stores.update(&self.kind.kind, &self.store, Some(self.number), update, &Source::Watch);
    }
}
