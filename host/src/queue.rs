//! The queue: keys that wait to be reconciled, each once, with delays, back-off, priorities and limits per processor. Within a
//! processor and a priority namespaces take turns, and keys whose last run failed come after the others.
//!
//! *Guarantees.* A key that was added is given out after that, unless its processor is removed first. One key is never given
//! out twice at once: what is added while it runs is given out after `done`. A run that starts takes all that was waiting
//! for its key along, its delays too: when to be called again is what the newest outcome says. So does one that was given out and
//! has not looked at anything yet, with changes.

mod cause;
mod core;
mod entry;
mod lane;
mod line;
#[cfg(test)]
mod tests;

pub use cause::{Cause, Role, What};
pub use entry::{Entry, NoKey, Where};
pub use lane::Limits;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::core::{Core, Next};

/// What is reconciled: an object, by a reconciler of a processor. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key(Arc<Parts>);

#[derive(PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
struct Parts {
    processor: Arc<str>,
    reconciler: Arc<str>,
    namespace: Option<Box<str>>,
    name: Box<str>,
}

/// What is given out first, within a processor. Lower ones get a share nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Something changed.
    Change,
    /// Nothing changed, but it is time.
    Resync,
    /// When there is little else to do.
    Background,
    /// When there is nothing else to do: not before all others that could run have, of any processor.
    Idle,
}

/// A key that was given out; `Queue::done` must follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// What to reconcile.
    pub key: Key,
    /// Why: the first few causes since its last run.
    pub causes: Vec<Cause>,
    /// How many causes more there were.
    pub more_causes: usize,
    /// How many runs of it in a row have failed.
    pub attempt: u32,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// Well.
    Success {
        /// When it is run again though nothing changes, and what that is called.
        requeue: Option<(Duration, Cause)>,
    },
    /// Not well: the next run's `attempt` counts it.
    Failure(Again),
    /// Not at all: the host cancelled it, and it runs again as soon as it may. That it failed before still counts.
    Cancelled,
}

/// When a run that failed is tried again; a change comes before that in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// 5 ms after the first failure in a row, twice as long after each more, at most 1000 s.
    BackOff,
    /// As `BackOff`, but not before this long is over, up to 1000 s: somebody asked for that.
    NotBefore(Duration),
    /// After this long.
    After(Duration),
    /// Only when something changes.
    OnChange,
}

/// A key that waits for its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delayed {
    /// The key.
    pub key: Key,
    /// How long it still waits.
    pub due_in: Duration,
    /// Why it will run. `Coalesced` stands for changes that came within the least interval between runs.
    pub cause: Cause,
}

/// How much is where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Keys that could run now.
    pub ready: usize,
    /// Keys that run.
    pub running: usize,
    /// Keys that wait for their time.
    pub delayed: usize,
}

/// What of the queue is one processor's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// How much is where.
    pub state: State,
    /// Of the delayed keys, those whose last run failed.
    pub backing_off: usize,
    /// Keys whose last run failed, also those that only a change will run again.
    pub failing: usize,
}

/// The queue. Clones are handles of the same one.
#[derive(Clone, Debug, Default)]
pub struct Queue(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Held for a few lines, never while waiting.
    core: Mutex<Core>,
    /// Wakes one waiting `next`: there may be something to give out, or an earlier time to wait for.
    work: Notify,
    /// Wakes all waiting `idle`.
    rest: Notify,
    /// The time, where it stands still.
    still: Mutex<Option<Instant>>,
}

// === impl Key ===

impl Key {
    /// The key of an object; without a namespace, of a cluster-scoped one.
    pub fn new(
        processor: &Arc<str>,
        reconciler: &Arc<str>,
        namespace: Option<&str>,
        name: &str,
    ) -> Self {
        Self(Arc::new(Parts {
            processor: Arc::clone(processor),
            reconciler: Arc::clone(reconciler),
            namespace: namespace.map(Into::into),
            name: name.into(),
        }))
    }

    /// The processor's name.
    pub fn processor(&self) -> &Arc<str> {
        &self.0.processor
    }

    /// The name of its reconciler.
    pub fn reconciler(&self) -> &Arc<str> {
        &self.0.reconciler
    }

    /// The object's namespace; none of a cluster-scoped one.
    pub fn namespace(&self) -> Option<&str> {
        self.0.namespace.as_deref()
    }

    /// The object's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }
}

impl fmt::Display for Key {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}/{}:", self.0.processor, self.0.reconciler)?;
        if let Some(namespace) = self.namespace() {
            write!(to, "{namespace}/")?;
        }
        to.write_str(self.name())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, to)
    }
}

// === impl Queue ===

impl Queue {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets no time pass from now on but by [`Queue::advance`]: what waits for its time waits for that.
    pub fn stand_still(&self) {
        self.0.still.lock().get_or_insert_with(Instant::now);
    }

    /// Moves the time on where it stands still: what is due by then is ready.
    pub fn advance(&self, by: Duration) {
        if let Some(now) = self.0.still.lock().as_mut() {
            *now = now.checked_add(by).unwrap_or(*now);
        }
        self.0.work.notify_one();
    }

    fn now(&self) -> Instant {
        self.0.still.lock().unwrap_or_else(Instant::now)
    }

    /// The keys that could run now, in their own order.
    pub fn ready(&self) -> Vec<Key> {
        let mut core = self.0.core.lock();
        core.fire(self.now());
        core.ready_keys()
    }

    /// Gives out one key, whoever's turn it is, if it is ready.
    pub fn take_key(&self, key: &Key) -> Option<Run> {
        let mut core = self.0.core.lock();
        core.fire(self.now());
        core.take(key)
    }

