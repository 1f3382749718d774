//! Why a Processor is not run as its spec asks, in words for the one who can mend it.

use crate::{
    chain,
    processor::{self, LoadError},
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

    /// One that ends the version that runs, too.
    pub(super) fn ending(reason: &'static str, message: impl Into<String>) -> Self {
        Self { former: Former::Ends, ..Self::new(reason, message) }
    }

    pub(super) fn of_load(error: &LoadError) -> Self {
        let reason = match error {
            LoadError::OtherVersion { .. } | LoadError::OtherTypes { .. } => "ModuleOtherVersion",
            LoadError::NotGranted { .. } => "ImportsNotGranted",
            _ => "ModuleInvalid",
        };
        let passes = matches!(error, LoadError::BrokenOff { .. });
        Self { passes, ..Self::new(reason, chain::whole(error)) }
    }

    /// Of a component that does not describe itself.
    pub(super) fn of_describe(error: &processor::Error) -> Self {
        match error {
            processor::Error::ConfigRefused { message, .. } => Self::new(
                "ConfigInvalid",
                format!("the processor does not accept spec.config: {message}"),
            ),
            error => Self::passing(
                "DescribeFailed",
                format!("the module does not describe itself: {}", chain::whole(error)),
            ),
        }
    }
}
