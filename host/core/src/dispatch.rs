//! Dispatch of changes to runs: connects the stores, the triggers and the queue of a host.
//!
//! *Guarantee.* No change that affects a key is lost between its runs. A key is given out by
//! [`Queue::next`] or [`Queue::take_key`], to one run at a time. The run goes through these steps,
//! in this order:
//!
//! 1. [`Dispatch::pump`] puts the stores' changes into the log, in the order of the stores. The
//!    triggers of each processor work them off in that order, and queue the keys that have read or
//!    written what changed.
//! 2. [`Dispatch::begin`] begins the run, before its view takes a snapshot. All changes that have
//!    queued its key by then join the run; from now on changes do not queue the key.
//! 3. The run reads from snapshots, each of which knows the number of the last change in it.
//! 4. [`Dispatch::end`] puts the run's own writes into the log, registers what the run has read and
//!    written, and returns the changes after its snapshots: if there are any, the key must run
//!    again.
//! 5. [`Dispatch::done`] gives the key back to the queue.
//!
//! *Fairness.* No processor waits for the triggers of another: each has a lock of its own, the log
//! is shared, and the pump works off slices of one processor after the other. What is worked off
//! late is not lost, since `end` compares with the log itself.
//!
//! A key whose record still holds is skipped, and only `done` follows: the key's dependencies stay
//! registered during the verification, and a change queues the running key, which runs after
//! `done`.

mod started;

pub use started::{Changed, Exceeded, Started, Token};

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use foldhash::{HashMap, HashSet};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use crate::{
    contract::{Kind, display_kind},
    queue::{Cause, Done, Key, Priority, Queue, ReconcilerId, Run},
    reads::{Reads, yield_now},
    store::{Known, Scope, Stores},
    triggers::{self, Log, Registration, Triggers},
};

/// The steps of one processor before the next one has its turn: about a millisecond.
const SLICE: usize = 1 << 16;
/// The time that the pump waits for a lock: about as long as an unfair lock passes over waiting
/// threads.
const PATIENCE: Duration = Duration::from_micros(500);

/// The stores, the triggers and the queue of a host.
#[derive(Debug)]
pub struct Dispatch {
    stores: Stores,
    /// The events that some processor has to work off. Locked briefly.
    log: Log,
    /// The triggers of each processor. The map is locked briefly; the triggers of a processor are
    /// locked before any other lock of a host.
    processors: RwLock<HashMap<Arc<str>, Arc<Mutex<Triggers>>>>,
    /// The started selections of each processor that has on-demand reconcilers. Those of a
    /// processor are locked before its triggers.
    started: Mutex<HashMap<Arc<str>, Arc<Mutex<Started>>>>,
    /// Notified when there may be events to work off.
    behind: Notify,
    queue: Queue,
}

/// A run that has begun. [`Dispatch::end`] must follow.
#[derive(Debug)]
#[must_use = "no change triggers the key until `end` is called"]
pub struct Began {
    /// The triggers of the key's processor, even if it is removed meanwhile.
    of: Arc<Mutex<Triggers>>,
    began: triggers::Began,
}

// === impl Dispatch ===

impl Dispatch {
    /// Returns a dispatch without keys.
    pub fn new(stores: &Stores) -> Self {
        Self {
            stores: stores.clone(),
            log: Log::default(),
            processors: RwLock::default(),
            started: Mutex::default(),
            behind: Notify::new(),
            queue: Queue::new(),
        }
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
        self.queue.contains(key)
            || self.of(key.processor()).is_some_and(|of| of.lock().contains(key))
    }

    /// Returns the number of keys of a processor that run, or whose dependencies are known. The
    /// cost grows with that number.
    pub fn count_of(&self, processor: &str) -> usize {
        self.of(processor).map_or(0, |of| of.lock().keys().count())
    }

    /// Returns why keys of a processor run more often than their reads change, in words; `None` if
    /// they did not within the last minute.
    pub fn limited(&self, processor: &str) -> Option<String> {
        let kind = self.of(processor)?.lock().limited().cloned()?;
        Some(format!(
            "a change of {} affects too many different reads: objects run again without comparing all of their reads with it; read by fewer different selections and fields, or by paths that are declared",
            display_kind(&kind)
        ))
    }

