//! The names of clusters.

use std::{fmt, ops::Deref};

use crate::{Manifest, ObjectRef, Selection};

/// The name of a cluster: empty for the home cluster, which is the one that the host runs in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClusterName(String);

// === impl ClusterName ===

impl ClusterName {
    /// Returns the home cluster.
    pub fn home() -> Self {
        Self::default()
    }

    /// Returns every cluster, the home cluster included: for declarations.
    pub fn any() -> Self {
        Self("*".to_owned())
    }

    /// Returns the cluster of the kubeconfig that a Secret of the home cluster holds under a key.
    pub fn secret(namespace: &str, name: &str, key: &str) -> Self {
        Self(format!("{namespace}/{name}/{key}"))
    }
}

impl Deref for ClusterName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for ClusterName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

// === impl ObjectRef ===

impl ObjectRef {
    /// Names the object of another cluster, such as a [`ClusterName`] or the cluster of a request.
    #[must_use]
    pub fn in_cluster(mut self, cluster: impl AsRef<str>) -> Self {
        cluster.as_ref().clone_into(&mut self.cluster);
        self
    }
}

// === impl Selection ===

impl Selection {
    /// Selects objects of another cluster, such as a [`ClusterName`] or the cluster of a request.
    #[must_use]
    pub fn in_cluster(mut self, cluster: impl AsRef<str>) -> Self {
        cluster.as_ref().clone_into(&mut self.cluster);
        self
    }
}

// === impl Manifest ===

impl Manifest {
    /// Writes the object to another cluster, such as a [`ClusterName`] or the cluster of a request.
    #[must_use]
    pub fn in_cluster(mut self, cluster: impl AsRef<str>) -> Self {
        cluster.as_ref().clone_into(&mut self.cluster);
        self
    }
}
