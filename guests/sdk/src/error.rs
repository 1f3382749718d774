//! Why a read gave nothing.

use std::fmt;

use crate::{Failure, bindings::mortise::host::types::ReadError};

/// Why a read gave nothing. `?` turns it into a [`Failure`] that waits for what would help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// It was not declared, or the `ServiceAccount` may not read it.
    Denied {
        /// What was read.
        what: String,
        /// The host's explanation.
        message: String,
    },
    /// The cluster does not know the kind: its `CustomResourceDefinition` is not installed.
    UnknownKind {
        /// What was read.
        what: String,
    },
    /// The cluster cannot be reached, or its first answer is not here yet.
    Unavailable {
        /// What was read.
        what: String,
        /// The host's explanation.
        message: String,
    },
    /// A selector, a path or a page token does not parse.
    Invalid {
        /// What was read.
        what: String,
        /// The host's explanation.
        message: String,
    },
    /// The object does not have the shape that the Rust type asks for.
    Shape {
        /// What was read.
        what: String,
        /// Where it differs.
        message: String,
    },
}

impl Error {
    /// Whether the kind itself is missing in the cluster.
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
