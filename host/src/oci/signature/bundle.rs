//! Sigstore bundles, the format of cosign 3. For an artifact, a bundle holds a statement about its
//! digest in a DSSE envelope; for a file, the signature of its bytes.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Digest, KeyId, PrivateKey, PublicKey, signed_by};
use crate::oci::artifact::shown;

/// The media type of a bundle, which names its version.
pub(super) const MEDIA_TYPE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
/// The prefix of accepted media types: versions differ in their certificates and logs only.
const READ: &str = "application/vnd.dev.sigstore.bundle";
/// The predicate type of a signature. Statements of other types, such as build provenance, do not
/// count as signatures.
pub(super) const PREDICATE: &str = "https://sigstore.dev/cosign/sign/v1";
const STATEMENT: &str = "https://in-toto.io/Statement/v1";
const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
/// The maximum number of signatures in an envelope: each is checked by every key. Cosign writes one.
const MAX_ENVELOPE_SIGNATURES: usize = 4;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    media_type: String,
    dsse_envelope: Option<Envelope>,
    message_signature: Option<Message>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    signatures: Vec<OfEnvelope>,
}

#[derive(Deserialize)]
struct OfEnvelope {
    sig: String,
}

#[derive(Deserialize)]
struct Message {
    signature: String,
}

pub(super) fn of_manifest(manifest: Digest, key: &PrivateKey) -> anyhow::Result<String> {
    let statement = json!({
        "_type": STATEMENT,
        "subject": [{"digest": {"sha256": manifest.hex()}}],
        "predicateType": PREDICATE,
        "predicate": {},
    });
    let statement = statement.to_string();
    let signature = STANDARD.encode(key.sign(&signed_part(PAYLOAD_TYPE, statement.as_bytes()))?);
    let envelope = json!({
        "payload": STANDARD.encode(&statement),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [{"sig": signature}],
    });
    Ok(around(("dsseEnvelope", envelope), key))
}

pub(super) fn of_file(file: &[u8], key: &PrivateKey) -> anyhow::Result<String> {
    let digest = ring::digest::digest(&ring::digest::SHA256, file);
    let message = json!({
        "messageDigest": {"algorithm": "SHA2_256", "digest": STANDARD.encode(digest)},
        "signature": STANDARD.encode(key.sign(file)?),
    });
    Ok(around(("messageSignature", message), key))
}

fn around((name, content): (&str, Value), key: &PrivateKey) -> String {
    json!({
        "mediaType": MEDIA_TYPE,
        "verificationMaterial": {"publicKey": {"hint": key.public().id().hint()}},
        name: content,
    })
    .to_string()
}

pub(super) fn verify_manifest(
    bundle: &str,
    manifest: Digest,
    keys: &[&PublicKey],
) -> Result<BTreeSet<KeyId>, String> {
    let envelope = parse(bundle)?.dsse_envelope.ok_or("it is the signature of a file")?;
    if envelope.payload_type != PAYLOAD_TYPE {
        return Err(format!("it holds `{}`", shown(&envelope.payload_type)));
    }
    let count = envelope.signatures.len();
    if count > MAX_ENVELOPE_SIGNATURES {
        return Err(format!("it holds {count} signatures, more than {MAX_ENVELOPE_SIGNATURES}"));
    }
    let payload = STANDARD.decode(&envelope.payload).map_err(|_| "it is no base64")?;
    let message = signed_part(&envelope.payload_type, &payload);
    let by = envelope.signatures.iter().map(|of| signed_by(&message, &of.sig, keys));
    let by = by.reduce(|one, other| match (one, other) {
        (Ok(one), Ok(other)) => Ok(&one | &other),
        (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(one),
        (Err(one), Err(_)) => Err(one),
    });
    let by = by.unwrap_or_else(|| Err("it is signed by nobody".to_owned()))?;
    // Parsed only after its signature was verified: until then, the statement is untrusted.
    let statement: Value = serde_json::from_slice(&payload).map_err(|_| "it is no JSON")?;
    let text = |at: &str| statement.pointer(at).and_then(Value::as_str).unwrap_or_default();
    if text("/_type") != STATEMENT || text("/predicateType") != PREDICATE {
        let found = shown(text("/predicateType"));
        return Err(format!("it is a statement of another type, `{found}`"));
    }
    let subjects = statement.get("subject").and_then(Value::as_array);
    let mut digests = subjects
        .into_iter()
        .flatten()
        .filter_map(|subject| subject.pointer("/digest/sha256").and_then(Value::as_str));
    if digests.any(|digest| digest == manifest.hex()) {
        return Ok(by);
    }
    let found = format!("sha256:{}", shown(text("/subject/0/digest/sha256")));
    Err(format!("it is of another artifact, `{found}`"))
}

pub(super) fn verify_file(
    bundle: &str,
    file: &[u8],
    keys: &[&PublicKey],
) -> Result<BTreeSet<KeyId>, String> {
    let message = parse(bundle)?.message_signature.ok_or("it is the signature of an artifact")?;
    signed_by(file, &message.signature, keys)
}

fn parse(bundle: &str) -> Result<Bundle, String> {
    let bundle: Bundle = serde_json::from_str(bundle).map_err(|_| "it is no bundle of Sigstore")?;
    if bundle.media_type.starts_with(READ) {
        return Ok(bundle);
    }
    Err(format!("it is no bundle of Sigstore, but `{}`", shown(&bundle.media_type)))
}

/// Returns the bytes that an envelope's signature covers (DSSE's PAE): type and content with their
/// lengths, so that neither can be taken for a part of the other.
fn signed_part(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len());
    [head.as_bytes(), payload].concat()
}
