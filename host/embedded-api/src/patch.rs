//! Patches: JSON patch, merge patch, strategic merge patch.
//!
//! Each is a function of an object and a patch, with what kube-apiserver does where the RFCs leave a choice or it departs from
//! them. The result is neither decoded nor validated. Applies are no patches: see `managed_fields`.

use crate::status::Failure;

mod json;
mod merge;
mod strategic;
#[cfg(test)]
mod tests;

pub(crate) use json::json;

pub(crate) use merge::merge;

pub(crate) use strategic::strategic;

/// Why an object could not be patched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PatchError {
    /// The patch is no patch of its kind: 400.
    #[error("{0}")]
    BadRequest(String),

    /// The patch does not fit the object: 422. Kubernetes does not tell its clients why.
    #[error("{0}")]
    Rejected(String),

    /// More operations than are allowed: 413.
    #[error("The allowed maximum operations in a JSON patch is {most}, got {got}")]
    TooLarge {
        /// How many are allowed.
        most: usize,
        /// How many there are.
        got: usize,
    },

    /// What Kubernetes answers with a 500.
    #[error("{0}")]
    Unclassified(String),
}

impl From<PatchError> for Failure {
    fn from(error: PatchError) -> Self {
        let message = error.to_string();
        match error {
            PatchError::BadRequest(_) => Self::bad_request(message),
            PatchError::Rejected(_) => Self::generic(
                422,
                "Invalid",
                "the server rejected our request due to an error in our request",
            ),
            PatchError::TooLarge { .. } => Self::generic(
                413,
                "RequestEntityTooLarge",
                format!("Request entity too large: {message}"),
            ),
            PatchError::Unclassified(_) => Self::unclassified(message),
        }
    }
}
