//! The places of calls that are under way: of the host, and of each origin.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::share;

/// The calls of a host at once.
pub(crate) const MAX_OF_HOST: u64 = 64;
/// The calls to one origin at once.
pub(crate) const MAX_OF_ORIGIN: u64 = 16;

/// The calls that are under way. The processors of one namespace leave places to others, both of the
/// host and of an origin.
#[derive(Debug, Default)]
pub(super) struct Places {
    held: Mutex<Vec<Arc<Held>>>,
    freed: Notify,
}

#[derive(Debug, PartialEq, Eq)]
struct Held {
    namespace: String,
    origin: String,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place<'a> {
    places: &'a Places,
    held: Arc<Held>,
}

// === impl Places ===

impl Places {
    /// Waits for a place.
    pub(super) async fn take(&self, namespace: &str, origin: &str) -> Place<'_> {
        let held = Held { namespace: namespace.to_owned(), origin: origin.to_owned() };
        let held = Arc::new(held);
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            // From now on no place becomes free unnoticed.
            freed.as_mut().enable();
            if self.hold(&held) {
                return Place { places: self, held };
            }
            freed.await;
        }
    }

    fn hold(&self, new: &Arc<Held>) -> bool {
        let mut all = self.held.lock();
        let count = |is_it: &dyn Fn(&Held) -> bool| {
            1 + all.iter().filter(|held| is_it(held)).count() as u64
        };
        let is_own = |held: &Held| held.namespace == new.namespace;
        let is_there = |held: &Held| held.origin == new.origin;
        let is_free = share::is_within(count(&is_own), count(&|_| true), MAX_OF_HOST)
            && share::is_within(
                count(&|held| is_own(held) && is_there(held)),
                count(&is_there),
                MAX_OF_ORIGIN,
            );
        if is_free {
            all.push(Arc::clone(new));
        }
        is_free
    }
}

// === impl Place ===

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut all = self.places.held.lock();
        if let Some(at) = all.iter().position(|held| Arc::ptr_eq(held, &self.held)) {
            all.swap_remove(at);
        }
        drop(all);
        self.places.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn fill<'a>(places: &'a Places, namespace: &str, origin: &str) -> Vec<Place<'a>> {
        let one = || places.take(namespace, origin).now_or_never();
        std::iter::from_fn(one).collect()
    }

    #[tokio::test]
    async fn a_namespace_leaves_places_of_each_origin_and_of_the_host() {
        let places = Places::default();
        let mut held = fill(&places, "a", "https://hung.example");
        assert_eq!(held.len(), 8, "half of an origin");
        let other = fill(&places, "b", "https://hung.example");
        assert_eq!(other.len(), 4, "half of the rest");
        for at in 0..10 {
            held.extend(fill(&places, "a", &format!("https://{at}.example")));
        }
        assert!(held.len() <= 32, "half of the host: {}", held.len());
        assert!(!fill(&places, "c", "https://hung.example").is_empty());
        assert!(!fill(&places, "c", "https://0.example").is_empty());
    }

    #[tokio::test]
    async fn who_waits_gets_the_place_of_a_call_that_ends() {
        let places = Places::default();
        let mut held = fill(&places, "a", "https://a.example");
        let mut waiting = std::pin::pin!(places.take("a", "https://a.example"));
        assert!(futures::poll!(&mut waiting).is_pending());
        held.pop();
        assert!(futures::poll!(&mut waiting).is_ready());
    }
}
