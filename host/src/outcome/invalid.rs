//! Why an outcome is refused: always with the object and the field.

use crate::{
    contract::{Kind, ObjectRef},
    grant::{Denied, display_ref},
};

/// An outcome that is not carried out. Nothing of it was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{place}`{}: {fault}", of(.object.as_ref()))]
pub struct Invalid {
    /// Where in the outcome: `apply[2].object`, `evict[0].ref`.
    pub place: String,
    /// The object, as far as it could be read: kind, namespace and name.
    pub object: Option<String>,
    /// Its kind, if that is known.
    pub kind: Option<Box<Kind>>,
    /// What is wrong.
    pub fault: Fault,
}

/// What is wrong with a part of an outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A text that is no JSON.
    #[error("not JSON: {0}")]
    NotJson(String),
    /// JSON of another form than is asked for.
    #[error("`{field}`: {wanted}")]
    Malformed {
        /// The field, empty for the whole.
        field: String,
        /// What should stand there.
        wanted: String,
    },
    /// More bytes than are allowed.
    #[error("{bytes} bytes are too large, at most {limit} are allowed")]
    TooLarge {
        /// How many there are.
        bytes: usize,
        /// How many there may be.
        limit: usize,
    },
    /// More entries than are allowed.
    #[error("{count} entries are too many, at most {limit} are allowed")]
    TooMany {
        /// How many there are.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// The description does not declare it.
    #[error(transparent)]
    NotDeclared(#[from] Denied),
    /// A field that no write rule lets be written.
    #[error("`{field}` is not declared; {accepted}")]
    FieldNotDeclared {
        /// The field.
        field: String,
        /// What would be.
        accepted: String,
    },
    /// A field that may not stand here.
    #[error("`{field}` is refused: {reason}")]
    FieldRefused {
        /// The field.
        field: String,
        /// Why, and what to do.
        reason: String,
    },
    /// An owner that the processor cannot know to exist.
    #[error(
        "`metadata.ownerReferences`: `{owner}`: {reason}; an owner is the reconciled object, an object of the same outcome's `apply`, or one that was read \
         in this run, with its uid"
    )]
    Owner {
        /// The owner.
        owner: String,
        /// Why it is refused.
        reason: String,
    },
    /// The same object stands twice in the outcome.
    #[error("the object stands in `{other}` already")]
    Duplicate {
        /// Where it stands too.
        other: String,
    },
    /// Something that this version of the host does not do.
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

    pub(super) fn at(self, place: impl Into<String>) -> Invalid {
        Invalid { place: place.into(), object: None, kind: None, fault: self }
    }

    pub(super) fn on(self, place: impl Into<String>, object: &ObjectRef) -> Invalid {
        Invalid {
            place: place.into(),
            object: Some(display_ref(object)),
            kind: Some(object.kind.clone().into()),
            fault: self,
        }
    }
}

impl Invalid {
    /// The verb, as a declaration has it, and the kind of what the description would have to declare.
    pub(crate) fn undeclared(&self) -> Option<(&'static str, &Kind)> {
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
