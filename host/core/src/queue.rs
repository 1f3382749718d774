//! The queue: keys that wait to be reconciled, each once, with delays, back-off, priorities and
//! limits per processor. Within a processor and a priority, namespaces take turns, and keys whose
//! last run failed come after the others.
//!
//! *Guarantees.* A key that was added is given out later, unless its processor is removed first. A
//! key is never given out twice at once: a key that is added while it runs is given out again after
//! [`Queue::done`]. A run consumes all causes and delays of its key at its start: the newest
//! outcome decides when the key runs again. Until the run reads the stores, `join` adds later
//! changes to it.

mod by_processor;
mod cause;
mod core;
mod entry;
mod lane;
mod line;
mod notes;
#[cfg(test)]
mod tests;

pub use crate::key::{Key, ReconcilerId};
pub use by_processor::ByProcessor;
pub use cause::{Cause, Role, What};
pub use entry::{Entry, NoKey, Where};
pub use lane::Limits;

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use self::core::{Core, Next};
use crate::contract::Note;

/// The order in which the keys of a processor are given out. Lower priorities still get a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// The key was triggered by a change.
    Change,
    /// The key is due without a change.
    Resync,
    /// The key is one of all those of a start or of a new version: what has changed, or is due, runs
    /// before it.
    Background,
}

/// A key that was given out; [`Queue::done`] must follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub key: Key,
    /// The first few causes since the last run.
    pub causes: Vec<Cause>,
    /// The number of further causes.
    pub more_causes: usize,
    /// The number of consecutive failed runs of the key.
    pub attempt: u32,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// The run succeeded.
    Success {
        /// The delay until the key runs again without a change, and the cause of that run; `None`
        /// if it waits for a change.
        requeue: Option<(Duration, Cause)>,
    },
    /// The run failed: the next run's `attempt` counts it.
    Failure(Again),
    /// The host cancelled the run: the key is requeued at once. Earlier failures still count.
    Cancelled,
}

/// The delay until a failed run is tried again. A change runs the key earlier in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// Exponential back-off: 5 ms after the first failure in a row, twice as long after each
    /// further one, at most 1000 s.
    BackOff,
    /// The same back-off, but at least this long, up to 1000 s, as the API server requested.
    NotBefore(Duration),
    /// A fixed delay.
    After(Duration),
    /// No retry: only a change runs the key.
    OnChange,
}

/// A key that waits for its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delayed {
    pub key: Key,
    /// The time until the key is due.
    pub due_in: Duration,
    /// The cause of the next run. `Coalesced` stands for changes that came within the minimum
    /// interval between runs.
    pub cause: Cause,
}

/// The numbers of keys by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The number of keys that could run now.
    pub ready: usize,
    /// The number of keys that run.
    pub running: usize,
    /// The number of keys that wait for their time.
    pub delayed: usize,
}

/// The state of one processor's keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// The numbers of keys by state.
    pub state: State,
    /// The number of delayed keys whose last run failed.
    pub backing_off: usize,
    /// The number of keys whose last run failed, including those that only a change will run again.
    pub failing: usize,
}

/// The queue. Clones are handles of the same queue.
#[derive(Clone, Debug, Default)]
pub struct Queue(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Locked briefly, never across an await.
    core: Mutex<Core>,
    /// Wakes one waiting `next`: a key may be ready, or an earlier timer set.
    work: Notify,
    /// Wakes all waiting `idle` and `settled`.
    rest: Notify,
    /// The time of a paused clock; `None` if it runs.
    still: Mutex<Option<Instant>>,
}

// === impl Queue ===

impl Queue {
    pub fn new() -> Self {
        Self::default()
    }

    /// Pauses the clock: delayed keys become due by [`Queue::advance`] only.
    pub fn stand_still(&self) {
        self.0.still.lock().get_or_insert_with(Instant::now);
    }

    /// Advances a paused clock. Keys that are due by then become ready.
    pub fn advance(&self, by: Duration) {
        if let Some(now) = self.0.still.lock().as_mut() {
            *now = now.checked_add(by).unwrap_or(*now);
        }
        self.0.work.notify_one();
    }

    fn now(&self) -> Instant {
        self.0.still.lock().unwrap_or_else(Instant::now)
    }

    /// Returns the keys that could run now, sorted.
    pub fn ready(&self) -> Vec<Key> {
        let mut core = self.0.core.lock();
        core.fire(self.now());
        core.ready_keys()
    }

    /// Gives out this key if it is ready, out of turn and regardless of limits.
    pub fn take_key(&self, key: &Key) -> Option<Run> {
        let mut core = self.0.core.lock();
        core.fire(self.now());
        core.take(key)
    }

    /// Sets the limits of a processor. Until then a processor has the default limits.
    pub fn set_processor(&self, processor: &Arc<str>, limits: Limits) {
        self.0.core.lock().set_limits(processor, limits, self.now());
        self.0.work.notify_one();
    }

    /// Drops all keys of a processor. Running keys are not given out again.
    pub fn remove_processor(&self, processor: &str) {
        self.0.core.lock().remove_processor(processor);
        self.0.rest.notify_waiters();
    }

