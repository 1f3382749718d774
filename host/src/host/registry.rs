//! The current version of each processor, by name, and the former versions with unfinished runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use mortise_core::{
    contract::Kind,
    grant::rights::Rights as _,
    queue::Key,
    reconcile::{Reconciler, Report, StartedReconciler, Version},
};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    LimitMet,
    probation::{Probation, Trust},
    watches::User,
};
use crate::{cluster::access::Rights, wasm::Processor};

/// A failed run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastFailure {
    pub key: Key,
    /// The time when the run ended.
    pub at: Timestamp,
    /// The reason of the failure.
    pub message: String,
}

/// A version that was swapped in.
pub(super) struct Active {
    /// The id of the version as a user of watches; never used twice.
    pub(super) id: User,
    pub(super) version: Arc<Version>,
    pub(super) reconciler: Reconciler,
    /// The component that the reconciler calls.
    pub(super) processor: Processor,
    /// The rights of the processor's account; `None` if it runs with the host's own rights.
    pub(super) rights: Option<Arc<Rights>>,
    /// The kinds that its description names, each once.
    pub(super) kinds: Vec<Kind>,
    /// The kinds that it names at home, and the kinds in other clusters, as if these were home.
    pub(super) named: [Vec<Kind>; 2],
    /// The differences between what it declares to call and what its Processor grants.
    pub(super) egress_gaps: Vec<LimitMet>,
    pub(super) since: Timestamp,
    pub(super) tally: Mutex<Tally>,
    pub(super) conduct: Mutex<Conduct>,
}

/// The results of a version's calls.
#[derive(Debug, Default)]
pub(super) struct Conduct {
    /// The keys whose last call broke.
    broken: BTreeSet<Key>,
    /// The probation, if the version has replaced another one that may be restored.
    probation: Option<Probation>,
}

/// The counts of a version's runs.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub(super) running: usize,
    pub(super) runs: u64,
    pub(super) failures: u64,
    pub(super) last_failure: Option<LastFailure>,
}

/// The current and the former versions.
#[derive(Default)]
pub(super) struct Registry {
    current: BTreeMap<Arc<str>, Arc<Active>>,
    /// The versions that were replaced or removed and have unfinished runs.
    former: Vec<Arc<Active>>,
}

// === impl Active ===

impl Active {
    pub(super) fn tally(&self) -> Tally {
        self.tally.lock().clone()
    }

    /// Returns the keys whose last call broke.
    pub(super) fn broken(&self) -> BTreeSet<Key> {
        self.conduct.lock().broken.clone()
    }

    /// Puts the version on probation: its calls are counted from now on.
    pub(super) fn put_on_probation(&self, probation: Probation) {
        self.conduct.lock().probation = Some(probation);
    }

    /// Returns how far the version can be trusted at this time.
    pub(super) fn trust(&self, now: Instant) -> Trust {
        let mut conduct = self.conduct.lock();
        conduct.probation.as_mut().map_or(Trust::Proven, |probation| probation.trust(now))
    }

    /// Records the end of a call. Returns whether the trust in the version may have changed.
    pub(super) fn called(&self, report: &Report, at: Timestamp, now: Instant) -> bool {
        if report.record.ran_on.is_none() {
            return false;
        }
        let mut conduct = self.conduct.lock();
        let key = &report.key;
        let message = report.failure.clone().filter(|_| report.broke);
        let broke = message.map(|message| LastFailure { key: key.clone(), at, message });
        if broke.is_some() {
            conduct.broken.insert(key.clone());
        } else {
            conduct.broken.remove(key);
        }
        conduct.probation.as_mut().is_some_and(|probation| probation.ended(key, broke, now))
    }

    /// Sets the on-demand reconcilers for which the account needs rights. Returns whether these
    /// have to be asked for.
    pub(super) fn need_rights_of(&self, started: &[StartedReconciler]) -> bool {
        let selections = started.iter().flat_map(|of| of.selections.clone()).collect();
        self.rights.as_ref().is_some_and(|rights| rights.set_started(selections))
    }

