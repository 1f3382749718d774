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
    all: Mutex<All>,
    current: latest::Sender<Progress>,
}

/// The phase of each Processor, and the number of Processors in each phase.
#[derive(Debug, Default)]
struct All {
    phases: BTreeMap<Arc<str>, Phase>,
    counts: [usize; 4],
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
        let before = all.phases.insert(Arc::clone(name), phase);
        all.moved(before, Some(phase));
        self.notify(&all);
    }

    pub(super) fn gone(&self, name: &str) {
        let mut all = self.all.lock();
        let before = all.phases.remove(name);
        all.moved(before, None);
        self.notify(&all);
    }

    /// Publishes the counts. The caller holds the lock, so that an older count never follows a
    /// newer one.
    fn notify(&self, all: &All) {
        let [pending, pulling, _, faulty] = all.counts;
        self.current.send_if_modified(|progress| {
            let next = Progress { pending, pulling, faulty, ..*progress };
            std::mem::replace(progress, next) != next
        });
    }
}

// === impl All ===

impl All {
    fn moved(&mut self, before: Option<Phase>, after: Option<Phase>) {
        for (phase, step) in [(before, -1), (after, 1)] {
            if let Some(count) = phase.and_then(|phase| self.counts.get_mut(phase as usize)) {
                *count = count.saturating_add_signed(step);
            }
        }
    }
}
