//! Why a Processor is not run as its spec asks, in words for the one who can mend it.

use crate::{
    chain,
    cluster::Account,
    processor::{self, LoadError},
    run::{NotExchanged, Verdict},
};

/// Why what a spec asks for is not at work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// In one word: the reason of the condition.
    pub reason: &'static str,
    /// In one sentence: what is wrong, and what would be accepted.
    pub message: String,
    /// What becomes of the version that runs.
    pub former: Former,
    /// Whether trying again can help though nothing is changed that the host is told of.
    pub passes: bool,
}

/// What becomes of the version that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Former {
    /// It goes on.
    GoesOn,
    /// It is taken out: it may not run any more.
    Ends,
}

/// The reason of a fault that is not shown.
const SUPERSEDED: &str = "Superseded";

// === impl Fault ===

impl Fault {
    /// One that only another spec mends, or another module.
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), former: Former::GoesOn, passes: false }
    }

    /// One that may be over when it is tried again.
    pub(super) fn passing(reason: &'static str, message: impl Into<String>) -> Self {
        Self { passes: true, ..Self::new(reason, message) }
    }

    /// The same, and what runs ends.
    pub(super) fn ending_what_runs(self) -> Self {
        let former = if self.passes { Former::GoesOn } else { Former::Ends };
        Self { former, ..self }
    }

    /// The host may not act as an account, as the API server says; or it does not say (none).
    pub(super) fn not_granted(account: &Account, granted: Option<bool>) -> Self {
        let Account { namespace, name } = account;
        if granted.is_none() {
            let message = format!(
                "the API server does not say whether this host may act as the ServiceAccount `{name}`; it is asked again"
            );
            return Self::passing("AccountNotGranted", message);
        }
        let message = format!(
            "this host may not act as the ServiceAccount `{name}`: it lacks the verb impersonate; bind its own account to a Role in the namespace `{namespace}` with apiGroups [\"\"], resources [serviceaccounts], resourceNames [{name}], verbs [impersonate]"
        );
        Self::new("AccountNotGranted", message)
    }

    /// Of a load that was given up, because the Processor asks for something else by now.
    pub(super) fn superseded() -> Self {
        let message = "the Processor was changed while its module was loaded: what it asks for now is loaded next";
        Self::passing(SUPERSEDED, message)
    }

    pub(super) fn is_superseded(&self) -> bool {
        self.reason == SUPERSEDED
    }

    pub(super) fn of_load(error: &LoadError) -> Self {
        let reason = match error {
            LoadError::OtherVersion { .. } | LoadError::OtherTypes { .. } => "ModuleOtherVersion",
            LoadError::NotGranted { .. } => "ImportsNotGranted",
            LoadError::CompileFailed { .. } => "CompileFailed",
            _ => "ModuleInvalid",
        };
        let passes = match error {
            LoadError::BrokenOff { .. } => true,
            LoadError::CompileFailed { source, .. } => source.passes(),
            _ => false,
        };
        Self { passes, ..Self::new(reason, chain::whole(error)) }
    }

    /// Of a version that is not put in the place of the one that works.
    pub(super) fn of_exchange(refused: &NotExchanged) -> Self {
        let message = chain::whole(refused);
        match refused {
            NotExchanged::Invalid(_) => Self::new("DescriptionInvalid", message),
            NotExchanged::KindNotServed { .. } => Self::passing("KindNotServed", message),
            NotExchanged::RightsMissing { .. } => Self::passing("RightsMissing", message),
            NotExchanged::FinalizersHeld { .. } => Self::passing("FinalizersHeld", message),
            // Another time, other objects or a freer machine can help.
            NotExchanged::TrialFailed { .. } => Self::passing("TrialFailed", message),
        }
    }

    /// Of a version that was put to work and taken back.
    pub(super) fn rolled_back(version: &str, verdict: &Verdict) -> Self {
        let Verdict { objects, broke, first } = verdict;
        let (key, why) = (&first.key, &first.message);
        let message = format!(
            "version {version} was taken back: it broke on {broke} of the first {objects} objects that it was called for; the first, {key}: {why}; it is tried again when the Processor or the module is changed"
        );
        Self::new("RolledBack", message)
    }

    /// Of a component that does not describe itself.
    pub(super) fn of_describe(error: &processor::Error) -> Self {
        match error {
            processor::Error::ConfigRefused { message, .. } => Self::new(
                "ConfigInvalid",
                format!("the processor does not accept spec.config: {message}"),
            ),
            processor::Error::DescriptionRefused { .. } => {
                Self::new("DescriptionInvalid", chain::whole(error))
            }
            error => Self::passing(
                "DescribeFailed",
                format!("the module does not describe itself: {}", chain::whole(error)),
            ),
        }
    }
}
