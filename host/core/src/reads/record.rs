//! Run records: the reads of one run, their answers, and its writes, as plain data.
//!
//! A record holds questions and digests, never the content of an object. The host skips a run if
//! the last record still holds. Explanations, replays and comparisons of versions use records too.
//! No I/O.

mod digest;
mod last;
mod made;
mod skip;
#[cfg(test)]
mod tests;

pub use digest::{Digest, NoDigest, asked_text, is_secret, of_returned};
pub use last::Records;
pub use made::Made;
pub use skip::{MustRun, NotSkippable};

use std::sync::Arc;

use serde::Serialize;

use crate::{
    applied_fields::Pair,
    contract::{Kind, ObjectRef, Selection, bounds},
    key::Key,
};

/// The record of one run of a key.
///
/// A second call of the processor, with the refused writes, belongs to the same run: the record
/// holds the reads of both calls, and the outcome of the last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub key: Key,
    /// The number of consecutive failed runs before this one.
    pub attempt: u32,
    /// The basis of the run; `None` if the processor was not called, because the object is paused
    /// or could not be read, or because the processor has gone.
    pub ran_on: Option<Basis>,
    /// The digest of the request's object, without fields that do not count as a change; `None` if
    /// the object is gone.
    pub object: Option<Digest>,
    /// The reads, in order.
    pub reads: Box<[Read]>,
    /// The other inputs that the run asked for: time, random bytes, network.
    pub asked: Asked,
    /// The calls to systems outside of the cluster, in order.
    #[serde(skip_serializing_if = "<[Made]>::is_empty")]
    pub calls: Box<[Made]>,
    /// True if the run was given a note, or left one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub noted: bool,
    /// The digest of the outcome or failure; `None` if the processor returned neither.
    pub outcome: Option<Digest>,
    /// The objects that the run wrote or found up to date, in the order of writing.
    pub wrote: Box<[WriteRecord]>,
    /// The objects that the run deleted or evicted, or found absent.
    pub removed: Box<[ObjectRef]>,
    /// The selections that the run pruned.
    pub pruned: Box<[Pruned]>,
    /// The finalizers that the run decided on; `None` if it left them alone.
    pub finalizers: Option<Finalizers>,
    /// The number of writes that were refused.
    pub refused: usize,
    /// True if the run asked to be called again after a time.
    pub requeue: bool,
    /// True if the key is requeued after the reconciler's resync interval.
    pub resync: bool,
    /// Bytes of the instance's memory at the end, which is also its peak.
    pub memory: usize,
    /// The result of the run.
    pub ending: Ending,
}

/// The inputs of a run besides what it read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Basis {
    /// The digest of the module, as `sha256:` and 64 hex digits, and those of its libraries.
    pub module: Arc<str>,
    /// The digest of the configuration.
    pub config: Digest,
    /// The digest of the declarations and of what is granted of them.
    pub grant: Digest,
    /// The digest of the Processor's other settings: its namespace, name, account and mode, and the
    /// field managers that it takes over.
    pub settings: Digest,
    /// The time of the run, in milliseconds of Unix time.
    pub now_ms: u64,
    /// The seed of insecure random numbers.
    pub seed: u64,
}

/// A question and the digest of its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Read {
    pub question: Question,
    /// The digest of the answer, without fields that do not count as a change.
    pub answer: Digest,
    /// The digest of the stored objects in the answer, if the store keeps more fields. While it is
    /// the same, so is the answer.
    pub kept: Option<Digest>,
    /// The position of the snapshot that the answer was taken from, if any.
    pub stood: Option<SnapshotPosition>,
    /// True if the answer came from the API server: changes of the object trigger no run.
    pub live: bool,
    /// The number of objects in the answer.
    pub objects: usize,
    /// The number of bytes of JSON in the answer.
    pub bytes: usize,
}

/// The position of a store's snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotPosition {
    /// The number of the last change in the snapshot, counted from the start of the host.
    pub sequence: u64,
    /// The newest `resourceVersion` that the store had received; 0 if resource versions are not
    /// numbers.
    pub revision: u64,
}

/// A question that a processor asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Question {
    /// A question for one object.
    Get {
        of: ObjectRef,
        /// The fields; if empty, all that are declared.
        fields: Arc<[String]>,
    },
    /// A question for a page of a list.
    List {
        /// The selection, as [`recorded`].
        of: Box<Selection>,
        /// The most objects on the page; 0 for no limit.
        limit: u32,
        /// The page token, if any. If the selection may contain Secret data, the digest of the
        /// token, since a token holds a digest of the selection.
        from: Option<Box<str>>,
    },
}

