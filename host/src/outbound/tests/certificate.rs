//! Certificates of servers, made for a test.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer},
};
use tokio_rustls::TlsAcceptor;

use super::*;

/// An authority that certifies servers.
pub(super) struct Authority {
    key: EcdsaKeyPair,
    certificate: Vec<u8>,
}

/// Encodes a value of DER: its tag, its length and its content.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let mut all = vec![tag];
    let bytes = length.to_be_bytes();
    match length {
        0..0x80 => all.extend(&bytes[7..]),
        0x80..0x100 => all.extend([0x81, bytes[7]]),
        _ => all.extend([0x82, bytes[6], bytes[7]]),
    }
    all.extend(content);
    all
}

fn sequence(parts: &[Vec<u8>]) -> Vec<u8> {
    der(0x30, &parts.concat())
}

/// `ecdsa-with-SHA256`.
fn algorithm() -> Vec<u8> {
    sequence(&[der(0x06, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02])])
}

fn name(common: &str) -> Vec<u8> {
    let attribute = sequence(&[der(0x06, &[0x55, 0x04, 0x03]), der(0x0c, common.as_bytes())]);
    sequence(&[der(0x31, &attribute)])
}

/// Returns a public key on P-256.
fn public(key: &EcdsaKeyPair) -> Vec<u8> {
    let curve = [
        der(0x06, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01]),
        der(0x06, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07]),
    ];
    let bits = [&[0], key.public_key().as_ref()].concat();
    sequence(&[sequence(&curve), der(0x03, &bits)])
}

/// Returns a certificate that is valid until the end of a year. `host`: the server's; `None` for an
/// authority.
fn certificate(of: &EcdsaKeyPair, by: &EcdsaKeyPair, host: Option<&str>, year: u16) -> Vec<u8> {
    let until = format!("{:02}1231235959Z", year % 100);
    let validity = sequence(&[der(0x17, b"000101000000Z"), der(0x17, until.as_bytes())]);
    let extension = match host {
        // The alternative name of the server.
        Some(host) => sequence(&[
            der(0x06, &[0x55, 0x1d, 0x11]),
            der(0x04, &sequence(&[der(0x82, host.as_bytes())])),
        ]),
        // Basic constraints: an authority.
        None => sequence(&[
            der(0x06, &[0x55, 0x1d, 0x13]),
            der(0x01, &[0xff]),
            der(0x04, &sequence(&[der(0x01, &[0xff])])),
        ]),
    };
    let body = sequence(&[
        der(0xa0, &der(0x02, &[2])),
        der(0x02, &[1]),
        algorithm(),
        name("authority"),
        validity,
        name(host.unwrap_or("authority")),
        public(of),
        der(0xa3, &sequence(&[extension])),
    ]);
    let signature = by.sign(&SystemRandom::new(), &body).unwrap();
    sequence(&[body, algorithm(), der(0x03, &[&[0], signature.as_ref()].concat())])
}

fn new_key() -> (EcdsaKeyPair, Vec<u8>) {
    let random = SystemRandom::new();
    let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
    let bytes = document.as_ref().to_vec();
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &bytes, &random).unwrap();
    (key, bytes)
}

// === impl Authority ===

impl Authority {
    pub(super) fn new() -> Self {
        let (key, _) = new_key();
        let certificate = certificate(&key, &key, None, 2049);
        Self { key, certificate }
    }

    pub(super) fn pem(&self) -> String {
        let text = STANDARD.encode(&self.certificate);
        format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
    }

    /// Returns a server with the certificate of a host, until the end of a year, that answers
    /// [`OK`].
    pub(super) fn serving(
        &self,
        host: &str,
        year: u16,
    ) -> impl Fn(Stream) -> BoxFuture<'static, ()> + Send + Sync + 'static {
        let (key, bytes) = new_key();
        let certificate = CertificateDer::from(certificate(&key, &self.key, Some(host), year));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let key = PrivateKeyDer::try_from(bytes).unwrap();
        let config = Arc::new(config.with_single_cert(vec![certificate], key).unwrap());
        move |stream| {
            let acceptor = TlsAcceptor::from(Arc::clone(&config));
            async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                while head(&mut stream).await.is_some() {
                    stream.write_all(OK.as_bytes()).await.unwrap();
                }
            }
            .boxed()
        }
    }
}
