//! A chain of certificates that exists, and its checks.

use std::time::Duration;

use p256::{
    SecretKey,
    ecdsa::{DerSignature, VerifyingKey, signature::Verifier as _},
    pkcs8::DecodePrivateKey as _,
};
use pkcs1::{RsaPrivateKeyRef, RsaPublicKeyRef};
use rsa::{PublicKey, pkcs1v15};
use sha2::Sha256;
use x509_cert::{
    Certificate,
    der::{
        Decode as _, DecodePem as _, Encode as _, EncodePem as _, SecretDocument,
        oid::{ObjectIdentifier, db},
        pem::LineEnding,
        referenced::OwnedToRef as _,
    },
    ext::pkix::{BasicConstraints, SubjectAltName, name::GeneralName},
    spki::{self, EncodePublicKey as _},
};

/// The longest text that is read as a chain or as a key.
const MAX_PEM_BYTES: usize = 64 * 1024;
/// The most certificates of a chain.
const MAX_CERTIFICATES: usize = 16;

/// A chain of certificates: that of a server, then those of authorities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    leaf: Certificate,
    others: Vec<Certificate>,
}

/// The reason why a chain is of no use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The text holds no certificate that can be read.
    #[error(
        "no certificate in PEM, of at most {MAX_PEM_BYTES} bytes and {MAX_CERTIFICATES} certificates"
    )]
    Unreadable,
    /// The moment is before the certificate's first, or after its last.
    #[error("not valid at the time")]
    Time,
    /// The certificate does not name a host.
    #[error("not for the host `{0}`")]
    Host(String),
    /// The chain holds no authority that signed the certificate.
    #[error("not signed by an authority of the chain")]
    Signature,
    /// The private key cannot be read, or is that of another certificate.
    #[error("the private key does not belong to the certificate")]
    Key,
}

// === impl Chain ===

impl Chain {
    /// Reads a chain in PEM.
    ///
    /// # Errors
    ///
    /// Fails if a certificate cannot be read, if there is none, or if there are too many.
    pub fn read(pem: &str) -> Result<Self, Fault> {
        let mut certificates = read_all(pem)?.into_iter();
        let leaf = certificates.next().ok_or(Fault::Unreadable)?;
        Ok(Self { leaf, others: certificates.collect() })
    }

    /// Checks that a server can be reached as each of these hosts with this chain and this private
    /// key, by clients that trust the chain's authorities.
    ///
    /// # Errors
    ///
    /// Fails with the first fault.
    pub fn check(&self, key: &str, hosts: &[String], at: Duration) -> Result<(), Fault> {
        let signer = self.signer().ok_or(Fault::Signature)?;
        if !is_valid(signer, at) {
            return Err(Fault::Time);
        }
        if let Some(host) = hosts.iter().find(|host| !self.names(host)) {
            return Err(Fault::Host((*host).clone()));
        }
        self.check_pair(key, at)
    }

    /// Checks that the server's certificate is valid and belongs to a private key, whoever signed
    /// it and whatever it names.
    ///
    /// # Errors
    ///
    /// Fails with the first fault.
    pub fn check_pair(&self, key: &str, at: Duration) -> Result<(), Fault> {
        if !is_valid(&self.leaf, at) {
            return Err(Fault::Time);
        }
        if has_key(&self.leaf, key) { Ok(()) } else { Err(Fault::Key) }
    }

    /// Returns the first moment at which the server's certificate is valid, as Unix time.
    pub fn from(&self) -> Duration {
        self.leaf.tbs_certificate().validity().not_before.to_unix_duration()
    }

    /// Returns the authority of the chain that signed the server's certificate, in PEM; `None` if
    /// there is none.
    pub fn authority(&self) -> Option<String> {
        self.signer()?.to_pem(LineEnding::LF).ok()
    }

    /// Returns whether the certificate names a host.
    fn names(&self, host: &str) -> bool {
        let Ok(Some((_, names))) = self.leaf.tbs_certificate().get_extension::<SubjectAltName>()
        else {
            return false;
        };
        names.0.iter().any(|name| match name {
            GeneralName::DnsName(name) => is_host(name.as_str(), host),
            _ => false,
        })
    }

    /// Returns the authority that signed the server's certificate; that may be itself.
    fn signer(&self) -> Option<&Certificate> {
        let issuer = self.leaf.tbs_certificate().issuer();
        let mut named = std::iter::once(&self.leaf)
            .chain(&self.others)
            .filter(|of| of.tbs_certificate().subject() == issuer && is_authority(of));
        named.find(|signer| is_signed(&self.leaf, signer))
    }
}

/// Returns the authorities among the certificates of a text in PEM, each in PEM.
///
/// # Errors
///
/// Fails if a certificate cannot be read, or if there are too many.
pub fn authorities(pem: &str) -> Result<Vec<String>, Fault> {
    let all = read_all(pem)?;
    let authorities = all.iter().filter(|certificate| is_authority(certificate));
    Ok(authorities.filter_map(|certificate| certificate.to_pem(LineEnding::LF).ok()).collect())
}

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

