//! The digests in run records.
//!
//! Digests of Secret data are keyed (HMAC-SHA256), so that a value cannot be guessed from a leaked
//! record. The HMAC key is generated when the process starts and is never written to disk.

use std::{fmt, str::FromStr, sync::LazyLock};

use ring::{
    hmac::{self, HMAC_SHA256},
    rand::SystemRandom,
};
use serde::{Serialize, Serializer};
use xxhash_rust::xxh3::Xxh3;

use crate::contract::{self, Kind, Manifest, Outcome};

/// A digest of an input or an output of a run.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest {
    keyed: bool,
    bytes: [u8; 16],
}

/// The error for a text that is not a digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no digest: `xxh3:` or `hmac:` and 32 hexadecimal digits are accepted")]
pub struct NoDigest(String);

/// The HMAC key of this start.
static KEY: LazyLock<hmac::Key> = LazyLock::new(new_key);

const PLAIN: &str = "xxh3";
const KEYED: &str = "hmac";

fn new_key() -> hmac::Key {
    hmac::Key::generate(HMAC_SHA256, &SystemRandom::new())
        .expect("the operating system gives random bytes")
}

// === impl Digest ===

impl Digest {
    /// Computes the digest of length-prefixed parts; keyed if these may contain Secret data.
    pub fn of<'a>(secret: bool, parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        if secret {
            return Self::keyed(parts);
        }
        let mut digest = Xxh3::new();
        for part in parts {
            digest.update(&part.len().to_le_bytes());
            digest.update(part);
        }
        Self::plain(digest.digest128())
    }

    /// Wraps a digest that was computed elsewhere; it is not keyed.
    pub fn plain(digest: u128) -> Self {
        Self { keyed: false, bytes: digest.to_be_bytes() }
    }

    /// Computes the keyed digest of length-prefixed parts, with the HMAC key of this start.
    pub fn keyed<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        Self::keyed_with(&KEY, parts)
    }

    fn keyed_with<'a>(key: &hmac::Key, parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut digest = hmac::Context::with_key(key);
        for part in parts {
            digest.update(&part.len().to_le_bytes());
            digest.update(part);
        }
        let tag = digest.sign();
        let bytes = tag.as_ref().first_chunk().expect("32 bytes begin with 16");
        Self { keyed: true, bytes: *bytes }
    }

    /// Returns the first digits: enough for people to tell two digests apart.
    pub fn short(&self) -> String {
        let [a, b, c, d, ..] = self.bytes;
        format!("{a:02x}{b:02x}{c:02x}{d:02x}")
    }

    /// Returns whether the digest is keyed, and so comparable within one start of the host only.
    pub fn is_keyed(&self) -> bool {
        self.keyed
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.keyed { KEYED } else { PLAIN };
        write!(to, "{how}:{:032x}", u128::from_be_bytes(self.bytes))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, to)
    }
}

impl FromStr for Digest {
    type Err = NoDigest;

    fn from_str(text: &str) -> Result<Self, NoDigest> {
        let no_digest = || NoDigest(text.to_owned());
        let (how, digits) = text.split_once(':').ok_or_else(no_digest)?;
        let keyed = match how {
            KEYED => true,
            PLAIN => false,
            _ => return Err(no_digest()),
        };
        let is_digits = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let digest = u128::from_str_radix(digits, 16).ok().filter(|_| is_digits);
        Ok(Self { keyed, bytes: digest.ok_or_else(no_digest)?.to_be_bytes() })
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Returns whether a kind is the core `Secret`, whose values must not be shown.
pub fn is_secret(kind: &Kind) -> bool {
    kind.group.is_empty() && kind.kind == "Secret"
}

/// Returns a text of a question as a record holds it: its keyed digest if it may contain Secret
/// data.
pub fn asked_text(secret: bool, text: &str) -> String {
    if text.is_empty() || !secret {
        return text.to_owned();
    }
    Digest::keyed([text.as_bytes()]).to_string()
}

/// Computes the digest of an outcome or failure; keyed if it may contain Secret data.
pub fn of_returned(returned: &Result<Outcome, contract::Failure>, secret: bool) -> Digest {
    let outcome = match returned {
        Ok(outcome) => outcome,
        Err(failure) => return Digest::of(secret, [format!("{failure:?}").as_bytes()]),
    };
    // Names each field, so that a new one does not compile until it is handled.
    let Outcome {
        apply,
        patch,
        evict,
        delete,
        prune,
        status,
        events,
        requeue,
        finalizers,
        start,
        note,
    } = outcome;
    let manifests = || apply.iter().chain(patch);
    let ways: Vec<_> = manifests()
        .map(|Manifest { cluster, object: _, mode, leave, absent }| (cluster, mode, leave, absent))
        .collect();
    let lists = (apply.len(), evict, delete, prune, events, requeue, finalizers, start, note);
    let rest = format!("{ways:?} {lists:?} {}", status.is_some());
    let objects = manifests().map(|manifest| manifest.object.as_bytes());
    let status = status.as_deref().unwrap_or_default().as_bytes();
    Digest::of(secret, objects.chain([status, rest.as_bytes()]))
}