    /// Drops all keys of a reconciler. Running keys are not given out again.
    pub fn remove_reconciler(&self, processor: &str, reconciler: &ReconcilerId) {
        self.0.core.lock().remove_reconciler(processor, reconciler);
        self.0.rest.notify_waiters();
    }

    /// Returns the keys of a reconciler that wait or run, in any order.
    pub fn keys_of(&self, processor: &str, reconciler: &ReconcilerId) -> Vec<Key> {
        self.0.core.lock().keys_of(processor, reconciler)
    }

    /// Sets the minimum interval between the end of a run and the next run that a change triggers:
    /// changes within it are coalesced. Due retries and requeues do not wait for it.
    pub fn set_min_interval(
        &self,
        processor: &Arc<str>,
        reconciler: &ReconcilerId,
        interval: Duration,
    ) {
        self.0.core.lock().set_min_interval(processor, reconciler, interval);
    }

    /// Queues a key to run now.
    pub fn add(&self, key: &Key, cause: Cause, priority: Priority) {
        self.0.core.lock().add(key, cause, priority, self.now());
        self.0.work.notify_one();
    }

    /// Queues a key to run now, and forgets its earlier failures.
    pub fn renew(&self, key: &Key, cause: Cause, priority: Priority) {
        self.0.core.lock().renew(key, cause, priority, self.now());
        self.0.work.notify_one();
    }

    /// Queues a key to run after a delay. The earlier of two delays counts.
    pub fn add_after(&self, key: &Key, delay: Duration, cause: Cause, priority: Priority) {
        self.0.core.lock().add_at(key, self.now() + delay, cause, priority);
        self.0.work.notify_one();
    }

    /// Waits for the next key to run, and gives it out.
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

    /// Gives out the next key to run, if one can run now.
    pub fn try_next(&self) -> Option<Run> {
        if let Next::Run(run) = self.take() { Some(run) } else { None }
    }

    fn take(&self) -> Next {
        let mut core = self.0.core.lock();
        let next = core.next(self.now());
        if matches!(next, Next::Run(_)) && core.has_ready() {
            // A single wake-up may stand for several keys that became due at once: each taker wakes
            // the next one.
            self.0.work.notify_one();
        }
        next
    }

    /// Adds to a run the changes in the stores since its key was given out. Must be called before
    /// the run reads the stores.
    pub fn join(&self, run: &mut Run) {
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

    /// Returns the note that a module has left for a key, if it is still there.
    pub fn note(&self, key: &Key, module: &str) -> Option<Note> {
        self.0.core.lock().note(key, module)
    }

    /// Keeps the note of a run that ends, or drops the key's former one. Does nothing if the key does
    /// not run, or was removed while it ran.
    pub fn set_note(&self, key: &Key, module: &Arc<str>, note: Option<Note>) {
        self.0.core.lock().set_note(key, module, note);
    }

    /// Returns whether a key has a note.
    pub fn has_notes(&self) -> bool {
        self.0.core.lock().has_notes()
    }

    /// Forgets the notes of all keys, as a start of the host does.
    pub fn forget_notes(&self) {
        self.0.core.lock().forget_notes();
    }

    /// Returns the keys that wait for their time, the earliest first.
    pub fn delayed(&self) -> Vec<Delayed> {
        self.0.core.lock().delayed(self.now())
    }

    /// Returns the entries that `is_chosen` accepts, sorted by key.
    pub fn entries(&self, is_chosen: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let mut core = self.0.core.lock();
        core.fire(self.now());
        core.entries(self.now(), is_chosen)
    }

    /// Returns the numbers of keys by state.
    pub fn state(&self) -> State {
        let mut core = self.0.core.lock();
        core.fire(self.now());
        core.state()
    }

    /// Returns the numbers of keys by state for each processor, sorted by name.
    pub fn states(&self) -> Vec<(Arc<str>, State)> {
        let mut core = self.0.core.lock();
        core.fire(self.now());
        core.states()
    }

    /// Returns the state of a processor's keys. The cost is linear in the number of these keys, not
    /// of all keys.
    pub fn share_of(&self, processor: &str) -> Share {
        let mut core = self.0.core.lock();
        core.fire(self.now());
        core.share_of(processor)
    }

    /// Returns whether a key is ready, delayed or running.
    pub fn contains(&self, key: &Key) -> bool {
        self.0.core.lock().contains(key)
    }

    /// Returns whether no key is ready and none runs. Delayed keys do not count.
    pub fn is_idle(&self) -> bool {
        let mut core = self.0.core.lock();
        core.fire(self.now());
        core.is_idle()
    }

    /// Waits until the queue is idle.
    pub async fn idle(&self) {
        self.until(Self::is_idle).await;
    }

    /// Returns whether the queue is settled: it is idle, no change waits for a minimum interval,
    /// and no failed key is retried within a second, unless it has failed eight times in a row.
    pub fn is_settled(&self) -> bool {
        let mut core = self.0.core.lock();
        core.fire(self.now());
        core.is_settled(self.now())
    }

    /// Waits until the queue is settled; see [`Queue::is_settled`].
    pub async fn settled(&self) {
        self.until(Self::is_settled).await;
    }

    /// Waits until a condition holds that can become true when a run ends or keys are removed.
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