/// The nondeterministic inputs of a run, besides its reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Asked {
    /// True if the run asked for the time.
    pub clock: bool,
    /// True if the run asked for random bytes.
    pub random: bool,
    /// True if the run used the network.
    pub network: bool,
}

/// An object that a run wrote or found up to date.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WriteRecord {
    pub of: ObjectRef,
    /// The field manager.
    pub manager: Arc<str>,
    /// The subresource: `status`, or empty for the object itself.
    pub subresource: Box<str>,
    /// The digests of the fields that the manager owns after the write; `None` if these do not
    /// count, or if the write was refused.
    pub own: Option<Own>,
}

/// A pruned selection: no object in it remains that the field manager has applied and the run did
/// not write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// The selection, as [`recorded`].
    pub of: Selection,
    /// The field manager.
    pub manager: Arc<str>,
}

/// The decision of a run about the finalizers of its object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finalizers {
    /// The finalizers that the object holds.
    pub held: Box<[String]>,
    /// The finalizers that the object does not hold.
    pub released: Box<[String]>,
}

/// The digests of the fields that a manager owns of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Own {
    /// The digest of the set of fields.
    pub fields: Digest,
    /// The digest of the values of these fields.
    pub values: Digest,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Ending {
    /// The run completed.
    Success,
    /// The run did not complete.
    Failure,
}

// === impl Record ===

impl Record {
    /// Creates the empty record of a run.
    pub fn new(key: &Key, attempt: u32) -> Self {
        Self {
            key: key.clone(),
            attempt,
            ran_on: None,
            object: None,
            reads: Box::default(),
            asked: Asked::default(),
            calls: Box::default(),
            noted: false,
            outcome: None,
            wrote: Box::default(),
            removed: Box::default(),
            pruned: Box::default(),
            finalizers: None,
            refused: 0,
            requeue: false,
            resync: false,
            memory: 0,
            ending: Ending::Success,
        }
    }

    /// Returns the total bytes of all answers.
    pub fn read_bytes(&self) -> usize {
        self.reads.iter().map(|read| read.bytes).sum()
    }
}

// === impl Question ===

impl Question {
    pub fn kind(&self) -> &Kind {
        match self {
            Self::Get { of, .. } => &of.kind,
            Self::List { of, .. } => &of.kind,
        }
    }

    /// Returns the bytes of the texts, with [`bounds::ENTRY`] more for each entry of a list.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Get { of, fields } => bounds::get_size(of, fields),
            Self::List { of, from, .. } => bounds::list_size(of, from.as_deref()),
        }
    }
}

// === texts of a selection ===

/// Returns a selection as records hold it: if `secret`, keyed [`Digest`]s replace a non-empty label
/// selector and the values in `matching`.
///
/// A selection may contain Secret data if it selects Secrets, or if the run has read one before.
pub fn recorded(of: Selection, secret: bool) -> Selection {
    if !secret {
        return of;
    }
    let text = |text: &str| asked_text(true, text);
    let matching = of.matching.iter().map(|(path, value)| (path.clone(), text(value)));
    Selection { labels: text(&of.labels), matching: matching.collect(), ..of }
}

/// Returns whether a recorded selection can be read again: it holds texts, not their digests.
pub fn can_be_asked(of: &Selection) -> bool {
    let mut texts = of.matching.iter().map(|(_, text)| text).chain([&of.labels]);
    !texts.any(|text| is_digest(text))
}

/// Returns whether a text of a question has the form of a digest.
pub fn is_digest(text: &str) -> bool {
    text.parse::<Digest>().is_ok()
}

// === impl Basis ===

impl Basis {
    /// Returns whether runs with these bases and the same reads have the same outcome: all but the
    /// time and the seed are equal.
    pub fn is_same_version(&self, other: &Self) -> bool {
        let parts = |of: &Self| (of.config, of.grant, of.settings);
        self.module == other.module && parts(self) == parts(other)
    }
}

// === impl Asked ===

impl Asked {
    /// Returns the inputs that either of two calls asked for.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            clock: self.clock || other.clock,
            random: self.random || other.random,
            network: self.network || other.network,
        }
    }
}

// === impl Own ===

impl Own {
    /// Returns the digests of a manager's fields of an object; keyed if these may contain Secret
    /// data.
    pub fn of(pair: Pair, secret: bool) -> Self {
        let digest = |held: u128| {
            if secret { Digest::keyed([&held.to_be_bytes()[..]]) } else { Digest::plain(held) }
        };
        Self { fields: digest(pair.fields), values: digest(pair.values) }
    }
}
