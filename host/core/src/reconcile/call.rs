//! The call of a processor, as a reconciler makes it: its inputs and its result.

use std::{fmt, time::Duration};

use futures::future::BoxFuture;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};

use crate::{
    contract::{Failure, Level, Outcome, Request},
    reads::View,
    reads::record::Asked,
};

/// A version of a processor that can be called: a component, or a native function.
pub trait Call: Send + Sync {
    /// Returns the digest of the module.
    fn digest(&self) -> ModuleDigest;

    /// Returns the digests of all that a call runs: of the module, and of its libraries.
    fn digests(&self) -> String {
        self.digest().to_string()
    }

    /// Returns the most bytes that an outcome may have.
    fn outcome_limit(&self) -> usize;

    /// Reconciles one object.
    fn call<'a>(
        &'a self,
        view: View,
        request: &'a Request,
        moment: Moment,
    ) -> BoxFuture<'a, Called>;

    /// Reconciles one object with a version that is not active yet.
    fn try_out<'a>(
        &'a self,
        view: View,
        request: &'a Request,
        moment: Moment,
    ) -> BoxFuture<'a, Called>;
}

/// The SHA-256 of a module's bytes, its identity.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleDigest([u8; SHA256_OUTPUT_LEN]);

/// The inputs of a call other than its request and its reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The time of the call, in milliseconds of Unix time.
    pub now_ms: u64,
    /// The seed of the insecure random numbers.
    pub seed: u64,
}

/// The result of one call.
pub struct Called {
    /// The outcome or failure that the processor returned, or the error that ended the call.
    pub outcome: Result<Result<Outcome, Failure>, CallError>,
    /// The view that the call was given, with the reads made from it; present however the call
    /// ended.
    pub view: View,
    /// The lines that the processor logged.
    pub log: Vec<Line>,
    /// Number of log lines dropped at the limits.
    pub log_dropped: u32,
    /// Inputs used other than the cluster's objects, such as the clock and random bytes.
    pub asked: Asked,
    /// Bytes of memory that the call had at its end.
    pub memory: usize,
    /// The time that the call waited for a free slot.
    pub waited: Duration,
}

/// The error of a call that returned neither an outcome nor a failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    /// The cause of the error.
    pub fault: Fault,
    /// The reason in one word, for metrics.
    pub reason: &'static str,
    /// The error and its causes, in words.
    pub message: String,
    /// The processor's functions at the point of the error, if they are known.
    pub backtrace: Option<String>,
}

/// The cause of a [`CallError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The processor: it trapped, passed a limit, returned an outcome that is too large, or
    /// cannot be called.
    Processor,
    /// The host, which lacks memory for all calls.
    Host,
    /// The host cancelled the call: its processor is gone or suspended, or the host is ending.
    Cancelled,
}

/// A line that a processor logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The level passed to `log.write`; info for standard output, warn for standard error.
    pub level: Level,
    /// The text of the line.
    pub message: String,
    /// Named values, of `log.write` only.
    pub fields: Vec<(String, String)>,
    /// The origin of the line.
    pub source: Source,
}

/// The origin of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The contract's `log.write`.
    Log,
    /// The processor's standard output.
    Output,
    /// The processor's standard error.
    Error,
}

// === impl ModuleDigest ===

impl ModuleDigest {
    /// Computes the digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut of = Self([0; SHA256_OUTPUT_LEN]);
        of.0.copy_from_slice(digest(&SHA256, bytes).as_ref());
        of
    }
}

impl fmt::Display for ModuleDigest {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(to, "{byte:02x}"))
    }
}

impl fmt::Debug for ModuleDigest {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_shown_with_its_algorithm() {
        let digest = ModuleDigest::of(b"").to_string();
        assert!(digest.starts_with("sha256:e3b0c44298fc1c14"), "{digest}");
    }
}
