//! The reads that are refused because a limit of the host is reached.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::{
    contract::Kind,
    store::{IndexUser, Scope},
};

/// The declared reads of a processor that are refused because a limit of the host is reached.
/// Clones are handles of the same state.
#[derive(Clone, Debug, Default)]
pub struct Limited {
    met: Arc<RwLock<LimitsMet>>,
    index_user: IndexUser,
}

/// The limits that are reached.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LimitsMet {
    /// The reason why no further watch is opened, if the processor's limit is reached.
    pub watches: Option<Arc<str>>,
    /// The stores that are not read because they were too large.
    pub stores: Vec<(Kind, Scope)>,
    /// The reason why `stores` are not read.
    pub stores_why: Arc<str>,
}

// === impl Limited ===

impl Limited {
    /// Returns the processor's version as a user of indexes.
    pub fn index_user(&self) -> &IndexUser {
        &self.index_user
    }

    /// Replaces the limits that are reached.
    pub fn set(&self, met: LimitsMet) {
        *self.met.write() = met;
    }

    /// Returns the reason why a limit refuses reads of a kind without a store, if one does.
    pub fn why(&self, kind: &Kind) -> Option<Arc<str>> {
        let met = self.met.read();
        if met.stores.iter().any(|(of, _)| of == kind) {
            return Some(Arc::clone(&met.stores_why));
        }
        met.watches.clone()
    }

    /// Returns whether a store is too large for the processor; it may be open for others.
    pub fn is_refused(&self, kind: &Kind, scope: &Scope) -> bool {
        self.met.read().stores.iter().any(|(of, within)| of == kind && within == scope)
    }
}
