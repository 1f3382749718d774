//! The two loops of a host: changes queue keys, and queued keys are run.

use std::{pin::pin, sync::Arc, time::Duration};

use anyhow::Context as _;
use jiff::Timestamp;
use mortise_core::{
    contract::Kind,
    grant::rights::Rights as _,
    queue::Run,
    reconcile::{Ended, Parts, Report},
};
use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, watch as latest},
    task::JoinSet,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{
    Drive, Options,
    hooks::{Serving, is_converted},
    open::Opened,
    registry::{Active, Registry},
    watches::{User, Watches},
};
use crate::{
    cluster::{
        Cluster,
        access::{Access, Denials},
        clusters::Clusters,
        watch::Watch,
    },
    metrics::Metrics,
    outbound::Client,
};

/// The longest time that runs wait for the first lists of the kinds that they read.
const FIRST_LISTS_TIMEOUT: Duration = Duration::from_secs(10);

/// The time after which the log tells that runs wait until reports are taken.
const UNTAKEN_REPORTS_PERIOD: Duration = Duration::from_secs(10);

/// The state that the tasks of a host share. Lock order: that of `parts.dispatch`, `registry`,
/// `watches`; each is held for a few lines.
pub(super) struct HostState {
    pub(super) parts: Parts,
    /// The choice who decides when a key runs.
    pub(super) drive: Drive,
    /// The cluster, with the host's own rights.
    pub(super) cluster: Cluster,
    pub(super) metrics: Metrics,
    /// The other clusters.
    pub(super) clusters: Clusters,
    /// The client for calls to systems outside of the cluster.
    pub(super) outbound: Client,
    /// The rights of the accounts of processors.
    pub(super) access: Access,
    pub(super) registry: Mutex<Registry>,
    pub(super) watches: Mutex<Watches>,
    /// The served hooks of processors.
    pub(super) hooks: Serving,
    /// Changes when a run has ended, or a version is swapped in or removed.
    pub(super) activity: latest::Sender<u64>,
    /// Changes when the trust in a version on probation may have changed.
    pub(super) verdicts: latest::Sender<u64>,
    /// Changes when rights of accounts or served kinds may have changed.
    pub(super) circumstances: latest::Sender<u64>,
    /// The channel of watches to [`run_watches`](super::open::run_watches).
    pub(super) opened: mpsc::UnboundedSender<Opened>,
    /// The denials: requests of runs that were refused because a right is missing.
    pub(super) denials: Denials,
}

// === impl HostState ===

impl HostState {
    pub(super) fn new(
        parts: Parts,
        cluster: &Cluster,
        opened: mpsc::UnboundedSender<Opened>,
        options: &Options,
    ) -> Self {
        let home = parts.writer.home();
        let (of, now) = (&options.outbound, Arc::clone(&options.now));
        Self {
            outbound: Client::new(of.home.clone(), now, options.metrics.clone()),
            clusters: Clusters::new(cluster, home, &options.lease, &options.clusters),
            opened,
            drive: options.drive,
            denials: Denials::default(),
            cluster: cluster.clone(),
            metrics: options.metrics.clone(),
            access: Access::new(cluster, options.namespace.clone()),
            parts,
            registry: Mutex::default(),
            watches: Mutex::new(Watches::new(options.bounds)),
            hooks: Serving::default(),
            activity: latest::Sender::new(0),
            verdicts: latest::Sender::new(0),
            circumstances: latest::Sender::new(0),
        }
    }

    /// Notifies those that wait for `activity`: the status of a processor may have changed.
    pub(super) fn notify_activity(&self) {
        self.activity.send_modify(|count| *count += 1);
    }

    /// Returns how many calls wait for a slot, by processor.
    pub(super) fn waiting_calls(&self) -> Vec<(Arc<str>, usize)> {
        let registry = self.registry.lock();
        let waiting = |active: &Arc<Active>| {
            let processor = Arc::clone(&active.version.processor);
            (processor, active.processor.waiting().calls)
        };
        registry.current().map(waiting).collect()
    }

