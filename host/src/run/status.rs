//! What can be asked of a running host about its processors.

use std::sync::Arc;

use jiff::Timestamp;

use super::{
    Host,
    registry::{Active, LastFailure, Registry, Version},
};
use crate::{contract::Kind, queue::Share};

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
}

impl Host {
    /// Every processor, by name. The cost follows the number of keys that wait.
    pub fn status(&self) -> Vec<ProcessorStatus> {
        let shares = self.shared.queue.shares();
        let registry = self.shared.registry.lock();
        let status = |active: &Arc<Active>| {
            let share = shares.get(&active.version.processor).copied().unwrap_or_default();
            self.status_of(active, share, &registry)
        };
        registry.current().map(status).collect()
    }

    fn status_of(&self, active: &Active, share: Share, registry: &Registry) -> ProcessorStatus {
        let tally = active.tally();
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
            missing: active.kinds.iter().filter(is_missing).cloned().collect(),
        }
    }
}
