//! The selections of a reconciler's objects.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    contract::{
        Selection,
        bounds::{ENTRY, list_size},
    },
    key::ReconcilerId,
    store::{Entry, Query},
};

/// A selection of a reconciler's objects: the declared one or, of an on-demand reconciler, one that
/// outcomes start.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Selected {
    /// The reconciler.
    pub by: ReconcilerId,
    pub of: Selection,
    pub(crate) query: Query,
    /// The query without labels and fields: an object that no longer matches these is still
    /// reconciled while it holds a finalizer.
    pub(crate) anywhere: Query,
}

/// Selections that a reconciler runs for, or ran for.
pub type Selections = Box<[Arc<Selected>]>;

// === impl Selected ===

impl Selected {
    pub(crate) fn new(by: ReconcilerId, of: Selection, query: Query) -> Self {
        Self { by, of, anywhere: query.anywhere(), query }
    }

    /// Returns the bytes of the selection, as the contract counts them.
    pub fn bytes(&self) -> usize {
        ENTRY + list_size(&self.of, None)
    }

    /// Returns whether the selection is of this namespace and name, whatever its labels and fields.
    pub fn is_at(&self, namespace: Option<&str>, name: &str) -> bool {
        let of = &self.of;
        of.namespace.as_deref().is_none_or(|wanted| namespace == Some(wanted))
            && of.name.as_deref().is_none_or(|wanted| wanted == name)
    }
}

/// Puts objects that several queries have found in one list: each once, by namespace and name.
pub(super) fn merged(mut found: Vec<Vec<Arc<Entry>>>) -> Vec<Arc<Entry>> {
    if found.len() < 2 {
        return found.pop().unwrap_or_default();
    }
    let place = |entry: Arc<Entry>| {
        let (namespace, name) = (entry.namespace().map(str::to_owned), entry.name().to_owned());
        ((namespace, name), entry)
    };
    let all: BTreeMap<_, _> = found.into_iter().flatten().map(place).collect();
    all.into_values().collect()
}
