//! The health of the watches in another cluster. A cluster may answer every request while what its
//! lists and watches bring is cut off: then the stores grow old, although the cluster is there.

use std::{
    fmt::Display,
    sync::{Arc, Weak},
    time::Duration,
};

use mortise_core::contract::{Kind, display_kind};
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

/// The time for which an answer with changes must have been open for its watch to work, if no change
/// has come.
const OPEN_PERIOD: Duration = Duration::from_secs(5);

/// The watches in one cluster.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    all: Mutex<Vec<Weak<Health>>>,
    /// The kinds whose watches failed for long at the last check, and why.
    failing: Mutex<Vec<(Kind, String)>>,
    /// Notified when a watch works again that had failed for long.
    mended: Notify,
}

/// The health of one watch, until it is dropped.
#[derive(Debug)]
pub(crate) struct Health {
    kind: Kind,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// True while objects are listed.
    lists: bool,
    /// The time at which an answer with changes began, if none of them has come yet.
    opened: Option<Instant>,
    /// The time of the first failure after which the watch has not worked, and the text of the last.
    failed: Option<(Instant, String)>,
}

/// Ends an answer with changes when it is dropped.
pub(crate) struct Open(Arc<Health>);

// === impl Watches ===

impl Watches {
    /// Adds a watch.
    pub(crate) fn begin(&self, kind: &Kind) -> Arc<Health> {
        let health = Arc::new(Health { kind: kind.clone(), state: Mutex::default() });
        let mut all = self.all.lock();
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&health));
        health
    }

    /// Returns why a watch failed for long, at the last check.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failing.lock().first().map(|(_, why)| why.clone())
    }

    /// Returns why a watch of a kind failed for long, at the last check: what is known of the kind
    /// may be too old.
    pub(crate) fn failure_of(&self, kind: &Kind) -> Option<String> {
        let failing = self.failing.lock();
        failing.iter().find(|(of, _)| of == kind).map(|(_, why)| why.clone())
    }

    /// Checks for watches that have failed for this time. Returns true if these are others than at
    /// the last check.
    pub(crate) fn check(&self, time: Duration) -> bool {
        let all: Vec<Arc<Health>> = self.all.lock().iter().filter_map(Weak::upgrade).collect();
        let failures = all.iter().filter_map(|one| Some((one.kind.clone(), one.failure(time)?)));
        let failing: Vec<_> = failures.collect();
        let mut held = self.failing.lock();
        let are_others = failing.iter().map(|(kind, _)| kind).ne(held.iter().map(|(kind, _)| kind));
        let are_fewer = failing.len() < held.len();
        *held = failing;
        drop(held);
        if are_fewer {
            self.mended.notify_waiters();
        }
        are_others
    }

    /// Waits until a watch fails while another one works again: it would wait for longer.
    pub(crate) async fn mended(&self, health: &Health) {
        loop {
            self.mended.notified().await;
            if health.failure(Duration::ZERO).is_some() {
                return;
            }
        }
    }
}

// === impl Health ===

impl Health {
    /// Records the begin of a list.
    pub(crate) fn lists(&self) {
        self.state.lock().lists = true;
    }

    /// Records the end of a list, a change, or that there is nothing to watch.
    pub(crate) fn works(&self) {
        *self.state.lock() = State::default();
    }

    /// Records a failure.
    pub(crate) fn failed(&self, why: &dyn Display) {
        self.state.lock().fail(Instant::now(), why);
    }

    /// Records the begin of an answer with changes, which lasts until this is dropped.
    pub(crate) fn open(self: &Arc<Self>) -> Open {
        self.state.lock().opened = Some(Instant::now());
        Open(Arc::clone(self))
    }

    fn failure(&self, time: Duration) -> Option<String> {
        let (now, mut state) = (Instant::now(), self.state.lock());
        state.settle(now);
        let (since, why) = state.failed.as_ref()?;
        let is_long = now.saturating_duration_since(*since) >= time;
        is_long.then(|| format!("the watch of {} fails: {why}", display_kind(&self.kind)))
    }
}

// === impl State ===

impl State {
    fn fail(&mut self, now: Instant, why: &dyn Display) {
        self.settle(now);
        // No change comes through an answer that failed.
        self.opened = None;
        let since = self.failed.take().map_or(now, |(since, _)| since);
        self.failed = Some((since, why.to_string()));
    }

