//! An API with rules that no host has reconciled yet: a real control plane, or the API in memory.

use std::{collections::BTreeMap, fs, ops::Sub, path::Path, time::Duration};

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use mortise::local;
use mortise_core::grant::rights::Account;
use mortise_embedded_api::{EmbeddedApi, Options};
use mortise_host::cluster::Cluster;
use mortise_tests::cluster;
use serde_json::Value;
use tokio::runtime::Handle;

use super::{ACCOUNT, CONCURRENCY, loaded};
use crate::{process, rules};

const RULES: (&str, &str) = ("gateway.kyma-project.io/v2", "APIRule");

/// The kind of API.
#[derive(Clone)]
pub(super) enum Place {
    /// A kube-apiserver with etcd, and the rest of a control plane.
    Real,
    /// The embedded API in memory, on threads of its own.
    Embedded(Handle),
}

pub(super) struct Plane {
    serving: Serving,
    rules: usize,
}

enum Serving {
    Real { cluster: cluster::Cluster, server: u32, etcd: u32 },
    Embedded { api: EmbeddedApi, client: Client },
}

/// CPU time of the server's parts.
#[derive(Clone, Copy)]
pub(super) struct Used {
    server: Duration,
    /// The time of etcd; `None` if the server has no etcd.
    etcd: Option<Duration>,
}

/// The uid and first version that the server has chosen for each new object, by name.
pub(super) type Versions = BTreeMap<String, (String, String)>;

// === impl Serving ===

impl Serving {
    async fn start(api: &Place) -> anyhow::Result<Self> {
        match api {
            Place::Real => {
                let cluster =
                    cluster::own().await?.context("the control plane is built with Go")?;
                let folder = cluster.folder().to_path_buf();
                let server = process_of("kube-apiserver", &folder)?;
                let etcd = process_of("etcd", &folder)?;
                Ok(Self::Real { cluster, server, etcd })
            }
            Place::Embedded(threads) => {
                let api = EmbeddedApi::new(Options::default());
                let client = rules::client(&api, threads.clone());
                Ok(Self::Embedded { api, client })
            }
        }
    }

    async fn install(&self, definitions: Vec<Value>) -> anyhow::Result<()> {
        match self {
            Self::Real { cluster, .. } => cluster.install(&definitions).await,
            Self::Embedded { client, .. } => {
                local::apply(&Cluster::new(client.clone()), definitions).await
            }
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Self::Embedded { api, .. } = self {
            api.stop();
        }
    }
}

// === impl Plane ===

impl Plane {
    /// Starts an API with the account and its rights, the objects that rules refer to, and this
    /// many rules.
    pub(super) async fn start(api: &Place, rules: usize) -> anyhow::Result<Self> {
        let plane = Self { serving: Serving::start(api).await?, rules };
        let istio = cluster::istio().await?.context("the control plane is built with Go")?;
        plane.serving.install(istio).await?;
        plane.serving.install(mortise_tests::definitions("guests/api-rule")?).await?;
        let home = Cluster::new(plane.client().await?);
        local::apply(&home, rules::surroundings()?).await?;
        local::apply(&home, rights(&home).await?).await?;
        plane.make().await?;
        Ok(plane)
    }

    async fn make(&self) -> anyhow::Result<()> {
        let api = self.api(RULES.0, RULES.1, "shop").await?;
        let create = |index| {
            let api = api.clone();
            async move {
                let rule = serde_json::from_value(rules::rule(index))?;
                api.create(&PostParams::default(), &rule).await?;
                anyhow::Ok(())
            }
        };
        let made = futures::stream::iter((0..self.rules).map(create)).buffer_unordered(CONCURRENCY);
        made.try_collect().await
    }

    /// Returns an administrator's client, with connections of its own.
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        match &self.serving {
            Serving::Real { cluster, .. } => cluster.client().await,
            Serving::Embedded { client, .. } => Ok(client.clone()),
        }
    }

    /// Returns the objects of a kind in a namespace.
    pub(super) async fn api(
        &self,
        version: &str,
        kind: &str,
        namespace: &str,
    ) -> anyhow::Result<Api<DynamicObject>> {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Ok(Api::namespaced_with(self.client().await?, namespace, &resource))
    }

    async fn all(&self) -> anyhow::Result<Vec<DynamicObject>> {
        let api = self.api(RULES.0, RULES.1, "shop").await?;
        Ok(api.list(&ListParams::default()).await?.items)
    }

    /// Checks that every rule is ready.
    pub(super) async fn check(&self) -> anyhow::Result<()> {
        let is_ready = |rule: &&DynamicObject| {
            rule.data.pointer("/status/state").and_then(Value::as_str) == Some("Ready")
        };
        let ready = self.all().await?.iter().filter(is_ready).count();
        ensure!(ready == self.rules, "{ready} of {} rules are ready", self.rules);
        Ok(())
    }

    /// Returns the uids and versions of the rules.
    pub(super) async fn versions(&self) -> anyhow::Result<Versions> {
        let all = self.all().await?;
        let versions = all.into_iter().map(|rule| {
            let metadata = rule.metadata;
            let name = metadata.name.context("the rule has no name")?;
            let uid = metadata.uid.context("the rule has no uid")?;
            Ok((name, (uid, metadata.resource_version.context("the rule has no version")?)))
        });
        versions.collect()
    }

    pub(super) fn used(&self) -> anyhow::Result<Used> {
        Ok(match &self.serving {
            Serving::Real { server, etcd, .. } => {
                Used { server: process::cpu_of(*server)?, etcd: Some(process::cpu_of(*etcd)?) }
            }
            Serving::Embedded { .. } => Used { server: process::cpu()?.api, etcd: None },
        })
    }
}

async fn rights(cluster: &Cluster) -> anyhow::Result<Vec<Value>> {
    let (namespace, name) = ACCOUNT;
    let account = Account { namespace: namespace.to_owned(), name: name.to_owned() };
    mortise_tests::rules::rights(cluster, &account, &loaded().await?.description).await
}

/// Returns the process id of a part of a control plane.
fn process_of(part: &str, folder: &Path) -> anyhow::Result<u32> {
    let folder = folder.to_str().context("the folder's name is text")?;
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // The process may have ended by now.
        let Ok(line) = fs::read(entry.path().join("cmdline")) else { continue };
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        if words.contains(&part.as_bytes()) && words.contains(&folder.as_bytes()) {
            return Ok(id);
        }
    }
    anyhow::bail!("{part} does not run")
}

// === impl Used ===

impl Used {
    /// Formats the CPU time for this many writes.
    pub(super) fn per_write(self, writes: usize) -> String {
        let count = u32::try_from(writes.max(1)).unwrap_or(u32::MAX);
        let parts: Vec<Duration> = [Some(self.server), self.etcd].into_iter().flatten().collect();
        let said = |unit: &str, of: &dyn Fn(&Duration) -> f64| {
            let said = parts.iter().map(|part| format!("{:.2} {unit}", of(part)));
            said.collect::<Vec<_>>().join(" + ")
        };
        let each = said("ms", &|part| (*part / count).as_secs_f64() * 1e3);
        format!("CPU {}, per write {each}", said("s", &Duration::as_secs_f64))
    }
}

impl Sub for Used {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        let etcd = self.etcd.zip(before.etcd);
        Self {
            server: self.server.saturating_sub(before.server),
            etcd: etcd.map(|(now, before)| now.saturating_sub(before)),
        }
    }
}
