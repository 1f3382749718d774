//! A new certificate authority, and a certificate of it for a server.

use std::{str::FromStr as _, time::Duration};

use getrandom::{SysRng, rand_core::UnwrapErr};
use p256::{
    ecdsa::{DerSignature, SigningKey},
    elliptic_curve::Generate as _,
    pkcs8::EncodePrivateKey as _,
};
use sha2::{Digest as _, Sha256};
use x509_cert::{
    Certificate, TbsCertificate,
    builder::{self, Builder as _, CertificateBuilder, profile::BuilderProfile},
    der::{
        DateTime, EncodePem as _,
        asn1::{GeneralizedTime, Ia5String, OctetString},
        flagset::FlagSet,
        oid::db::rfc5280::ID_KP_SERVER_AUTH,
        pem::LineEnding,
    },
    ext::{
        Extension, ToExtension,
        pkix::{
            AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, KeyUsages,
            SubjectAltName, SubjectKeyIdentifier, name::GeneralName,
        },
    },
    name::Name,
    serial_number::SerialNumber,
    spki::{SubjectPublicKeyInfo, SubjectPublicKeyInfoRef},
    time::{Time, Validity},
};

/// The most characters of a common name.
const MAX_COMMON_NAME_CHARACTERS: usize = 64;

/// The server for which a certificate is made.
#[derive(Debug, Clone, Copy)]
pub struct Server<'a> {
    /// The names by which clients reach the server; the first is part of the common names.
    pub hosts: &'a [String],
    /// The first moment at which the certificate is valid, as Unix time.
    pub from: Duration,
    /// The last moment at which the certificate is valid, as Unix time.
    pub until: Duration,
}

/// A certificate for a server with its key, and the authority that clients have to trust. The key
/// of the authority is not kept: it signs one certificate only.
#[derive(Clone, PartialEq, Eq)]
pub struct Issued {
    /// The server's certificate and its authority's, in PEM.
    pub chain: String,
    /// The authority's certificate, in PEM.
    pub authority: String,
    /// The server's private key, in PEM (PKCS #8).
    pub key: String,
}

/// Prints the certificates, never the key.
impl std::fmt::Debug for Issued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issued").field("chain", &self.chain).finish_non_exhaustive()
    }
}

/// Makes a new authority, and a certificate of it for a server.
///
/// # Errors
///
/// Fails if a host is no name of a server, or if a time is outside of what certificates can say.
pub fn issue(server: &Server<'_>) -> Result<Issued, builder::Error> {
    let (authority_key, key) = (random_key(), random_key());
    let from = server.from.as_secs();
    let subject = |mark: &str| common_name(server.hosts, &format!("{mark}@{from}"));
    let authority = Profile { subject: subject("-ca")?, of: Role::Authority };
    let issuer = authority.subject.clone();
    let authority = certificate(authority, server, &authority_key, &authority_key)?;
    let leaf = Profile { subject: subject("")?, of: Role::Server { issuer, hosts: server.hosts } };
    let leaf = certificate(leaf, server, &key, &authority_key)?;
    let authority = authority.to_pem(LineEnding::LF)?;
    Ok(Issued {
        chain: leaf.to_pem(LineEnding::LF)? + &authority,
        authority,
        key: key.to_pkcs8_pem(LineEnding::LF).map_err(pkcs8)?.to_string(),
    })
}

fn pkcs8(error: p256::pkcs8::Error) -> builder::Error {
    match error {
        p256::pkcs8::Error::PublicKey(error) => error.into(),
        _ => x509_cert::der::Error::from(x509_cert::der::ErrorKind::Failed).into(),
    }
}

fn random_key() -> SigningKey {
    SigningKey::generate_from_rng(&mut UnwrapErr(SysRng))
}

