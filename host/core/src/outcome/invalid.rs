//! The reasons why an outcome is refused, each with the object and the field.

use std::sync::Arc;

use crate::{
    contract::{Kind, ObjectRef, bounds::ENTRY, display_ref},
    grant::Denied,
    path::Path,
};

/// A refused outcome. No part of it was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{place}`{}: {fault}", of(.object.as_ref()))]
pub struct Invalid {
    /// The place in the outcome: `apply[2].object`, `evict[0].ref`.
    pub place: String,
    /// The object, as far as it could be read: kind, namespace and name.
    pub object: Option<String>,
    /// The object's kind, if it is known.
    pub kind: Option<Arc<Kind>>,
    /// The fault at that place.
    pub fault: Fault,
}

/// A fault in a part of an outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Text that is not JSON.
    #[error("not JSON: {0}")]
    NotJson(String),
    /// JSON that does not have the form of the contract.
    #[error("`{field}`: {wanted}")]
    Malformed {
        /// The field; empty: the whole JSON.
        field: String,
        /// The accepted form.
        wanted: String,
    },
    /// More bytes than are allowed.
    #[error("{bytes} bytes are too large, at most {limit} are allowed")]
    TooLarge {
        bytes: usize,
        /// The maximum number of bytes.
        limit: usize,
    },
    /// More than may be parsed.
    #[error(
        "it takes most of an outcome that is parsed, {account} bytes, where each field and item counts {ENTRY} more; \
         at most {limit} are allowed together"
    )]
    TooMuch {
        /// The bytes of the object.
        account: usize,
        /// The maximum number of bytes of all objects.
        limit: usize,
    },
    /// More entries than are allowed.
    #[error("{count} entries are too many, at most {limit} are allowed")]
    TooMany {
        /// The number of entries.
        count: usize,
        /// The maximum number of entries.
        limit: usize,
    },
    /// A write or event that the description does not declare.
    #[error(transparent)]
    NotDeclared(#[from] Denied),
    /// A field that no write rule allows.
    #[error("`{field}` is not declared; {accepted}")]
    FieldNotDeclared {
        field: String,
        /// The fields that would be accepted, in words.
        accepted: String,
    },
    /// A field that is not allowed at this place.
    #[error("`{field}` is refused: {reason}")]
    FieldRefused {
        field: String,
        /// The reason, and what to do instead.
        reason: String,
    },
    /// An owner that the processor cannot know to exist.
    #[error(
        "`metadata.ownerReferences`: `{owner}`: {reason}; an owner is the reconciled object, an object of the same outcome's `apply`, or one that was read \
         in this run, with its uid"
    )]
    Owner {
        owner: String,
        /// The reason why the owner is refused.
        reason: String,
    },
    /// A duplicate object in the outcome.
    #[error("the object stands in `{other}` already")]
    Duplicate {
        /// The other place of the object.
        other: String,
    },
    /// A feature that this version of the host does not support.
    #[error("{0} are not supported by this version of the host")]
    NotSupported(&'static str),
}

impl Fault {
    pub(super) fn malformed(field: impl Into<String>, wanted: impl Into<String>) -> Self {
        Self::Malformed { field: field.into(), wanted: wanted.into() }
    }

    pub(super) fn refused(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::FieldRefused { field: field.into(), reason: reason.into() }
    }

    /// Returns the refusal of a path that would compare a credential with a text.
    pub(super) fn compares(path: &Path, hidden: &Path) -> Self {
        let reason = format!("it compares the credential `{hidden}`; other fields are accepted");
        Self::refused(path.to_string(), reason)
    }

    pub(super) fn at(self, place: impl Into<String>) -> Invalid {
        Invalid { place: place.into(), object: None, kind: None, fault: self }
    }

    pub(super) fn on(self, place: impl Into<String>, object: &ObjectRef) -> Invalid {
        Invalid {
            place: place.into(),
            object: Some(display_ref(object)),
            kind: Some(Arc::clone(&object.kind)),
            fault: self,
        }
    }
}

impl Invalid {
    /// Returns the verb and the kind of the missing declaration, if the fault is an undeclared
    /// write or event.
    pub fn undeclared(&self) -> Option<(&'static str, &Kind)> {
        match &self.fault {
            Fault::NotDeclared(denied) => Some((denied.verb(), &denied.kind)),
            Fault::FieldNotDeclared { .. } => Some(("update", self.kind.as_deref()?)),
            _ => None,
        }
    }
}

fn of(object: Option<&String>) -> String {
    object.map(|object| format!(" ({object})")).unwrap_or_default()
}
