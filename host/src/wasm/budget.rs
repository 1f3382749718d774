//! The memory limit of all calls together.
//!
//! *Guarantees.* The linear memories of all calls together never exceed the budget, and those of
//! one processor never exceed the memory left for all other processors: a single processor gets
//! half, two processors get a third each, and some memory is always left for one more.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use super::tenant::Tenant;

pub(super) struct Budget {
    limit: usize,
    used: AtomicUsize,
}

/// The memory charged to one call. Returned to the budget on drop.
pub(super) struct Charge {
    budget: Arc<Budget>,
    tenant: Tenant,
    bytes: usize,
}

/// The error of a call that needs more memory than the budget has left for its processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Short {
    /// Bytes that the processor's calls would have used.
    pub(super) asked: usize,
    /// The budget, in bytes.
    pub(super) limit: usize,
}

// === impl Budget ===

impl Budget {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, used: AtomicUsize::new(0) }
    }

    /// Starts the account of a call, with no memory charged.
    pub(super) fn charge(self: &Arc<Self>, tenant: &Tenant) -> Charge {
        Charge { budget: Arc::clone(self), tenant: tenant.clone(), bytes: 0 }
    }
}

// === impl Charge ===

impl Charge {
    /// Charges `by` more bytes to the call.
    pub(super) fn grow(&mut self, by: usize) -> Result<(), Short> {
        let Budget { limit, used } = &*self.budget;
        let own = self.tenant.memory();
        // Counted before the check: two concurrent calls may both be refused, but can never both
        // get memory that suffices for one.
        let of_all = used.fetch_add(by, Relaxed).saturating_add(by);
        let asked = own.fetch_add(by, Relaxed).saturating_add(by);
        if asked > limit.saturating_sub(of_all) {
            used.fetch_sub(by, Relaxed);
            own.fetch_sub(by, Relaxed);
            self.tenant.is_short_of_memory();
            return Err(Short { asked, limit: *limit });
        }
        self.bytes += by;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Relaxed);
        self.tenant.memory().fetch_sub(self.bytes, Relaxed);
    }
}