/// Returns a name that consists of a host and a mark. Of a long host, only the end is kept.
fn common_name(hosts: &[String], mark: &str) -> Result<Name, builder::Error> {
    let host = hosts.first().map(String::as_str).unwrap_or_default();
    let skipped = host.len().saturating_sub(MAX_COMMON_NAME_CHARACTERS.saturating_sub(mark.len()));
    let kept = host.get(skipped..).unwrap_or_default().trim_start_matches(['-', '.']);
    Ok(Name::from_str(&format!("CN={kept}{mark}"))?)
}

fn certificate(
    profile: Profile<'_>,
    server: &Server<'_>,
    key: &SigningKey,
    signer: &SigningKey,
) -> Result<Certificate, builder::Error> {
    let validity = Validity::new(time(server.from)?, time(server.until)?);
    let serial = SerialNumber::generate(&mut UnwrapErr(SysRng));
    let public = SubjectPublicKeyInfo::from_key(key.verifying_key())?;
    CertificateBuilder::new(profile, serial, validity, public)?.build::<_, DerSignature>(signer)
}

fn time(at: Duration) -> Result<Time, builder::Error> {
    let date = DateTime::from_unix_duration(Duration::from_secs(at.as_secs()))?;
    Ok(Time::GeneralTime(GeneralizedTime::from_date_time(date)))
}

/// The certificate's subject, and the fields that its role asks for.
struct Profile<'a> {
    subject: Name,
    of: Role<'a>,
}

enum Role<'a> {
    Authority,
    Server { issuer: Name, hosts: &'a [String] },
}

impl BuilderProfile for Profile<'_> {
    fn get_issuer(&self, subject: &Name) -> Name {
        match &self.of {
            Role::Authority => subject.clone(),
            Role::Server { issuer, .. } => issuer.clone(),
        }
    }

    fn get_subject(&self) -> Name {
        self.subject.clone()
    }

    fn build_extensions(
        &self,
        key: SubjectPublicKeyInfoRef<'_>,
        signer: SubjectPublicKeyInfoRef<'_>,
        certificate: &TbsCertificate,
    ) -> builder::Result<Vec<Extension>> {
        let mut extensions = Extensions { of: certificate, list: Vec::new() };
        match &self.of {
            Role::Authority => {
                extensions.add(&BasicConstraints { ca: true, path_len_constraint: Some(0) })?;
                let usage = KeyUsages::KeyCertSign | KeyUsages::DigitalSignature;
                extensions.add(&KeyUsage(usage))?;
            }
            Role::Server { hosts, .. } => {
                extensions.add(&BasicConstraints { ca: false, path_len_constraint: None })?;
                extensions.add(&KeyUsage(FlagSet::from(KeyUsages::DigitalSignature)))?;
                extensions.add(&ExtendedKeyUsage(vec![ID_KP_SERVER_AUTH]))?;
                let names: Result<Vec<GeneralName>, _> = hosts
                    .iter()
                    .map(|host| Ia5String::new(host.as_str()).map(GeneralName::DnsName))
                    .collect();
                extensions.add(&SubjectAltName(names?))?;
            }
        }
        extensions.add(&SubjectKeyIdentifier(digest(&key)?))?;
        extensions.add(&AuthorityKeyIdentifier {
            key_identifier: Some(digest(&signer)?),
            ..AuthorityKeyIdentifier::default()
        })?;
        Ok(extensions.list)
    }
}

struct Extensions<'a> {
    of: &'a TbsCertificate,
    list: Vec<Extension>,
}

impl Extensions<'_> {
    fn add<E: ToExtension>(&mut self, extension: E) -> Result<(), E::Error> {
        let extension = extension.to_extension(self.of.subject(), &self.list)?;
        self.list.push(extension);
        Ok(())
    }
}

/// Returns the SHA-256 of a public key.
fn digest(key: &SubjectPublicKeyInfoRef<'_>) -> builder::Result<OctetString> {
    Ok(OctetString::new(Sha256::digest(key.subject_public_key.raw_bytes()).as_slice())?)
}
