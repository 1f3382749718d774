//! The verification of a signed OpenPGP message (RFC 9580).
//!
//! Covered is what a grant needs: one message that holds its text, signed with the primary Ed25519
//! key of a given public key, of version 4 or 6. Refused are other algorithms, signing subkeys,
//! compressed, encrypted and detached messages. The key is trusted as it is given: user ids,
//! expiry and revocations in it are not looked at.

mod armor;
mod packet;
mod signature;

use ed25519_dalek::VerifyingKey;

use self::{
    packet::{Packet, Reader, Tag},
    signature::Signature,
};

/// The algorithm of Ed25519 in version 6 keys, and in version 4 keys since RFC 9580.
const ED25519: u8 = 27;
/// The algorithm of Ed25519 in older version 4 keys, with its curve in [`CURVE`].
const EDDSA_LEGACY: u8 = 22;
/// The object identifier of the curve, with its length.
const CURVE: &[u8] = &[9, 0x2b, 0x06, 0x01, 0x04, 0x01, 0xda, 0x47, 0x0f, 0x01];
const KEY_BYTES: usize = 32;

/// A public key that signs grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    version: u8,
    algorithm: u8,
    point: VerifyingKey,
}

impl Key {
    /// Parses an armored public key, of which the primary key counts.
    ///
    /// # Errors
    ///
    /// Fails if the text is no armored public key, or if its algorithm is not Ed25519.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bytes = armor::decode(text, "PGP PUBLIC KEY BLOCK")?;
        let first = packet::parse(&bytes)?.into_iter().next();
        match first {
            Some(Packet { tag: Tag::PublicKey, body }) => Self::of_packet(&body),
            _ => Err("the key block does not begin with a public key".to_owned()),
        }
    }

    fn of_packet(body: &[u8]) -> Result<Self, String> {
        let mut reader = Reader::new(body);
        let version = reader.byte()?;
        if !matches!(version, 4 | 6) {
            return Err(format!("a key of version {version}: 4 and 6 are supported"));
        }
        let _created = reader.number(4)?;
        let algorithm = reader.byte()?;
        if version == 6 {
            let _length = reader.number(4)?;
        }
        let bytes = match algorithm {
            ED25519 => reader.bytes(KEY_BYTES)?,
            EDDSA_LEGACY if version == 4 && reader.bytes(CURVE.len())? == CURVE => {
                // A point without compression would begin with another byte than 0x40.
                reader.integer()?.strip_prefix(&[0x40]).unwrap_or_default()
            }
            _ => return Err(format!("a key of algorithm {algorithm}: only Ed25519 is supported")),
        };
        let bytes: &[u8; KEY_BYTES] = bytes.try_into().map_err(|_| "the key is not whole")?;
        let point =
            VerifyingKey::from_bytes(bytes).map_err(|_| "the key is no point of its curve")?;
        Ok(Self { version, algorithm, point })
    }

    /// Returns the text of a message that is signed with this key. `now` is the Unix time in
    /// seconds, which is asked for only if the signature expires.
    ///
    /// # Errors
    ///
    /// Fails if the message cannot be read, or if it has no valid signature of this key.
    pub fn verify(&self, message: &[u8], now: impl Fn() -> u64) -> Result<Vec<u8>, String> {
        let decoded = match std::str::from_utf8(message) {
            Ok(text) if text.trim_start().starts_with("-----") => {
                Some(armor::decode(text, "PGP MESSAGE")?)
            }
            _ => None,
        };
        let packets = packet::parse(decoded.as_deref().unwrap_or(message))?;
        let mut text = None;
        let mut refusal = "the message has no signature".to_owned();
        for Packet { tag, body } in packets {
            match tag {
                Tag::Literal => text = Some(packet::text_of(&body)?),
                Tag::Signature => {
                    let text = text.as_deref().ok_or("a signature stands before the text")?;
                    match self.check(&body, text, &now) {
                        Ok(()) => return Ok(text.to_vec()),
                        Err(message) => refusal = message,
                    }
                }
                Tag::OnePassSignature | Tag::Ignored => {}
                Tag::PublicKey | Tag::Other(_) => {
                    return Err(format!(
                        "a packet {tag}: a message is signed, not compressed, encrypted or detached"
                    ));
                }
            }
        }
        Err(refusal)
    }

    /// Fails unless a packet is a signature of a text with this key that has not expired.
    fn check(&self, packet: &[u8], text: &[u8], now: impl Fn() -> u64) -> Result<(), String> {
        let signature = Signature::parse(packet)?;
        if (signature.version, signature.algorithm) != (self.version, self.algorithm) {
            return Err("the signature is of another kind of key".to_owned());
        }
        let digest = signature.digest(text);
        self.point
            .verify_strict(&digest, &signature.value()?)
            .map_err(|_| "the signature is not one of this key".to_owned())?;
        if signature.expires.is_some_and(|end| now() >= end) {
            return Err("the signature has expired".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
