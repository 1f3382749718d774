//! The reconcilers of one version of a processor.

use std::sync::Arc;

use crate::{grant::DeclaredReconciler, key::ReconcilerId, queue::Key};

/// The reconcilers of a version: all that a run needs to know of its own is in this table.
#[derive(Debug)]
pub(super) struct Reconcilers(Vec<Arc<DeclaredReconciler>>);

// === impl Reconcilers ===

impl Reconcilers {
    pub(super) fn new(declared: &[Arc<DeclaredReconciler>]) -> Self {
        Self(declared.to_vec())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<DeclaredReconciler>> {
        self.0.iter()
    }

    /// Returns the reconciler of a key, if the version has it.
    pub(super) fn of(&self, key: &Key) -> Option<&Arc<DeclaredReconciler>> {
        self.iter().find(|of| of.id == *key.reconciler())
    }

    /// Returns the reconcilers whose keys another version does not have: `others` has
    /// no such reconciler, or has it for another kind.
    pub(super) fn gone_from(&self, others: &Self) -> Vec<ReconcilerId> {
        let is_same = |one: &DeclaredReconciler, other: &DeclaredReconciler| {
            one.id == other.id && one.spec.of.kind.is_same(&other.spec.of.kind)
        };
        let gone = self.iter().filter(|one| !others.iter().any(|other| is_same(one, other)));
        gone.map(|one| one.id.clone()).collect()
    }
}