    /// Logs the declared rights that the account lacks, if any.
    pub(super) fn log_missing_rights(&self) {
        let Some(rights) = &self.rights else { return };
        let missing = rights.missing();
        if !missing.is_empty() {
            let (processor, account) = (&self.version.processor, rights.account());
            tracing::warn!(%processor, %account, missing = missing.join("; "), "its account lacks rights");
        }
    }
}

// === impl Registry ===

impl Registry {
    /// Returns the current versions, sorted by the names of their processors.
    pub(super) fn current(&self) -> impl Iterator<Item = &Arc<Active>> {
        self.current.values()
    }

    /// Returns the processor names of all current and former versions.
    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.current.values().chain(&self.former).map(|active| &active.version.processor)
    }

    pub(super) fn get(&self, processor: &str) -> Option<&Arc<Active>> {
        self.current.get(processor)
    }

    /// Makes a version the current one of its processor. Returns the id of the former version if it
    /// has no unfinished runs.
    pub(super) fn put(&mut self, active: Arc<Active>) -> Option<User> {
        let former = self.current.insert(Arc::clone(&active.version.processor), active)?;
        self.retire(former)
    }

    /// Removes a processor. Returns the id of its version if it has no unfinished runs. Fails if
    /// there is no processor of this name.
    pub(super) fn remove(&mut self, processor: &str) -> Result<Option<User>, Unknown> {
        let former = self.current.remove(processor).ok_or_else(|| Unknown {
            processor: processor.to_owned(),
            known: self.current.keys().cloned().collect(),
        })?;
        Ok(self.retire(former))
    }

    fn retire(&mut self, former: Arc<Active>) -> Option<User> {
        if former.tally.lock().running == 0 {
            return Some(former.id);
        }
        self.former.push(former);
        None
    }

    /// Begins a run on the current version of a processor; `None` if there is no such processor.
    pub(super) fn begin(&self, processor: &str, now: Instant) -> Option<Arc<Active>> {
        let active = self.current.get(processor)?;
        active.tally.lock().running += 1;
        if let Some(probation) = &mut active.conduct.lock().probation {
            probation.begins(now);
        }
        Some(Arc::clone(active))
    }

    /// Returns whether the key of a run still belongs to the current version of its processor, and
    /// stands for objects of the same kind.
    pub(super) fn has_key_of(&self, report: &Report) -> bool {
        let current = self.current.get(report.key.processor());
        let of = current.and_then(|current| current.reconciler.object_of(&report.key));
        of.is_some_and(|of| of.kind.is_same(&report.kind))
    }

    /// Counts the end of a run. Returns the id of the version if it was replaced or removed and has
    /// no unfinished runs.
    pub(super) fn end(&mut self, active: &Active, report: &Report, at: Timestamp) -> Option<User> {
        let mut tally = active.tally.lock();
        tally.running -= 1;
        tally.runs += u64::from(!report.skipped && !report.cancelled);
        if let Some(message) = &report.failure {
            tally.failures += 1;
            let (key, message) = (report.key.clone(), message.clone());
            tally.last_failure = Some(LastFailure { key, at, message });
        }
        if tally.running > 0 {
            return None;
        }
        let at = self.former.iter().position(|former| former.id == active.id)?;
        Some(self.former.swap_remove(at).id)
    }

    /// Returns the number of unfinished runs on former versions of a processor.
    pub(super) fn on_former(&self, processor: &str) -> usize {
        let former = self.former.iter().filter(|former| &*former.version.processor == processor);
        former.map(|former| former.tally.lock().running).sum()
    }
}

/// The error that no processor has this name.
#[derive(Debug, thiserror::Error)]
#[error("no processor is called `{processor}`; running: {}", listed(known))]
pub(super) struct Unknown {
    processor: String,
    known: Vec<Arc<str>>,
}

fn listed(names: &[Arc<str>]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}
