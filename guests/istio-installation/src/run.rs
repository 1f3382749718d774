//! The input of a run, and the reasons why a run goes no further.

use istio::{
    api::{FINALIZER, Istio},
    condition,
};
use mortise_sdk::{Error, Host, Outcome, Request};

use crate::{config::Config, status::Summary};

/// The input of a run.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) request: &'a Request,
    pub(crate) config: &'a Config,
    pub(crate) host: &'a Host,
    pub(crate) istio: &'a Istio,
}

/// The reason why a run goes no further.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The state says why.
    Told(Summary),
    /// The state says why, and the resource gets the finalizer, which the original adds before it
    /// merges.
    Held(Summary),
    /// A read has no answer.
    Read(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Read(error)
    }
}

impl From<Summary> for Stop {
    fn from(summary: Summary) -> Self {
        Self::Told(summary)
    }
}

impl Run<'_> {
    /// Returns the outcome that writes nothing but a state. A resource that is being deleted and
    /// for which nothing will be done is let go: the original keeps it for ever.
    pub(crate) fn told(&self, summary: Summary) -> Outcome {
        let is_let_go = self.istio.metadata.is_deleted()
            && [condition::OLDER_EXISTS, condition::RECONCILE_FAILED].contains(&summary.reason)
            && self.request.failed_writes.is_empty();
        let outcome = self.with_status(Outcome::new(), summary);
        if is_let_go && self.holds_finalizer() {
            return outcome.finalizers::<&str>([]);
        }
        outcome
    }

    pub(crate) fn with_status(&self, outcome: Outcome, summary: Summary) -> Outcome {
        outcome.status(self.request, &summary.status(self.istio, self.host))
    }

    pub(crate) fn holds_finalizer(&self) -> bool {
        self.istio.metadata.finalizers.iter().any(|finalizer| finalizer == FINALIZER)
    }
}
