//! Opens, hands over and closes watches by the plan of [`super::watches`], and renews the rights of
//! accounts that the plan depends on.

use std::{cell::RefCell, collections::HashMap, future::pending, sync::Arc, time::Duration};

use anyhow::Context as _;
use mortise_core::{
    contract::{Kind, display_kind},
    grant::Demand,
    queue::ReconcilerId,
    store::{Feed, IndexUser, Scope, Wanted},
};
use tokio::{
    sync::{mpsc, watch as latest},
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    Drive,
    registry::Active,
    watches::{Started, Steps, User},
    work::HostState,
};
use crate::cluster::{
    access::Rights,
    watch::{self, Watch},
};

/// The interval between checks for watches that are not used any more, and for stores that were too
/// large and may be opened again.
const REOPEN_INTERVAL: Duration = Duration::from_mins(1);

/// A watch that [`run_watches`] is to run.
pub(super) struct Opened {
    watch: Watch,
    feed: Feed,
    rights: Option<Arc<Rights>>,
    over: CancellationToken,
}

/// A store as it would be if only one version used it.
#[derive(PartialEq)]
struct Alone {
    watch: Watch,
    wanted: Wanted,
    user: IndexUser,
}

// === impl HostState ===

impl HostState {
    /// Carries out the steps of a plan: closes, narrows, hands over and opens watches.
    pub(super) fn carry_out(&self, steps: Steps) {
        let stores = self.parts.dispatch.stores();
        for watch in &steps.closed {
            stores.close(&watch.kind, &watch.scope);
        }
        for (started, wanted) in steps.narrowed {
            let Watch { kind, scope } = &started.watch;
            if stores.narrow(kind, scope, &wanted) {
                continue;
            }
            stores.close(kind, scope);
            if let Some(feed) = stores.open(kind, scope, &wanted) {
                self.start(started, feed);
            }
        }
        for started in steps.handed_over {
            let Watch { kind, scope } = &started.watch;
            if let Some(feed) = stores.feed(kind, scope) {
                tracing::info!(
                    kind = display_kind(kind),
                    "watched with the rights of another account"
                );
                self.start(started, feed);
            }
        }
        for (started, wanted) in steps.needed {
            let Watch { kind, scope } = &started.watch;
            if let Some(feed) = stores.open(kind, scope, &wanted) {
                self.start(started, feed);
            }
        }
    }

    fn start(&self, started: Started, feed: Feed) {
        let Started { watch, rights, over } = started;
        // Sending fails only when the host ends, which needs no more watches.
        let _ = self.opened.send(Opened { watch, feed, rights, over });
    }

    /// Opens watches for unwatched objects that the reads of a version's reconciler have asked for.
    pub(super) fn demand(&self, user: User, reconciler: &ReconcilerId, demands: Vec<Demand>) {
        if demands.is_empty() {
            return;
        }
        // Locked until the steps are carried out: no watch is opened or closed in between.
        let mut watches = self.watches.lock();
        let new = demands.into_iter().filter(|of| watches.demand(user, reconciler, of)).count();
        if new > 0 {
            let steps = watches.plan();
            self.carry_out(steps);
        }
    }

    /// Opens the watches of the on-demand reconcilers that a version runs, and closes those of the
    /// stopped ones.
    pub(super) fn follow_started(&self, active: &Active) {
        let started = {
            let mut watches = self.watches.lock();
            // Under the lock, so that the last call of several at once sees the last state.
            let started = active.reconciler.started();
            if watches.set_started(active.id, &started) {
                let steps = watches.plan();
                self.carry_out(steps);
            }
            started
        };
        let (queue, processor) = (self.parts.dispatch.queue(), &active.version.processor);
        for of in started.iter().filter(|of| of.min_interval > 0 && self.drive == Drive::Host) {
            queue.set_min_interval(processor, &of.id, Duration::from_millis(of.min_interval));
        }
        self.parts.dispatch.stores().check_index_users();
        if active.need_rights_of(&started) {
            self.access.complete_soon();
        }
    }

    /// Closes the watches that reads have demanded and that no key has depended on for
    /// [`UNUSED_PERIOD`](super::watches::UNUSED_PERIOD).
    pub(super) fn close_unused(&self, now: Instant) {
        let processors: HashMap<User, Arc<str>> = {
            let registry = self.registry.lock();
            let of = registry.current();
            of.map(|active| (active.id, Arc::clone(&active.version.processor))).collect()
        };
        let demanded = self.watches.lock().demanded();
        // The triggers are locked before the watches.
        let is_used = |(user, kind, scope): &(User, Kind, Scope)| {
            let processor = processors.get(user);
            processor.is_none_or(|of| self.parts.dispatch.depends_on(of, kind, scope))
        };
        let unused: Vec<_> = demanded.into_iter().filter(|want| !is_used(want)).collect();
        let mut watches = self.watches.lock();
        if watches.give_up_unused(&unused, now) {
            let steps = watches.plan();
            self.carry_out(steps);
        }
    }

