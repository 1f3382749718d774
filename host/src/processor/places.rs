//! Places for work that takes long, shared fairly between tenants: a tenant holds at most one
//! place, and waiting tenants get theirs in turn.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A number of places. Each tenant has a line of its own, whose first waiter stands in the line of
/// all tenants. So each tenant holds one place at most, and a tenant with a thousand modules counts
/// as one in the line of all.
#[derive(Debug)]
pub(super) struct Places {
    all: Arc<Semaphore>,
    tenants: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// A place, held until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    // Dropped in this order: the tenant's next waiter joins the line of all behind those that wait
    // there already.
    _of_all: OwnedSemaphorePermit,
    _of_tenant: Option<OwnedSemaphorePermit>,
}

// === impl Places ===

impl Places {
    pub(super) fn new(count: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(count)), tenants: Mutex::default() }
    }

    /// Waits for a place. Work without a tenant (developer commands) may take all places.
    pub(super) async fn take(&self, tenant: Option<&str>) -> Place {
        let of_tenant = match tenant {
            Some(tenant) => Some(acquire(self.line_of(tenant)).await),
            None => None,
        };
        Place { _of_all: acquire(Arc::clone(&self.all)).await, _of_tenant: of_tenant }
    }

    fn line_of(&self, tenant: &str) -> Arc<Semaphore> {
        let mut tenants = self.tenants.lock();
        tenants.retain(|_, line| Arc::strong_count(line) > 1);
        let line = tenants.entry(tenant.to_owned());
        Arc::clone(line.or_insert_with(|| Arc::new(Semaphore::new(1))))
    }
}

async fn acquire(line: Arc<Semaphore>) -> OwnedSemaphorePermit {
    line.acquire_owned().await.expect("the places are never closed")
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, future::BoxFuture};

    use super::*;

    /// Takes a place and asserts that it has to be waited for, behind earlier waiters.
    fn waiting<'a>(places: &'a Places, tenant: &'a str) -> BoxFuture<'a, Place> {
        let mut waiting = places.take(Some(tenant)).boxed();
        assert!((&mut waiting).now_or_never().is_none(), "{tenant} has to wait");
        waiting
    }

    fn taken(waiting: &mut BoxFuture<'_, Place>) -> Option<Place> {
        waiting.now_or_never()
    }

    #[test]
    fn a_tenant_has_one_place_and_leaves_the_other() {
        let places = Places::new(2);
        let _first = places.take(Some("hostile")).now_or_never().expect("it is free");
        let _many: Vec<_> = (0..100).map(|_| waiting(&places, "hostile")).collect();
        places.take(Some("other")).now_or_never().expect("one is left for others");
    }

    #[test]
    fn tenants_have_their_turns() {
        let places = Places::new(1);
        let mut first = places.take(Some("hostile")).now_or_never();
        let (mut second, mut third) = (waiting(&places, "hostile"), waiting(&places, "hostile"));
        let mut other = waiting(&places, "other");
        drop(first.take());
        assert!(taken(&mut second).is_none() && taken(&mut third).is_none(), "another one waits");
        let place = taken(&mut other).expect("it is its turn");
        drop(place);
        let place = taken(&mut second).expect("it is the only one");
        let mut late = waiting(&places, "other");
        drop(place);
        assert!(taken(&mut third).is_none());
        assert!(taken(&mut late).is_some());
    }

    #[test]
    fn who_gives_up_waiting_takes_nothing() {
        let places = Places::new(1);
        let place = places.take(Some("a")).now_or_never();
        drop(waiting(&places, "a"));
        drop(waiting(&places, "b"));
        drop(place);
        for tenant in ["a", "b", "c"] {
            assert!(places.take(Some(tenant)).now_or_never().is_some(), "{tenant}");
        }
        assert_eq!(places.tenants.lock().len(), 1, "lines that nobody stands in are gone");
    }
}
