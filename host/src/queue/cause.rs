//! Why a key runs: for people, and for deciding whether a run may be skipped.

use std::fmt;
use std::sync::Arc;

use crate::contract::Kind;

/// Why a key was queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It was not known before.
    Start,
    /// An object changed.
    Object {
        /// Its kind.
        kind: Arc<Kind>,
        /// Its namespace; none of a cluster-scoped one.
        namespace: Option<Arc<str>>,
        /// Its name.
        name: Arc<str>,
        /// What happened to it.
        what: What,
        /// What it is to the key.
        role: Role,
    },
    /// A kind that was read is now served by the cluster.
    KindKnown(Arc<Kind>),
    /// A kind that was read is no longer served by the cluster.
    KindUnknown(Arc<Kind>),
    /// The objects of a kind, which could not be read, are now there.
    Complete(Arc<Kind>),
    /// The watch of objects that were read has ended; another one sees them.
    Moved(Arc<Kind>),
    /// So much changed during the run that it cannot be told whether it concerned the key.
    Overrun,
    /// Its outcome asked for it.
    Requeue,
    /// The reconciler's resync.
    Resync,
    /// Its last run asked for the time, came after a failure, or read what it then wrote: what comes of a run when nothing has
    /// changed is not known yet.
    Confirmation,
    /// Its last run failed.
    Retry,
    /// The host cancelled its last run.
    Cancelled,
    /// Changes that came within the least interval between runs.
    Coalesced,
    /// Somebody asked for it.
    Asked,
    /// Its processor was loaded anew.
    NewVersion,
    /// What its processor's account may do is not what it was.
    Rights,
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It was not there before.
    Created,
    /// It differs.
    Changed,
    /// It is no longer there.
    Deleted,
}

/// What an object is to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It is the object that is reconciled.
    Reconciled,
    /// It was read.
    Read,
    /// It was written.
    Written,
    /// It is one that would be pruned.
    Prunable,
}

// === impl Cause ===

impl Cause {
    /// Whether it is a change of what the stores hold: who looks there after it was told sees it.
    pub(super) fn is_in_stores(&self) -> bool {
        matches!(
            self,
            Self::Object { .. }
                | Self::KindKnown(_)
                | Self::KindUnknown(_)
                | Self::Complete(_)
                | Self::Moved(_)
        )
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => to.write_str("new"),
            Self::Object { kind, namespace, name, what, role } => {
                let of = match role {
                    Role::Reconciled | Role::Read => "",
                    Role::Written => "own ",
                    Role::Prunable => "leftover ",
                };
                write!(to, "{of}{} ", kind.kind)?;
                if let Some(namespace) = namespace {
                    write!(to, "{namespace}/")?;
                }
                write!(to, "{name} {what}")
            }
            Self::KindKnown(kind) => write!(to, "{} is served now", kind.kind),
            Self::KindUnknown(kind) => write!(to, "{} is no longer served", kind.kind),
            Self::Complete(kind) => write!(to, "{} can be read now", kind.kind),
            Self::Moved(kind) => write!(to, "{} is watched anew", kind.kind),
            Self::Overrun => to.write_str("too many changes during the run"),
            Self::Requeue => to.write_str("requeue"),
            Self::Resync => to.write_str("resync"),
            Self::Confirmation => to.write_str("once more, with nothing changed"),
            Self::Retry => to.write_str("retry"),
            Self::Cancelled => to.write_str("the last run was cancelled"),
            Self::Coalesced => to.write_str("changes taken together"),
            Self::Asked => to.write_str("asked for"),
            Self::NewVersion => to.write_str("new version"),
            Self::Rights => to.write_str("other rights"),
        }
    }
}

// === impl What ===

impl fmt::Display for What {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Deleted => "deleted",
        })
    }
}
