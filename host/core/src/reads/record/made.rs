//! The records of calls, for people: never their bodies, queries or credentials.

use std::time::Duration;

use serde::{Serialize, Serializer};
use tracing::debug;

use crate::contract::outbound::Method;

/// A call that a run has made, or that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Made {
    pub method: Method,
    /// The URL without its query, cut; empty if it does not parse.
    pub url: String,
    /// The status of the answer, if there is one.
    pub status: Option<u16>,
    /// The time from the call to its end.
    #[serde(rename = "milliseconds", serialize_with = "as_milliseconds")]
    pub took: Duration,
    /// The error in one word, as in `call-error`; `None` if there is an answer.
    pub error: Option<&'static str>,
    /// The origin as granted of a call that no client was asked to send, empty if none is granted;
    /// `None` for other calls.
    #[serde(skip)]
    pub refused: Option<String>,
}

// === impl Made ===

impl Made {
    /// Writes the record to the log.
    pub(crate) fn log(&self) {
        let Self { method, url, status, took, error, refused: _ } = self;
        debug!(method = method.name(), url, status, ?took, error, "called");
    }
}

fn as_milliseconds<S: Serializer>(took: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(u64::try_from(took.as_millis()).unwrap_or(u64::MAX))
}
