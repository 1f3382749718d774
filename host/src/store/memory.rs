//! How much the stores keep.

use std::{iter::Sum, ops::Add, sync::Arc};

use super::{OfKind, Snapshot, Stores, feed::Store};
use crate::contract::Kind;

/// How much is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// How many objects.
    pub objects: usize,
    /// Bytes: the sum of their JSON.
    pub json: usize,
    /// Bytes that they take with all that is kept of them, estimated.
    pub total: usize,
}

// === impl Memory ===

impl Add for Memory {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self {
            objects: self.objects + more.objects,
            json: self.json + more.json,
            total: self.total + more.total,
        }
    }
}

impl Sum for Memory {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Self::add)
    }
}

// === memory of stores ===

impl Stores {
    /// How much is kept of all kinds.
    pub fn memory(&self) -> Memory {
        self.memory_by_kind().into_iter().map(|(_, memory)| memory).sum()
    }

    /// How much is kept of each kind that is watched. An object that is in several scopes counts in each.
    pub fn memory_by_kind(&self) -> Vec<(Arc<Kind>, Memory)> {
        let kinds: Vec<Arc<OfKind>> = self.0.kinds.read().values().cloned().collect();
        let watched = kinds.iter().filter(|of_kind| !of_kind.stores.read().is_empty());
        watched.map(|of_kind| (Arc::clone(&of_kind.kind), of_kind.memory())).collect()
    }
}

impl OfKind {
    fn memory(&self) -> Memory {
        let current = |store: &Arc<Store>| store.tables.lock().served.table.current().clone();
        let snapshots: Vec<Snapshot> = self.stores.read().iter().map(current).collect();
        snapshots.iter().map(Snapshot::memory).sum()
    }
}

impl Snapshot {
    fn memory(&self) -> Memory {
        let entries = self.rows().iter().map(|entry| Memory {
            objects: 1,
            json: entry.json_bytes(),
            total: entry.bytes(),
        });
        let indexes = Memory { total: self.index_bytes(), ..Memory::default() };
        indexes + entries.sum()
    }
}
