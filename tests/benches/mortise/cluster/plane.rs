//! A control plane with rules in it that nobody has reconciled yet.

use std::{collections::BTreeMap, fs, ops::Sub, path::Path, time::Duration};

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use mortise_host::{
    cluster::{Account, Cluster},
    desk,
};
use mortise_tests::cluster;
use serde_json::Value;

use super::{ACCOUNT, PARALLEL, loaded};
use crate::{process, rules};

const RULES: (&str, &str) = ("gateway.kyma-project.io/v2", "APIRule");

pub(super) struct Plane {
    cluster: cluster::Cluster,
    rules: usize,
    server: u32,
    etcd: u32,
}

/// CPU time of the server's parts.
#[derive(Clone, Copy)]
pub(super) struct Used {
    server: Duration,
    etcd: Duration,
}

/// What only the server decides of a new object: its uid, and its first version. By name.
pub(super) type Versions = BTreeMap<String, (String, String)>;

// === impl Plane ===

impl Plane {
    /// Starts one, with the account and its rights, what rules refer to, and so many rules.
    pub(super) async fn start(rules: usize) -> anyhow::Result<Self> {
        let cluster = cluster::own().await?.context("the control plane is built with Go")?;
        let folder = cluster.folder().to_path_buf();
        let (server, etcd) = (process_of("kube-apiserver", &folder)?, process_of("etcd", &folder)?);
        let plane = Self { cluster, rules, server, etcd };
        let istio = cluster::istio().await?.context("the control plane is built with Go")?;
        plane.cluster.install(&istio).await?;
        plane.cluster.install(&mortise_tests::definitions("guests/api-rule")?).await?;
        let home = Cluster::new(plane.client().await?);
        desk::apply(&home, rules::surroundings()?).await?;
        desk::apply(&home, rights(&home).await?).await?;
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
        let made = futures::stream::iter((0..self.rules).map(create)).buffer_unordered(PARALLEL);
        made.try_collect().await
    }

    /// An administrator's client.
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        self.cluster.client().await
    }

    /// The objects of a kind in a namespace.
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

    /// Every rule is ready.
    pub(super) async fn check(&self) -> anyhow::Result<()> {
        let is_ready = |rule: &&DynamicObject| {
            rule.data.pointer("/status/state").and_then(Value::as_str) == Some("Ready")
        };
        let ready = self.all().await?.iter().filter(is_ready).count();
        ensure!(ready == self.rules, "{ready} of {} rules are ready", self.rules);
        Ok(())
    }

    /// What only the server has decided of the rules.
    pub(super) async fn versions(&self) -> anyhow::Result<Versions> {
        let all = self.all().await?;
        let versions = all.into_iter().map(|rule| {
            let metadata = rule.metadata;
            let name = metadata.name.context("it has a name")?;
            let uid = metadata.uid.context("it has a uid")?;
            Ok((name, (uid, metadata.resource_version.context("it has a version")?)))
        });
        versions.collect()
    }

    pub(super) fn used(&self) -> anyhow::Result<Used> {
        Ok(Used { server: process::cpu_of(self.server)?, etcd: process::cpu_of(self.etcd)? })
    }
}

async fn rights(cluster: &Cluster) -> anyhow::Result<Vec<Value>> {
    let (namespace, name) = ACCOUNT;
    let account = Account { namespace: namespace.to_owned(), name: name.to_owned() };
    mortise_tests::rules::rights(cluster, &account, &loaded().await?.description).await
}

/// The process of a part of a control plane.
fn process_of(part: &str, folder: &Path) -> anyhow::Result<u32> {
    let folder = folder.to_str().context("the folder's name is text")?;
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // It may have ended by now.
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
    /// In words, for so many writes.
    pub(super) fn per_write(self, writes: usize) -> String {
        let count = u32::try_from(writes.max(1)).unwrap_or(u32::MAX);
        let each = |time: Duration| (time / count).as_secs_f64() * 1e3;
        let (server, etcd) = (self.server.as_secs_f64(), self.etcd.as_secs_f64());
        format!(
            "CPU {server:.2} s + {etcd:.2} s, per write {:.2} ms + {:.2} ms",
            each(self.server),
            each(self.etcd)
        )
    }
}

impl Sub for Used {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            server: self.server.saturating_sub(before.server),
            etcd: self.etcd.saturating_sub(before.etcd),
        }
    }
}