fn read_all(pem: &str) -> Result<Vec<Certificate>, Fault> {
    if pem.len() > MAX_PEM_BYTES {
        return Err(Fault::Unreadable);
    }
    let mut certificates = Vec::new();
    let mut rest = pem;
    while let Some(begin) = rest.find(BEGIN) {
        let block = rest.get(begin..).unwrap_or_default();
        let end = block.find(END).ok_or(Fault::Unreadable)? + END.len();
        let (block, after) = block.split_at(end);
        let certificate = Certificate::from_pem(block).map_err(|_| Fault::Unreadable)?;
        certificates.push(certificate);
        rest = after;
    }
    if certificates.len() > MAX_CERTIFICATES { Err(Fault::Unreadable) } else { Ok(certificates) }
}

fn is_valid(certificate: &Certificate, at: Duration) -> bool {
    let validity = certificate.tbs_certificate().validity();
    (validity.not_before.to_unix_duration()..=validity.not_after.to_unix_duration()).contains(&at)
}

fn is_authority(certificate: &Certificate) -> bool {
    let constraints = certificate.tbs_certificate().get_extension::<BasicConstraints>();
    matches!(constraints, Ok(Some((_, constraints))) if constraints.ca)
}

/// Returns whether a name of a certificate, which may begin with `*.`, is that of a host.
fn is_host(name: &str, host: &str) -> bool {
    let of_wildcard = || {
        let (domain, (label, rest)) = (name.strip_prefix("*.")?, host.split_once('.')?);
        (!label.is_empty()).then(|| rest.eq_ignore_ascii_case(domain))
    };
    name.eq_ignore_ascii_case(host) || of_wildcard().unwrap_or(false)
}

/// Returns whether an authority's key has signed a certificate, with ECDSA over P-256 or with RSA,
/// each over SHA-256.
fn is_signed(certificate: &Certificate, signer: &Certificate) -> bool {
    verify(certificate, signer).is_some()
}

/// Returns `None` if the signature is another's, or cannot be read.
fn verify(certificate: &Certificate, signer: &Certificate) -> Option<()> {
    let content = certificate.tbs_certificate().to_der().ok()?;
    let signature = certificate.signature().as_bytes()?;
    let key = signer.tbs_certificate().subject_public_key_info().owned_to_ref();
    let of = certificate.signature_algorithm().oid;
    if of == db::rfc5912::ECDSA_WITH_SHA_256 {
        let signature = DerSignature::try_from(signature).ok()?;
        VerifyingKey::try_from(key).ok()?.verify(&content, &signature).ok()
    } else if of == db::rfc5912::SHA_256_WITH_RSA_ENCRYPTION {
        let signature = pkcs1v15::Signature::try_from(signature).ok()?;
        let key = pkcs1v15::VerifyingKey::<Sha256>::new(PublicKey::try_from(key).ok()?);
        key.verify(&content, &signature).ok()
    } else {
        None
    }
}

/// Returns whether a private key in PEM (PKCS #8, PKCS #1 or SEC 1) belongs to a certificate.
fn has_key(certificate: &Certificate, pem: &str) -> bool {
    if pem.len() > MAX_PEM_BYTES {
        return false;
    }
    let public = certificate.tbs_certificate().subject_public_key_info();
    let of_p256 = || SecretKey::from_pkcs8_pem(pem).or_else(|_| SecretKey::from_sec1_pem(pem)).ok();
    if let Some(key) = of_p256() {
        let key = key.public_key().to_public_key_der();
        return matches!((key, public.to_der()), (Ok(key), Ok(public)) if key.as_bytes() == public);
    }
    is_rsa_key_of(&public.owned_to_ref(), pem)
}

const RSA: ObjectIdentifier = db::rfc5912::RSA_ENCRYPTION;

fn is_rsa_key_of(public: &spki::SubjectPublicKeyInfoRef<'_>, pem: &str) -> bool {
    let Ok((label, document)) = SecretDocument::from_pem(pem) else { return false };
    let pkcs8 = p256::pkcs8::PrivateKeyInfoRef::from_der(document.as_bytes());
    let key = match (label, &pkcs8) {
        ("RSA PRIVATE KEY", _) => document.as_bytes(),
        ("PRIVATE KEY", Ok(key)) if key.algorithm.oid == RSA => key.private_key.as_bytes(),
        _ => return false,
    };
    let private = RsaPrivateKeyRef::from_der(key);
    let public = RsaPublicKeyRef::from_der(public.subject_public_key.raw_bytes());
    matches!((private, public), (Ok(private), Ok(public)) if private.public_key() == public)
}

#[cfg(test)]
mod tests;
