//! Other clusters in memory, as the host of a developer's command connects to them.

use std::{collections::BTreeMap, sync::Arc};

use mortise_embedded_api::EmbeddedApi;
use mortise_host::{
    cluster::{
        clusters::Options,
        remote::{Connect, Connected, Refused},
    },
    host::ClusterGrant,
};

/// The server of all clusters in memory, for grants.
const SERVER: &str = "https://api.in-memory.invalid";

/// The APIs of other clusters, by name. A name is connected whatever its kubeconfig holds.
#[derive(Debug, Clone, Default)]
pub struct Remotes(BTreeMap<String, EmbeddedApi>);

// === impl Remotes ===

impl Remotes {
    /// Returns the API of a cluster, if there is one.
    pub fn api(&self, cluster: &str) -> Option<&EmbeddedApi> {
        self.0.get(cluster)
    }

    /// Returns the names and the APIs.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &EmbeddedApi)> {
        self.0.iter().map(|(name, api)| (name.as_str(), api))
    }

    /// Returns the options of a host that may connect to these clusters, and to no other.
    pub fn options(&self) -> Options {
        let servers = SERVER.parse().into_iter().collect();
        Options { connect: Arc::new(self.clone()), servers }
    }
}

/// Returns the clusters that a processor may use under a developer's command: those in memory.
pub fn granted() -> Arc<[ClusterGrant]> {
    [ClusterGrant { servers: vec![SERVER.to_owned()], namespace: None }].into()
}

impl FromIterator<(String, EmbeddedApi)> for Remotes {
    fn from_iter<I: IntoIterator<Item = (String, EmbeddedApi)>>(apis: I) -> Self {
        Self(apis.into_iter().collect())
    }
}

impl Connect for Remotes {
    fn connect(&self, cluster: &str, _kubeconfig: &[u8]) -> Result<Connected, Refused> {
        let Some(api) = self.api(cluster) else {
            let known: Vec<String> = self.0.keys().map(|name| format!("`{name}`")).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(Refused::new(format!("clusters in memory are {known}")));
        };
        let client = kube::Client::new(api.router(), "default");
        Ok(Connected { server: SERVER.to_owned(), client })
    }
}
