//! The progress of all Processors, for callers that wait for them.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::watch as latest;

/// The progress of all Processors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// True if the first list of Processors is complete.
    pub listed: bool,
    /// The number of Processors that neither run nor have a fault yet.
    pub pending: usize,
    /// The number of Processors whose modules are being pulled.
    pub pulling: usize,
    /// The number of Processors that do not run as their spec asks.
    pub faulty: usize,
}

/// The progress of one Processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Pending,
    Pulling,
    AtWork,
    Faulty,
}

#[derive(Debug)]
pub(super) struct Phases {
    all: Mutex<BTreeMap<Arc<str>, Phase>>,
    current: latest::Sender<Progress>,
}

// === impl Phases ===

impl Default for Phases {
    fn default() -> Self {
        Self { all: Mutex::default(), current: latest::Sender::new(Progress::default()) }
    }
}

impl Phases {
    pub(super) fn subscribe(&self) -> latest::Receiver<Progress> {
        self.current.subscribe()
    }

    pub(super) fn listed(&self) {
        self.current.send_modify(|progress| progress.listed = true);
    }

    pub(super) fn set(&self, name: &Arc<str>, phase: Phase) {
        let mut all = self.all.lock();
        all.insert(Arc::clone(name), phase);
        self.notify(&all);
    }

    pub(super) fn gone(&self, name: &str) {
        let mut all = self.all.lock();
        all.remove(name);
        self.notify(&all);
    }

    /// Publishes the counts. The caller holds the lock, so that an older count never follows a
    /// newer one.
    fn notify(&self, all: &BTreeMap<Arc<str>, Phase>) {
        let count = |phase: Phase| all.values().filter(|held| **held == phase).count();
        let (pending, pulling) = (count(Phase::Pending), count(Phase::Pulling));
        let faulty = count(Phase::Faulty);
        self.current.send_if_modified(|progress| {
            let next = Progress { pending, pulling, faulty, ..*progress };
            std::mem::replace(progress, next) != next
        });
    }
}
