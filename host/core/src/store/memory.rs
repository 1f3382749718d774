//! The memory that the stores use.

use std::{iter::Sum, ops::Add, sync::Arc};

use super::{OfKind, Stores, feed::Store};
use crate::contract::Kind;

/// The memory that objects of stores use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The number of objects.
    pub objects: usize,
    /// The bytes of the objects' JSON.
    pub json: usize,
    /// The estimated bytes of the objects' entries and indexes.
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
    /// Returns the memory used for all kinds.
    pub fn memory(&self) -> Memory {
        self.memory_by_kind().into_iter().map(|(_, memory)| memory).sum()
    }

    /// Returns the memory used for each watched kind. An object in several scopes counts in each of
    /// them.
    pub fn memory_by_kind(&self) -> Vec<(Arc<Kind>, Memory)> {
        let kinds: Vec<Arc<OfKind>> = self.0.kinds.read().values().cloned().collect();
        let watched = kinds.iter().filter(|of_kind| !of_kind.stores.read().is_empty());
        watched.map(|of_kind| (Arc::clone(&of_kind.kind), of_kind.memory())).collect()
    }
}

impl OfKind {
    fn memory(&self) -> Memory {
        let of_store = |store: &Arc<Store>| {
            let tables = store.tables.lock();
            let current = &tables.served.table.current;
            Memory { objects: current.len(), json: current.json(), total: tables.held() }
        };
        self.stores.read().iter().map(of_store).sum()
    }
}
