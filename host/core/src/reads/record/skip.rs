//! Decides from a run record alone whether the next run of its key may be skipped.
//! `reconcile/skip.rs` checks for changes since the run.

use super::{Ending, Record};

/// The reason why a key must run again although its reads are unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSkippable {
    /// The processor was not called.
    #[error("the last run did not call the processor")]
    NotCalled,
    /// The last run failed.
    #[error("the last run failed")]
    Failed,
    /// The last run had a nonzero `attempt`: with `attempt` 0 its outcome may differ.
    #[error("the last run came after a failure")]
    AfterFailure,
    /// Some writes of the last run were refused, without failing the run.
    #[error("a write of its last run was refused")]
    Refused,
    /// The last run asked to be called again.
    #[error("the last run asked to be called again after a time")]
    Requeue,
    /// The last run asked for the time.
    #[error("the last run asked for the time")]
    Clock,
    /// The last run asked for random bytes.
    #[error("the last run asked for random bytes")]
    Random,
    /// The last run used the network.
    #[error("the last run used the network")]
    Network,
    /// The last run was given a note, or left one.
    #[error("the last run was given a note, or left one")]
    Note,
    /// The last run read objects live: their changes are not watched.
    #[error("the last run read objects live")]
    Live,
}

/// The reason why a due key had to run, although the host knew of no change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MustRun {
    /// The last run cannot be reused.
    #[error(transparent)]
    Record(#[from] NotSkippable),
    /// The module, the configuration, the grant or a setting of the Processor has changed.
    #[error("the last run had another version, configuration or grant")]
    Version,
    /// The processor only observes, or is being deleted.
    #[error("the processor only observes, or is being deleted")]
    Mode,
    /// The object cannot be read, or is paused.
    #[error("the object cannot be read, or is paused")]
    Unreadable,
    /// The object differs from the one that the last run was given.
    #[error("the object has changed")]
    Object,
    /// A read would have another answer.
    #[error("a read of the last run would have another answer")]
    Read,
    /// The arguments of a read contain text from a Secret.
    #[error("a read of the last run used text from a Secret")]
    Secret,
    /// An object that the last run wrote has changed since.
    #[error("an object that it wrote has changed")]
    Written,
    /// An object exists that the last run deleted, or found absent.
    #[error("an object that it would delete exists")]
    Removed,
    /// An object exists that the run would prune.
    #[error("an object that it would prune exists")]
    Pruned,
    /// The finalizers of the object have changed since the last run.
    #[error("the finalizers of its object have changed")]
    Finalizers,
}

// === impl Record ===

impl Record {
    /// Checks that the next run can be skipped if its inputs are unchanged.
    ///
    /// # Errors
    ///
    /// Returns the reason why the next run cannot be skipped, whatever its inputs.
    pub fn skippable(&self) -> Result<(), NotSkippable> {
        let reasons = [
            (self.ran_on.is_none(), NotSkippable::NotCalled),
            (self.ending == Ending::Failure, NotSkippable::Failed),
            (self.attempt > 0, NotSkippable::AfterFailure),
            (self.refused > 0, NotSkippable::Refused),
            (self.requeue, NotSkippable::Requeue),
            (self.asked.clock, NotSkippable::Clock),
            (self.asked.random, NotSkippable::Random),
            (self.asked.network, NotSkippable::Network),
            (self.noted, NotSkippable::Note),
            (self.reads.iter().any(|read| read.live), NotSkippable::Live),
        ];
        reasons.into_iter().find(|(holds, _)| *holds).map_or(Ok(()), |(_, reason)| Err(reason))
    }
}

// === impl NotSkippable ===

impl NotSkippable {
    /// Returns the name of the reason in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::NotCalled => "not-called",
            Self::Failed => "failed",
            Self::AfterFailure => "after-failure",
            Self::Refused => "write-refused",
            Self::Requeue => "requeue",
            Self::Clock => "clock",
            Self::Random => "random",
            Self::Network => "network",
            Self::Note => "note",
            Self::Live => "live-read",
        }
    }
}

// === impl MustRun ===

impl MustRun {
    /// Returns the name of the reason in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Record(why) => why.label(),
            Self::Version => "version",
            Self::Mode => "mode",
            Self::Unreadable => "object-unreadable",
            Self::Object => "object",
            Self::Read => "read",
            Self::Secret => "asked-with-secret",
            Self::Written => "written",
            Self::Removed => "removed",
            Self::Pruned => "prunable",
            Self::Finalizers => "finalizers",
        }
    }
}
