//! Third-party clients against the embedded API, over HTTP: kube's runtime as controllers use it,
//! and client-go.

mod client_go;
mod kube_rs;

use std::net::{Ipv4Addr, SocketAddr};

use mortise_embedded_api::{EmbeddedApi, Options};
use tokio::{net::TcpListener, runtime::Runtime};
use tokio_util::sync::CancellationToken;

/// An API that listens. Its server ends on drop.
struct Served {
    api: EmbeddedApi,
    address: SocketAddr,
    _serving: Server,
}

/// A runtime that can be dropped within another runtime.
struct Server(Option<Runtime>);

// === impl Served ===

impl Served {
    /// Serves an API that remembers `history` changes.
    fn new(history: usize) -> Self {
        let api = EmbeddedApi::new(Options { history, ..Options::default() });
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.spawn({
            let api = api.clone();
            async move {
                let listener = TcpListener::from_std(listener)?;
                api.serve(listener, CancellationToken::new()).await
            }
        });
        Self { api, address, _serving: Server(Some(runtime)) }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// kube's client, over HTTP.
    fn client(&self) -> kube::Client {
        let config = kube::Config::new(self.url().parse().unwrap());
        kube::Client::try_from(config).unwrap()
    }
}

// === impl Server ===

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
