//! Other clusters: APIs in memory, whose kubeconfigs are in Secrets of the home cluster.

use anyhow::Context as _;
use mortise_embedded_api::EmbeddedApi;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{input::Input, kubeconfig::Kubeconfig, objects};
use crate::{args::ClusterFolder, files, remotes};

/// Another cluster as the command line and the guests' manifests describe it.
#[derive(Debug)]
pub(super) struct RemoteInput {
    pub(super) cluster: ClusterFolder,
    pub(super) objects: Vec<files::Object>,
}

/// The API of another cluster.
pub(super) struct Remote {
    cluster: ClusterFolder,
    api: EmbeddedApi,
    address: String,
    listener: TcpListener,
    kubeconfig: Kubeconfig,
}

/// A handle on another cluster, for the session.
#[derive(Debug)]
pub(super) struct Shown {
    /// The name of the cluster.
    pub(super) name: String,
    pub(super) api: EmbeddedApi,
    /// The objects of the home cluster that name it: the Secret, and its namespace.
    pub(super) secret: Vec<Value>,
    /// The line for the user.
    pub(super) note: String,
}

/// Opens the clusters of an input.
///
/// # Errors
///
/// Fails for refused objects, and if no port is free.
pub(super) async fn open_all(input: &mut Input) -> anyhow::Result<Vec<Remote>> {
    let mut remotes = Vec::new();
    for remote in std::mem::take(&mut input.remotes) {
        remotes.push(Remote::open(remote, &input.crds).await?);
    }
    Ok(remotes)
}

/// Serves the APIs until `stop` is cancelled.
///
/// # Errors
///
/// Fails if a listener fails.
pub(super) async fn serve_all(
    remotes: Vec<Remote>,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let served = remotes.into_iter().map(|remote| remote.serve(stop.clone()));
    futures::future::try_join_all(served).await.map(|_| ())
}

// === impl Remote ===

impl Remote {
    /// Opens an API with the definitions and the objects, and a port for it.
    async fn open(input: RemoteInput, crds: &[files::Object]) -> anyhow::Result<Self> {
        let RemoteInput { cluster, objects } = input;
        let api = super::new_api();
        objects::load(&api, crds.iter().cloned().chain(objects).collect())?;
        let listener = super::bind(None).await?;
        let address = listener.local_addr().context("the listener has no address")?;
        let kubeconfig = Kubeconfig::write(None, address, &cluster.namespace)?;
        Ok(Self { cluster, api, address: format!("http://{address}"), listener, kubeconfig })
    }

    /// Returns the handle for the session.
    pub(super) fn shown(&self) -> Shown {
        let Self { cluster, api, address, listener: _, kubeconfig } = self;
        let secret = remotes::secret(cluster, address).into();
        let path = kubeconfig.path().display();
        let note = format!("cluster {}  {address}  export KUBECONFIG={path}", cluster.name);
        Shown { name: cluster.name.clone(), api: api.clone(), secret, note }
    }

    async fn serve(self, stop: CancellationToken) -> anyhow::Result<()> {
        let stopped = || format!("the API of the cluster {} stopped serving", self.cluster.name);
        self.api.serve(self.listener, stop).await.with_context(stopped)
    }
}
