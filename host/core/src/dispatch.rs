//! Dispatch of changes to runs: connects the stores, the triggers and the queue of a host.
//!
//! *Guarantee.* No change that affects a key is lost between its runs. A key is given out by
//! [`Queue::next`] or [`Queue::take_key`], to one run at a time. The run goes through these steps,
//! in this order:
//!
//! 1. [`Dispatch::feed`] hands the stores' changes to the triggers, which queue the keys that have
//!    read or written what changed. Events are handed on in the order of the stores.
//! 2. [`Dispatch::begin`] begins the run, before its view takes a snapshot. All changes that were
//!    fed by then join the run; from now on changes do not queue its key.
//! 3. The run reads from snapshots, each of which knows the number of the last change in it.
//! 4. [`Dispatch::end`] feeds the run's own writes, registers what it has read and written, and
//!    returns the changes after its snapshots: if there are any, the key must run again.
//! 5. [`Dispatch::done`] gives the key back to the queue, after all that the run triggered.
//!
//! A key whose record still holds is skipped, and only `done` follows: the key's dependencies stay
//! registered during the verification, and a change queues the running key, which runs after
//! `done`.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use crate::{
    queue::{Cause, Done, Key, Priority, Queue, ReconcilerId, Run},
    reads::Reads,
    store::Stores,
    triggers::{Began, Registration, Triggers},
};

/// The stores, the triggers and the queue of a host.
#[derive(Debug)]
pub struct Dispatch {
    stores: Stores,
    /// The dependencies of all keys. Locked briefly, before any other lock of a host.
    triggers: Mutex<Triggers>,
    queue: Queue,
}

// === impl Dispatch ===

impl Dispatch {
    /// Returns a dispatch without keys.
    pub fn new(stores: &Stores) -> Self {
        let (triggers, queue) = (Mutex::default(), Queue::new());
        Self { stores: stores.clone(), triggers, queue }
    }

    /// Returns the objects that are known now.
    pub fn stores(&self) -> &Stores {
        &self.stores
    }

    /// Returns the keys that wait.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Returns whether a key waits or runs, or its dependencies are known.
    pub fn knows(&self, key: &Key) -> bool {
        self.queue.contains(key) || self.triggers.lock().contains(key)
    }

    /// Returns the number of keys of a processor that run, or whose dependencies are known. The
    /// cost grows with that number.
    pub fn count_of(&self, processor: &str) -> usize {
        self.triggers.lock().count_of(processor)
    }

    /// Queues the keys that the stores' changes trigger.
    pub fn feed(&self) {
        // The lock keeps the events in the order of the stores.
        let mut triggers = self.triggers.lock();
        for event in self.stores.take_events() {
            for (key, cause) in triggers.on_event(&event) {
                self.queue.add(&key, cause, Priority::Change);
            }
        }
    }

