//! From a change to the key that runs, and back: the stores, the triggers and the queue of a host.
//!
//! *Guarantee.* No change that concerns a key is lost between its runs. A key is given out by
//! [`Queue::next`] or [`Queue::take_key`], to one run at a time. The run goes through these steps,
//! in this order; a key that is skipped because its record still holds goes from the first to the
//! last:
//!
//! 1. [`Dispatch::feed`] hands the stores' changes to the triggers, which queue the keys that have
//!    read or written what changed. Events are handed on in the order of the stores.
//! 2. [`Dispatch::begin`] begins the run, before its view takes a snapshot. All changes that were
//!    fed by then join the run; from now on changes do not queue its key.
//! 3. The run reads from snapshots, each of which knows the number of the last change in it.
//! 4. [`Dispatch::end`] feeds the run's own writes, registers what it has read and written, and
//!    returns the changes after its snapshots: if there are any, the key must run again.
//! 5. [`Dispatch::done`] gives the key back to the queue, after all that the run triggered.

use parking_lot::Mutex;

use crate::{
    queue::{Cause, Done, Key, Priority, Queue, Run},
    reads::Reads,
    store::Stores,
    triggers::{Began, Triggers},
};

/// The stores, the triggers and the queue of a host. `triggers` is locked briefly, before
/// any other lock of a host.
#[derive(Debug)]
pub struct Dispatch {
    /// The objects that are known now.
    pub stores: Stores,
    /// The dependencies of all keys.
    pub triggers: Mutex<Triggers>,
    /// The keys that wait.
    pub queue: Queue,
}

// === impl Dispatch ===

impl Dispatch {
    /// Returns a dispatch without keys.
    pub fn new(stores: &Stores) -> Self {
        let (triggers, queue) = (Mutex::default(), Queue::new());
        Self { stores: stores.clone(), triggers, queue }
    }

    /// Queues the keys that the stores' changes trigger.
    pub fn feed(&self) {
        // Under one lock, so that events are seen in the order in which the stores took them in.
        let mut triggers = self.triggers.lock();
        for event in self.stores.take_events() {
            for (key, cause) in triggers.on_event(&event) {
                self.queue.add(&key, cause, Priority::Change);
            }
        }
    }

    /// Feeds changes for ever, as they come.
    pub async fn pump(&self) -> ! {
        loop {
            self.stores.changed().await;
            self.feed();
        }
    }

    /// Begins a run, and adds to it the changes since its key was given out.
    pub fn begin(&self, run: &mut Run) -> Began {
        // Under the same lock as `feed`: the changes that are queued by then are those that were
        // fed.
        let mut triggers = self.triggers.lock();
        self.queue.join(run);
        triggers.begin(&run.key)
    }

    /// Ends a run, whether it succeeded or failed, and takes its dependencies out of `reads`.
    /// Returns the causes for which its key must run again.
    pub fn end(&self, began: Began, reads: &mut Reads) -> Vec<Cause> {
        // The triggers see the run's own writes first, so that these do not queue its key again.
        self.feed();
        self.triggers.lock().ran(began, reads)
    }

    /// Gives a key back to the queue after its run. The keys that the run's writes trigger, and the
    /// causes for which the key itself must run again, are queued before. With `confirm`, the key
    /// runs once more when there is nothing else to do.
    pub fn done(&self, key: &Key, done: Done, causes: Vec<Cause>, confirm: bool) {
        self.feed();
        for cause in causes {
            self.queue.add(key, cause, Priority::Change);
        }
        if confirm {
            self.queue.add(key, Cause::Confirmation, Priority::Idle);
        }
        self.queue.done(key, done);
    }

    /// Gives a key back that was given out, and that does not run. A change queues it again.
    pub fn abandon(&self, key: &Key) {
        self.queue.done(key, Done::Success { requeue: None });
    }
}
