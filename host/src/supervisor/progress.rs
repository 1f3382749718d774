//! How far all Processors are, for who waits for them.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::watch as latest;

/// How far the Processors are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whether the first list of Processors is complete.
    pub listed: bool,
    /// Processors that are neither at work nor found faulty yet.
    pub pending: usize,
    /// Processors of which what their spec asks for is not at work.
    pub faulty: usize,
}

/// How far one Processor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Pending,
    AtWork,
    Faulty,
}

#[derive(Debug)]
pub(super) struct Phases {
    all: Mutex<BTreeMap<Arc<str>, Phase>>,
    told: latest::Sender<Progress>,
}

// === impl Phases ===

impl Default for Phases {
    fn default() -> Self {
        Self { all: Mutex::default(), told: latest::Sender::new(Progress::default()) }
    }
}

impl Phases {
    pub(super) fn subscribe(&self) -> latest::Receiver<Progress> {
        self.told.subscribe()
    }

    pub(super) fn listed(&self) {
        self.told.send_modify(|progress| progress.listed = true);
    }

    pub(super) fn set(&self, name: &Arc<str>, phase: Phase) {
        let mut all = self.all.lock();
        all.insert(Arc::clone(name), phase);
        self.tell(&all);
    }

    pub(super) fn gone(&self, name: &str) {
        let mut all = self.all.lock();
        all.remove(name);
        self.tell(&all);
    }

    /// Under the lock, so that an older count never follows a newer one.
    fn tell(&self, all: &BTreeMap<Arc<str>, Phase>) {
        let count = |phase: Phase| all.values().filter(|held| **held == phase).count();
        let (pending, faulty) = (count(Phase::Pending), count(Phase::Faulty));
        self.told.send_if_modified(|progress| {
            let next = Progress { pending, faulty, ..*progress };
            std::mem::replace(progress, next) != next
        });
    }
}