    /// Runs the keys that are ready until `stop`, then waits for the running ones: a call is never
    /// dropped.
    pub(super) async fn run_keys(
        self: Arc<Self>,
        reports: mpsc::Sender<Report>,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let watches = self.watches.lock().all();
        self.listed(&watches).await;
        let mut runs: JoinSet<Report> = JoinSet::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(ran) = runs.join_next() => {
                    let report = ran.context("a reconcile failed")?;
                    if !report.skipped {
                        give(&reports, report).await;
                    }
                }
                run = self.parts.dispatch.queue().next() => {
                    let shared = Arc::clone(&self);
                    runs.spawn(async move { shared.run(run).await });
                }
            }
        }
        while let Some(ran) = runs.join_next().await {
            ran.context("a reconcile failed")?;
        }
        Ok(())
    }

    /// Waits for the first lists, so that the first runs do not see half of a cluster. Reads of a
    /// kind whose list takes longer than [`FIRST_LISTS_TIMEOUT`] are answered as unavailable, and
    /// their keys run again when the list is complete. While the only missing lists are those whose
    /// objects this host converts, the caller counts as [`Waiting`](super::hooks::Waiting).
    pub(super) async fn listed(&self, watches: &[Watch]) {
        let stores = self.parts.dispatch.stores();
        let (mut progress, mut activity) = (stores.progress(), self.activity.subscribe());
        // Other clusters may be away.
        let watches: Vec<&Watch> = watches.iter().filter(|of| of.kind.cluster.is_empty()).collect();
        let complete = async {
            let mut waits = None;
            loop {
                let open = watches.iter().filter(|of| !stores.is_settled(&of.kind, &of.scope));
                let kinds: Vec<&Kind> = open.map(|watch| &watch.kind).collect();
                if kinds.is_empty() {
                    return;
                }
                let converted = self.hooks.converted();
                let is_own = kinds.iter().all(|of| is_converted(of, &converted));
                waits = if is_own { waits.or_else(|| Some(self.hooks.wait())) } else { None };
                let changed = tokio::select! {
                    changed = progress.changed() => changed,
                    // The hooks of another processor may be served by now.
                    changed = activity.changed() => changed,
                };
                if changed.is_err() {
                    return;
                }
            }
        };
        let _ = timeout(FIRST_LISTS_TIMEOUT, complete).await;
    }

    /// Runs a key to its end, or skips the run, on the version that is current when the run begins.
    pub(super) async fn run(&self, mut run: Run) -> Report {
        let active = self.registry.lock().begin(run.key.processor(), Instant::now());
        let Some(active) = active else {
            // The processor was removed after the queue gave the key out.
            self.parts.dispatch.abandon(&run.key);
            return Report::new(&run);
        };
        let (report, ended) = active.reconciler.run(&mut run).await;
        let at = (self.parts.now)();
        self.count(&active, &report);
        self.judge(&active, &report, at);
        self.give_back(&active, &report, at, ended);
        report
    }

    /// Counts a run, and the reads and writes that were denied to it.
    fn count(&self, active: &Active, report: &Report) {
        // A key without reconciler has not run.
        if !report.kind.kind.is_empty() {
            self.metrics.ended(report);
        }
        let Some(rights) = &active.rights else { return };
        for denial in &report.denied {
            let [home, elsewhere] = &active.named;
            let named = if denial.kind.cluster.is_empty() { home } else { elsewhere };
            self.metrics.denied(report.key.processor(), denial, named);
        }
        self.denials.keep(&report.key, rights.account(), &report.denied);
    }

    /// Judges the version by a run's calls. A skipped or cancelled run is no evidence.
    fn judge(&self, active: &Active, report: &Report, at: Timestamp) {
        let is_evidence = !report.skipped && !report.cancelled;
        if is_evidence && active.called(report, at, Instant::now()) {
            self.verdicts.send_modify(|count| *count += 1);
        }
    }

    /// Opens the watches that a run needs, ends it on its version, and gives its key back to the
    /// queue.
    fn give_back(&self, active: &Active, report: &Report, at: Timestamp, ended: Ended) {
        let Ended { done, causes, demands, starts } = ended;
        self.demand(active.id, report.key.reconciler(), demands);
        if starts {
            self.follow_started(active);
        }
        let over = self.end_run(active, report, at);
        // Before `done` lets the queue give the key out again: from then on, no watch is open only
        // for an ended version.
        self.release(over);
        self.parts.dispatch.done(&report.key, done, causes);
        self.notify_activity();
    }

    /// Ends a run on its version, and forgets what the run kept or counted for a reconciler or a
    /// processor that was removed meanwhile. Returns the version if it was replaced or removed, and
    /// this was its last run.
    fn end_run(&self, active: &Active, report: &Report, at: Timestamp) -> Option<User> {
        let mut registry = self.registry.lock();
        if !registry.has_key_of(report) {
            // Its reconciler was removed while it ran.
            self.parts.records.forget(&report.key);
            self.denials.forget(&report.key);
        }
        let over = registry.end(active, report, at);
        if registry.get(report.key.processor()).is_none() {
            // The processor was removed during the run, which has added metrics since.
            self.metrics.forget_processor(report.key.processor());
        }
        over
    }

    /// Closes the watches that only this version needed: it was replaced or removed, and its last
    /// run has ended.
    pub(super) fn release(&self, over: Option<User>) {
        let Some(over) = over else { return };
        // Locked until the steps are carried out: no watch is opened in between.
        let mut watches = self.watches.lock();
        watches.remove(over);
        let steps = watches.plan();
        self.carry_out(steps);
        self.parts.dispatch.stores().check_index_users();
    }
}

/// Gives a report to [`Host::next_report`](super::Host::next_report). Waits, and tells so, if too
/// many were not taken.
async fn give(reports: &mpsc::Sender<Report>, report: Report) {
    let mut sent = pin!(reports.send(report));
    if timeout(UNTAKEN_REPORTS_PERIOD, sent.as_mut()).await.is_err() {
        warn!("no more keys are run until the reports of ended runs are taken");
        // Sending fails only if the receiver is closed: the host is about to stop.
        let _ = sent.await;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use mortise_core::queue::Key;
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_report_waits_until_others_are_taken_which_is_logged_once() {
        let (mut log, to) = std::io::pipe().unwrap();
        let lines = tracing_subscriber::fmt().with_writer(std::sync::Mutex::new(to)).finish();
        let listening = mortise_core::fixture::listen(lines);
        let (reports, mut taken) = mpsc::channel(1);
        let report = |name: &str| {
            let key = Key::new(&"p".into(), &"r".into(), None, name);
            Report::new(&Run { key, causes: Vec::new(), more_causes: 0, attempt: 0 })
        };
        give(&reports, report("first")).await;
        let mut second = pin!(give(&reports, report("second")));
        for _ in 0..3 {
            assert!(futures::poll!(second.as_mut()).is_pending());
            advance(UNTAKEN_REPORTS_PERIOD).await;
        }
        assert_eq!(taken.recv().await.unwrap().key.name(), "first");
        second.await;
        assert_eq!(taken.recv().await.unwrap().key.name(), "second");
        // The host is about to stop.
        drop(taken);
        give(&reports, report("third")).await;
        drop(listening);
        let mut logged = String::new();
        log.read_to_string(&mut logged).unwrap();
        assert_eq!(logged.matches("no more keys are run until").count(), 1, "{logged}");
    }
}
