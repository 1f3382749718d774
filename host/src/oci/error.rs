//! The reasons why something does not come from a registry, or does not get there.

use std::{io, time::Duration};

use super::Digest;

/// The reason why something does not come from a registry, or does not get there. Messages name the
/// host and what was asked of it; callers name the reference.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No connection, no answer, or no whole one.
    #[error("`{host}` does not answer: {found}")]
    Unreachable { host: String, found: String },

    /// A connection, and no TLS on it: the other side speaks something else.
    #[error("`{host}` speaks no TLS: {found}")]
    NoTls { host: String, found: String },

    /// The answer is no success.
    #[error("`{host}` answers {status} to {asked}{found}")]
    Refused {
        host: String,
        status: u16,
        asked: String,
        found: String,
        /// The time after which the registry wants to be asked again.
        retry_after: Option<Duration>,
    },

    /// The answer is not one that a registry gives.
    #[error("`{host}` gives no valid answer to {asked}: {found}")]
    Invalid { host: String, asked: String, found: String },

    /// The body ended early.
    #[error("`{host}` broke off after {came} of {expected} bytes of {asked}: {found}")]
    Truncated { host: String, asked: String, came: u64, expected: u64, found: String },

    /// The body did not come in time.
    #[error("`{host}` is too slow: {came} of {expected} bytes of {asked} came in {} s", took.as_secs())]
    TooSlow { host: String, asked: String, came: u64, expected: u64, took: Duration },

    /// The body is another one than was asked for.
    #[error("`{host}` sent {asked} with the digest {found}; {expected} is expected")]
    OtherDigest { host: String, asked: String, found: Digest, expected: Digest },

    /// The body is longer or shorter than was said.
    #[error("`{host}` sent {asked} of {found} bytes; {expected} are expected")]
    OtherLength { host: String, asked: String, found: u64, expected: u64 },

    /// The body is larger than is accepted.
    #[error("{what} has {found} bytes; up to {limit} are accepted")]
    TooLarge { what: String, found: u64, limit: u64 },

    /// An address that must not be asked.
    #[error("`{host}` is not asked: {found}")]
    AddressRefused { host: String, found: String },

    /// The registry has such an artifact, but it is none of Wasm.
    #[error(
        "it is no Wasm artifact: {found}; a manifest with the configuration `{}` and one layer `{}` is accepted, as `mortise push` makes it",
        super::artifact::CONFIG,
        super::artifact::LAYER
    )]
    NotWasm { found: String },

    /// A file of this machine cannot be read or written.
    #[error("{what}")]
    Disk { what: String, source: io::Error },
}

// === impl Error ===

impl Error {
    /// Returns whether the registry itself could not be asked, or did not want to answer now: says
    /// nothing about the artifact.
    pub fn is_registry_away(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::NoTls { .. } | Self::Invalid { .. } => true,
            Self::Refused { status, .. } => *status == 429 || *status >= 500,
            _ => false,
        }
    }

    /// Returns the time after which the registry wants to be asked again.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
