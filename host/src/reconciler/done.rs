//! How a run ends: what the queue does with its key.

use std::time::Duration;

use super::{Planned, Reconciler, Report, Turn};
use crate::{
    contract::{ObjectRef, Requeue, Retry},
    grant,
    queue::{Again, Cause, Done},
    view::Demand,
};

/// How a run ends for the queue.
pub struct Ended {
    /// What the queue does with the key.
    pub done: Done,
    /// What changed while the key ran, of what it had read.
    pub causes: Vec<Cause>,
    /// What it would have read, had it been watched.
    pub demands: Vec<Demand>,
    /// Whether the key is to run once more when there is nothing else to do.
    pub confirm: bool,
}

// === impl Reconciler ===

impl Reconciler {
    /// How a run ends whose answer was carried out.
    pub(super) fn done(&self, planned: &Planned, turn: &Turn<'_>) -> Done {
        if let Some(retry) = &planned.retry {
            return Done::Failure(match retry {
                Retry::BackOff => Again::BackOff,
                Retry::After(milliseconds) => Again::After(Duration::from_millis(*milliseconds)),
                Retry::OnChange => Again::OnChange,
            });
        }
        let resync = self.description(turn.key).map_or(0, |reconciler| reconciler.resync);
        let (after, cause) = match planned.plan.requeue.0 {
            // An object that is gone has nothing to come back for.
            Requeue::ByDefault if turn.reconciled.object.is_none() => (0, Cause::Resync),
            Requeue::ByDefault => (resync, Cause::Resync),
            Requeue::After(milliseconds) => (milliseconds.max(1), Cause::Requeue),
            Requeue::Never => (0, Cause::Requeue),
        };
        Done::Success { requeue: (after > 0).then(|| (Duration::from_millis(after), cause)) }
    }
}

// === impl Ended ===

impl Ended {
    pub(super) fn nothing() -> Self {
        let done = Done::Success { requeue: None };
        Self { done, causes: Vec::new(), demands: Vec::new(), confirm: false }
    }
}

/// Ends a run that has read what is past: the processor is not told of a failure, it reads again.
pub(super) fn stale(gone: &[ObjectRef], report: &mut Report) -> Done {
    let names: Vec<String> = gone.iter().map(grant::display_ref).collect();
    let message = format!("{} was deleted or made anew since it was read", names.join(", "));
    report.failure.get_or_insert(message);
    report.record_mut().refused += gone.len();
    Done::Failure(Again::BackOff)
}

/// When the key comes back by itself, whatever changes.
pub(super) fn delay(done: &Done) -> Option<Duration> {
    match done {
        Done::Success { requeue } => requeue.as_ref().map(|(after, _)| *after),
        Done::Failure(Again::After(after) | Again::NotBefore(after)) => Some(*after),
        Done::Failure(Again::BackOff | Again::OnChange) | Done::Cancelled => None,
    }
}
