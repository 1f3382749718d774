//! The clusters of a test: the home cluster, and others by name.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::future::{self, BoxFuture};
use mortise_core::{
    api::{Answer, Api, NotEstablished, Outgoing, Refusal, Unavailable},
    contract::{Kind, ObjectRef},
    resource::Resource,
};
use parking_lot::Mutex;

use super::cluster::Cluster;

/// The home cluster, and others by name. Clones share the clusters' objects, time and outages.
#[derive(Debug, Clone)]
pub struct Clusters {
    home: Cluster,
    others: BTreeMap<Arc<str>, Cluster>,
    outages: Outages,
}

/// The clusters that cannot be reached, and the kinds that cannot be read. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Outages(Arc<Mutex<Out>>);

#[derive(Debug, Default)]
struct Out {
    clusters: BTreeSet<Arc<str>>,
    /// The name of a cluster and of a kind in it.
    kinds: BTreeSet<(Arc<str>, String)>,
}

// === impl Clusters ===

impl Clusters {
    /// Creates the clusters of a test that has only the home cluster.
    pub fn new(home: Cluster) -> Self {
        Self::with(home, Outages::default())
    }

    pub(super) fn with(home: Cluster, outages: Outages) -> Self {
        Self { home, others: BTreeMap::new(), outages }
    }

    /// Adds another cluster.
    pub fn add(&mut self, cluster: Cluster) {
        self.others.insert(Arc::clone(cluster.name()), cluster);
    }

    /// Returns the home cluster.
    pub fn home(&self) -> &Cluster {
        &self.home
    }

    /// Returns all clusters, the home cluster first.
    pub fn iter(&self) -> impl Iterator<Item = &Cluster> {
        std::iter::once(&self.home).chain(self.others.values())
    }

    /// Returns the cluster of a name, "" for the home cluster.
    ///
    /// # Errors
    ///
    /// There is no such cluster.
    pub fn get(&self, name: &str) -> Result<&Cluster, String> {
        match name {
            "" => Ok(&self.home),
            _ => self.others.get(name).ok_or_else(|| absent(name)),
        }
    }

    /// Returns the cluster of a name, to be changed.
    ///
    /// # Errors
    ///
    /// There is no such cluster.
    pub fn get_mut(&mut self, name: &str) -> Result<&mut Cluster, String> {
        match name {
            "" => Ok(&mut self.home),
            _ => self.others.get_mut(name).ok_or_else(|| absent(name)),
        }
    }

    /// Makes a cluster unreachable, or reachable again.
    pub fn set_reachable(&self, name: &str, is_reachable: bool) {
        self.outages.set_reachable(name, is_reachable);
    }

    /// Returns the cluster of a kind. Fails if the kind cannot be read at present.
    pub(super) fn readable(&self, kind: &Kind) -> Result<&Cluster, String> {
        match self.outages.of(kind) {
            None => self.get(&kind.cluster),
            Some(why) => Err(why),
        }
    }

    /// Returns a cluster to send a request to.
    fn reach(&self, name: &str) -> Result<&Cluster, Refusal> {
        let reached = match self.outages.of_cluster(name) {
            None => self.get(name),
            Some(why) => Err(why),
        };
        reached.map_err(|message| Refusal { message, ..Refusal::default() })
    }
}

impl Api for Clusters {
    fn is_leading(&self) -> bool {
        true
    }

    fn send<'a>(&'a self, outgoing: &'a Outgoing) -> BoxFuture<'a, Result<Answer, Refusal>> {
        let reached = self.reach(&outgoing.cluster);
        Box::pin(future::ready(reached.and_then(|cluster| cluster.answer(outgoing))))
    }

    /// A cluster that cannot be reached is resolved by what it served before, as by a host.
    fn resolve<'a>(
        &'a self,
        kind: &'a Kind,
    ) -> BoxFuture<'a, Result<Option<Arc<Resource>>, Unavailable>> {
        let cluster = self.get(&kind.cluster);
        let unavailable = |message| Unavailable { kind: kind.clone(), message };
        let resource = cluster.map(|cluster| cluster.resource(kind)).map_err(unavailable);
        Box::pin(future::ready(resource))
    }

    fn forget(&self, _kind: &Kind) {
        // Discovery is repeated whenever a definition has changed.
    }

    fn established<'a>(
        &'a self,
        definition: &'a ObjectRef,
    ) -> BoxFuture<'a, Result<(), NotEstablished>> {
        let unwatched = |refusal: Refusal| NotEstablished::Unwatched {
            message: refusal.message,
            forbidden: None,
        };
        let reached = self.reach(&definition.kind.cluster).map_err(unwatched);
        Box::pin(future::ready(reached.and_then(|cluster| cluster.established(definition))))
    }
}

pub(super) fn absent(name: &str) -> String {
    format!("there is no cluster `{name}` in this test")
}

// === impl Outages ===

impl Outages {
    pub(super) fn set_reachable(&self, cluster: &str, is_reachable: bool) {
        let clusters = &mut self.0.lock().clusters;
        if is_reachable {
            clusters.remove(cluster);
        } else {
            clusters.insert(cluster.into());
        }
    }

    /// Makes every read of a kind of a cluster fail.
    pub(super) fn add_kind(&self, cluster: &Arc<str>, kind: &str) {
        self.0.lock().kinds.insert((Arc::clone(cluster), kind.to_owned()));
    }

    /// Returns why a kind cannot be read; `None` if it can.
    pub(super) fn of(&self, kind: &Kind) -> Option<String> {
        let of = (Arc::clone(&kind.cluster), kind.kind.clone());
        let is_out = self.0.lock().kinds.contains(&of);
        let of_kind = is_out.then(|| "the test makes it unavailable".to_owned());
        of_kind.or_else(|| self.of_cluster(&kind.cluster))
    }

    fn of_cluster(&self, name: &str) -> Option<String> {
        let is_out = self.0.lock().clusters.contains(name);
        is_out.then(|| format!("the test makes the cluster `{name}` unreachable"))
    }
}

#[cfg(test)]
mod tests;
