//! What happens in the stores, as the triggers are told it.

use std::sync::Arc;

use serde_json::Value;

use super::Entry;
use crate::contract::Kind;
use crate::queue::Key;

/// A store's identity, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoreId(pub(super) u64);

/// Something that may concern runs that have ended or are under way.
#[derive(Clone, Debug)]
pub enum Event {
    /// An object changed.
    Object(Change),
    /// A change that a watch had shown was a write of ours.
    Claimed(Claim),
    /// The cluster serves a kind that it did not serve, or of which that was not known.
    Known(Arc<Kind>),
    /// The cluster serves a kind no longer; its objects are forgotten.
    Unknown(Arc<Kind>),
    /// More of a kind can be read than before: its first list has ended, or one with more fields.
    Complete(Arc<Kind>),
    /// A store is no more; what it held is read from another one, if any.
    Closed(Arc<Kind>, StoreId),
}

/// A change of one object in one store.
#[derive(Clone, Debug)]
pub struct Change {
    /// Its number; later changes have higher ones.
    pub sequence: u64,
    /// The store.
    pub store: StoreId,
    /// The object's kind.
    pub kind: Arc<Kind>,
    /// The object before.
    pub old: Option<Arc<Entry>>,
    /// The object now.
    pub new: Option<Arc<Entry>>,
    /// How it came.
    pub source: Source,
}

/// How a change came to be known.
#[derive(Clone, Debug)]
pub enum Source {
    /// From a watch.
    Watch,
    /// As the answer to a write of ours.
    Write {
        /// The key whose run wrote.
        by: Key,
        /// What it sent; none for a deletion.
        sent: Option<Arc<Value>>,
    },
}

/// A write of ours whose answer came when a watch had shown already what it did.
#[derive(Clone, Debug)]
pub struct Claim {
    pub(super) store: StoreId,
    pub(super) kind: Arc<Kind>,
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
    /// The resource version that it led to; none where the object is gone by it.
    pub(super) version: Option<Box<str>>,
    pub(super) source: Source,
}

// === impl Claim ===

impl Claim {
    /// Whether a key's run wrote it.
    pub(crate) fn is_by(&self, key: &Key) -> bool {
        matches!(&self.source, Source::Write { by, .. } if by == key)
    }

    /// A change that a watch showed, as what it is if it is this one.
    pub(crate) fn own(&self, change: &Change) -> Option<Change> {
        let entry = change.new.as_ref().or(change.old.as_ref())?;
        let version = change.new.as_ref().map(|entry| entry.resource_version());
        let is_it = self.store == change.store
            && self.kind == change.kind
            && *self.name == *entry.name()
            && *self.namespace == *entry.namespace().unwrap_or_default()
            && self.version.as_deref() == version;
        is_it.then(|| Change { source: self.source.clone(), ..change.clone() })
    }
}
