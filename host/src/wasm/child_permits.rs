//! Permits for work that takes long, shared fairly between tenants: a tenant holds at most one
//! permit, and waiting tenants get theirs in turn.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A number of permits. Each tenant has its own queue, whose first waiter stands in the queue of
/// all tenants. So each tenant holds one permit at most, and a tenant with a thousand modules
/// counts as one in the shared queue.
#[derive(Debug)]
pub(super) struct ChildPermits {
    all: Arc<Semaphore>,
    tenants: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// A permit, held until it is dropped.
#[derive(Debug)]
pub(super) struct ChildPermit {
    // Dropped in this order: the tenant's next waiter joins the shared queue behind those that
    // already wait there.
    _of_all: OwnedSemaphorePermit,
    _of_tenant: Option<OwnedSemaphorePermit>,
}

// === impl ChildPermits ===

impl ChildPermits {
    pub(super) fn new(count: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(count)), tenants: Mutex::default() }
    }

    /// Waits for a permit. Work without a tenant (developer commands) may take all permits.
    pub(super) async fn take(&self, tenant: Option<&str>) -> ChildPermit {
        let of_tenant = match tenant {
            Some(tenant) => Some(acquire(self.line_of(tenant)).await),
            None => None,
        };
        ChildPermit { _of_all: acquire(Arc::clone(&self.all)).await, _of_tenant: of_tenant }
    }

    fn line_of(&self, tenant: &str) -> Arc<Semaphore> {
        let mut tenants = self.tenants.lock();
        tenants.retain(|_, line| Arc::strong_count(line) > 1);
        let line = tenants.entry(tenant.to_owned());
        Arc::clone(line.or_insert_with(|| Arc::new(Semaphore::new(1))))
    }
}

async fn acquire(line: Arc<Semaphore>) -> OwnedSemaphorePermit {
    line.acquire_owned().await.expect("the permits are never closed")
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, future::BoxFuture};

    use super::*;

    /// Asks for a permit and asserts that it is queued behind earlier waiters.
    fn waiting<'a>(child_permits: &'a ChildPermits, tenant: &'a str) -> BoxFuture<'a, ChildPermit> {
        let mut waiting = child_permits.take(Some(tenant)).boxed();
        assert!((&mut waiting).now_or_never().is_none(), "{tenant} has to wait");
        waiting
    }

    fn taken(waiting: &mut BoxFuture<'_, ChildPermit>) -> Option<ChildPermit> {
        waiting.now_or_never()
    }

    #[test]
    fn a_tenant_has_one_place_and_leaves_the_other() {
        let child_permits = ChildPermits::new(2);
        let _first = child_permits.take(Some("hostile")).now_or_never().expect("a free permit");
        let _many: Vec<_> = (0..100).map(|_| waiting(&child_permits, "hostile")).collect();
        child_permits.take(Some("other")).now_or_never().expect("a permit for another tenant");
    }

    #[test]
    fn tenants_have_their_turns() {
        let child_permits = ChildPermits::new(1);
        let mut first = child_permits.take(Some("hostile")).now_or_never();
        let (mut second, mut third) =
            (waiting(&child_permits, "hostile"), waiting(&child_permits, "hostile"));
        let mut other = waiting(&child_permits, "other");
        drop(first.take());
        assert!(taken(&mut second).is_none() && taken(&mut third).is_none(), "another one waits");
        let permit = taken(&mut other).expect("the permit of the next tenant");
        drop(permit);
        let permit = taken(&mut second).expect("the permit of the only waiting tenant");
        let mut late = waiting(&child_permits, "other");
        drop(permit);
        assert!(taken(&mut third).is_none());
        assert!(taken(&mut late).is_some());
    }

    #[test]
    fn a_cancelled_wait_takes_no_permit() {
        let child_permits = ChildPermits::new(1);
        let permit = child_permits.take(Some("a")).now_or_never();
        drop(waiting(&child_permits, "a"));
        drop(waiting(&child_permits, "b"));
        drop(permit);
        for tenant in ["a", "b", "c"] {
            assert!(child_permits.take(Some(tenant)).now_or_never().is_some(), "{tenant}");
        }
        assert_eq!(child_permits.tenants.lock().len(), 1, "lines that nobody stands in are gone");
    }
}
