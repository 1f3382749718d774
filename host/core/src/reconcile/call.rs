//! The call of a processor, as a reconciler makes it: its inputs and its result.

use std::{fmt, str::FromStr, time::Duration};

use futures::future::BoxFuture;
use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::{
    contract::{Failure, Level, Outcome, Request},
    reads::{View, record::Asked},
};

/// A version of a processor that can be called: a component, or a native function.
pub trait Call: Send + Sync {
    fn digest(&self) -> ModuleDigest;

    /// Returns the digests of all code that a call runs: the module and its libraries.
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

/// The prefix of a digest as text.
const ALGORITHM: &str = "sha256:";

/// The error of parsing a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`sha256:` and 64 digits 0-9a-f are expected")]
pub struct NoDigest;

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
    /// The log and the resources of the call.
    pub usage: Usage,
}

/// The log of one call, and what it used besides its reads.
#[derive(Debug, Default)]
pub struct Usage {
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
    pub message: String,
    /// Named values, of `log.write` only.
    pub fields: Vec<(String, String)>,
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
        let mut context = Context::new(&SHA256);
        context.update(bytes);
        Self::finish(context)
    }

    /// Finishes a SHA-256 context, and returns the digest.
    pub fn finish(context: Context) -> Self {
        let mut of = Self([0; SHA256_OUTPUT_LEN]);
        of.0.copy_from_slice(context.finish().as_ref());
        of
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the digest in hexadecimal digits, without its algorithm.
    pub fn hex(&self) -> String {
        self.to_string().split_off(ALGORITHM.len())
    }
}

impl fmt::Display for ModuleDigest {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(ALGORITHM)?;
        self.0.iter().try_for_each(|byte| write!(to, "{byte:02x}"))
    }
}

/// Parses a digest as text: `sha256:` and 64 hexadecimal digits.
impl FromStr for ModuleDigest {
    type Err = NoDigest;

    fn from_str(text: &str) -> Result<Self, NoDigest> {
        let digits = text.strip_prefix(ALGORITHM).ok_or(NoDigest)?.as_bytes();
        let value = |digit: &u8| match digit {
            b'0'..=b'9' => Ok(digit - b'0'),
            b'a'..=b'f' => Ok(digit - b'a' + 10),
            _ => Err(NoDigest),
        };
        let mut of = Self([0; SHA256_OUTPUT_LEN]);
        let (pairs, rest) = digits.as_chunks::<2>();
        if pairs.len() != of.0.len() || !rest.is_empty() {
            return Err(NoDigest);
        }
        for (byte, [high, low]) in of.0.iter_mut().zip(pairs) {
            *byte = value(high)? << 4 | value(low)?;
        }
        Ok(of)
    }
}

impl Serialize for ModuleDigest {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ModuleDigest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
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

    #[test]
    fn a_digest_is_read_as_it_is_shown() {
        let digest = ModuleDigest::of(b"a");
        let text = digest.to_string();
        assert_eq!(text.parse(), Ok(digest));
        assert_eq!(format!("sha256:{}", digest.hex()), text);
        let json = serde_json::to_string(&digest).unwrap();
        assert_eq!(serde_json::from_str::<ModuleDigest>(&json).unwrap(), digest);
        let long = format!("{text}0");
        let wrong = [&text[7..], &text[..70], long.as_str(), &text.to_uppercase(), "sha256:é"];
        for text in wrong {
            assert_eq!(text.parse::<ModuleDigest>(), Err(NoDigest), "{text}");
        }
    }
}
