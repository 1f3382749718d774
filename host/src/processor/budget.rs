//! The memory that all calls may have together.
//!
//! *Guarantees.* All linear memories together never have more than the budget, and one processor's never more than is left for all
//! others: alone it gets half, of two each gets a third, and there is always something left for one more.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use super::tenant::Tenant;

/// The budget.
pub(super) struct Budget {
    limit: usize,
    used: AtomicUsize,
}

/// What one call has of it. Given back when it is dropped.
pub(super) struct Charge {
    budget: Arc<Budget>,
    tenant: Tenant,
    bytes: usize,
}

/// More was asked for than there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Short {
    /// What the processor's calls would have had.
    pub(super) asked: usize,
    /// Of all calls.
    pub(super) limit: usize,
}

// === impl Budget ===

impl Budget {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, used: AtomicUsize::new(0) }
    }

    /// What a call begins with.
    pub(super) fn charge(self: &Arc<Self>, tenant: &Tenant) -> Charge {
        Charge { budget: Arc::clone(self), tenant: tenant.clone(), bytes: 0 }
    }
}

// === impl Charge ===

impl Charge {
    /// Takes more.
    pub(super) fn grow(&mut self, by: usize) -> Result<(), Short> {
        let Budget { limit, used } = &*self.budget;
        let own = self.tenant.memory();
        // Counted before it is looked at: two that ask at once may both be refused, but never both be given what is there for one.
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
