//! What can be asked of a running host about its processors.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::sync::watch as latest;

use super::{
    Host,
    registry::{Active, LastFailure, Registry, Version},
};
use crate::{
    access::{Acting, Denial, Rights},
    cluster::Account,
    contract::{Description, Kind},
    log,
    processor::{LONG_WAIT, Processor},
    queue::{Cause, Key, Priority, Share},
};

/// A processor that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessorStatus {
    /// What runs: new runs go to this version.
    pub version: Arc<Version>,
    /// Since when.
    pub since: Timestamp,
    /// Keys that could run now.
    pub ready: usize,
    /// Keys that run.
    pub running: usize,
    /// Of those that run, the ones that end on a former version.
    pub on_former: usize,
    /// Keys that wait for their time.
    pub delayed: usize,
    /// Of those that wait, the ones whose last run failed.
    pub backing_off: usize,
    /// Keys whose last run failed, also those that only a change will run again.
    pub failing: usize,
    /// Runs of this version that have ended.
    pub runs: u64,
    /// Those of them that failed.
    pub failures: u64,
    /// The last run of this version that failed.
    pub last_failure: Option<LastFailure>,
    /// Kinds that it needs and that the cluster does not serve.
    pub missing: Vec<Kind>,
    /// Objects of which it is known what their last runs have read.
    pub objects: usize,
    /// What it and others want of the same fields.
    pub disputes: Vec<String>,
    /// What it declares and its account may not do, each in words: `may not patch services in all namespaces`. Of kinds that the
    /// cluster does not serve nothing is said.
    pub missing_rights: Vec<String>,
    /// What it reconciles and its account may not watch in all that is declared, so that nothing of it is reconciled: the kind, and
    /// where.
    pub unwatched: Vec<String>,
    /// What the last runs of its keys were refused: for want of rights, in the same words, and reads that are not declared.
    pub denied: Vec<String>,
    /// The limits of the host that it meets now.
    pub limits_met: Vec<LimitMet>,
}

/// A limit of the host that a processor meets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitMet {
    /// In one word, as the reason of a condition: `WatchesLimited`.
    pub reason: &'static str,
    /// In one sentence: the limit, the option that sets it, and what happens past it.
    pub message: String,
}

impl Host {
    /// Every processor, by name. The cost follows the number of keys that wait.
    pub fn status(&self) -> Vec<ProcessorStatus> {
        let shares = self.shared.queue.shares();
        let objects = self.shared.triggers.lock().counts();
        let registry = self.shared.registry.lock();
        let status = |active: &Arc<Active>| {
            let name = &active.version.processor;
            let share = shares.get(name).copied().unwrap_or_default();
            self.status_with(active, share, objects.get(name).copied(), &registry)
        };
        registry.current().map(status).collect()
    }

    /// One processor; none where none is called so.
    pub fn status_of(&self, processor: &str) -> Option<ProcessorStatus> {
        let share = self.shared.queue.shares().remove(processor).unwrap_or_default();
        let objects = self.shared.triggers.lock().counts().remove(processor);
        let registry = self.shared.registry.lock();
        Some(self.status_with(registry.get(processor)?, share, objects, &registry))
    }

    /// A number that moves with each run that ends, and when a version is put to work or taken out.
    pub fn activity(&self) -> latest::Receiver<u64> {
        self.shared.activity.subscribe()
    }

    /// A number that moves when [`Host::trust`] of a version may have changed otherwise than by time.
    pub fn verdicts(&self) -> latest::Receiver<u64> {
        self.shared.verdicts.subscribe()
    }

    /// A number that moves when a version may be fit that was not: rights or kinds have changed.
    pub fn circumstances(&self) -> latest::Receiver<u64> {
        self.shared.circumstances.subscribe()
    }

    /// Whether this host may act as an account, as the API server says; renewed until it is dropped.
    pub fn acting_as(&self, account: &Account) -> Arc<Acting> {
        self.shared.parts.access.acting(account)
    }

