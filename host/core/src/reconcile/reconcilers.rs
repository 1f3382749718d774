//! The reconcilers of one version of a processor.

use std::{collections::HashMap, sync::Arc};

use parking_lot::RwLock;

use crate::{grant::DeclaredReconciler, key::ReconcilerId};

/// The reconcilers of a version: all that a run needs to know of its own is in this table.
#[derive(Debug)]
pub(super) struct Reconcilers {
    /// The declared ones, without those on demand.
    declared: Vec<Arc<DeclaredReconciler>>,
    /// The on-demand ones that were started. Locked briefly, after all other locks.
    started: RwLock<HashMap<ReconcilerId, Arc<DeclaredReconciler>>>,
}

// === impl Reconcilers ===

impl Reconcilers {
    pub(super) fn new(declared: &[Arc<DeclaredReconciler>]) -> Self {
        let declared = declared.iter().filter(|of| !of.spec.on_demand).cloned().collect();
        Self { declared, started: RwLock::default() }
    }

    /// Returns the declared reconcilers, without those on demand.
    pub(super) fn declared(&self) -> &[Arc<DeclaredReconciler>] {
        &self.declared
    }

    /// Returns the on-demand reconcilers that were started, sorted by identity.
    pub(super) fn started(&self) -> Vec<Arc<DeclaredReconciler>> {
        let mut started: Vec<_> = self.started.read().values().cloned().collect();
        started.sort_by(|one, other| one.id.cmp(&other.id));
        started
    }

    /// Returns all reconcilers that have objects.
    pub(super) fn all(&self) -> impl Iterator<Item = Arc<DeclaredReconciler>> {
        self.declared.iter().cloned().chain(self.started())
    }

    /// Returns the reconciler of an identity, if the version has it.
    pub(super) fn of(&self, id: &ReconcilerId) -> Option<Arc<DeclaredReconciler>> {
        let declared = self.declared.iter().find(|of| of.id == *id).cloned();
        declared.or_else(|| self.started.read().get(id).cloned())
    }

    /// Drops all started reconcilers.
    pub(super) fn clear(&self) {
        self.started.write().clear();
    }

    /// Sets a started reconciler; `None`: it is stopped.
    pub(super) fn set(&self, id: &ReconcilerId, started: Option<DeclaredReconciler>) {
        match started {
            Some(started) => self.started.write().insert(id.clone(), Arc::new(started)),
            None => self.started.write().remove(id),
        };
    }

    /// Returns the reconcilers whose keys another version does not have: `others` has
    /// no such reconciler, or has it for another kind.
    pub(super) fn gone_from(&self, others: &Self) -> Vec<ReconcilerId> {
        let is_gone = |one: &Arc<DeclaredReconciler>| {
            let other = others.of(&one.id);
            !other.is_some_and(|other| one.spec.of.kind.is_same(&other.spec.of.kind))
        };
        self.all().filter(is_gone).map(|one| one.id.clone()).collect()
    }
}
