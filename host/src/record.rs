//! Run records: what one run read, what came back, and what it wrote, as plain data.
//!
//! A record holds questions and digests, never what an object holds. It tells whether a run would see anything else than the
//! last one did, and it is what explanations, replays and comparisons of versions are made from. No I/O.

mod digest;
mod last;
mod skip;
#[cfg(test)]
mod tests;

pub use digest::{Digest, NoDigest};
pub(crate) use digest::{asked_text, is_secret, of_returned};
pub use last::Records;
pub(crate) use last::{Held, Unwritten};
pub use skip::{MustRun, NotSkippable};

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    contract::{self, Kind, ObjectRef},
    own_fields::Pair,
    queue::Key,
};

/// What one run of a key saw, and what came of it. A run that was told of refused writes and called once more is one run: the
/// reads of both calls are in it, and the outcome of the last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Who ran.
    pub key: Key,
    /// How many runs in a row had failed before.
    pub attempt: u32,
    /// What it ran on; none where it was not called, because it is paused, could not be read, or its processor has gone.
    pub ran_on: Option<Basis>,
    /// The object of the request, without what does not count as a change; none where it is gone.
    pub object: Option<Digest>,
    /// What it asked, in order.
    pub reads: Box<[Read]>,
    /// What else it looked at.
    pub asked: Asked,
    /// What the processor returned; none where it returned nothing.
    pub outcome: Option<Digest>,
    /// What it wrote or found as it is to be, in the order of writing.
    pub wrote: Box<[Wrote]>,
    /// What it wanted gone: deleted or evicted.
    pub removed: Box<[Object]>,
    /// What it pruned.
    pub pruned: Box<[Pruned]>,
    /// Which finalizers its object holds since then, and which it does not; none where it did not say.
    pub finalizers: Option<Finalizers>,
    /// How many of its writes were refused.
    pub refused: usize,
    /// Whether it asked to be called again after a time.
    pub requeue: bool,
    /// Whether it comes back after the reconciler's resync.
    pub resync: bool,
    /// Bytes of memory that the instance had at the end, which is the most that it ever had.
    pub memory: usize,
    /// How it ended.
    pub ending: Ending,
}

/// What a run ran on, besides what it read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Basis {
    /// The digest of the module, as [`crate::processor::Digest`] shows it.
    pub module: Arc<str>,
    /// The configuration.
    pub config: Digest,
    /// The declaration and what is granted of it.
    pub grant: Digest,
    /// What else the Processor says of how it runs: as whom, and what becomes of what it wants.
    pub settings: Digest,
    /// The time of the run, in milliseconds of Unix time.
    pub now_ms: u64,
    /// Where insecure random numbers started.
    pub seed: u64,
}

/// A question and what is known of its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Read {
    /// The question.
    pub question: Question,
    /// The answer, without what does not count as a change.
    pub answer: Digest,
    /// All that the store kept of the objects in it, where that is more. As long as it is the same, so is the answer.
    pub kept: Option<Digest>,
    /// What the answer was taken from; none where there was none to take it from.
    pub stood: Option<Stood>,
    /// Whether it is the API server's own answer, of an object whose changes trigger nothing.
    pub live: bool,
    /// How many objects were in the answer.
    pub objects: usize,
    /// How many bytes of JSON.
    pub bytes: usize,
}

/// Where a store stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stood {
    /// The number of the last change that was in it. Of one start of the host.
    pub sequence: u64,
    /// The newest `resourceVersion` that it had been shown; 0 where these are no numbers.
    pub revision: u64,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Question {
    /// For one object.
    Get {
        /// The object.
        of: Object,
        /// The fields; of none, all that is declared.
        fields: Arc<[String]>,
    },
    /// For a page of a list.
    List {
        /// Which objects.
        of: Box<Selection>,
        /// How many at most; 0: as many as there are.
        limit: u32,
        /// The page token, or its digest, for there is a digest of the selection in it.
        from: Option<Box<str>>,
    },
}

/// An object's name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Object {
    /// The cluster; empty: the home cluster.
    pub cluster: Box<str>,
    /// Its kind.
    pub kind: Arc<Kind>,
    /// Its namespace; none of a cluster-scoped one.
    pub namespace: Option<Box<str>>,
    /// Its name.
    pub name: Box<str>,
}

/// Which objects of a kind, and what of them. Where these are Secrets, or the run had read of a Secret before, a keyed [`Digest`]
/// stands for each text that they are compared with.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Selection {
    /// The cluster; empty: the home cluster.
    pub cluster: Box<str>,
    /// Their kind.
    pub kind: Arc<Kind>,
    /// Of this namespace; none: of all.
    pub namespace: Option<Box<str>>,
    /// Of this name; none: of any.
    pub name: Option<Box<str>>,
    /// A label selector, or the digest of one, unless it is empty.
    pub labels: Box<str>,
    /// Paths and the texts to be found there, or the digests of the texts.
    pub matching: Box<[(String, String)]>,
    /// The fields; of none, all that is declared.
    pub fields: Arc<[String]>,
}

/// What a run looked at that is not read from the cluster, and may be another the next time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The time.
    pub clock: bool,
    /// Random bytes.
    pub random: bool,
    /// Somebody outside of the cluster.
    pub network: bool,
}

