//! Decides from a run record alone whether the next run of its key may be skipped.
//! `reconcile/skip.rs` checks for changes since the run.

use super::{Digest, Ending, Own, Question, Record, is_digest};

/// The reason why a key must run again although its reads are unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSkippable {
    /// The processor was not called.
    #[error("its last run did not call the processor")]
    NotCalled,
    /// The last run failed.
    #[error("its last run failed")]
    Failed,
    /// The last run had a nonzero `attempt`: with `attempt` 0 its outcome may differ.
    #[error("its last run came after a failure")]
    AfterFailure,
    /// Some writes of the last run were refused, without failing the run.
    #[error("a write of its last run was refused")]
    Refused,
    /// The last run asked to be called again.
    #[error("its last run asked to be called again after a time")]
    Requeue,
    /// The last run asked for the time.
    #[error("its last run asked for the time")]
    Clock,
    /// The last run asked for random bytes.
    #[error("its last run asked for random bytes")]
    Random,
    /// The last run used the network.
    #[error("its last run used the network")]
    Network,
    /// The last run read objects live: their changes are not watched.
    #[error("its last run read objects live")]
    Live,
}

/// The reason why a due key had to run, although the host knew of no change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MustRun {
    /// The key has no run record.
    #[error("it has no run record")]
    NoRecord,
    /// The last run cannot be reused.
    #[error(transparent)]
    Record(#[from] NotSkippable),
    /// The module has changed.
    #[error("its last run used another module")]
    Module,
    /// The configuration has changed.
    #[error("its last run had another configuration")]
    Config,
    /// The grant has changed.
    #[error("its last run had another grant")]
    Grant,
    /// Another setting of the Processor has changed: its namespace, name, account or mode, or the
    /// field managers that it takes over.
    #[error("a setting of its Processor has changed")]
    Settings,
    /// The processor only observes, or is being deleted.
    #[error("its processor only observes, or is being deleted")]
    Mode,
    /// The object cannot be read, or is paused.
    #[error("its object cannot be read, or is paused")]
    Unreadable,
    /// The object differs from the one that the last run was given.
    #[error("its object has changed")]
    Object,
    /// A read would have another answer.
    #[error("one of its reads would have another answer")]
    Read,
    /// The arguments of a read contain text from a Secret.
    #[error("one of its reads used text from a Secret")]
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
            (self.reads.iter().any(|read| read.live), NotSkippable::Live),
        ];
        reasons.into_iter().find(|(holds, _)| *holds).map_or(Ok(()), |(_, reason)| Err(reason))
    }

    /// Returns whether the record is usable after a restart of the host.
    ///
    /// The record must be skippable and hold no keyed digest, and no field may have to be absent:
    /// stores check absence only in objects that they receive after the run.
    pub fn outlives_its_start(&self) -> bool {
        self.skippable().is_ok()
            && !self.wrote.iter().any(|wrote| wrote.absent)
            && !self.digests().any(|digest| digest.is_keyed())
            && !self.texts().any(is_digest)
    }

    fn digests(&self) -> impl Iterator<Item = Digest> {
        let answers = self.reads.iter().map(|read| read.answer);
        let own = self.wrote.iter().filter_map(|wrote| wrote.own);
        let own = own.flat_map(|Own { fields, values }| [fields, values]);
        self.object.into_iter().chain(answers).chain(own)
    }

    /// Returns the label selectors, matching values and page tokens of reads and prunes.
    fn texts(&self) -> impl Iterator<Item = &str> {
        let asked = self.reads.iter().filter_map(|read| match &read.question {
            Question::Get { .. } => None,
            Question::List { of, from, .. } => Some((&**of, from.as_deref())),
        });
        let pruned = self.pruned.iter().map(|pruned| (&pruned.of, None));
        asked.chain(pruned).flat_map(|(of, from)| {
            let texts = of.matching.iter().map(|(_, text)| text.as_str());
            texts.chain([&*of.labels]).chain(from)
        })
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
            Self::Live => "live-read",
        }
    }
}

// === impl MustRun ===

impl MustRun {
    /// Returns the name of the reason in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::NoRecord => "no-record",
            Self::Record(why) => why.label(),
            Self::Module => "module",
            Self::Config => "config",
            Self::Grant => "grant",
            Self::Settings => "settings",
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
