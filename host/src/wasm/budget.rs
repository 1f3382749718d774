//! The memory limit of all calls and all loaded modules together.
//!
//! *Guarantees.* The memories of all calls and loaded modules together never exceed the budget.
//! Those of one processor's calls never exceed the memory left for all others ([`share`]), and those
//! of a namespace, with its loaded modules, never exceed [`NAMESPACE_SHARES`] times as much: some
//! memory is always left for one more.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use super::tenant::Tenant;
use crate::share;

pub(super) struct Budget {
    limit: usize,
    used: AtomicUsize,
    namespaces: Mutex<HashMap<Box<str>, Weak<AtomicUsize>>>,
}

/// The memory charged to one call, or to one loaded module. Returned to the budget on drop.
pub(super) struct Charge {
    budget: Arc<Budget>,
    /// The processor of a call; `None` for a loaded module.
    tenant: Option<Tenant>,
    /// The bytes of the namespace.
    namespace: Arc<AtomicUsize>,
    bytes: usize,
}

/// The error of a call or a module that needs more memory than the budget has left for its
/// processor or namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Short {
    /// Bytes that the processor's calls, or its namespace, would have used.
    pub(super) asked: usize,
    /// The budget, in bytes.
    pub(super) limit: usize,
}

/// The memory of a namespace in parts of what is left for others: alone it gets three quarters.
const NAMESPACE_SHARES: usize = 3;

// === impl Budget ===

impl Budget {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, used: AtomicUsize::new(0), namespaces: Mutex::default() }
    }

    /// Starts the account of a call, with no memory charged.
    pub(super) fn charge(self: &Arc<Self>, tenant: &Tenant) -> Charge {
        let namespace = Arc::clone(tenant.namespace_memory());
        Charge { budget: Arc::clone(self), tenant: Some(tenant.clone()), namespace, bytes: 0 }
    }

    /// Starts the account of a loaded module, with no memory charged.
    pub(super) fn charge_namespace(self: &Arc<Self>, namespace: &str) -> Charge {
        let namespace = self.namespace(namespace);
        Charge { budget: Arc::clone(self), tenant: None, namespace, bytes: 0 }
    }

    /// Returns the bytes that are charged to a namespace, which all of its accounts share.
    pub(super) fn namespace(&self, name: &str) -> Arc<AtomicUsize> {
        let mut namespaces = self.namespaces.lock();
        if let Some(held) = namespaces.get(name).and_then(Weak::upgrade) {
            return held;
        }
        namespaces.retain(|_, held| held.strong_count() > 0);
        let new = Arc::default();
        namespaces.insert(name.into(), Arc::downgrade(&new));
        new
    }
}

// === impl Charge ===

impl Charge {
    /// Charges `by` more bytes.
    pub(super) fn grow(&mut self, by: usize) -> Result<(), Short> {
        // Counted before the check: two concurrent calls may both be refused, but can never both
        // get memory that suffices for one.
        let add = |to: &AtomicUsize| to.fetch_add(by, Relaxed).saturating_add(by);
        let of_all = add(&self.budget.used);
        let of_namespace = add(&self.namespace);
        let of_processor = self.tenant.as_ref().map(|tenant| add(tenant.memory()));
        let limit = self.budget.limit;
        let is_within = |own: usize| share::is_within(own as u64, of_all as u64, limit as u64);
        self.bytes += by;
        let asked = match of_processor {
            Some(asked) if !is_within(asked) => asked,
            _ if !is_within(of_namespace.div_ceil(NAMESPACE_SHARES)) => of_namespace,
            _ => return Ok(()),
        };
        self.shrink(by);
        if let Some(tenant) = &self.tenant {
            tenant.is_short_of_memory();
        }
        Err(Short { asked, limit })
    }

    fn shrink(&mut self, by: usize) {
        self.budget.used.fetch_sub(by, Relaxed);
        self.namespace.fetch_sub(by, Relaxed);
        if let Some(tenant) = &self.tenant {
            tenant.memory().fetch_sub(by, Relaxed);
        }
        self.bytes -= by;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}
