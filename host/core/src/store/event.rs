//! Events of the stores, as the triggers receive them.

use std::sync::Arc;

use serde_json::Value;

use super::{Entry, place::NamespacedName};
use crate::{contract::Kind, key::Key};

/// The identity of a store, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoreId(pub(super) u64);

/// A change that may affect runs that have ended or are in progress.
#[derive(Clone, Debug)]
pub enum Event {
    /// An object changed.
    Object(Change),
    /// A change that a watch had already reported was a write by this host.
    Claimed(Claim),
    /// The cluster serves a kind; before, it did not, or this was unknown.
    Known(Arc<Kind>),
    /// The cluster no longer serves a kind; its objects are dropped.
    Unknown(Arc<Kind>),
    /// A list of a kind has ended: its first one, or one with more fields.
    Complete(Arc<Kind>),
    /// A store was closed; its objects are read from another store, if any.
    Closed(Arc<Kind>, StoreId),
}

/// A change of one object in one store.
#[derive(Clone, Debug)]
pub struct Change {
    /// The number of the change; later changes have higher numbers.
    pub sequence: u64,
    /// The store in which the object changed.
    pub store: StoreId,
    /// The kind of the object.
    pub kind: Arc<Kind>,
    /// The object before the change; `None` if there was none. An event that had to wait for long
    /// may have lost both objects.
    pub old: Option<Arc<Entry>>,
    /// The object after the change; `None` if it is gone.
    pub new: Option<Arc<Entry>>,
    pub source: Source,
}

/// The origin of a change: a watch event or a write by this host.
#[derive(Clone, Debug)]
pub enum Source {
    /// Reported by a watch.
    Watch,
    /// Returned by the API server as the answer to a write by this host.
    Write {
        /// The key whose run wrote.
        by: Key,
        /// The object that was sent; `None` for a deletion.
        sent: Option<Arc<Value>>,
    },
}

/// A write by this host whose answer arrived after its watch event.
#[derive(Clone, Debug)]
pub struct Claim {
    pub(super) store: StoreId,
    pub(super) place: NamespacedName,
    /// The resource version that the write led to; `None` if the object is gone.
    pub(super) version: Option<Box<str>>,
    pub(super) source: Source,
    /// The account of the object that was sent.
    pub(super) bytes: usize,
}

/// The store, the name and the resource version of a written object; without a version, it is gone.
pub type Claimed<'a> = (StoreId, &'a NamespacedName, Option<&'a str>);

// === impl Change ===

impl Change {
    /// Returns whether the change has lost its objects: any object of the store may have changed.
    pub fn has_lost_objects(&self) -> bool {
        self.old.is_none() && self.new.is_none()
    }

    /// Returns the store, the name and the new resource version: a claim of the same write has the
    /// same.
    pub fn claimed(&self) -> Option<Claimed<'_>> {
        let entry = self.new.as_ref().or(self.old.as_ref())?;
        Some((self.store, entry.place(), self.new.as_ref().map(|new| new.resource_version())))
    }
}

// === impl Claim ===

impl Claim {
    /// Returns whether a run of `key` made the write.
    pub fn is_by(&self, key: &Key) -> bool {
        matches!(&self.source, Source::Write { by, .. } if by == key)
    }

    /// Returns the store, the name and the resource version of the written object.
    pub fn claimed(&self) -> Claimed<'_> {
        (self.store, &self.place, self.version.as_deref())
    }

    /// Returns the account of the object that was sent.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the claim without the object that was sent: it counts as a write whose result the
    /// run did not expect.
    #[must_use]
    pub fn without_sent(&self) -> Self {
        let source = match &self.source {
            Source::Write { by, .. } => Source::Write { by: by.clone(), sent: None },
            Source::Watch => Source::Watch,
        };
        Self { source, bytes: 0, ..self.clone() }
    }

    /// Returns a change that a watch reported, with this write as its source.
    pub fn own(&self, change: &Change) -> Change {
        Change { source: self.source.clone(), ..change.clone() }
    }
}
