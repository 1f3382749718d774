//! The authorities of `--webhook-client-ca`: callers of admission hooks need a certificate of one
//! of them. The file is read again while the port is served.
//!
//! *Guarantee.* A file that cannot be used changes nothing: the authorities read before stay, and
//! the reason is logged.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::ring,
    pki_types::{CertificateDer, UnixTime},
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use tokio::{sync::watch as latest, time::interval};
use tracing::{info, warn};

use super::certificate::certificates;

/// The time between two readings of the file, as of the folder of modules.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// The maximum size of the file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The authorities of clients. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Clients {
    current: latest::Receiver<Arc<dyn ClientCertVerifier>>,
}

// === impl Clients ===

impl Clients {
    /// Reads the file, and returns the authorities and the task that reads it again.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, or holds no certificates.
    pub fn open(path: PathBuf) -> anyhow::Result<(Self, impl Future<Output = ()> + Send)> {
        let mut pem = read(&path)?;
        let first = verifier(&pem).with_context(|| unusable(&path))?;
        let (sender, current) = latest::channel(first);
        let watch = async move {
            let mut polls = interval(POLL_INTERVAL);
            let mut is_told = false;
            loop {
                polls.tick().await;
                let next = read(&path).and_then(|next| {
                    let changed = (next != pem).then(|| verifier(&next)).transpose();
                    Ok(changed.with_context(|| unusable(&path))?.map(|of| (next, of)))
                });
                let is_wrong = next.is_err();
                match next {
                    Ok(Some((next, of))) => {
                        pem = next;
                        sender.send_replace(of);
                        info!(file = %path.display(), "the authorities of webhook clients changed");
                    }
                    Err(error) if !is_told => {
                        warn!(%error, "the former authorities of webhook clients count on");
                    }
                    Ok(None) | Err(_) => {}
                }
                is_told = is_wrong;
            }
        };
        Ok((Self { current }, watch))
    }

    /// Returns a receiver that changes with the authorities.
    pub(super) fn changes(&self) -> latest::Receiver<Arc<dyn ClientCertVerifier>> {
        self.current.clone()
    }

    fn now(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.current.borrow())
    }
}

fn unusable(path: &Path) -> String {
    format!("cannot use `--webhook-client-ca {}`: certificates in PEM are expected", path.display())
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut pem = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut pem));
    read.with_context(|| format!("cannot read `--webhook-client-ca {}`", path.display()))?;
    Ok(pem)
}

fn verifier(pem: &[u8]) -> anyhow::Result<Arc<dyn ClientCertVerifier>> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(pem).map_err(|problem| anyhow!("it {problem}"))? {
        roots.add(authority)?;
    }
    let provider = Arc::new(ring::default_provider());
    Ok(WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?)
}

/// Asks for a certificate without requiring one: conversions are called without.
impl ClientCertVerifier for Clients {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// Names no authority: a client sends the certificate that it has.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        first: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.now().verify_client_cert(first, others, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        of: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.now().verify_tls12_signature(message, of, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        of: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.now().verify_tls13_signature(message, of, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.now().supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = include_str!("../../../tests/it/host/webhooks/known-authority.pem");
    const OTHER: &str = include_str!("../../../tests/it/host/webhooks/other-authority.pem");

    #[test]
    fn a_file_without_certificates_is_named_with_the_accepted_form() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        for (text, expected) in [
            (None, "cannot read `--webhook-client-ca "),
            (Some(""), "certificates in PEM are expected: it holds no certificate in PEM"),
            (
                Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
                "are expected",
            ),
        ] {
            if let Some(text) = text {
                std::fs::write(&file, text).unwrap();
            }
            let Err(error) = Clients::open(file.clone()) else { panic!("{expected}") };
            let error = format!("{error:#}");
            assert!(error.contains(expected), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_file_is_read_again_and_one_that_cannot_be_used_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        std::fs::write(&file, ONE).unwrap();
        let (clients, watch) = Clients::open(file.clone()).unwrap();
        let mut changes = clients.changes();
        let steps = async {
            for (text, is_changed) in [("", false), (ONE, false), (OTHER, true), (OTHER, false)] {
                changes.mark_unchanged();
                std::fs::write(&file, text).unwrap();
                tokio::time::sleep(2 * POLL_INTERVAL).await;
                assert_eq!(changes.has_changed().unwrap(), is_changed, "{text}");
            }
        };
        tokio::select! {
            () = watch => unreachable!("it does not end"),
            () = steps => {}
        }
    }
}
