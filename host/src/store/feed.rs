//! The hand that fills a store: what a watch saw goes in here.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use super::absence::Absences;
use super::entry::{NotKept, Shape};
use super::table::{Difference, Table};
use super::{OfKind, Scope, Source, StoreId, Stores, Wanted};
use crate::json::Json;

/// How much a store grows, in bytes, before somebody is told: little beside what a processor may make the host hold.
const GROWTH: usize = 1 << 20;

/// One kind within one scope.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) id: StoreId,
    pub(super) scope: Arc<Scope>,
    /// Locked for a few lines; before the events, where both are.
    pub(super) tables: Mutex<Tables>,
    /// Roughly how many bytes the objects in it take.
    pub(super) held: AtomicUsize,
    /// The same when somebody was last told that it had grown.
    told: AtomicUsize,
}

/// What is served, and what will be.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) served: Fed,
    /// The number of the last change.
    pub(super) sequence: u64,
    /// With more in it, while it is being listed.
    pub(super) next: Option<Fed>,
}

/// A table that a watch fills.
#[derive(Debug)]
pub(super) struct Fed {
    pub(super) table: Table,
    pub(super) wanted: Wanted,
    /// Which table of its store it is.
    number: u64,
    /// Cancelled when nobody needs the table any more.
    over: CancellationToken,
}

/// Fills one table of a store, until it is over. Clones are the same.
#[derive(Clone, Debug)]
pub struct Feed {
    stores: Stores,
    kind: Arc<OfKind>,
    store: Arc<Store>,
    metadata_only: bool,
    number: u64,
    over: CancellationToken,
}

/// What changed for readers, and whether more can be read than before.
pub(super) type Told = Result<(Vec<Difference>, bool), NotKept>;

// === impl Store ===

impl Store {
    pub(super) fn new(id: StoreId, scope: &Scope, wanted: &Wanted, absences: &Absences) -> Self {
        let shape = Shape::new(wanted.fields.clone(), wanted.matching.iter().cloned());
        let table = Table::new(shape, absences.clone());
        let tables = Tables { served: Fed::new(table, wanted, 0), sequence: 0, next: None };
        Self {
            id,
            scope: Arc::new(scope.clone()),
            tables: Mutex::new(tables),
            held: AtomicUsize::new(0),
            told: AtomicUsize::new(0),
        }
    }
}

// === impl Tables ===

impl Tables {
    /// Makes sure that what is wanted will be served. Says whether a new table must be filled for that.
    pub(super) fn widen(&mut self, wanted: &Wanted) -> bool {
        if self.newest().covers(wanted) {
            // Within what is kept, what is declared to be looked for needs an index and no list.
            self.newest_mut().table.index_paths(&wanted.matching);
            return false;
        }
        let newest = self.newest();
        let wanted = newest.wanted.union(wanted);
        let table = self.served.table.successor(&wanted.fields, &wanted.matching);
        let next = Fed::new(table, &wanted, newest.number + 1);
        if let Some(never) = self.next.replace(next) {
            never.over.cancel();
        }
        true
    }

    /// Holds no more than what is wanted, if that is what is served: what is being listed beyond it is dropped. Says whether it is so.
    pub(super) fn narrow(&mut self, wanted: &Wanted) -> bool {
        if self.next.is_none() || !self.served.covers(wanted) {
            return false;
        }
        if let Some(never) = self.next.take() {
            never.over.cancel();
        }
        true
    }

    /// Roughly how many bytes the objects take.
    pub(super) fn held(&self) -> usize {
        let next = self.next.as_ref().map_or(0, |next| next.table.current().held());
        self.served.table.current().held() + next
    }

    pub(super) fn newest(&self) -> &Fed {
        self.next.as_ref().unwrap_or(&self.served)
    }

    fn newest_mut(&mut self) -> &mut Fed {
        self.next.as_mut().unwrap_or(&mut self.served)
    }

    /// Tells every table; readers see what becomes of the one that is served.
    pub(super) fn tell(
        &mut self,
        what: impl Fn(&mut Table) -> Result<Vec<Difference>, NotKept>,
    ) -> Told {
        let differences = what(&mut self.served.table)?;
        if let Some(next) = &mut self.next {
            // What it cannot keep it says when its own watch shows it.
            let _ = what(&mut next.table);
        }
        Ok((differences, false))
    }