    /// Feeds changes forever, as they arrive.
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
        self.triggers.lock().end(began, reads)
    }

    /// Gives a key back to the queue after its run. The keys that the run's writes trigger, and the
    /// causes for which the key itself must run again, are queued before.
    pub fn done(&self, key: &Key, done: Done, causes: Vec<Cause>) {
        self.feed();
        for cause in causes {
            self.queue.add(key, cause, Priority::Change);
        }
        self.queue.done(key, done);
    }

    /// Gives a key back without running it. A change queues it again.
    pub fn abandon(&self, key: &Key) {
        self.queue.done(key, Done::Success { requeue: None });
    }

    /// Adds reconcilers of a processor, or replaces them, and removes others. The keys of `added`
    /// are queued for `cause`: those of the objects in the stores, and those that are known
    /// already.
    ///
    /// `swap` is called after the keys of `removed` are dropped and before the others are queued.
    /// The triggers are locked meanwhile: no run begins or ends and no change triggers keys. Of the
    /// dispatch, `swap` may call [`Dispatch::queue`] and [`Dispatch::stores`] only.
    pub fn set<T>(
        &self,
        processor: &str,
        added: Vec<Registration>,
        removed: &[ReconcilerId],
        cause: &Cause,
        swap: impl FnOnce() -> T,
    ) -> T {
        let mut triggers = self.triggers.lock();
        for removed in removed {
            triggers.remove_reconciler(processor, removed);
            self.queue.remove_reconciler(processor, removed);
        }
        let swapped = swap();
        let mut keys = BTreeSet::from_iter(triggers.keys_of(processor));
        keys.retain(|key| added.iter().any(|of| of.reconciler().id == *key.reconciler()));
        for registration in added {
            keys.extend(triggers.add_reconciler(registration, &self.stores));
        }
        for key in &keys {
            if *cause == Cause::Start {
                self.queue.add(key, Cause::Start, Priority::Change);
            } else {
                self.queue.renew(key, cause.clone(), Priority::Background);
            }
        }
        swapped
    }

    /// Drops all keys of a processor. Runs in progress leave no dependencies behind.
    pub fn remove(&self, processor: &str) {
        self.triggers.lock().remove_processor(processor);
        self.queue.remove_processor(processor);
    }

    /// Queues all keys of a processor after the rights of its account changed, and resets their
    /// failures.
    pub fn rights_changed(&self, processor: &str) {
        let triggers = self.triggers.lock();
        for key in triggers.keys_of(processor) {
            self.queue.renew(&key, Cause::Rights, Priority::Resync);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        contract::Reconciler,
        fixture::{all, declared, list, object, reconciler},
        grant::Grant,
    };

    /// Returns a dispatch whose store has a Rule.
    fn with_a_rule() -> Dispatch {
        let stores = Stores::new();
        let description = crate::fixture::description(all("Rule"), Vec::new());
        for (of, scope, wanted) in Grant::new(&description).unwrap().wanted() {
            stores.open(of, scope, wanted);
            list(&stores, &of.kind, scope, &[object("Rule", "a", 1)]);
        }
        Dispatch::new(&stores)
    }

    fn registrations(names: &[&str]) -> Vec<Registration> {
        let of = |name: &&str| Reconciler { name: (*name).into(), ..reconciler(all("Rule")) };
        let registration = |name| Registration::new(&Arc::from("p"), &declared(of(name)));
        names.iter().map(registration).collect()
    }

    fn key(reconciler: &str) -> Key {
        Key::new(&"p".into(), &reconciler.into(), Some("default"), "a")
    }

    #[test]
    fn a_swap_forgets_the_keys_that_are_gone_and_runs_the_others_once_more() {
        let dispatch = with_a_rule();
        dispatch.set("p", registrations(&["gone", "kept"]), &[], &Cause::Start, || ());
        assert_eq!(dispatch.queue().ready(), [key("gone"), key("kept")]);
        let run = dispatch.queue().take_key(&key("kept")).unwrap();
        assert_eq!(run.causes, [Cause::Start]);
        dispatch.abandon(&run.key);
        let (added, removed) = (registrations(&["kept", "new"]), ["gone".into()]);
        dispatch.set("p", added, &removed, &Cause::NewVersion, || {
            assert_eq!(dispatch.queue().ready(), [], "before the keys are queued");
        });
        assert_eq!(dispatch.queue().ready(), [key("kept"), key("new")]);
        assert!(!dispatch.knows(&key("gone")));
        let run = dispatch.queue().take_key(&key("kept")).unwrap();
        assert_eq!(run.causes, [Cause::NewVersion]);
        // The keys of one reconciler are added without the others.
        dispatch.abandon(&run.key);
        dispatch.set("p", registrations(&["later"]), &[], &Cause::Start, || ());
        assert_eq!(dispatch.queue().ready(), [key("later"), key("new")]);
        dispatch.remove("p");
        assert_eq!(dispatch.queue().ready(), []);
        assert_eq!(dispatch.count_of("p"), 0);
    }
}
