//! Decides how a run ends, and when its key is queued again.

use std::time::Duration;

use super::{Planned, Turn};
use crate::{
    contract::{ObjectRef, Requeue, Retry, display_ref},
    grant::Demand,
    queue::{Again, Cause, Done},
};

/// The end of a run, for the queue.
pub struct Ended {
    /// The result of the run, by which the queue decides what to do with the key.
    pub done: Done,
    /// The causes that arose while the key ran: changes of objects and lists that it had read.
    pub causes: Vec<Cause>,
    /// The watches that the run needs and that are not open.
    pub demands: Vec<Demand>,
    /// True if the run has started or stopped on-demand reconcilers; see [`Reconciler::started`].
    ///
    /// [`Reconciler::started`]: super::Reconciler::started
    pub starts: bool,
}

// === impl Planned ===

impl Planned {
    /// Returns the result of the run, after the plan was carried out.
    pub(super) fn done(&self, turn: &Turn<'_>) -> Done {
        if let Some(retry) = &self.retry {
            return Done::Failure(match retry {
                Retry::BackOff => Again::BackOff,
                Retry::After(milliseconds) => Again::After(Duration::from_millis(*milliseconds)),
                Retry::OnChange => Again::OnChange,
            });
        }
        let (after, cause) = match self.plan.requeue.0 {
            // An object that is gone needs no resync.
            Requeue::ByDefault if turn.reconciled.object.is_none() => (0, Cause::Resync),
            Requeue::ByDefault => (turn.declared.spec.resync, Cause::Resync),
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
        Self { done, causes: Vec::new(), demands: Vec::new(), starts: false }
    }
}

/// Describes the failure of a run that read objects which were deleted or recreated since.
pub(super) fn gone_meanwhile(gone: &[ObjectRef]) -> String {
    let names: Vec<String> = gone.iter().map(display_ref).collect();
    format!("{} was deleted or created again since it was read", names.join(", "))
}

/// Returns the requeue delay of the key; `None` if there is none, or if the back-off decides.
pub(super) fn delay(done: &Done) -> Option<Duration> {
    match done {
        Done::Success { requeue } => requeue.as_ref().map(|(after, _)| *after),
        Done::Failure(Again::After(after) | Again::NotBefore(after)) => Some(*after),
        Done::Failure(Again::BackOff | Again::OnChange) | Done::Cancelled => None,
    }
}
