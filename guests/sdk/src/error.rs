//! The errors of reads.

use std::fmt;

use crate::{Failure, bindings::mortise::host::types::ReadError};

/// An error of a read.
///
/// `?` turns it into a [`Failure`]: after [`Denied`](Self::Denied),
/// [`UnknownKind`](Self::UnknownKind) and [`Shape`](Self::Shape) the object runs again on a change,
/// after [`Unavailable`](Self::Unavailable) and [`Invalid`](Self::Invalid) with exponential
/// back-off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The read is not declared, or the processor's `ServiceAccount` may not read the object.
    Denied {
        /// The object or list that was read, in words.
        what: String,
        /// The host's explanation.
        message: String,
    },
    /// The cluster does not know the kind: its `CustomResourceDefinition` is not installed.
    UnknownKind {
        /// The object or list that was read, in words.
        what: String,
    },
    /// The cluster cannot be reached, or the first list of the kind has not arrived yet.
    Unavailable {
        /// The object or list that was read, in words.
        what: String,
        /// The host's explanation.
        message: String,
    },
    /// A selector, a path or a page token does not parse.
    Invalid {
        /// The object or list that was read, in words.
        what: String,
        /// The host's explanation.
        message: String,
    },
    /// The object does not fit the Rust type.
    Shape {
        /// The object or list that was read, in words.
        what: String,
        /// The field that does not fit, and the type that is expected there.
        message: String,
    },
}

impl Error {
    /// Returns whether the cluster does not know the kind, so that no object of it can exist.
    pub fn is_unknown_kind(&self) -> bool {
        matches!(self, Self::UnknownKind { .. })
    }

    pub(crate) fn new(error: ReadError, what: String) -> Self {
        match error {
            ReadError::Denied(message) => Self::Denied { what, message },
            ReadError::UnknownKind => Self::UnknownKind { what },
            ReadError::Unavailable(message) => Self::Unavailable { what, message },
            ReadError::Invalid(message) => Self::Invalid { what, message },
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied { what, message } => write!(f, "reading {what} is denied: {message}"),
            Self::UnknownKind { what } => {
                write!(f, "reading {what}: the cluster does not know the kind")
            }
            Self::Unavailable { what, message } => {
                write!(f, "reading {what} is not possible now: {message}")
            }
            Self::Invalid { what, message } => {
                write!(f, "reading {what} is not a valid query: {message}")
            }
            Self::Shape { what, message } => {
                write!(f, "reading {what}: {message}")
            }
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let failure = Self::new(error.to_string());
        match error {
            // The host runs the object again by itself when one of these ends.
            Error::Denied { .. } | Error::UnknownKind { .. } | Error::Shape { .. } => {
                failure.retry_on_change()
            }
            Error::Unavailable { .. } | Error::Invalid { .. } => failure,
        }
    }
}
