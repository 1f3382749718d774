//! The status of the processors of a running host, and counters of its changes.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use mortise_core::{
    contract::{Description, GrantedRule, Kind},
    grant::rights::{Account, Denial},
    queue::{Cause, Key, Priority, ReconcilerId},
    reconcile::{Finalizing, StartedSelection},
};
use tokio::sync::watch as latest;

use super::{
    Host, Version,
    registry::{Active, LastFailure, Registry},
};
use crate::{
    cluster::{
        access::{Acting, Rights},
        clusters::Problem,
    },
    metrics::dropped_lines,
    reason::Reason,
    telemetry,
    wasm::{LONG_WAIT, Processor},
};

/// The status of a running processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessorStatus {
    /// The current version: new runs go to it.
    pub version: Arc<Version>,
    /// The time when the version was swapped in.
    pub since: Timestamp,
    /// The number of keys that are ready to run.
    pub ready: usize,
    /// The number of running keys.
    pub running: usize,
    /// The number of running keys on former versions.
    pub on_former: usize,
    /// The number of keys that are not due yet.
    pub delayed: usize,
    /// The number of delayed keys whose last run failed.
    pub backing_off: usize,
    /// The number of keys whose last run failed, including those that are not retried without a
    /// change.
    pub failing: usize,
    /// The number of runs of this version that have ended, without skipped and cancelled runs.
    pub runs: u64,
    /// The number of runs of this version that failed.
    pub failures: u64,
    /// The last run of this version that failed.
    pub last_failure: Option<LastFailure>,
    /// The kinds that the version needs and that the cluster does not serve.
    pub missing: Vec<Kind>,
    /// The number of objects whose dependencies are known from their last runs.
    pub objects: usize,
    /// The conflicts, as messages: fields that a key of the processor and another key both want.
    pub conflicts: Vec<String>,
    /// The declared rights that the account lacks, as messages such as `may not patch services in
    /// all namespaces`. Kinds that the cluster does not serve are left out.
    pub missing_rights: Vec<String>,
    /// The rules that the processor grants and that its account does not hold.
    pub not_held: Vec<GrantedRule>,
    /// The kinds that the processor reconciles and whose declared scope its account may not watch,
    /// each with its scope. No object of them is reconciled.
    pub unwatched: Vec<String>,
    /// The denials of the last runs of its keys: missing rights, as in `missing_rights`, and
    /// undeclared reads.
    pub denied: Vec<String>,
    /// The limits of the host that the processor meets now.
    pub limits_met: Vec<LimitMet>,
    /// The other clusters that it uses.
    pub clusters: ClustersStatus,
    /// The state of its hooks: served or not; `None` if it has no hooks, or the host no port for
    /// them.
    pub hooks: Option<Result<(), NotServed>>,
}

/// The other clusters that a processor uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClustersStatus {
    /// The number of clusters that are open for it.
    pub used: usize,
    /// The clusters that it cannot use now, with the reasons.
    pub problems: Vec<(Arc<str>, Problem)>,
}

/// The reason why hooks are not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotServed {
    /// The reason for a condition: `CertificateMissing`.
    pub reason: Reason,
    /// The message, in one sentence.
    pub message: String,
}

/// A limit of the host that a processor meets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitMet {
    /// The reason for a condition: `WatchesLimited`.
    pub reason: Reason,
    /// The message, in one sentence: the limit, the option that sets it, and what happens past it.
    pub message: String,
}

impl Host {
    /// Returns the status of every processor, sorted by name. The cost grows with the number of
    /// keys in the queue.
    pub fn status(&self) -> Vec<ProcessorStatus> {
        let names: Vec<Arc<str>> = {
            let registry = self.shared.registry.lock();
            registry.current().map(|active| Arc::clone(&active.version.processor)).collect()
        };
        names.iter().filter_map(|name| self.status_of(name)).collect()
    }