    /// Sets a processor's limits; a processor that was never set has the default ones.
    pub fn set_processor(&self, processor: &Arc<str>, limits: Limits) {
        self.0.core.lock().set_limits(processor, limits, self.now());
        self.0.work.notify_one();
    }

    /// Drops all of a processor's keys. Those that run are not given out again.
    pub fn remove_processor(&self, processor: &str) {
        self.0.core.lock().remove_processor(processor);
        self.0.rest.notify_waiters();
    }

    /// Drops all keys of a reconciler. Those that run are not given out again.
    pub fn remove_reconciler(&self, processor: &str, reconciler: &str) {
        self.0.core.lock().remove_reconciler(processor, reconciler);
        self.0.rest.notify_waiters();
    }

    /// Sets the least time between the end of a run and the next one because of a change: what comes within it is taken
    /// together. Retries and requeues that are due do not wait for it.
    pub fn set_min_interval(
        &self,
        processor: &Arc<str>,
        reconciler: &Arc<str>,
        interval: Duration,
    ) {
        self.0.core.lock().set_min_interval(processor, reconciler, interval);
    }

    /// Asks for a run now.
    pub fn add(&self, key: &Key, cause: Cause, priority: Priority) {
        self.0.core.lock().add(key, cause, priority, self.now());
        self.0.work.notify_one();
    }

    /// Asks for a run now that begins anew: that runs have failed before does not count any more.
    pub fn renew(&self, key: &Key, cause: Cause, priority: Priority) {
        self.0.core.lock().renew(key, cause, priority, Instant::now());
        self.0.work.notify_one();
    }

    /// Asks for a run after a time. Of two delays the earlier one counts.
    pub fn add_after(&self, key: &Key, delay: Duration, cause: Cause, priority: Priority) {
        self.0.core.lock().add_at(key, self.now() + delay, cause, priority);
        self.0.work.notify_one();
    }

    /// The next key to run; waits for one.
    pub async fn next(&self) -> Run {
        loop {
            let mut woken = std::pin::pin!(self.0.work.notified());
            woken.as_mut().enable();
            let next = self.take();
            match next {
                Next::Run(run) => return run,
                Next::At(time) if self.0.still.lock().is_none() => {
                    tokio::select! {
                        () = woken => {}
                        () = tokio::time::sleep_until(time) => {}
                    }
                }
                Next::At(_) | Next::Nothing => woken.await,
            }
        }
    }

    /// The next key to run now.
    pub fn try_next(&self) -> Option<Run> {
        if let Next::Run(run) = self.take() { Some(run) } else { None }
    }

    fn take(&self) -> Next {
        let mut core = self.0.core.lock();
        let next = core.next(self.now());
        if matches!(next, Next::Run(_)) && core.has_ready() {
            // One wake-up may stand for several keys that became due at once: each taker wakes the next one.
            self.0.work.notify_one();
        }
        next
    }

    /// Takes along what has changed in the stores since a run's key was given out: to be called before the run looks there.
    pub(crate) fn join(&self, run: &mut Run) {
        self.0.core.lock().join(run);
    }

    /// Ends a run.
    pub fn done(&self, key: &Key, done: Done) {
        let rests = {
            let mut core = self.0.core.lock();
            core.done(key, done, self.now());
            core.is_idle()
        };
        self.0.work.notify_one();
        if rests {
            self.0.rest.notify_waiters();
        }
    }

    /// The keys that wait for their time, the earliest first.
    pub fn delayed(&self) -> Vec<Delayed> {
        self.0.core.lock().delayed(self.now())
    }

    /// What is known of the keys that are chosen, in their own order.
    pub fn entries(&self, is_chosen: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let mut core = self.0.core.lock();
        core.fire(self.now());
        core.entries(self.now(), is_chosen)
    }

    /// How much is where.
    pub fn state(&self) -> State {
        let mut core = self.0.core.lock();
        core.fire(self.now());
        core.state()
    }

    /// How much of each processor is where, by name.
    pub fn states(&self) -> Vec<(Arc<str>, State)> {
        self.shares().into_iter().map(|(processor, share)| (processor, share.state)).collect()
    }

    /// What of it is whose, by the names of the processors.
    pub fn shares(&self) -> BTreeMap<Arc<str>, Share> {
        let mut core = self.0.core.lock();
        core.fire(Instant::now());
        core.shares()
    }

    /// Whether a key is ready, delayed or running.
    pub fn contains(&self, key: &Key) -> bool {
        self.0.core.lock().contains(key)
    }

    /// Whether nothing is ready and nothing runs. Delayed keys do not count.
    pub fn is_idle(&self) -> bool {
        let mut core = self.0.core.lock();
        core.fire(self.now());
        core.is_idle()
    }

    /// Waits until the queue is idle.
    pub async fn idle(&self) {
        self.until(Self::is_idle).await;
    }

    /// Whether nothing is left to do for now: it is idle, no change waits for the least interval between runs, and no failure is
    /// about to be repeated within a moment, but for those that have been often.
    pub fn is_settled(&self) -> bool {
        let mut core = self.0.core.lock();
        core.fire(self.now());
        core.is_settled(self.now())
    }

    /// Waits until nothing is left to do for now.
    pub async fn settled(&self) {
        self.until(Self::is_settled).await;
    }

    /// Waits until something holds that can begin to hold when a run ends.
    async fn until(&self, holds: impl Fn(&Self) -> bool) {
        loop {
            let mut woken = std::pin::pin!(self.0.rest.notified());
            woken.as_mut().enable();
            if holds(self) {
                return;
            }
            woken.await;
        }
    }
}