/// An object that a run wrote, or found as it is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wrote {
    /// The object.
    pub of: Object,
    /// The field manager.
    pub manager: Arc<str>,
    /// `status`, or empty for the object itself.
    pub subresource: Box<str>,
    /// What the manager owns of it since then; none where that does not count, or where the write was refused.
    pub own: Option<Own>,
    /// Whether some of its fields must be absent.
    pub absent: bool,
}

/// A selection of which nothing is left that a field manager has applied and the run did not write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pruned {
    /// The selection.
    pub of: Selection,
    /// The field manager.
    pub manager: Arc<str>,
}

/// What a run decided about the finalizers of its object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finalizers {
    /// The object holds these.
    pub held: Box<[String]>,
    /// It does not hold these.
    pub released: Box<[String]>,
}

/// What a manager owns of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Own {
    /// Which fields.
    pub fields: Digest,
    /// What they hold.
    pub values: Digest,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Ending {
    /// All was done.
    Success,
    /// Something was not.
    Failure,
}

// === impl Record ===

impl Record {
    /// Of a run of which nothing is known yet.
    pub fn new(key: &Key, attempt: u32) -> Self {
        Self {
            key: key.clone(),
            attempt,
            ran_on: None,
            object: None,
            reads: Box::default(),
            asked: Asked::default(),
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

    /// How many bytes all reads together gave.
    pub fn read_bytes(&self) -> usize {
        self.reads.iter().map(|read| read.bytes).sum()
    }
}

// === impl Question ===

impl Question {
    /// The kind that is asked for.
    pub fn kind(&self) -> &Kind {
        match self {
            Self::Get { of, .. } => &of.kind,
            Self::List { of, .. } => &of.kind,
        }
    }
}

// === impl Object ===

impl Object {
    pub(crate) fn of(of: &ObjectRef, kind: Arc<Kind>) -> Self {
        Self {
            cluster: of.cluster.as_str().into(),
            kind,
            namespace: of.namespace.as_deref().map(Into::into),
            name: of.name.as_str().into(),
        }
    }

    /// As the contract has it.
    pub(crate) fn reference(&self) -> ObjectRef {
        ObjectRef {
            cluster: self.cluster.to_string(),
            kind: Kind::clone(&self.kind),
            namespace: self.namespace.as_deref().map(str::to_owned),
            name: self.name.to_string(),
        }
    }
}

// === impl Selection ===

impl Selection {
    /// `secret`: its texts may come from a Secret.
    pub(crate) fn of(
        of: &contract::Selection,
        kind: Arc<Kind>,
        fields: Arc<[String]>,
        secret: bool,
    ) -> Self {
        let text = |text: &str| asked_text(secret, text);
        let matching = of.matching.iter().map(|(path, value)| (path.clone(), text(value)));
        Self {
            cluster: of.cluster.as_str().into(),
            labels: text(&of.labels).into(),
            matching: matching.collect(),
            kind,
            namespace: of.namespace.as_deref().map(Into::into),
            name: of.name.as_deref().map(Into::into),
            fields,
        }
    }

    /// As the contract has it; none where digests stand for texts, which nobody can ask for.
    pub(crate) fn selection(&self) -> Option<contract::Selection> {
        let texts = self.matching.iter().map(|(_, text)| text.as_str());
        if texts.chain([&*self.labels]).any(is_digest) {
            return None;
        }
        Some(contract::Selection {
            cluster: self.cluster.to_string(),
            kind: Kind::clone(&self.kind),
            namespace: self.namespace.as_deref().map(str::to_owned),
            name: self.name.as_deref().map(str::to_owned),
            labels: self.labels.to_string(),
            matching: self.matching.to_vec(),
            fields: self.fields.to_vec(),
        })
    }
}

/// Whether a text of a question may be one that stands for another.
pub(crate) fn is_digest(text: &str) -> bool {
    text.parse::<Digest>().is_ok()
}

// === impl Basis ===

impl Basis {
    /// Why a run on another basis may come to something else; none where it would not.
    pub(crate) fn differs(&self, other: &Self) -> Option<MustRun> {
        let parts = [
            (self.module == other.module, MustRun::Module),
            (self.config == other.config, MustRun::Config),
            (self.grant == other.grant, MustRun::Grant),
            (self.settings == other.settings, MustRun::Settings),
        ];
        parts.into_iter().find(|(same, _)| !same).map(|(_, why)| why)
    }
}

// === impl Asked ===

impl Asked {
    /// What either asked for.
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
    /// The digests of what a manager owns of an object; keyed once more if a Secret may have gone into it.
    pub(crate) fn of(pair: Pair, secret: bool) -> Self {
        let digest = |held: u128| {
            if secret { Digest::keyed([&held.to_be_bytes()[..]]) } else { Digest::plain(held) }
        };
        Self { fields: digest(pair.fields), values: digest(pair.values) }
    }

    /// What they were made of; none where they are keyed.
    pub(crate) fn pair(self) -> Option<Pair> {
        Some(Pair { fields: self.fields.plain_value()?, values: self.values.plain_value()? })
    }
}