    /// Returns the status of one processor; `None` if there is no processor of this name. The cost
    /// grows with the number of its keys, not with that of others: each processor's status is
    /// computed about once a second.
    pub fn status_of(&self, processor: &str) -> Option<ProcessorStatus> {
        // Before the registry is locked: the triggers are locked first.
        let dispatch = &self.shared.parts.dispatch;
        let triggers = (dispatch.count_of(processor), dispatch.limited(processor));
        let registry = self.shared.registry.lock();
        Some(self.status_with(registry.get(processor)?, triggers, &registry))
    }

    /// Returns a counter that changes with each run that ends, and when a version is swapped in or
    /// removed.
    pub fn activity(&self) -> latest::Receiver<u64> {
        self.shared.activity.subscribe()
    }

    /// Returns a counter that changes when [`Host::trust`] of a version may have changed other than
    /// by the passing of time.
    pub(crate) fn verdicts(&self) -> latest::Receiver<u64> {
        self.shared.verdicts.subscribe()
    }

    /// Returns a counter that changes when rights or served kinds have changed, so that a version
    /// which was refused may be accepted.
    pub(crate) fn circumstances(&self) -> latest::Receiver<u64> {
        self.shared.circumstances.subscribe()
    }

    /// Returns the host's right to act as an account, as the API server answers. The answer is
    /// renewed until it is dropped.
    pub(crate) fn acting_as(&self, account: &Account) -> Arc<Acting> {
        self.shared.access.acting(account)
    }

    /// Returns a counter that changes when the host may act as other accounts than before.
    pub(crate) fn acting_changes(&self) -> latest::Receiver<u64> {
        self.shared.access.acting_changes()
    }

    /// Returns the rights of an account, without any request to the API server yet. They are
    /// renewed until they are dropped.
    pub(crate) fn rights_of(&self, account: &Account) -> Arc<Rights> {
        let nothing = Description {
            name: String::new(),
            version: String::new(),
            grants: Vec::new(),
            outbound: Vec::new(),
            config_schema: None,
            reconcilers: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
        };
        self.shared.access.of(account, &Arc::new(nothing))
    }

    /// Returns the keys of the objects that hold one of a processor's finalizers; `None` as long as
    /// these are not known, or if there is no processor of this name.
    pub(crate) fn holding(&self, processor: &str) -> Option<Vec<Key>> {
        let active = self.shared.registry.lock().get(processor).cloned()?;
        active.reconciler.holding(&active.version.processor)
    }

    /// Returns the on-demand reconcilers of a processor that run only if their finalizers are
    /// claimed, and whether all are known.
    pub(crate) fn finalizing(&self, processor: &str) -> (Vec<Finalizing>, bool) {
        let active = self.shared.registry.lock().get(processor).cloned();
        active.map(|active| active.reconciler.finalizing()).unwrap_or_default()
    }

    /// Returns the selections that the outcomes of each processor have started, sorted by processor.
    pub(crate) fn started(&self) -> Vec<(Arc<str>, Vec<StartedSelection>)> {
        let all: Vec<Arc<Active>> = self.shared.registry.lock().current().cloned().collect();
        let started = |active: &Arc<Active>| {
            (Arc::clone(&active.version.processor), active.reconciler.started_selections())
        };
        all.iter().map(started).collect()
    }

    /// Lets on-demand reconcilers run whose finalizers are claimed.
    pub(crate) fn permit(&self, processor: &str, ids: &[ReconcilerId]) {
        let active = self.shared.registry.lock().get(processor).cloned();
        let Some(active) = active.filter(|active| active.reconciler.permit(ids)) else { return };
        self.shared.follow_started(&active);
        self.shared.notify_activity();
    }

    /// Removes a processor from the metrics.
    pub(crate) fn forget_metrics(&self, processor: &str) {
        self.shared.metrics.forget_processor(processor);
    }

    /// Queues keys to run in the background; their earlier failures do not count any more.
    pub(crate) fn run_again(&self, keys: &[Key]) {
        for key in keys {
            self.shared.parts.dispatch.queue().renew(key, Cause::NewVersion, Priority::Background);
        }
    }

