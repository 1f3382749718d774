//! The result of a call, as logs and metrics show it.

use std::fmt;

use mortise_core::outbound::{Answer, CallError};

use crate::metrics;

/// The status codes with a series of their own; others are counted by their first digit.
const STATUSES: [u16; 30] = [
    200, 201, 202, 204, 206, 301, 302, 303, 304, 307, 308, 400, 401, 403, 404, 405, 406, 408, 409,
    410, 412, 413, 415, 422, 429, 500, 501, 502, 503, 504,
];

/// The result of a call.
pub(super) enum Code {
    Status(u16),
    Word(&'static str),
}

// === impl Code ===

impl Code {
    pub(super) fn of(sent: &Result<Answer, CallError>) -> Self {
        match sent {
            Ok(answer) => Self::Status(answer.status),
            Err(error) => Self::Word(metrics::error_label(error.code())),
        }
    }

    /// Returns the value of the label: one of few, whatever the other side answers.
    pub(super) fn label(&self) -> String {
        match *self {
            Self::Status(status) if STATUSES.contains(&status) => status.to_string(),
            Self::Status(status) => format!("{}xx", status / 100),
            Self::Word(word) => word.to_owned(),
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => status.fmt(to),
            Self::Word(word) => to.write_str(word),
        }
    }
}
