//! TLS by rustls: Mozilla's roots are compiled in, and others can be added.

use std::sync::Arc;

use mortise_core::error_chain;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio_rustls::TlsConnector;

use super::{Error, Stream, address::Address};

/// Builds the client, which trusts the compiled-in roots and the CA certificates in `authorities`
/// (PEM).
pub(super) fn build(authorities: Option<&[u8]>) -> Result<TlsConnector, String> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if let Some(pem) = authorities {
        add_authorities(&mut roots, pem)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Performs the TLS handshake, if the URL asks for TLS.
pub(super) async fn secure(
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

fn add_authorities(roots: &mut RootCertStore, pem: &[u8]) -> Result<(), String> {
    let mut count = 0;
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
        count += 1;
    }
    if count == 0 {
        return Err(
            "it holds no certificate; PEM is accepted (`-----BEGIN CERTIFICATE-----`)".to_owned()
        );
    }
    Ok(())
}
