//! Reads that are not answered since a limit of the host is met.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::contract::Kind;
use crate::store::Scope;

/// What a processor declares and is not given since a limit of the host is met. Clones are handles of the same.
#[derive(Clone, Debug, Default)]
pub struct Limited(Arc<RwLock<Met>>);

/// The limits that are met.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// It has as many watches as it may: why no other is opened.
    pub watches: Option<Arc<str>>,
    /// The stores that were too large, and why they are not read.
    pub stores: Vec<(Kind, Scope)>,
    /// Why these are not read.
    pub stores_why: Arc<str>,
}

// === impl Limited ===

impl Limited {
    /// Says what is met from now on.
    pub fn set(&self, met: Met) {
        *self.0.write() = met;
    }

    /// Returns why nothing of a kind is read that no store has.
    pub fn why(&self, kind: &Kind) -> Option<Arc<str>> {
        let met = self.0.read();
        if met.stores.iter().any(|(of, _)| of == kind) {
            return Some(Arc::clone(&met.stores_why));
        }
        met.watches.clone()
    }

    /// Returns whether a store is not to be read, though it may be there for others.
    pub fn is_refused(&self, kind: &Kind, scope: &Scope) -> bool {
        self.0.read().stores.iter().any(|(of, within)| of == kind && within == scope)
    }
}
