//! Connections with TLS, as clients from kubeconfigs want them.

use std::{io, net::SocketAddr, sync::Arc};

use axum::serve::Listener;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::host::webhooks::issued_for;

/// The name in the certificate.
pub(super) const NAME: &str = "provider.example";

type Connection = (TlsStream<TcpStream>, SocketAddr);

/// Accepts connections with TLS.
pub(super) struct Tls {
    address: SocketAddr,
    accepted: mpsc::Receiver<Connection>,
    /// Ends the handshakes when it is dropped.
    _accepting: JoinSet<()>,
}

impl Tls {
    /// Listens at a free port. Returns the authority that clients have to trust, too, in PEM.
    pub(super) async fn bind() -> (Self, String) {
        let issued = issued_for(NAME, -1, 24);
        let chain = CertificateDer::pem_slice_iter(issued.chain.as_bytes());
        let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (accept, accepted) = mpsc::channel(1);
        let mut accepting = JoinSet::new();
        accepting.spawn(shake_hands(listener, TlsAcceptor::from(Arc::new(config)), accept));
        (Self { address, accepted, _accepting: accepting }, issued.authority)
    }
}

/// Accepts connections, each of which may take its time.
async fn shake_hands(
    mut listener: TcpListener,
    acceptor: TlsAcceptor,
    accept: mpsc::Sender<Connection>,
) {
    let mut all = JoinSet::new();
    loop {
        let (stream, address) = Listener::accept(&mut listener).await;
        while all.try_join_next().is_some() {}
        let (acceptor, accept) = (acceptor.clone(), accept.clone());
        all.spawn(async move {
            // A host that is killed during its handshake concerns nobody else.
            if let Ok(stream) = acceptor.accept(stream).await {
                let _ = accept.send((stream, address)).await;
            }
        });
    }
}

impl Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        self.accepted.recv().await.expect("connections are accepted as long as this is there")
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(self.address)
    }
}
