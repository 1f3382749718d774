//! TLS by rustls: Mozilla's roots are compiled in, and others can be added.

use std::sync::Arc;

use mortise_core::error_chain;
use rustls::{
    ClientConfig, ConfigBuilder, RootCertStore,
    client::WantsClientCert,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use tokio_rustls::TlsConnector;

use super::{Error, Stream, address::Address};

/// The certificates of a client.
#[derive(Default)]
pub(crate) struct Trust<'a> {
    /// CA certificates in PEM: the only ones that are trusted; `None` for those that are compiled in.
    pub(crate) authorities: Option<&'a [u8]>,
    /// The client's own certificate chain and its key, in PEM.
    pub(crate) identity: Option<(&'a [u8], &'a [u8])>,
}

/// Builds the client, which trusts the compiled-in roots and the CA certificates in `authorities`
/// (PEM).
pub(super) fn build(authorities: Option<&[u8]>) -> Result<TlsConnector, String> {
    let mut roots = compiled_in();
    if let Some(pem) = authorities {
        add_authorities(&mut roots, pem)?;
    }
    Ok(connector(trusting(roots)?.with_no_client_auth()))
}

/// Builds a client with these certificates.
pub(crate) fn build_with(trust: &Trust<'_>) -> Result<TlsConnector, String> {
    let roots = match trust.authorities {
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            add_authorities(&mut roots, pem).map_err(|error| format!("its CA: {error}"))?;
            roots
        }
        None => compiled_in(),
    };
    let trusting = trusting(roots)?;
    let Some((chain, key)) = trust.identity else {
        return Ok(connector(trusting.with_no_client_auth()));
    };
    let chain = certificates(chain).map_err(|error| format!("its client certificate: {error}"))?;
    let key = PrivateKeyDer::from_pem_slice(key);
    let key = key.map_err(|_| "its client key: it is no private key in PEM".to_owned())?;
    let config = trusting.with_client_auth_cert(chain, key);
    Ok(connector(config.map_err(|error| format!("its client certificate: {error}"))?))
}

fn compiled_in() -> RootCertStore {
    RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }
}

fn connector(config: ClientConfig) -> TlsConnector {
    TlsConnector::from(Arc::new(config))
}

fn trusting(roots: RootCertStore) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions();
    Ok(config.map_err(|error| error.to_string())?.with_root_certificates(roots))
}

/// Performs the TLS handshake, if the URL asks for TLS.
pub(crate) async fn secure(
    tls: &TlsConnector,
    to: &Address,
    stream: Box<dyn Stream>,
) -> Result<Box<dyn Stream>, Error> {
    if !to.is_tls {
        return Ok(stream);
    }
    let host = to.host.as_str();
    let name = ServerName::try_from(host.to_owned());
    let name = name.map_err(|error| Error::unreachable(host, &error))?;
    let secured = tls.connect(name, stream).await.map_err(|error| {
        let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        // A certificate error shows that the server does speak TLS.
        let is_none = match of_tls {
            Some(of_tls) => matches!(of_tls, rustls::Error::InvalidMessage(_)),
            None => true,
        };
        let (host, found) = (host.to_owned(), error_chain::without_repeats(&error));
        if is_none { Error::NoTls { host, found } } else { Error::Unreachable { host, found } }
    })?;
    Ok(Box::new(secured))
}

/// Reads certificates in PEM; there may be none. The parser's error is not told: it repeats a line,
/// which may be a whole key.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, &'static str> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    all.map_err(|_| "it is no PEM")
}

fn add_authorities(roots: &mut RootCertStore, pem: &[u8]) -> Result<(), String> {
    let all = certificates(pem)?;
    if all.is_empty() {
        return Err(
            "it holds no certificate; PEM is accepted (`-----BEGIN CERTIFICATE-----`)".to_owned()
        );
    }
    for certificate in all {
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    Ok(())
}