    /// Queues the keys that the stores' changes trigger, however long that takes.
    pub fn feed(&self) {
        self.log.take_from(&self.stores);
        for of in self.all() {
            while self.work_off(&mut of.lock()) {}
        }
    }

    /// Feeds changes forever, as they arrive. The processors take turns.
    pub async fn pump(&self) -> ! {
        loop {
            tokio::select! {
                () = self.stores.changed() => {}
                () = self.behind.notified() => {}
            }
            self.log.take_from(&self.stores);
            let mut steps = 0;
            for of in self.all() {
                steps += self.turn(&of);
                if steps >= SLICE {
                    steps = 0;
                    yield_now().await;
                }
            }
        }
    }

    /// Works off a slice of the events of a processor, unless its triggers stay locked. Returns the
    /// steps that were done.
    fn turn(&self, of: &Mutex<Triggers>) -> usize {
        // Whoever holds the lock notifies `behind` afterwards. A thread that takes it again and again
        // (one that reads the status in a loop) hands it over only to one that waits.
        let Some(mut triggers) = of.try_lock_for(PATIENCE) else { return 0 };
        let before = triggers.work();
        if self.work_off(&mut triggers) {
            self.behind.notify_one();
        }
        triggers.work() - before
    }

    /// Works off a slice of the events of a processor. Returns whether events may be left.
    fn work_off(&self, triggers: &mut Triggers) -> bool {
        triggers.work_off(&self.stores, SLICE, |key, cause| {
            self.queue.add(key, cause, Priority::Change);
        })
    }

    fn of(&self, processor: &str) -> Option<Arc<Mutex<Triggers>>> {
        self.processors.read().get(processor).cloned()
    }

    fn all(&self) -> Vec<Arc<Mutex<Triggers>>> {
        self.processors.read().values().cloned().collect()
    }

    /// Locks the triggers of a processor meanwhile.
    fn locked<T>(&self, of: &Mutex<Triggers>, act: impl FnOnce(&mut Triggers) -> T) -> T {
        let (acted, position) = {
            let mut triggers = of.lock();
            (act(&mut triggers), triggers.position())
        };
        // The turn of the processor may have come while its triggers were locked. Of two threads
        // that lock the log after it was filled, one sees the other's lock released, or its events.
        if self.log.is_past(position) {
            self.behind.notify_one();
        }
        acted
    }

    /// Begins a run, and adds to it the changes since its key was given out.
    pub fn begin(&self, run: &mut Run) -> Began {
        // A removed processor has no triggers: those of its last runs are dropped with them.
        let of = self.of(run.key.processor());
        let of = of.unwrap_or_else(|| Arc::new(Mutex::new(Triggers::new(&self.log))));
        let began = self.locked(&of, |triggers| {
            // Under the same lock as the queueing: what is queued by then was worked off by then.
            self.queue.join(run);
            triggers.begin(&run.key)
        });
        Began { of, began }
    }

    /// Ends a run, whether it succeeded or failed, and takes its dependencies out of `reads`.
    /// Returns the causes for which its key must run again.
    pub fn end(&self, Began { of, began }: Began, reads: &mut Reads) -> Vec<Cause> {
        // The triggers see the run's own writes first, so that these do not queue its key again.
        self.log.take_from(&self.stores);
        self.locked(&of, |triggers| triggers.end(began, reads))
    }