    /// Drops the failure if an answer with changes has been open for long enough.
    fn settle(&mut self, now: Instant) {
        let is_old = |at: Instant| now.saturating_duration_since(at) >= OPEN_PERIOD;
        if !self.lists && self.opened.is_some_and(is_old) {
            self.failed = None;
        }
    }
}

// === impl Open ===

impl Drop for Open {
    fn drop(&mut self) {
        let (now, mut state) = (Instant::now(), self.0.state.lock());
        state.settle(now);
        let Some(opened) = state.opened.take() else { return };
        if state.lists {
            state.fail(now, &"the API server ends it before its list is complete");
        } else if now.saturating_duration_since(opened) < OPEN_PERIOD {
            state.fail(now, &"the API server ends it at once");
        }
    }
}

#[cfg(test)]
mod tests {
    use mortise_core::fixture::v1;
    use tokio::time::advance;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn watched() -> (Watches, Arc<Health>) {
        let watches = Watches::default();
        let health = watches.begin(&v1("", "ConfigMap"));
        (watches, health)
    }

    fn failure(watches: &Watches) -> Option<String> {
        watches.check(LONG);
        let why = watches.failure();
        assert_eq!(watches.failure_of(&v1("", "ConfigMap")), why);
        assert_eq!(watches.failure_of(&v1("", "Secret")), None, "of another kind");
        why
    }

    /// Opens answers for these times, one after the other, with pauses in between.
    async fn opens(health: &Arc<Health>, times: u32, lasts: Duration) {
        for _ in 0..times {
            let open = health.open();
            advance(lasts).await;
            drop(open);
            advance(Duration::from_secs(10)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_ends_at_once_again_and_again_fails_until_it_stays_open() {
        let (watches, health) = watched();
        opens(&health, 3, Duration::ZERO).await;
        let why = "the watch of ConfigMap v1 fails: the API server ends it at once";
        assert_eq!(failure(&watches).as_deref(), Some(why));
        let open = health.open();
        assert!(failure(&watches).is_some());
        advance(OPEN_PERIOD).await;
        assert_eq!(failure(&watches), None);
        drop(open);
        assert_eq!(failure(&watches), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_closed_after_a_while_works() {
        let (watches, health) = watched();
        opens(&health, 10, OPEN_PERIOD).await;
        assert_eq!(failure(&watches), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_does_not_end_fails() {
        let (watches, health) = watched();
        let open = health.open();
        health.lists();
        advance(LONG).await;
        assert_eq!(failure(&watches), None, "it may be long");
        drop(open);
        advance(LONG).await;
        assert!(failure(&watches).unwrap().ends_with("before its list is complete"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_has_failed_is_not_open() {
        let (watches, health) = watched();
        let _open = health.open();
        advance(LONG).await;
        health.failed(&"cut off");
        advance(LONG).await;
        assert!(failure(&watches).unwrap().ends_with("fails: cut off"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_ends_a_failure_and_an_open_list_does_not() {
        let (watches, health) = watched();
        health.failed(&"refused");
        health.failed(&"cut off");
        health.lists();
        let _open = health.open();
        advance(LONG).await;
        assert_eq!(failure(&watches).as_deref(), Some("the watch of ConfigMap v1 fails: cut off"));
        health.works();
        assert_eq!(failure(&watches), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_dropped_does_not_count() {
        let (watches, health) = watched();
        health.failed(&"cut off");
        advance(LONG).await;
        assert!(failure(&watches).is_some());
        drop(health);
        assert_eq!(failure(&watches), None);
    }

    #[tokio::test(start_paused = true)]
    async fn watches_that_still_fail_try_again_when_another_works() {
        let (watches, health) = watched();
        let (other, well) = (watches.begin(&v1("", "Secret")), watches.begin(&v1("", "Pod")));
        health.failed(&"cut off");
        other.failed(&"cut off");
        advance(LONG).await;
        watches.check(LONG);
        let mut waits = std::pin::pin!(watches.mended(&other));
        let mut rests = std::pin::pin!(watches.mended(&well));
        assert!(futures::poll!(&mut waits).is_pending() && futures::poll!(&mut rests).is_pending());
        health.works();
        watches.check(LONG);
        assert!(futures::poll!(&mut waits).is_ready());
        assert!(futures::poll!(&mut rests).is_pending());
    }
}