    /// A number that moves when the host may act as other accounts than before.
    pub fn acting_changes(&self) -> latest::Receiver<u64> {
        self.shared.parts.access.acting_changes()
    }

    /// The rights of an account, of which nothing was asked yet; renewed until they are dropped.
    pub(crate) fn rights_of(&self, account: &Account) -> Arc<Rights> {
        let nothing = Description {
            name: String::new(),
            version: String::new(),
            config_schema: None,
            reconcilers: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
        };
        self.shared.parts.access.of(account, &Arc::new(nothing))
    }

    /// The keys of the objects that hold one of a processor's finalizers; none as long as that is not known, or where no processor
    /// is called so.
    pub fn holding(&self, processor: &str) -> Option<Vec<Key>> {
        let active = self.shared.registry.lock().get(processor).cloned()?;
        active.reconciler.holding(&active.version.processor)
    }

    /// Tells nothing more of a processor in the metrics.
    pub fn forget_metrics(&self, processor: &str) {
        self.shared.parts.metrics.forget_processor(processor);
    }

    /// Runs keys as soon as nothing else is to be done.
    pub fn run_again(&self, keys: &[Key]) {
        for key in keys {
            self.shared.queue.renew(key, Cause::NewVersion, Priority::Background);
        }
    }

    fn status_with(
        &self,
        active: &Active,
        share: Share,
        objects: Option<usize>,
        registry: &Registry,
    ) -> ProcessorStatus {
        let tally = active.tally();
        let rights = active.reconciler.rights();
        let (denied, more) = self.shared.denials.of_processor(&active.version.processor);
        let more_denied = (more > 0).then(|| format!("and {more} more that are not kept"));
        let is_missing = |kind: &&Kind| self.shared.parts.stores.is_unknown(kind);
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
            unwatched: active.reconciler.unwatched(),
            denied: denied.iter().map(Denial::in_words).chain(more_denied).collect(),
            missing: active.kinds.iter().filter(is_missing).cloned().collect(),
            objects: objects.unwrap_or_default(),
            disputes: self.shared.parts.writer.disputes_of(&active.version.processor),
            limits_met: self.limits_met(active),
        }
    }
}

impl Host {
    fn limits_met(&self, active: &Active) -> Vec<LimitMet> {
        let mut met = self.shared.watches.lock().limits_met(active.id);
        met.extend(limits_of_calls(active.reconciler.processor()));
        met.extend(active.reconciler.dependencies_limited());
        met.extend(limit_of_log(&active.version.processor));
        met
    }
}

fn limit_of_log(processor: &str) -> Option<LimitMet> {
    log::counters::is_limited(processor).then(|| LimitMet {
        reason: "LogLimited",
        message: format!(
            "lines of the log about the processor are dropped: in the long run {} lines and {} KiB of them a second are written",
            log::limit::LINES_A_SECOND,
            log::limit::BYTES_A_SECOND / 1024.0
        ),
    })
}

/// So long after its last call that got no more memory a processor is said to be short of it.
const SHORT_OF_MEMORY: Duration = Duration::from_mins(1);

/// The limits that a processor's calls meet together.
fn limits_of_calls(processor: &Processor) -> Vec<LimitMet> {
    let (waiting, tenant) = (processor.waiting(), processor.tenant());
    let waits = (waiting.longest >= LONG_WAIT).then(|| LimitMet {
        reason: "WaitsForSlot",
        message: format!(
            "{} calls wait for a slot, the first for {} s: other calls have those that this processor may have",
            waiting.calls,
            waiting.longest.as_secs()
        ),
    });
    let short = tenant.short_of_memory().filter(|ago| *ago < SHORT_OF_MEMORY);
    let short = short.map(|_| LimitMet {
        reason: "CallMemoryLimited",
        message: "a call failed since it got no more memory: one processor's calls together get no more than is left for others of --call-memory-mib".to_owned(),
    });
    waits.into_iter().chain(short).collect()
}
