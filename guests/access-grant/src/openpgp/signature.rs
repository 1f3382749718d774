//! A signature packet.

use sha2::{Digest, Sha256, Sha384, Sha512};

use super::{
    ED25519,
    packet::{Reader, subpacket_length},
};

/// A signature over the bytes of a text, and one over the text with its lines ended by CR LF.
const BINARY: u8 = 0;
const TEXT: u8 = 1;
/// The bit in the type of a subpacket that must be understood.
const CRITICAL: u8 = 0x80;

/// A signature of a text.
pub(super) struct Signature<'a> {
    pub(super) version: u8,
    pub(super) algorithm: u8,
    /// The Unix time in seconds at which it expires, if it does.
    pub(super) expires: Option<u64>,
    is_text: bool,
    hash: Hash,
    /// The beginning of the packet, which is signed too.
    signed: &'a [u8],
    salt: &'a [u8],
    value: &'a [u8],
}

#[derive(Clone, Copy)]
enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

impl<'a> Signature<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, String> {
        let mut reader = Reader::new(body);
        let version = reader.byte()?;
        // The size of the lengths of subpackets.
        let size = match version {
            4 => 2,
            6 => 4,
            other => {
                return Err(format!("a signature of version {other}: 4 and 6 are supported"));
            }
        };
        let is_text = match reader.byte()? {
            BINARY => false,
            TEXT => true,
            other => return Err(format!("a signature of type {other} signs no text")),
        };
        let algorithm = reader.byte()?;
        let hash = Hash::of(reader.byte()?)?;
        let hashed = reader.number(size)?;
        let expires = expiry(reader.bytes(hashed)?)?;
        let signed = body.get(..4 + size + hashed).unwrap_or_default();
        let unhashed = reader.number(size)?;
        reader.bytes(unhashed)?;
        let _first_of_digest = reader.bytes(2)?;
        let salt = if version == 6 {
            let length = reader.byte()?;
            if usize::from(length) != hash.salt() {
                return Err("the salt has not the length of its hash".to_owned());
            }
            reader.bytes(length.into())?
        } else {
            &[]
        };
        let value = reader.rest();
        Ok(Self { version, algorithm, expires, is_text, hash, signed, salt, value })
    }

    /// Returns the digest of a text and this signature, which is what was signed.
    pub(super) fn digest(&self, text: &[u8]) -> Vec<u8> {
        let lines = if self.is_text { Some(with_line_ends(text)) } else { None };
        let length = u32::try_from(self.signed.len()).unwrap_or(u32::MAX).to_be_bytes();
        let parts = [
            self.salt,
            lines.as_deref().unwrap_or(text),
            self.signed,
            &[self.version, 0xff],
            &length,
        ];
        match self.hash {
            Hash::Sha256 => digest::<Sha256>(&parts),
            Hash::Sha384 => digest::<Sha384>(&parts),
            Hash::Sha512 => digest::<Sha512>(&parts),
        }
    }

    /// Returns the value of an Ed25519 signature.
    pub(super) fn value(&self) -> Result<ed25519_dalek::Signature, String> {
        let mut reader = Reader::new(self.value);
        let mut bytes = [0; 64];
        if self.algorithm == ED25519 {
            bytes.copy_from_slice(reader.bytes(64)?);
        } else {
            // Both numbers lack their leading zeros.
            for half in bytes.chunks_exact_mut(32) {
                let number = reader.integer()?;
                let place = 32_usize.checked_sub(number.len()).and_then(|at| half.get_mut(at..));
                place.ok_or("a number of the signature is too long")?.copy_from_slice(number);
            }
        }
        Ok(ed25519_dalek::Signature::from_bytes(&bytes))
    }
}

impl Hash {
    fn of(number: u8) -> Result<Self, String> {
        match number {
            8 => Ok(Self::Sha256),
            9 => Ok(Self::Sha384),
            10 => Ok(Self::Sha512),
            other => Err(format!("hash {other}: SHA-256, SHA-384 and SHA-512 are supported")),
        }
    }

    /// Returns the length of the salt that goes with the hash.
    fn salt(self) -> usize {
        match self {
            Self::Sha256 => 16,
            Self::Sha384 => 24,
            Self::Sha512 => 32,
        }
    }
}

fn digest<D: Digest>(parts: &[&[u8]]) -> Vec<u8> {
    let digest = parts.iter().fold(D::new(), D::chain_update);
    digest.finalize().to_vec()
}

/// Returns the time at which a signature with these subpackets expires.
fn expiry(subpackets: &[u8]) -> Result<Option<u64>, String> {
    const CREATED: u8 = 2;
    const EXPIRES_AFTER: u8 = 3;
    /// Subpackets about the signer and the creator's wishes, which change nothing here.
    const UNDERSTOOD: [u8; 6] = [16, 20, 22, 28, 33, 35];
    let (mut created, mut after) = (None, 0);
    let mut reader = Reader::new(subpackets);
    while !reader.is_at_end() {
        let first = reader.byte()?;
        let length = subpacket_length(first, &mut reader)?;
        let mut subpacket = Reader::new(reader.bytes(length)?);
        let kind = subpacket.byte()?;
        match kind & !CRITICAL {
            CREATED => created = Some(subpacket.number(4)? as u64),
            EXPIRES_AFTER => after = subpacket.number(4)? as u64,
            known if UNDERSTOOD.contains(&known) => {}
            other if kind & CRITICAL != 0 => {
                return Err(format!("a signature with a critical subpacket {other}"));
            }
            _ => {}
        }
    }
    let created = created.ok_or("a signature without the time of its creation")?;
    Ok((after > 0).then_some(created + after))
}

/// Returns a text in which every line ends with CR LF.
fn with_line_ends(text: &[u8]) -> Vec<u8> {
    let mut lines = Vec::with_capacity(text.len());
    let mut former = 0;
    for byte in text {
        if *byte == b'\n' && former != b'\r' {
            lines.push(b'\r');
        }
        lines.push(*byte);
        former = *byte;
    }
    lines
}
