//! The causes of runs. Causes are shown to users, and decide whether a run may be skipped.

use std::{fmt, sync::Arc};

use crate::contract::{Kind, display_kind};

/// The cause of a run: the reason why a key was queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The key was not known before.
    Start,
    /// An object changed.
    Object {
        kind: Arc<Kind>,
        /// The namespace of the object; `None` if it is cluster-scoped.
        namespace: Option<Arc<str>>,
        name: Arc<str>,
        /// The change of the object.
        what: What,
        /// The role of the object for the key.
        role: Role,
    },
    /// An on-demand reconciler was stopped for the object.
    Stopped,
    /// A kind that was read is now served by the cluster.
    KindKnown(Arc<Kind>),
    /// A kind that was read is no longer served by the cluster.
    KindUnknown(Arc<Kind>),
    /// The objects of a kind, which could not be read before, can be read now.
    Complete(Arc<Kind>),
    /// The watch of objects that were read has ended; another watch covers them.
    Moved(Arc<Kind>),
    /// There were more changes than could be compared with the key's reads: some may affect it.
    Overrun,
    /// The outcome of the last run asked for another run.
    Requeue,
    /// The resync interval of the reconciler is over.
    Resync,
    /// The last run failed.
    Retry,
    /// The host cancelled the last run.
    Cancelled,
    /// Changes came within the minimum interval between runs.
    Coalesced,
    /// A user or a program requested the run.
    Asked,
    /// A new version of the processor was loaded.
    NewVersion,
    /// The rights of the processor's account have changed.
    Rights,
}

/// A change of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The object did not exist before.
    Created,
    /// The object differs.
    Changed,
    /// The object no longer exists.
    Deleted,
}

/// The role of an object for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The object is the one that the key reconciles.
    Reconciled,
    Read,
    Written,
    /// The object is to be pruned.
    Prunable,
}

// === impl Cause ===

impl Cause {
    /// Returns whether the cause is a change in the stores: a run that reads the stores later sees
    /// it.
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
                write!(to, "{of}{} ", display_kind(kind))?;
                if let Some(namespace) = namespace {
                    write!(to, "{namespace}/")?;
                }
                write!(to, "{name} {what}")
            }
            Self::Stopped => to.write_str("stopped"),
            Self::KindKnown(kind) => write!(to, "{} is served now", display_kind(kind)),
            Self::KindUnknown(kind) => write!(to, "{} is no longer served", display_kind(kind)),
            Self::Complete(kind) => write!(to, "{} can be read now", display_kind(kind)),
            Self::Moved(kind) => write!(to, "{} has another watch", display_kind(kind)),
            Self::Overrun => to.write_str("too many changes to compare"),
            Self::Requeue => to.write_str("requeue"),
            Self::Resync => to.write_str("resync"),
            Self::Retry => to.write_str("retry"),
            Self::Cancelled => to.write_str("the last run was cancelled"),
            Self::Coalesced => to.write_str("changes within the minimum interval"),
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
