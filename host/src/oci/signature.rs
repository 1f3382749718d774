//! Signatures of modules, in cosign's formats for signing with a key: two for artifacts in a
//! registry, and signature files beside files.
//!
//! A signature is valid only for the digest that it was made for: the signature of another artifact
//! is refused, by whatever key. Transparency logs are not consulted.

mod bundle;
mod key;
pub mod policy;
mod registry;
#[cfg(test)]
mod tests;

pub use key::{InvalidKey, KeyId, PrivateKey, PublicKey};
pub use policy::{Policy, Requirement};
pub use registry::{Format, fetch, push};

use std::{borrow::Borrow, collections::BTreeSet};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Digest, Reference, artifact::shown};

/// The largest signature file that is read.
pub const MAX_FILE_BYTES: u64 = 256 << 10;
/// The `type` in the payload of cosign's older format.
const SIMPLE_TYPE: &str = "cosign container image signature";
/// The number of rejected signatures that a message describes.
const MAX_LISTED_SIGNATURES: usize = 3;

/// A signature of an artifact, before it is verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Signature {
    /// Cosign 2's: a JSON payload that names the artifact, and its signature in base64.
    Simple { payload: String, signature: String },
    /// Cosign 3's: a Sigstore bundle, in JSON.
    Bundle(String),
}

/// The keys whose signatures are valid, and the reasons why other signatures are refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    pub by: BTreeSet<KeyId>,
    refused: Vec<String>,
}

// === impl Signature ===

impl Signature {
    /// Signs the manifest of an artifact.
    ///
    /// # Errors
    ///
    /// The system has no random numbers.
    pub fn of_manifest(
        manifest: Digest,
        reference: &Reference,
        format: Format,
        key: &PrivateKey,
    ) -> anyhow::Result<Self> {
        match format {
            Format::Bundle => Ok(Self::Bundle(bundle::of_manifest(manifest, key)?)),
            Format::Tag => {
                let payload = json!({
                    "critical": {
                        "identity": {"docker-reference": reference.name()},
                        "image": {"docker-manifest-digest": manifest},
                        "type": SIMPLE_TYPE,
                    },
                    "optional": null,
                });
                let payload = payload.to_string();
                let signature = STANDARD.encode(key.sign(payload.as_bytes())?);
                Ok(Self::Simple { payload, signature })
            }
        }
    }

    /// Returns the keys of `keys` that have signed a manifest with this signature.
    fn verify(&self, manifest: Digest, keys: &[&PublicKey]) -> Result<BTreeSet<KeyId>, String> {
        match self {
            Self::Simple { payload, signature } => {
                let by = signed_by(payload.as_bytes(), signature, keys)?;
                let payload: Value = serde_json::from_str(payload).map_err(|_| "it is no JSON")?;
                let text = |at: &str| payload.pointer(at).and_then(Value::as_str);
                if text("/critical/type") != Some(SIMPLE_TYPE) {
                    return Err("it is no signature of an image".to_owned());
                }
                let of = text("/critical/image/docker-manifest-digest").unwrap_or_default();
                is_of(of, manifest)?;
                Ok(by)
            }
            Self::Bundle(text) => bundle::verify_manifest(text, manifest, keys),
        }
    }
}

/// Verifies the signatures of a manifest.
pub fn verify_manifest(
    manifest: Digest,
    signatures: &[Signature],
    keys: &[&PublicKey],
) -> Verified {
    verify_found(manifest, signatures, keys).0
}

/// Verifies the signatures of a manifest, and returns those that count: one for each key. Signatures
/// by other keys are dropped: anybody may have added them. Takes up to a second for a hostile list.
pub fn verify_found<S: Borrow<Signature>>(
    manifest: Digest,
    found: impl IntoIterator<Item = S>,
    keys: &[&PublicKey],
) -> (Verified, Vec<S>) {
    let (mut verified, mut of_use) = (Verified::default(), Vec::new());
    for signature in found {
        match signature.borrow().verify(manifest, keys) {
            Ok(by) if by.is_subset(&verified.by) => {}
            Ok(by) => {
                verified.by.extend(by);
                of_use.push(signature);
            }
            Err(why) => verified.refused.push(why),
        }
    }
    (verified, of_use)
}

/// Verifies the signature file of another file, as of `cosign sign-blob`: plain or as a bundle.
pub fn verify_file(file: &[u8], signature: &[u8], keys: &[&PublicKey]) -> Verified {
    let text = String::from_utf8_lossy(signature);
    let by = if text.trim_start().starts_with('{') {
        bundle::verify_file(&text, file, keys)
    } else {
        signed_by(file, text.trim(), keys)
    };
    match by {
        Ok(by) => Verified { by, refused: Vec::new() },
        Err(why) => Verified { by: BTreeSet::new(), refused: vec![why] },
    }
}

/// Signs the content of a file.
///
/// # Errors
///
/// The system has no random numbers.
pub fn sign_file(file: &[u8], format: Format, key: &PrivateKey) -> anyhow::Result<String> {
    match format {
        Format::Bundle => bundle::of_file(file, key),
        Format::Tag => Ok(STANDARD.encode(key.sign(file)?)),
    }
}

/// Returns the keys that have signed a message.
fn signed_by(
    message: &[u8],
    signature: &str,
    keys: &[&PublicKey],
) -> Result<BTreeSet<KeyId>, String> {
    let signature = STANDARD.decode(signature).map_err(|_| "it is no base64")?;
    let by = keys.iter().filter(|key| key.verifies(message, &signature));
    let by: BTreeSet<KeyId> = by.map(|key| key.id()).collect();
    if by.is_empty() { Err("it is by none of the keys".to_owned()) } else { Ok(by) }
}

/// Fails if a signature is for another artifact.
fn is_of(named: &str, manifest: Digest) -> Result<(), String> {
    if named.parse() == Ok(manifest) {
        return Ok(());
    }
    Err(format!("it is of another artifact, `{}`", shown(named)))
}

// === impl Verified ===

impl Verified {
    /// Fails if no key of `keys` has signed.
    ///
    /// # Errors
    ///
    /// The message says what was found and which keys are accepted.
    pub fn require(&self, keys: &[PublicKey]) -> Result<(), String> {
        if keys.iter().any(|key| self.by.contains(&key.id())) {
            return Ok(());
        }
        let accepted: Vec<String> = keys.iter().map(|key| key.id().to_string()).collect();
        let accepted = accepted.join(", ");
        let found = match self.refused.as_slice() {
            [] if self.by.is_empty() => "it has no signature".to_owned(),
            [] => "it is signed by other keys".to_owned(),
            [one] => format!("it has one signature, and {one}"),
            several => {
                let shown: Vec<&str> =
                    several.iter().take(MAX_LISTED_SIGNATURES).map(String::as_str).collect();
                let (count, shown) = (several.len(), shown.join("; "));
                format!("it has {count} signatures that do not count: {shown}")
            }
        };
        Err(format!("{found}; one by a key of these is expected: {accepted}"))
    }
}
