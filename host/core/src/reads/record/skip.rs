//! Decides by a run record alone whether the next run of its key may be skipped. Changes since the
//! run are found in `reconciler/skip.rs`.

use super::{Digest, Ending, Own, Question, Record, is_digest};

/// The reason why a key has to run again though nothing that it read differs from its last run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSkippable {
    /// The processor was not called.
    #[error("it was not called the last time")]
    NotCalled,
    /// The last run failed.
    #[error("its last run failed")]
    Failed,
    /// The last run was told that those before it had failed: a run that is not told so may return
    /// something else.
    #[error("its last run came after a failure")]
    AfterFailure,
    /// Some of the last run's writes were refused, though that was no failure.
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
    /// The last run read objects that may have changed without a notice.
    #[error("its last run read objects live")]
    Live,
}

/// The reason why a key that was due had to run, though nothing had changed that the host knew of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MustRun {
    /// No run of the key is known.
    #[error("no run of it is known")]
    NoRecord,
    /// The last run cannot stand for another.
    #[error(transparent)]
    Record(#[from] NotSkippable),
    /// The module is another one.
    #[error("its last run was one of another module")]
    Module,
    /// The configuration is another one.
    #[error("its last run had another configuration")]
    Config,
    /// The grant is another one.
    #[error("its last run had another grant")]
    Grant,
    /// Another setting of the Processor is different: its namespace, name, account or mode, or the
    /// field managers that it takes over.
    #[error("its Processor said something else of how it runs")]
    Settings,
    /// The processor only observes, or is to go.
    #[error("what its processor wants is not written")]
    Mode,
    /// The object cannot be read, or is paused.
    #[error("its object cannot be read, or is paused")]
    Unreadable,
    /// The object is not as the run was given it.
    #[error("its object has changed")]
    Object,
    /// A question would have another answer.
    #[error("what it read has changed")]
    Read,
    /// A question was made of text from a Secret.
    #[error("it asked with what it had read of a Secret")]
    Secret,
    /// An object that the last run wrote is not as the run left it.
    #[error("what it wrote has changed")]
    Written,
    /// An object exists that the last run wanted gone.
    #[error("what it wanted gone is there")]
    Removed,
    /// An object exists that the run would prune.
    #[error("there is something that it would prune")]
    Pruned,
    /// The finalizers of the object are not as the last run left them.
    #[error("the finalizers of its object have changed")]
    Finalizers,
}

// === impl Record ===

impl Record {
    /// Checks that a run which would see the same as this one can be skipped.
    ///
    /// # Errors
    ///
    /// The reason why the next run cannot be skipped, whatever it would see.
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

    /// Returns whether another start of the host can tell by the record what has changed.
    ///
    /// The record must be skippable and hold no digest that is keyed with the key of this start,
    /// and no field may have to be absent: whether a field is absent is known only of objects that
    /// were seen after the run.
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

    /// Returns the texts that objects were compared with.
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