    /// Returns the status. `objects` and `limited` are what the triggers know of the processor.
    fn status_with(
        &self,
        active: &Active,
        (objects, limited): (usize, Option<String>),
        registry: &Registry,
    ) -> ProcessorStatus {
        let share = self.shared.parts.dispatch.queue().share_of(&active.version.processor);
        let tally = active.tally();
        let rights = active.rights.as_ref();
        let (denied, more) = self.shared.denials.of_processor(&active.version.processor);
        let more_denied = (more > 0).then(|| format!("and {more} more that are not kept"));
        // What another cluster lacks is shown where it is used.
        let stores = self.shared.parts.dispatch.stores();
        let is_missing = |kind: &&Kind| kind.cluster.is_empty() && stores.is_unknown(kind);
        ProcessorStatus {
            version: Arc::clone(&active.version),
            since: active.since,
            ready: share.state.ready,
            running: share.state.running,
            on_former: registry.on_former(&active.version.processor),
            delayed: share.state.delayed,
            backing_off: share.backing_off,
            failing: share.failing,
            runs: tally.runs,
            failures: tally.failures,
            last_failure: tally.last_failure,
            missing_rights: rights.map_or_else(Vec::new, |rights| rights.missing()),
            not_held: rights.map_or_else(Vec::new, |rights| rights.not_held()),
            unwatched: active.reconciler.unwatched(),
            denied: denied.iter().map(Denial::in_words).chain(more_denied).collect(),
            missing: active.kinds.iter().filter(is_missing).cloned().collect(),
            objects,
            conflicts: self.shared.parts.writer.conflicts_of(&active.version.processor),
            limits_met: self.limits_met(active, limited),
            clusters: self.clusters_of(&active.version.processor),
            hooks: self.shared.hooks.state_of(&active.version.processor),
        }
    }
}

impl Host {
    fn clusters_of(&self, processor: &str) -> ClustersStatus {
        let (used, problems) = self.shared.clusters.state_of(processor);
        ClustersStatus { used, problems }
    }

    fn limits_met(&self, active: &Active, limited: Option<String>) -> Vec<LimitMet> {
        let mut met = self.shared.watches.lock().limits_met(active.id);
        met.extend(limits_of_calls(&active.processor));
        let reason = Reason::DependenciesLimited;
        let limited = active.reconciler.dependencies_limited().into_iter().chain(limited);
        met.extend(limited.map(|message| LimitMet { reason, message }));
        met.extend(limit_of_log(&active.version.processor));
        met.extend(active.egress_gaps.iter().cloned());
        met
    }
}

fn limit_of_log(processor: &str) -> Option<LimitMet> {
    dropped_lines::is_limited(processor).then(|| LimitMet {
        reason: Reason::LogLimited,
        message: format!(
            "lines of the log about the processor are dropped: in the long run {} lines and {} KiB of them a second are written",
            telemetry::limit::LINES_A_SECOND,
            telemetry::limit::BYTES_A_SECOND / 1024.0
        ),
    })
}

/// The time for which a processor counts as short of memory after a call was refused memory.
const SHORT_OF_MEMORY_PERIOD: Duration = Duration::from_mins(1);

/// Returns the limits that the calls of a processor meet together.
fn limits_of_calls(processor: &Processor) -> Vec<LimitMet> {
    let (waiting, tenant) = (processor.waiting(), processor.tenant());
    let waits = (waiting.longest >= LONG_WAIT).then(|| LimitMet {
        reason: Reason::WaitsForSlot,
        message: format!(
            "{} calls wait for a slot, the first for {} s: other calls have those that this processor may have",
            waiting.calls,
            waiting.longest.as_secs()
        ),
    });
    let short = tenant.short_of_memory().filter(|ago| *ago < SHORT_OF_MEMORY_PERIOD);
    let short = short.map(|_| LimitMet {
        reason: Reason::CallMemoryLimited,
        message: "a call failed since it got no more memory: one processor's calls together get no more than is left for others of --call-memory-mib".to_owned(),
    });
    waits.into_iter().chain(short).collect()
}
