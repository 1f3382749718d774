//! The clusters that one version of a processor may use, and its requests to them.

use std::{fmt, sync::Arc};

use futures::{FutureExt as _, future::BoxFuture};
use mortise_core::{
    api::{Answer, Api, NotEstablished, Outgoing, Refusal, Unavailable},
    contract::{Kind, ObjectRef, bounds::text::cluster_secret},
    grant::Grant,
    reconcile::ClusterGrant,
    resource::Resource,
};
use serde_json::Value;
use tokio::sync::watch as latest;

use super::{Clusters, Link, Problem};
use crate::{
    cluster::{
        Cluster,
        access::Rights,
        remote::{InvalidServer, Servers, listed},
    },
    reason::Reason,
};

/// The servers that a Processor grants, and the namespace of the Secrets that may name them; `None`:
/// any namespace.
pub(super) type Granted = (Vec<Servers>, Option<String>);

/// The other clusters that one version of a processor may use.
pub struct Remotes {
    clusters: Clusters,
    /// The name of the processor, and the namespace of the Processor.
    names: (Arc<str>, Arc<str>),
    granted: Vec<Granted>,
    grant: Arc<Grant>,
    /// The home cluster, with the rights of the account.
    account: Cluster,
}

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

/// Parses the grants of a Processor.
pub(super) fn granted(all: &[ClusterGrant]) -> Result<Vec<Granted>, InvalidServer> {
    let of = |one: &ClusterGrant| {
        let servers = one.servers.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
        Ok((servers, one.namespace.clone()))
    };
    all.iter().map(of).collect()
}

// === impl Remotes ===

impl fmt::Debug for Remotes {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Remotes").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Remotes {
    pub(super) fn new(
        clusters: &Clusters,
        names: (Arc<str>, Arc<str>),
        granted: Vec<Granted>,
        grant: &Arc<Grant>,
        account: &Cluster,
    ) -> Self {
        let (clusters, grant, account) = (clusters.clone(), Arc::clone(grant), account.clone());
        Self { clusters, names, granted, grant, account }
    }

    pub(super) fn processor(&self) -> &Arc<str> {
        &self.names.0
    }

    pub(super) fn namespace(&self) -> &Arc<str> {
        &self.names.1
    }

    /// Returns the home cluster, with the rights of the account.
    pub(super) fn account(&self) -> &Cluster {
        &self.account
    }

    /// Returns the connection to a cluster, which is opened if need be.
    ///
    /// # Errors
    ///
    /// Fails if the processor must not use the cluster, or if it is not connected now.
    pub(crate) fn connected(self: &Arc<Self>, cluster: &Arc<str>) -> Result<Arc<Link>, Problem> {
        self.check_declared(cluster)?;
        self.clusters.join(cluster, self)?.link_for(self)
    }

    /// Returns the state of a cluster and its changes, and opens the cluster if need be. It stays
    /// open until this is dropped.
    ///
    /// # Errors
    ///
    /// Fails if the processor must not use the cluster.
    pub(crate) fn changes(
        self: &Arc<Self>,
        cluster: &Arc<str>,
    ) -> Result<latest::Receiver<Result<Arc<Link>, Problem>>, Problem> {
        self.check_declared(cluster)?;
        Ok(self.clusters.join(cluster, self)?.changes())
    }

    fn check_declared(&self, cluster: &str) -> Result<(), Problem> {
        let not_granted = |why: String| Problem::new(Reason::ServerNotGranted, why);
        self.grant.may_connect(cluster).map_err(|denied| not_granted(denied.to_string()))?;
        let (namespace, ..) = cluster_secret(cluster).unwrap_or_default();
        let mut namespaces = self.granted.iter().map(|(_, of)| of.as_deref());
        if namespaces.any(|of| of.is_none_or(|of| of == namespace)) {
            return Ok(());
        }
        let accepted: Vec<&str> = self.granted.iter().filter_map(|(_, of)| of.as_deref()).collect();
        Err(not_granted(if accepted.is_empty() {
            "the Processor grants no servers: name those of the cluster in spec.clusters".to_owned()
        } else {
            format!("spec.clusters accepts Secrets in `{}` only", accepted.join("`, `"))
        }))
    }

    /// Fails unless the Processor grants a server by a Secret, which a declared read selects.
    pub(super) fn allows(
        &self,
        cluster: &str,
        server: &str,
        secret: &Value,
    ) -> Result<(), Problem> {
        self.check_declared(cluster)?;
        let (namespace, ..) = cluster_secret(cluster).unwrap_or_default();
        let not_granted = |why: String| Err(Problem::new(Reason::ServerNotGranted, why));
        if !self.grant.selects_secret(cluster, secret) {
            return not_granted(
                "its Secret lacks the labels or fields of the declared read".into(),
            );
        }
        let of_secret = |(_, of): &&Granted| of.as_deref().is_none_or(|of| of == namespace);
        let servers = self.granted.iter().filter(of_secret).flat_map(|(servers, _)| servers);
        let servers: Vec<Servers> = servers.cloned().collect();
        if servers.iter().any(|granted| granted.hold(server)) {
            return Ok(());
        }
        not_granted(format!(
            "the Processor does not grant `{server}`; spec.clusters grants {}",
            listed(&servers)
        ))
    }
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
        let moved = pinned.and_then(|at| self.remotes.clusters.moved_since(at, &self.remotes));
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
        // Without grants no other cluster is used, and none moves.
        let has_grants = !self.remotes.granted.is_empty();
        has_grants.then(|| {
            let pinned = Some(self.remotes.clusters.moves());
            Arc::new(Self { pinned, ..self.clone() }) as Arc<dyn Api>
        })
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

/// Returns why a cluster cannot be used, for a processor.
pub(crate) fn unusable(cluster: &str, problem: &Problem) -> String {
    format!("cluster `{cluster}`: {problem}")
}
