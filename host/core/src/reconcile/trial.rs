//! Tries a new version of a processor, before it is swapped in for one that works, with a run that
//! leaves nothing behind.

use super::{Fault, Reconciler, Refused, Report, Turn, ending::Decision};
use crate::{
    contract::Kind,
    error_chain,
    outcome::Reconciled,
    queue::{Key, Run},
};

/// The result of a trial with one object.
#[derive(Debug)]
pub enum Tried {
    /// The processor returned a valid outcome, or a failure of its own.
    Well,
    /// The processor trapped, passed a limit, or returned an outcome that is not valid; the text
    /// says which.
    Broke(String),
    /// The object or the cluster prevents a trial with this object, which says nothing about the
    /// version.
    Not,
}

impl Reconciler {
    /// Returns the kinds of the objects that the processor is called for.
    pub fn reconciled_kinds(&self) -> Vec<Kind> {
        let reconcilers = self.version.description.reconcilers.iter();
        reconcilers.map(|reconciler| reconciler.of.kind.clone()).collect()
    }

    /// Calls the processor for a key and checks the answer, as a run would.
    ///
    /// Nothing is written, recorded, counted, logged or waited for.
    pub async fn try_out(&self, key: &Key) -> Tried {
        let Some(reference) = self.object_of(key) else { return Tried::Not };
        let mut view = self.view();
        let allowed = view.check_reconciled(&reference).await;
        let known = allowed.and_then(|()| view.reconciled(&reference, key.reconciler()));
        let Ok(known) = known else { return Tried::Not };
        let Decision::Call(object, value) = self.decide(known) else { return Tried::Not };
        let request = self.request(key, &reference, object, 0);
        let called = self.version.call.try_out(view, &request, self.moment()).await;
        let reconciled = Reconciled { reference, object: value };
        // This report is dropped.
        let mut report =
            Report::new(&Run { key: key.clone(), causes: Vec::new(), more_causes: 0, attempt: 0 });
        let reads = called.view.finish();
        let mut turn = Turn { key, reconciled: &reconciled, report: &mut report, reads };
        match self.plan(called.outcome, &mut turn).await {
            Err(error) if error.is_processors() => {
                turn.report.failure = Some(error_chain::whole(&error));
                turn.report.mask(&turn.reads);
                Tried::Broke(turn.report.failure.take().unwrap_or_default())
            }
            Err(_) => Tried::Not,
            Ok(_) => Tried::Well,
        }
    }
}

impl Refused {
    /// Returns whether another version of the processor would help.
    pub(super) fn is_processors(&self) -> bool {
        match self {
            Self::Call(error) => error.fault == Fault::Processor,
            Self::Outcome(_) => true,
            Self::Cluster(_) => false,
        }
    }
}