    /// Closes or narrows a store that has grown, if a version that it is kept for exceeds its
    /// bounds.
    pub(super) fn grown(&self, watch: &Watch) {
        // Sizes for one version alone take long to compute, so that is done between two tries, without
        // the lock. What is still unknown in the second one is checked when the store grows again.
        let mut known = Vec::new();
        for _ in 0..2 {
            let unknown = RefCell::new(Vec::new());
            if self.check_grown(watch, &known, &unknown) {
                return self.notify_activity();
            }
            let stores = self.parts.dispatch.stores();
            known.extend(unknown.into_inner().into_iter().map(|of: Alone| {
                let Watch { kind, scope } = &of.watch;
                let held = stores.held_with(kind, scope, &of.wanted, &of.user);
                (of, held)
            }));
            if known.is_empty() {
                return;
            }
        }
    }

    /// Closes or narrows a store that exceeds the bounds of a version by these sizes. Returns whether
    /// it did. Adds the sizes that are unknown, and count as 0, to `unknown`.
    fn check_grown(
        &self,
        watch: &Watch,
        known: &[(Alone, usize)],
        unknown: &RefCell<Vec<Alone>>,
    ) -> bool {
        let stores = self.parts.dispatch.stores();
        let held = |watch: &Watch, alone: Option<(&Wanted, &IndexUser)>| {
            let Some((wanted, user)) = alone else { return stores.held(&watch.kind, &watch.scope) };
            let of = Alone { watch: watch.clone(), wanted: wanted.clone(), user: user.clone() };
            let size = known.iter().find(|(known, _)| *known == of).map(|(_, size)| *size);
            size.unwrap_or_else(|| {
                unknown.borrow_mut().push(of);
                0
            })
        };
        let mut watches = self.watches.lock();
        let steps = watches.grown(watch, Instant::now(), held);
        steps.map(|steps| self.carry_out(steps)).is_some()
    }

    /// Closes demanded watches that are not used any more, opens stores again that were too large
    /// some time ago, and checks the bounds of stores that have grown without an event: queries add
    /// to the indexes. Checks every [`REOPEN_INTERVAL`].
    pub(super) async fn try_again(self: Arc<Self>) {
        loop {
            sleep(REOPEN_INTERVAL).await;
            self.close_unused(Instant::now());
            let watches = self.watches.lock().all();
            for watch in &watches {
                self.grown(watch);
            }
            let is_first = {
                let mut watches = self.watches.lock();
                let steps = watches.try_again(Instant::now());
                steps.map(|steps| self.carry_out(steps)).is_some()
            };
            if is_first {
                self.notify_activity();
            }
        }
    }

    /// Plans the watches anew after rights of accounts have changed, and queues all keys of the
    /// processors that have these accounts.
    fn rights_changed(&self, changed: &[Arc<Rights>]) {
        {
            let mut watches = self.watches.lock();
            let steps = watches.plan();
            self.carry_out(steps);
        }
        let has_changed = |active: &&Arc<Active>| {
            let rights = active.rights.as_ref();
            rights.is_some_and(|rights| changed.iter().any(|one| Arc::ptr_eq(one, rights)))
        };
        let affected: Vec<Arc<Active>> =
            self.registry.lock().current().filter(has_changed).cloned().collect();
        for active in affected {
            let processor = &active.version.processor;
            tracing::info!(%processor, "the rights of its account have changed");
            active.log_missing_rights();
            self.parts.dispatch.rights_changed(processor);
            self.notify_activity();
        }
    }

    /// Renews the rights of accounts as long as the host runs.
    pub(super) async fn keep_rights(self: Arc<Self>, mut crds: latest::Receiver<u64>) {
        let access = self.access.clone();
        access.needed().await;
        let renewing = async {
            let mut renewals = access.renewals();
            loop {
                let changed = renewals.next().await;
                self.rights_changed(&changed);
                self.circumstances.send_modify(|count| *count += 1);
            }
        };
        let kinds = async {
            while crds.changed().await.is_ok() {
                // The answers are renewed a moment later, and `circumstances` changes once more
                // then.
                self.circumstances.send_modify(|count| *count += 1);
                access.complete_soon();
            }
            // The sender is dropped only when the host ends.
            pending::<()>().await;
        };
        tokio::select! {
            () = renewing => {}
            () = kinds => {}
            () = access.watch_sources() => {}
        }
    }
}

/// Runs every opened watch. Fails if the task of a watch panics.
pub(super) async fn run_watches(
    mut opened: mpsc::UnboundedReceiver<Opened>,
    context: watch::Context,
) -> anyhow::Result<()> {
    let mut running = JoinSet::new();
    loop {
        tokio::select! {
            Some(opened) = opened.recv() => {
                running.spawn(opened.run(context.clone()));
            }
            Some(ended) = running.join_next() => ended.context("a watch failed")?,
            else => return Ok(()),
        }
    }
}

// === impl Opened ===

impl Opened {
    async fn run(self, context: watch::Context) {
        let Self { watch, feed, rights, over } = self;
        let last = feed.clone();
        let watched = async {
            if !watch.kind.cluster.is_empty() {
                return watch.run_elsewhere(feed, context, rights).await;
            }
            let cluster = rights.map_or(context.cluster, |rights| rights.cluster().clone());
            watch.run(feed, watch::Context { cluster, ..context }).await;
        };
        tokio::select! {
            () = over.cancelled() => {}
            () = watched => {}
        }
        // This handle may be the last one of a large store, whose drop takes long.
        drop(tokio::task::spawn_blocking(move || drop(last)));
    }
}
