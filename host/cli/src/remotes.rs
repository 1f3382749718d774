//! Other clusters in memory, as the host of a developer's command connects to them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use mortise_core::contract::Kind;
use mortise_embedded_api::EmbeddedApi;
use mortise_host::{
    cluster::{
        clusters::Options,
        remote::{Connect, Connected, Refused},
    },
    host::{ClusterGrant, Host},
};
use serde_json::{Value, json};

use crate::{args::ClusterFolder, print};

/// The server of all clusters in memory, for grants.
pub(crate) const SERVER: &str = "https://api.in-memory.invalid";
/// The name of cluster, user and context in a kubeconfig of ours.
pub(crate) const NAME: &str = "mortise";
/// Timeout of the discovery of the kinds in memory that only a fault reaches.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(30);

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

    /// Waits until the stores of a host equal these APIs and that of the home cluster, and the host
    /// knows which of the watched kinds are served.
    ///
    /// # Errors
    ///
    /// Fails if that takes a long time, which is a bug in mortise.
    pub(crate) async fn caught_up(&self, host: &Host, home: &EmbeddedApi) -> anyhow::Result<()> {
        let driver = host.drive();
        let mut progress = driver.stores().progress();
        let known = async {
            loop {
                progress.borrow_and_update();
                driver.caught_up(|| home.objects()).await?;
                for (name, api) in self.iter() {
                    driver.caught_up_in(name, || api.objects()).await?;
                }
                if self.knows_kinds(host, home) {
                    return Ok(());
                }
                progress.changed().await.context("the host has ended")?;
            }
        };
        let known = tokio::time::timeout(DISCOVERY_TIMEOUT, known).await;
        known.context("the host did not see which kinds are served")?
    }

    fn knows_kinds(&self, host: &Host, home: &EmbeddedApi) -> bool {
        let stores = host.drive().stores();
        host.watches().iter().all(|watch| {
            let Kind { cluster, group, version, kind } = &watch.kind;
            let api = if cluster.is_empty() { Some(home) } else { self.api(cluster) };
            let served = api.is_some_and(|api| api.serves(group, version, kind));
            stores.serves(&watch.kind) == Some(served)
        })
    }

    /// Returns the options of a host that may connect to these clusters, and to no other.
    pub fn options(&self) -> Options {
        let servers = SERVER.parse().into_iter().collect();
        Options { connect: Arc::new(self.clone()), servers }
    }
}

/// Returns the kubeconfig of a server, whose context has this namespace.
pub(crate) fn kubeconfig(server: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": {"server": server}}],
        "users": [{"name": NAME, "user": {}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": namespace}}],
        "current-context": NAME,
    })
}

/// Returns the objects of the home cluster that name another one: the Secret with the kubeconfig of
/// a server, and its namespace.
pub(crate) fn secret(cluster: &ClusterFolder, server: &str) -> [Value; 2] {
    let (namespace, name, key) = cluster.secret().unwrap_or_default();
    let text = print::yaml(&kubeconfig(server, &cluster.namespace));
    [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"namespace": namespace, "name": name},
            "data": {key: BASE64.encode(text)},
        }),
    ]
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
