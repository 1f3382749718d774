//! The processors that run, by name, and their former versions that still have runs to end.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    probation::{Probation, Trust},
    watches::User,
};
use crate::{
    contract::Kind,
    processor::Digest,
    queue::Key,
    reconciler::{Reconciler, Report},
};

/// What is called a version of a processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The processor's name.
    pub processor: Arc<str>,
    /// As its description says.
    pub version: String,
    /// Of the module.
    pub digest: Digest,
}

/// A run that ended badly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastFailure {
    /// What was reconciled.
    pub key: Key,
    /// When it ended.
    pub at: Timestamp,
    /// Why it failed.
    pub message: String,
}

/// A version that has been put to work.
pub(super) struct Active {
    /// Never used twice.
    pub(super) id: User,
    pub(super) version: Arc<Version>,
    pub(super) reconciler: Reconciler,
    /// The kinds that it needs, each once.
    pub(super) kinds: Vec<Kind>,
    pub(super) since: Timestamp,
    tally: Mutex<Tally>,
    conduct: Mutex<Conduct>,
}

/// How a version's calls went.
#[derive(Debug, Default)]
struct Conduct {
    /// The keys whose last call broke.
    broken: BTreeSet<Key>,
    /// Of one that has taken another's place, and that this other may come back for.
    probation: Option<Probation>,
}

/// What became of a version's runs.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub(super) running: usize,
    pub(super) runs: u64,
    pub(super) failures: u64,
    pub(super) last_failure: Option<LastFailure>,
}

/// All versions at work.
#[derive(Default)]
pub(super) struct Registry {
    current: BTreeMap<Arc<str>, Arc<Active>>,
    /// Replaced or removed; each has runs to end.
    former: Vec<Arc<Active>>,
}

// === impl Active ===

impl Active {
    pub(super) fn new(
        id: User,
        version: Version,
        reconciler: Reconciler,
        kinds: Vec<Kind>,
        since: Timestamp,
    ) -> Self {
        let (version, tally, conduct) = (Arc::new(version), Mutex::default(), Mutex::default());
        Self { id, version, reconciler, kinds, since, tally, conduct }
    }

    pub(super) fn tally(&self) -> Tally {
        self.tally.lock().clone()
    }

    /// The keys whose last call broke.
    pub(super) fn broken(&self) -> BTreeSet<Key> {
        self.conduct.lock().broken.clone()
    }

    /// From now on its calls are counted.
    pub(super) fn put_on_probation(&self, probation: Probation) {
        self.conduct.lock().probation = Some(probation);
    }

    /// What is known of it by now.
    pub(super) fn trust(&self, now: Instant) -> Trust {
        let mut conduct = self.conduct.lock();
        conduct.probation.as_mut().map_or(Trust::Proven, |probation| probation.trust(now))
    }

    /// A run has ended. Says whether that changes what is known of the version.
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

    /// Says in the log what its account may not do of that which it declares.
    pub(super) fn tell_missing_rights(&self) {
        let Some(rights) = self.reconciler.rights() else { return };
        let missing = rights.missing();
        if !missing.is_empty() {
            let (processor, account) = (&self.version.processor, rights.account());
            tracing::warn!(%processor, %account, missing = missing.join("; "), "its account lacks rights");
        }
    }
}

// === impl Registry ===

impl Registry {
    /// Those that new runs go to, by name.
    pub(super) fn current(&self) -> impl Iterator<Item = &Arc<Active>> {
        self.current.values()
    }

    pub(super) fn get(&self, processor: &str) -> Option<&Arc<Active>> {
        self.current.get(processor)
    }

    /// Puts a version to work in the place of the former one of its name, if any. Says which version has nothing to do any
    /// more.
    pub(super) fn put(&mut self, active: Arc<Active>) -> Option<User> {
        let former = self.current.insert(Arc::clone(&active.version.processor), active)?;
        self.retire(former)
    }

    /// Takes a processor out. Says which version has nothing to do any more; an error where none is called so.
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

    /// A run begins, on the version that is current now.
    pub(super) fn begin(&self, processor: &str, now: Instant) -> Option<Arc<Active>> {
        let active = self.current.get(processor)?;
        active.tally.lock().running += 1;
        if let Some(probation) = &mut active.conduct.lock().probation {
            probation.begins(now);
        }
        Some(Arc::clone(active))
    }

    /// Whether the key of a run is still one of the current version of its processor, for objects of the same kind.
    pub(super) fn has_key_of(&self, report: &Report) -> bool {
        let current = self.current.get(report.key.processor());
        let of = current.and_then(|current| current.reconciler.object_of(&report.key));
        of.is_some_and(|of| {
            (&of.kind.group, &of.kind.kind) == (&report.kind.group, &report.kind.kind)
        })
    }

    /// A run has ended. Says which version has nothing to do any more.
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

    /// How many runs of a processor are on their way on former versions of it.
    pub(super) fn on_former(&self, processor: &str) -> usize {
        let former = self.former.iter().filter(|former| &*former.version.processor == processor);
        former.map(|former| former.tally.lock().running).sum()
    }
}

/// No processor of that name.
#[derive(Debug, thiserror::Error)]
#[error("no processor is called `{processor}`; running: {}", listed(known))]
pub(super) struct Unknown {
    processor: String,
    known: Vec<Arc<str>>,
}

fn listed(names: &[Arc<str>]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}
