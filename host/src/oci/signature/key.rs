//! Keys: ECDSA on the curve P-256 with SHA-256, the default of cosign.

use std::{fmt, sync::Arc};

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _,
        UnparsedPublicKey,
    },
};
use rustls::pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer, pem::PemObject as _};

use super::super::Digest;

/// The DER prefix of a public key of P-256, before its point: a sequence of an algorithm
/// (`id-ecPublicKey` on `prime256v1`) and a bit string.
const SPKI: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// The size of an uncompressed point, in bytes.
const POINT_BYTES: usize = 65;

/// A public key that verifies signatures. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    point: Arc<[u8]>,
    id: KeyId,
}

/// The identity of a key pair: the digest of the public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(Digest);

/// A private key that signs.
pub struct PrivateKey {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

/// The reason why a text is not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0}; a public key of ECDSA on P-256 in PEM is accepted, as `cosign generate-key-pair` writes it (`-----BEGIN PUBLIC KEY-----`)"
)]
pub struct InvalidKey(&'static str);

// === impl PublicKey ===

impl PublicKey {
    /// Parses one public key in PEM.
    ///
    /// # Errors
    ///
    /// Fails for anything else.
    pub fn parse(pem: &str) -> Result<Self, InvalidKey> {
        let mut found = SubjectPublicKeyInfoDer::pem_slice_iter(pem.as_bytes());
        let (first, second) = (found.next(), found.next());
        let Some(Ok(der)) = first else { return Err(InvalidKey("it holds no public key")) };
        if second.is_some() {
            return Err(InvalidKey("it holds more than one key: give each by itself"));
        }
        let point = der.strip_prefix(&SPKI).filter(|point| point.len() == POINT_BYTES);
        let point = point.filter(|point| point.first() == Some(&4));
        let point = point.ok_or(InvalidKey("it holds a key of another kind"))?;
        Ok(Self { point: point.into(), id: KeyId(Digest::of(&der)) })
    }

    /// Returns the identity.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// Returns whether the matching private key has signed a message.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &self.point);
        key.verify(message, signature).is_ok()
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.id, to)
    }
}

// === impl KeyId ===

impl KeyId {
    /// Returns the identity in the form of a bundle's `hint`.
    pub(super) fn hint(self) -> String {
        STANDARD.encode(self.0.bytes())
    }
}

/// Shows the first digits: enough to tell keys apart.
impl fmt::Display for KeyId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:.16}", self.0.hex())
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, to)
    }
}

// === impl PrivateKey ===

impl PrivateKey {
    /// Parses an unencrypted private key in PEM: PKCS #8.
    ///
    /// # Errors
    ///
    /// Fails for any other text, and names the accepted format.
    pub fn parse(pem: &[u8]) -> anyhow::Result<Self> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem).ok().context(
            "it holds no private key in PKCS #8 (`-----BEGIN PRIVATE KEY-----`), as `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256` writes it",
        )?;
        Self::from_pkcs8(der.secret_pkcs8_der())
    }

    /// Parses a private key in DER: PKCS #8.
    ///
    /// # Errors
    ///
    /// Fails for a key of another kind.
    pub fn from_pkcs8(der: &[u8]) -> anyhow::Result<Self> {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der, &random);
        let pair = pair.map_err(|_| {
            anyhow::anyhow!("the key is of another kind; one of ECDSA on P-256 is accepted")
        })?;
        Ok(Self { pair, random })
    }

    pub fn public(&self) -> PublicKey {
        let point = self.pair.public_key().as_ref();
        let id = KeyId(Digest::of(&[&SPKI, point].concat()));
        PublicKey { point: point.into(), id }
    }

    pub(super) fn sign(&self, message: &[u8]) -> anyhow::Result<Vec<u8>> {
        let signed = self.pair.sign(&self.random, message);
        let signed = signed.map_err(|_| anyhow::anyhow!("the system has no random numbers"))?;
        Ok(signed.as_ref().to_vec())
    }
}
