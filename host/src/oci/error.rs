//! The reasons why a pull from a registry, or a push to it, fails.

use std::{io, time::Duration};

use super::Digest;
use crate::http;

/// The reason why a pull from a registry, or a push to it, fails. Messages name the host and the
/// request; callers name the reference.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No connection, no answer, or an incomplete answer.
    #[error("`{host}` does not answer: {found}")]
    Unreachable { host: String, found: String },

    /// The server accepts connections, but does not speak TLS.
    #[error("`{host}` speaks no TLS: {found}")]
    NoTls { host: String, found: String },

    /// The status is not a success.
    #[error("`{host}` answers {status} to {asked}{found}")]
    Refused {
        host: String,
        status: u16,
        asked: String,
        found: String,
        /// The time after which the request may be repeated: `Retry-After`.
        retry_after: Option<Duration>,
    },

    /// The answer does not conform to the registry API.
    #[error("`{host}` gives no valid answer to {asked}: {found}")]
    Invalid { host: String, asked: String, found: String },

    /// The body ended early.
    #[error("`{host}` broke off after {came} of {expected} bytes of {asked}: {found}")]
    Truncated { host: String, asked: String, came: u64, expected: u64, found: String },

    /// The body did not arrive in time.
    #[error("`{host}` is too slow: {came} of {expected} bytes of {asked} came in {} s", took.as_secs())]
    TooSlow { host: String, asked: String, came: u64, expected: u64, took: Duration },

    /// The body has another digest than the requested one.
    #[error("`{host}` sent {asked} with the digest {found}; {expected} is expected")]
    OtherDigest { host: String, asked: String, found: Digest, expected: Digest },

    /// The body is longer or shorter than declared.
    #[error("`{host}` sent {asked} of {found} bytes; {expected} are expected")]
    OtherLength { host: String, asked: String, found: u64, expected: u64 },

    /// The body is larger than the limit.
    #[error("{what} has {found} bytes; up to {limit} are accepted")]
    TooLarge { what: String, found: u64, limit: u64 },

    /// The address must not be contacted.
    #[error("`{host}` is not asked: {found}")]
    AddressRefused { host: String, found: String },

    /// The artifact exists, but is not a Wasm component.
    #[error(
        "it is no Wasm artifact: {found}; a manifest with the configuration `{}` and one layer `{}` is accepted, as `mortise push` makes it",
        super::artifact::CONFIG,
        super::artifact::LAYER
    )]
    NotWasm { found: String },

    /// A local file cannot be read or written.
    #[error("{what}")]
    Disk { what: String, source: io::Error },
}

// === impl Error ===

impl Error {
    /// Returns whether the registry could not be reached or cannot answer now: such an error says
    /// nothing about the artifact.
    pub fn is_registry_away(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::NoTls { .. } | Self::Invalid { .. } => true,
            Self::Refused { status, .. } => *status == 429 || *status >= 500,
            _ => false,
        }
    }

    /// Returns the time after which the request may be repeated.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// A request to this machine is refused only if a registry elsewhere has named it.
impl From<http::Error> for Error {
    fn from(error: http::Error) -> Self {
        match error {
            http::Error::Unreachable { host, found } => Self::Unreachable { host, found },
            http::Error::NoTls { host, found } => Self::NoTls { host, found },
            http::Error::Refused { host, found } => Self::AddressRefused { host, found },
            http::Error::Loopback { host, ip } => {
                let found = format!("{ip} is this machine, and a registry elsewhere named it");
                Self::AddressRefused { host, found }
            }
        }
    }
}

/// Returns an answer, or `None` if the registry has no such document.
pub(super) fn if_found<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(Error::Refused { status: 404, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