    /// Tells one table. One that is over is told nothing.
    fn tell_one(&mut self, number: u64, what: impl FnOnce(&mut Table) -> Told) -> Told {
        let is_it = |fed: &Fed| fed.number == number && !fed.over.is_cancelled();
        if is_it(&self.served) {
            return what(&mut self.served.table);
        }
        if let Some(next) = self.next.as_mut().filter(|next| is_it(next)) {
            what(&mut next.table)?;
        }
        Ok((Vec::new(), false))
    }

    /// Has the next table take over if it is complete, and no older than the present one.
    pub(super) fn exchange(&mut self) -> (Vec<Difference>, bool) {
        let can_follow = |next: &mut Fed| next.table.can_follow(&self.served.table);
        let Some(mut next) = self.next.take_if(can_follow) else { return (Vec::new(), false) };
        let differences = next.table.follow(&self.served.table);
        let former = std::mem::replace(&mut self.served, next);
        former.over.cancel();
        (differences, true)
    }

    /// Forgets all objects, without a word: the kind is gone.
    pub(super) fn clear(&mut self) {
        self.served.table.clear();
        if let Some(next) = &mut self.next {
            next.table.clear();
        }
    }

    pub(super) fn is_settled(&self) -> bool {
        self.next.is_none() && self.served.table.current().is_complete()
    }

    /// Ends the feeds.
    pub(super) fn close(&self) {
        self.served.over.cancel();
        if let Some(next) = &self.next {
            next.over.cancel();
        }
    }
}

// === impl Fed ===

impl Fed {
    fn new(table: Table, wanted: &Wanted, number: u64) -> Self {
        Self { table, wanted: wanted.clone(), number, over: CancellationToken::new() }
    }

    fn covers(&self, wanted: &Wanted) -> bool {
        let brings_enough = wanted.is_metadata_only() || !self.wanted.is_metadata_only();
        brings_enough && self.table.covers(&wanted.fields, &wanted.matching)
    }
}

// === impl Feed ===

impl Feed {
    /// Of the newest table of a store.
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

    /// Whether metadata is all that it needs of the objects.
    pub fn is_metadata_only(&self) -> bool {
        self.metadata_only
    }

    /// Waits until nobody needs it any more: another has taken its place, or its store was closed.
    pub fn over(&self) -> WaitForCancellationFuture<'_> {
        self.over.cancelled()
    }

    /// A list of all objects begins. Readers see what was there before until its end.
    pub fn begin_list(&self) {
        self.tell(|table| {
            table.begin_list();
            Ok((Vec::new(), false))
        });
        // A list that broke off has left items behind.
        self.stores.wake();
    }

    /// An object of the list. Nobody is woken for it: the next one follows, and the end of the list.
    pub fn list_item<'a>(&self, object: impl Json<'a>) {
        self.note(|table| Ok((table.list_item(object)?.into_iter().collect(), false)));
    }

    /// The list is at its end: what was not in it is gone.
    pub fn end_list(&self) {
        self.stores.set_known(&self.kind.kind);
        self.kind.state.lock().unavailable = None;
        self.tell(|table| Ok(table.end_list()));
        self.stores.wake();
    }

    /// An object was made or changed, says the watch; whole, with `metadata.managedFields`.
    pub fn upsert<'a>(&self, object: impl Json<'a>) {
        self.tell(|table| Ok((table.upsert(object)?, false)));
    }

    /// An object was deleted or left the scope, says the watch; its last state.
    pub fn delete<'a>(&self, object: impl Json<'a>) {
        self.tell(|table| Ok((table.delete(object), false)));
    }

    /// Returns whether the store takes a good deal more memory than when this last returned true.
    pub fn has_grown(&self) -> bool {
        let held = self.store.held.load(Ordering::Relaxed);
        let told = self.store.told.load(Ordering::Relaxed);
        // What it has given back meanwhile counts anew.
        let is_news = held < told || held >= told + GROWTH;
        if is_news {
            self.store.told.store(held, Ordering::Relaxed);
        }
        is_news && held > told
    }

    fn tell(&self, what: impl FnOnce(&mut Table) -> Told) {
        if self.note(what) {
            self.stores.wake();
        }
        self.stores.exchange(&self.kind.kind, &self.store);
        self.stores.moved();
    }

    /// Tells the table, and wakes nobody. Whether that was news.
    fn note(&self, what: impl FnOnce(&mut Table) -> Told) -> bool {
        let (number, kind) = (self.number, &self.kind.kind);
        self.stores.note(kind, &self.store, &Source::Watch, |tables| tables.tell_one(number, what))
    }
}