    /// Gives a key back to the queue after its run. The causes for which the key itself must run
    /// again are queued before, and so are the keys of its processor that the run's writes trigger,
    /// unless many changes wait.
    pub fn done(&self, key: &Key, done: Done, causes: Vec<Cause>) {
        if self.log.take_from(&self.stores) {
            self.behind.notify_one();
        }
        if let Some(of) = self.of(key.processor()) {
            self.locked(&of, |triggers| self.work_off(triggers));
        }
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
    /// The triggers of the processor are locked meanwhile: none of its runs begins or ends and no
    /// change triggers its keys. Of the dispatch, `swap` may call [`Dispatch::queue`] and
    /// [`Dispatch::stores`] only.
    pub fn set<T>(
        &self,
        processor: &str,
        added: Vec<Registration>,
        removed: &[ReconcilerId],
        cause: &Cause,
        swap: impl FnOnce() -> T,
    ) -> T {
        // For a new processor, the objects in the stores are no changes.
        self.log.take_from(&self.stores);
        let of = Arc::clone(
            self.processors
                .write()
                .entry(processor.into())
                .or_insert_with(|| Arc::new(Mutex::new(Triggers::new(&self.log)))),
        );
        self.locked(&of, |triggers| {
            for removed in removed {
                triggers.remove_reconciler(removed);
                self.queue.remove_reconciler(processor, removed);
            }
            let swapped = swap();
            let mut keys: BTreeSet<Key> = triggers.keys().cloned().collect();
            let ids: HashSet<ReconcilerId> =
                added.iter().map(|of| of.reconciler().id.clone()).collect();
            keys.retain(|key| ids.contains(key.reconciler()));
            for registration in added {
                keys.extend(triggers.add_reconciler(registration, &self.stores));
            }
            for key in &keys {
                self.queue.renew(key, cause.clone(), Priority::Background);
            }
            swapped
        })
    }

    /// Returns the selections that the outcomes of a processor have started. Those that the last
    /// runs of a removed processor start are dropped with what is returned here.
    pub fn started(&self, processor: &str) -> Arc<Mutex<Started>> {
        self.started.lock().get(processor).cloned().unwrap_or_default()
    }

    /// Returns the selections that the outcomes of a processor start from now on, with those that
    /// they have started.
    pub fn starting(&self, processor: &Arc<str>) -> Arc<Mutex<Started>> {
        Arc::clone(self.started.lock().entry(Arc::clone(processor)).or_default())
    }

    /// Returns whether a key of a processor depends on objects within a scope, or waits for their
    /// kind.
    pub fn depends_on(&self, processor: &str, kind: &Kind, scope: &Scope) -> bool {
        self.of(processor).is_some_and(|of| of.lock().depends_on(kind, scope))
    }

    /// Registers an on-demand reconciler for other selections than before, and queues the keys of
    /// the objects that it did not have before.
    ///
    /// If it `has_lost` a selection, the keys of objects that it does not select any more are
    /// queued for their last runs, and returned.
    pub fn change(&self, registration: &Registration, has_lost: bool) -> Vec<Key> {
        let (processor, of) =
            (Arc::clone(registration.processor()), Arc::clone(registration.reconciler()));
        let Some(triggers) = self.of(&processor) else { return Vec::new() };
        self.locked(&triggers, |triggers| {
            for key in triggers.change_reconciler(registration, &self.stores) {
                self.queue.add(&key, Cause::Start, Priority::Background);
            }
            if !has_lost {
                return Vec::new();
            }
            let is_its = |key: &&Key| *key.reconciler() == of.id;
            let mut left: HashSet<Key> = triggers.keys().filter(is_its).cloned().collect();
            left.extend(self.queue.keys_of(&processor, &of.id));
            left.retain(|key| {
                let kind = &of.spec.of.kind;
                match self.stores.known_by_name(kind, key.namespace(), key.name()) {
                    Known::Present(entry) => !of.selects(&entry),
                    Known::Unwatched | Known::Absent => true,
                }
            });
            for key in &left {
                self.queue.add(key, Cause::Stopped, Priority::Change);
            }
            left.into_iter().collect()
        })
    }

    /// Removes an on-demand reconciler that runs for no selection any more.
    pub fn end_reconciler(&self, processor: &Arc<str>, id: &ReconcilerId) {
        let Some(of) = self.of(processor) else { return };
        self.locked(&of, |triggers| {
            triggers.remove_reconciler(id);
            self.queue.remove_reconciler(processor, id);
        });
    }

    /// Drops all keys of a processor. Runs in progress leave no dependencies behind.
    pub fn remove(&self, processor: &str) {
        self.started.lock().remove(processor);
        let of = self.processors.write().remove(processor);
        if let Some(of) = of {
            of.lock().remove_all();
        }
        self.queue.remove_processor(processor);
    }

    /// Queues all keys of a processor after the rights of its account changed, and resets their
    /// failures.
    pub fn rights_changed(&self, processor: &str) {
        let Some(of) = self.of(processor) else { return };
        self.locked(&of, |triggers| {
            for key in triggers.keys() {
                self.queue.renew(key, Cause::Rights, Priority::Resync);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, task::Context};

    use super::*;
    use crate::{
        contract::Reconciler,
        fixture::{all, declared, kind, list, object, reconciler, reference, with},
        grant::Grant,
        reads::{PAGE_BYTES, View},
        store::Scope,
    };

    fn grant() -> Grant {
        Grant::new(&crate::fixture::description(all("Rule"), Vec::new())).unwrap()
    }

    /// Returns a dispatch whose store has a Rule.
    fn with_a_rule() -> Dispatch {
        let stores = Stores::new();
        for (of, scope, wanted) in grant().wanted() {
            stores.open(of, scope, wanted);
            list(&stores, &of.kind, scope, &[object("Rule", "a", 1)]);
        }
        Dispatch::new(&stores)
    }

    fn registrations(names: &[&str]) -> Vec<Registration> {
        registrations_of("p", names)
    }

    fn registrations_of(processor: &str, names: &[&str]) -> Vec<Registration> {
        let of = |name: &&str| Reconciler { name: (*name).into(), ..reconciler(all("Rule")) };
        let registration = |name| Registration::new(&Arc::from(processor), &declared(of(name)));
        names.iter().map(registration).collect()
    }

    /// Returns a dispatch with two processors of one reconciler, and the key of each.
    fn with_two_processors() -> (Dispatch, [Key; 2]) {
        let dispatch = with_a_rule();
        let key = |processor| {
            dispatch.set(processor, registrations_of(processor, &["r"]), &[], &Cause::Start, || ());
            Key::new(&processor.into(), &"r".into(), Some("default"), "a")
        };
        let keys = ["p", "q"].map(key);
        (dispatch, keys)
    }

    /// Changes the Rule.
    fn change(dispatch: &Dispatch, revision: u64) {
        let rule = with(object("Rule", "a", revision), "spec/x", revision.into());
        dispatch.stores().feed(&kind("Rule"), &Scope::default()).unwrap().upsert(&rule);
    }

    /// Runs a key, which reads the Rule; it is changed during the run.
    fn run(dispatch: &Dispatch, key: &Key, revision: u64) -> Vec<Cause> {
        let mut run = dispatch.queue().take_key(key).unwrap();
        let began = dispatch.begin(&mut run);
        let mut view = View::new(dispatch.stores().clone(), Arc::new(grant()), PAGE_BYTES);
        view.reconciled_by_first(&reference("Rule", "a"));
        change(dispatch, revision);
        let causes = dispatch.end(began, &mut view.finish());
        dispatch.done(key, Done::Success { requeue: None }, causes.clone());
        causes
    }

    fn is_notified(dispatch: &Dispatch) -> bool {
        let mut context = Context::from_waker(std::task::Waker::noop());
        pin!(dispatch.behind.notified()).poll(&mut context).is_ready()
    }

    #[test]
    fn nothing_that_was_started_is_kept_for_a_removed_processor() {
        let dispatch = Dispatch::new(&Stores::new());
        let held = dispatch.starting(&"p".into());
        assert!(Arc::ptr_eq(&held, &dispatch.started("p")));
        dispatch.remove("p");
        // A last run that ends later.
        assert!(!Arc::ptr_eq(&held, &dispatch.started("p")));
        assert!(dispatch.started.lock().is_empty());
    }

    #[tokio::test]
    async fn what_has_changed_runs_before_the_other_keys_of_a_start() {
        let dispatch = with_a_rule();
        dispatch.set("p", registrations(&["r"]), &[], &Cause::Start, || ());
        let feed = dispatch.stores().feed(&kind("Rule"), &Scope::default()).unwrap();
        feed.upsert(&object("Rule", "b", 2));
        dispatch.feed();
        for name in ["b", "a"] {
            let run = dispatch.queue().next().await;
            assert_eq!(run.key.name(), name);
            dispatch.abandon(&run.key);
        }
    }

    #[test]
    fn objects_of_a_list_that_is_not_complete_have_keys() {
        let stores = Stores::new();
        for (of, scope, wanted) in grant().wanted() {
            stores.open(of, scope, wanted);
        }
        let feed = stores.feed(&kind("Rule"), &Scope::default()).unwrap();
        feed.begin_list();
        feed.list_item(&object("Rule", "a", 1));
        let dispatch = Dispatch::new(&stores);
        dispatch.set("p", registrations(&["r"]), &[], &Cause::Start, || ());
        feed.list_item(&object("Rule", "b", 1));
        feed.end_list();
        dispatch.feed();
        for name in ["a", "b"] {
            let key = Key::new(&"p".into(), &"r".into(), Some("default"), name);
            assert!(dispatch.queue().take_key(&key).is_some(), "{name}");
        }
    }

    #[test]
    fn a_processor_whose_triggers_are_locked_stops_no_other() {
        let (dispatch, [p, q]) = with_two_processors();
        let of_p = dispatch.of("p").unwrap();
        let locked = of_p.lock();
        assert_eq!(run(&dispatch, &q, 2).len(), 1, "the change during the run");
        assert_eq!(dispatch.queue().take_key(&q).unwrap().causes.len(), 1);
        dispatch.abandon(&q);
        change(&dispatch, 3);
        dispatch.log.take_from(&dispatch.stores);
        let turns =
            dispatch.all().iter().map(|of| usize::from(dispatch.turn(of) > 0)).sum::<usize>();
        assert_eq!(turns, 1, "only that of the other one");
        assert!(dispatch.queue().take_key(&q).is_some(), "queued by the next change");
        drop(locked);
        // Changes that came meanwhile are not lost.
        assert_eq!(dispatch.queue().take_key(&p).unwrap().causes, [Cause::Start]);
        dispatch.abandon(&p);
        assert!(dispatch.turn(&of_p) > 0);
        assert!(dispatch.queue().take_key(&p).is_some());
    }

    #[test]
    fn a_turn_that_met_a_lock_comes_again() {
        let (dispatch, _) = with_two_processors();
        dispatch.feed();
        while is_notified(&dispatch) {}
        let of_p = dispatch.of("p").unwrap();
        dispatch.locked(&of_p, |_| {
            change(&dispatch, 2);
            dispatch.log.take_from(&dispatch.stores);
            assert_eq!(dispatch.turn(&of_p), 0);
        });
        assert!(is_notified(&dispatch));
    }

    #[tokio::test]
    async fn the_pump_queues_the_keys_of_all_processors() {
        let (dispatch, keys) = with_two_processors();
        for (key, revision) in keys.iter().zip(2..) {
            run(&dispatch, key, revision);
        }
        let mut queued = Vec::new();
        while queued.len() < 2 {
            tokio::select! {
                _ = dispatch.pump() => {}
                run = dispatch.queue().next() => queued.push(run.key),
            }
        }
        for key in &queued {
            dispatch.abandon(key);
        }
        change(&dispatch, 9);
        let mut again = Vec::new();
        while again.len() < 2 {
            tokio::select! {
                _ = dispatch.pump() => {}
                run = dispatch.queue().next() => again.push(run.key),
            }
        }
        again.sort();
        assert_eq!(again, keys);
    }

    #[test]
    fn a_run_of_a_removed_processor_leaves_nothing_behind() {
        let (dispatch, [p, _]) = with_two_processors();
        let mut run = dispatch.queue().take_key(&p).unwrap();
        dispatch.remove("p");
        let began = dispatch.begin(&mut run);
        let mut view = View::new(dispatch.stores().clone(), Arc::new(grant()), PAGE_BYTES);
        view.reconciled_by_first(&reference("Rule", "a"));
        dispatch.end(began, &mut view.finish());
        dispatch.done(&p, Done::Success { requeue: None }, Vec::new());
        change(&dispatch, 2);
        dispatch.feed();
        assert!(!dispatch.knows(&p));
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
