//! The clusters that one version of a processor may use, and its requests to them.

use std::{fmt, sync::Arc};

use mortise_core::{contract::bounds::text::cluster_secret, grant::Grant, reconcile::ClusterGrant};
use serde_json::Value;
use tokio::sync::watch as latest;

use super::{Clusters, Link, Problem};
use crate::{
    cluster::{
        Cluster,
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

    /// Returns the count of moves of all clusters; `None` if no cluster is granted, so that none
    /// moves.
    pub(crate) fn moves(&self) -> Option<u64> {
        (!self.granted.is_empty()).then(|| self.clusters.moves())
    }

    /// Returns a cluster in use that has moved since a count of moves.
    pub(crate) fn moved_since(self: &Arc<Self>, at: u64) -> Option<Arc<str>> {
        self.clusters.moved_since(at, self)
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

/// Returns why a cluster cannot be used, for a processor.
pub(crate) fn unusable(cluster: &str, problem: &Problem) -> String {
    format!("cluster `{cluster}`: {problem}")
}
