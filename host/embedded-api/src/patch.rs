//! Patches: JSON patch, merge patch, strategic merge patch.
//!
//! Each patch is a function of an object and a patch document. Where the RFCs leave a choice, and
//! where kube-apiserver departs from them, the behaviour is that of kube-apiserver. The result is
//! neither decoded nor validated. Server-side apply is not here: see `managed_fields`.

mod json;
mod merge;
mod strategic;
#[cfg(test)]
mod tests;

pub(crate) use json::json;
pub(crate) use merge::merge;
pub(crate) use strategic::strategic;

use crate::status::Failure;

/// The error of an object that could not be patched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PatchError {
    /// The patch document is malformed: 400.
    #[error("{0}")]
    BadRequest(String),

    /// The patch does not fit the object: 422. Kubernetes does not give its clients the reason.
    #[error("{0}")]
    Rejected(String),

    /// The patch has more operations than are allowed: 413.
    #[error("The allowed maximum operations in a JSON patch is {most}, got {got}")]
    TooLarge {
        /// The number of allowed operations.
        most: usize,
        /// The number of operations in the patch.
        got: usize,
    },

    /// An error that Kubernetes answers with a 500.
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
