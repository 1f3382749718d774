//! The reasons why an APIRule cannot be reconciled.

use std::time::Duration;

use mortise_sdk::Error;

use crate::{api::ApiRule, existing::MAX_LABEL_BYTES, produced::Unlisted, status};

/// The time after which a failed APIRule is reconciled again even if nothing that was read has
/// changed.
pub(crate) const RETRY_DELAY: Duration = Duration::from_mins(1);

/// The reason why an APIRule cannot be reconciled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// An error, with the text for a status in state Error.
    Wrong(String),
    /// A CRD must be installed first; with the text for a status in state Warning.
    Waiting(String),
    /// An error that the status does not mention.
    Untold(String),
    /// A read cannot be answered at the moment.
    Unavailable(Error),
}

/// Returns an error if the name of an APIRule does not fit into the labels of its objects.
pub(crate) fn too_long(rule: &ApiRule) -> Option<String> {
    (rule.metadata.name.len() > MAX_LABEL_BYTES).then(|| {
        format!(
            "the name is longer than {MAX_LABEL_BYTES} characters, which is the most that a label holds"
        )
    })
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        match error {
            Error::Unavailable { .. } => Self::Unavailable(error),
            error => Self::Wrong(status::general(&error.to_string())),
        }
    }
}

impl From<Unlisted> for Stop {
    fn from(unlisted: Unlisted) -> Self {
        match unlisted {
            Unlisted::Missing(description) => Self::Waiting(description),
            Unlisted::Unreadable(description) => Self::Wrong(description),
            Unlisted::Unavailable(error) => Self::Unavailable(error),
        }
    }
}
