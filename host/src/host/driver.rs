//! Drives a host step by step: the commands of `mortise` and tests decide which key runs next and
//! what time it is, and learn when nothing is left to do.

use std::{collections::BTreeSet, time::Duration};

use anyhow::Context as _;
use mortise_core::{
    contract::ObjectRef,
    queue::{Key, Run},
    reconcile::Report,
    store::Stores,
};
use serde_json::Value;

use super::{Host, work::HostState};
use crate::cluster::watch::Watch;

/// The time limit for the watches to see objects of an API in the same process. Only a bug in
/// mortise takes longer.
const WATCH_TIMEOUT: Duration = Duration::from_secs(30);
/// The number of turns that the watches get before their stores are compared with the API again.
const TURNS_PER_COMPARISON: usize = 64;

/// Drives a host step by step. Keys are taken, run and abandoned with
/// [`Drive::Caller`](super::Drive::Caller) only: otherwise the host runs them itself.
#[derive(Clone, Copy)]
pub struct Driver<'a> {
    shared: &'a HostState,
}

// === impl Host ===

impl Host {
    /// Returns the driver of the host. All drivers of a host drive the same queue.
    pub fn drive(&self) -> Driver<'_> {
        Driver { shared: &self.shared }
    }
}

// === impl Driver ===

impl<'a> Driver<'a> {
    /// Takes all keys that are ready to run.
    pub fn take_ready(self) -> Vec<Run> {
        let dispatch = &self.shared.parts.dispatch;
        dispatch.feed();
        std::iter::from_fn(|| dispatch.queue().try_next()).collect()
    }

    /// Returns the keys that are ready to run, sorted, for a caller that takes them one by one with
    /// [`Driver::take`].
    pub fn ready(self) -> Vec<Key> {
        self.shared.parts.dispatch.feed();
        self.shared.parts.dispatch.queue().ready()
    }

    /// Takes one key if it is ready to run.
    pub fn take(self, key: &Key) -> Option<Run> {
        self.shared.parts.dispatch.queue().take_key(key)
    }

    /// Runs one key.
    pub async fn run(self, run: Run) -> Report {
        self.shared.run(run).await
    }

    /// Ends a run without running its key. The key is queued again when a change triggers it.
    pub fn abandon(self, run: &Run) {
        self.shared.parts.dispatch.abandon(&run.key);
    }

    /// Returns the object that a key stands for; `None` if its processor or reconciler is not
    /// known.
    pub fn object_of(self, key: &Key) -> Option<ObjectRef> {
        self.shared.registry.lock().get(key.processor())?.reconciler.object_of(key)
    }

    /// Stops the queue's clock: delayed keys become due by [`Driver::advance`] only. Changes still
    /// queue keys at once.
    pub fn stand_still(self) {
        self.shared.parts.dispatch.queue().stand_still();
    }

    /// Advances the queue's clock after [`Driver::stand_still`]: retries, requeues and resyncs
    /// become due. The time that calls are given is [`Options::now`](super::Options::now).
    pub fn advance(self, by: Duration) {
        self.shared.parts.dispatch.queue().advance(by);
    }

    /// Forgets the notes of all keys, as a start of the host does.
    pub fn forget_notes(self) {
        self.shared.parts.dispatch.queue().forget_notes();
    }

    /// Returns whether a key has a note.
    pub fn has_notes(self) -> bool {
        self.shared.parts.dispatch.queue().has_notes()
    }

    /// Returns whether no key is ready and none runs. Delayed keys do not count.
    pub fn is_idle(self) -> bool {
        self.shared.parts.dispatch.queue().is_idle()
    }

    /// Returns whether all first lists are complete and the queue is settled; see
    /// [`Queue::is_settled`](mortise_core::queue::Queue::is_settled).
    pub fn is_settled(self) -> bool {
        self.shared.parts.dispatch.feed();
        self.is_listed() && self.shared.parts.dispatch.queue().is_settled()
    }

    /// Waits until the host is settled.
    pub async fn settled(self) {
        let mut progress = self.stores().progress();
        loop {
            self.shared.parts.dispatch.feed();
            self.shared.parts.dispatch.queue().settled().await;
            progress.mark_unchanged();
            if self.is_settled() {
                return;
            }
            if !self.is_listed() && progress.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns whether the first lists at home are complete: other clusters may be away.
    fn is_listed(self) -> bool {
        let watches = self.watches_in("");
        watches.iter().all(|watch| self.stores().is_settled(&watch.kind, &watch.scope))
    }

    fn watches_in(self, cluster: &str) -> Vec<Watch> {
        let mut watches = self.shared.watches.lock().all();
        watches.retain(|watch| *watch.kind.cluster == *cluster);
        watches
    }

    /// Returns whether the stores hold exactly these objects of the watched kinds of the home
    /// cluster, compared by namespace, name and resource version.
    pub fn holds(self, objects: &[Value]) -> bool {
        self.holds_in("", objects)
    }

    /// Returns whether the stores hold exactly these objects of the watched kinds of a cluster.
    pub fn holds_in(self, cluster: &str, objects: &[Value]) -> bool {
        let (stores, watches) = (self.stores(), self.watches_in(cluster));
        watches.iter().all(|watch| {
            let there: BTreeSet<_> =
                objects.iter().filter_map(|object| watch.version_of(object)).collect();
            let known = stores.resource_versions(&watch.kind, &watch.scope);
            stores.is_settled(&watch.kind, &watch.scope)
                && known.into_iter().collect::<BTreeSet<_>>() == there
        })
    }

    /// Waits until the stores hold the objects of the home API in the same process, which `objects`
    /// returns.
    ///
    /// # Errors
    ///
    /// Fails if they still differ after a long time, which is a bug in mortise.
    pub async fn caught_up(self, objects: impl Fn() -> Vec<Value>) -> anyhow::Result<()> {
        self.caught_up_in("", objects).await
    }

    /// Waits until the stores hold the objects of the API of a cluster, as [`Driver::caught_up`]
    /// does.
    ///
    /// # Errors
    ///
    /// Fails if they still differ after a long time, as they do while the cluster is not connected.
    pub async fn caught_up_in(
        self,
        cluster: &str,
        objects: impl Fn() -> Vec<Value>,
    ) -> anyhow::Result<()> {
        let wait = async {
            let mut progress = self.stores().progress();
            while !self.holds_in(cluster, &objects()) {
                if progress.changed().await.is_err() {
                    break;
                }
                // A comparison takes time proportional to the objects, so several changes are
                // awaited between comparisons.
                for _ in 0..TURNS_PER_COMPARISON {
                    tokio::task::yield_now().await;
                }
            }
        };
        tokio::time::timeout(WATCH_TIMEOUT, wait)
            .await
            .context("the watches did not catch up with the API")
    }

    /// Returns the stores of the watched objects.
    pub fn stores(self) -> &'a Stores {
        self.shared.parts.dispatch.stores()
    }
}
