//! The requests of one version of a processor: each goes to the cluster that it names.

use std::{fmt, sync::Arc};

use futures::{FutureExt as _, future::BoxFuture};
use mortise_core::{
    api::{Answer, Api, NotEstablished, Outgoing, Refusal, Unavailable},
    contract::{Kind, ObjectRef},
    resource::Resource,
};

use super::{
    Cluster,
    access::Rights,
    clusters::{Link, Remotes, unusable},
};

/// The API servers that a version of a processor writes to: requests go to the cluster that they
/// name.
#[derive(Clone)]
pub struct Routes {
    home: Cluster,
    remotes: Arc<Remotes>,
    /// The rights of the account; `None`: those of the host.
    rights: Option<Arc<Rights>>,
    /// The count of moves when the run began.
    pinned: Option<u64>,
}

// === impl Routes ===

impl fmt::Debug for Routes {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Routes").field("home", &self.home).finish_non_exhaustive()
    }
}

impl Routes {
    /// Returns the routes of a version: home with the rights of its account, and others.
    pub(crate) fn new(
        home: &Cluster,
        remotes: &Arc<Remotes>,
        rights: Option<&Arc<Rights>>,
    ) -> Self {
        let (home, remotes) = (home.clone(), Arc::clone(remotes));
        Self { home, remotes, rights: rights.cloned(), pinned: None }
    }

    async fn send_there(&self, outgoing: &Outgoing) -> Result<Answer, Refusal> {
        let pinned = self.pinned.filter(|_| outgoing.is_write());
        let moved = pinned.and_then(|at| self.remotes.moved_since(at));
        if let Some(cluster) = moved {
            return Err(Refusal::moved(&cluster));
        }
        if outgoing.cluster.is_empty() {
            return self.home.send(outgoing).await;
        }
        self.reached(&outgoing.cluster).await?.cluster.send(outgoing).await
    }

    async fn reached(&self, cluster: &Arc<str>) -> Result<Arc<Link>, Refusal> {
        self.link(cluster).await.map_err(|message| Refusal { message, ..Refusal::default() })
    }

    async fn link(&self, cluster: &Arc<str>) -> Result<Arc<Link>, String> {
        if let Some(rights) = &self.rights {
            return rights.link(cluster).await;
        }
        self.remotes.connected(cluster).map_err(|problem| unusable(cluster, &problem))
    }
}

impl Api for Routes {
    fn pinned(&self) -> Option<Arc<dyn Api>> {
        let pinned = Some(self.remotes.moves()?);
        Some(Arc::new(Self { pinned, ..self.clone() }))
    }

    fn is_leading(&self) -> bool {
        self.home.is_leading()
    }

    fn send<'a>(&'a self, outgoing: &'a Outgoing) -> BoxFuture<'a, Result<Answer, Refusal>> {
        self.send_there(outgoing).boxed()
    }

    fn permitted<'a>(
        &'a self,
        kind: &'a Kind,
        verb: &'static str,
        namespace: &'a str,
    ) -> BoxFuture<'a, Result<(), Refusal>> {
        async move {
            if kind.cluster.is_empty() {
                return Ok(());
            }
            let link = self.reached(&kind.cluster).await?;
            link.rights.permitted(kind, verb, namespace).await
        }
        .boxed()
    }

    fn resolve<'a>(
        &'a self,
        kind: &'a Kind,
    ) -> BoxFuture<'a, Result<Option<Arc<Resource>>, Unavailable>> {
        async move {
            if kind.cluster.is_empty() {
                return self.home.resolve(kind).await;
            }
            let link = self.link(&kind.cluster).await;
            let link = link.map_err(|message| Unavailable { kind: kind.clone(), message })?;
            link.cluster.resolve(kind).await
        }
        .boxed()
    }

    fn forget(&self, kind: &Kind) {
        if kind.cluster.is_empty() {
            self.home.forget(&kind.group);
        } else if let Ok(link) = self.remotes.connected(&kind.cluster) {
            link.cluster.forget(&kind.group);
        }
    }

    fn established<'a>(
        &'a self,
        definition: &'a ObjectRef,
    ) -> BoxFuture<'a, Result<(), NotEstablished>> {
        async move {
            let cluster = &definition.kind.cluster;
            if cluster.is_empty() {
                return Api::established(&self.home, definition).await;
            }
            let link = self
                .link(cluster)
                .await
                .map_err(|message| NotEstablished::Unwatched { message, forbidden: None })?;
            Api::established(&link.cluster, definition).await
        }
        .boxed()
    }
}
