//! The digest of a module.

use std::{fmt, str::FromStr};

use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// The SHA-256 of a module's bytes, its identity.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleDigest([u8; SHA256_OUTPUT_LEN]);

/// The prefix of a digest as text.
const ALGORITHM: &str = "sha256:";

/// The error of parsing a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`sha256:` and 64 digits 0-9a-f are expected")]
pub struct NoDigest;

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
