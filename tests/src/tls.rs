//! TLS of clients.

use std::sync::Arc;

use anyhow::Result;
use rustls::{
    ClientConfig, ConfigBuilder, RootCertStore,
    client::WantsClientCert,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject as _},
};

/// Returns the settings of a client that trusts one authority, given in PEM.
///
/// # Errors
///
/// Fails if the text is no certificate of an authority.
pub fn trusting(authority: &str) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
    let provider = Arc::new(ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots))
}
