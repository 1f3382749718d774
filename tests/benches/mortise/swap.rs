//! Swaps: the time that changes take while versions are swapped, compared with the time without
//! swaps; and the time from replacing a module's file to the first call of the new module.

use std::{
    collections::HashMap,
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
};
use mortise::local;
use mortise_core::contract::Description;
use mortise_embedded_api::{EmbeddedApi, Options};
use mortise_host::{
    cluster::{Cluster, lease::Guard},
    host::{Host, Loaded, Options as HostOptions, Settings},
    operator::{self, Operator, api::definition},
    wasm::{Digest, Limits, Processor},
};
use mortise_tests::rebuilt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{sync::oneshot, task::JoinSet, time::interval};
use tokio_util::sync::CancellationToken;

use crate::{
    calls::runtime,
    start::engine,
    table::{Table, Times},
};

const PUPPET: &str = "tests/guests/puppet";
pub(crate) const NAMESPACE: &str = "default";
/// Number of objects, of changes of each object, and of clients, each of which waits for one object
/// at a time.
const OBJECTS: usize = 400;
const CHANGES: usize = 10;
const PEOPLE: usize = 8;
const SWAP_INTERVAL: Duration = Duration::from_millis(200);
/// Number of times that a module is replaced.
const REPLACEMENTS: usize = 9;
/// Timeout that only a fault reaches.
const DEADLINE: Duration = Duration::from_mins(10);

/// A host under load.
struct Load {
    host: Host,
    maps: Api<DynamicObject>,
    /// The awaited changes: the number of the change, by the object's name.
    waiting: Mutex<HashMap<String, (usize, oneshot::Sender<()>)>>,
}

/// The measurements under a load.
struct Shown {
    changes: Times,
    /// The longest reconcile, writes included.
    longest: Duration,
    swaps: usize,
}

/// Adds the cost of swaps.
///
/// # Errors
///
/// Fails if a guest does not build or load, or a host fails.
pub(crate) fn run(table: &mut Table) -> anyhow::Result<()> {
    runtime(2, "host")?.block_on(async {
        let all = async {
            changes(table).await?;
            files(table).await
        };
        tokio::time::timeout(DEADLINE, Box::pin(all)).await.context("the swaps did not end")?
    })
}

async fn changes(table: &mut Table) -> anyhow::Result<()> {
    let versions = versions().await?;
    let quiet = Load::start(&versions).await?.show(None).await?;
    quiet.rows(table, "a change, until it is reconciled");
    let swapped = Load::start(&versions).await?.show(Some(&versions)).await?;
    swapped.rows(table, &format!("  with a swap every {} ms", SWAP_INTERVAL.as_millis()));
    let added = swapped.changes.at(100).saturating_sub(quiet.changes.at(100));
    table.row(
        "  the longest change, beside the one without swaps",
        format!("{} more; {} swaps", millis(added), swapped.swaps),
        "< the longest call more",
    );
    Ok(())
}

/// Returns a puppet's configuration: for each `ConfigMap` with a label it makes another one, with
/// the version and the source's sequence.
fn play(version: &str) -> Value {
    let kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    let selection = |labels: &str| {
        json!({
            "cluster": "", "kind": kind, "namespace": null, "name": null, "labels": labels, "matching": [], "fields": [],
        })
    };
    let made = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "$(name)-made", "namespace": NAMESPACE},
        "data": {"version": version, "sequence": "$(sequence)"},
    });
    let apply = json!({"cluster": "", "object": made.to_string(), "mode": "Apply", "leave": [], "absent": []});
    json!({
        "description": {
            "name": "puppet", "version": version, "grants": [], "outbound": [], "config_schema": null, "reads": [],
            "reconcilers": [{
                "name": "maps", "of": selection("bench=swap"), "finalizers": [], "resync": 0,
                "triggered_by_status": false, "min_interval": 0, "on_demand": false, "whole_status": false,
            }],
            "writes": [{"of": selection(""), "verbs": ["create", "update"], "fields": []}],
        },
        "script": {"returns": {"outcome": {
            "apply": [apply], "patch": [], "evict": [], "delete": [], "prune": [], "status": null, "events": [],
            "requeue": "ByDefault", "finalizers": null, "start": [],
        }}},
    })
}

pub(crate) fn source(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"bench": "swap"}},
        "data": {"sequence": "0"},
    })
}

pub(crate) async fn module() -> anyhow::Result<Vec<u8>> {
    let path = tokio::task::spawn_blocking(|| mortise_tests::guest(PUPPET)).await??;
    Ok(fs::read(path)?)
}

/// Loads two modules, each with a play of its own.
async fn versions() -> anyhow::Result<[Loaded; 2]> {
    let (engine, bytes) = (local::engine(None, false)?, module().await?);
    let load = async |version: &str, bytes: Vec<u8>| {
        let processor = Processor::load(&engine, version, bytes.into(), Limits::default()).await?;
        let config = play(version).to_string();
        Loaded::describe(processor, &config, Settings::in_namespace(NAMESPACE)).await
    };
    Ok([load("0", bytes.clone()).await?, load("1", rebuilt(&bytes, "1")).await?])
}

// === impl Load ===

impl Load {
    /// Starts a host and waits until all objects have been reconciled.
    async fn start(versions: &[Loaded; 2]) -> anyhow::Result<Self> {
        let api = EmbeddedApi::new(Options::default());
        for number in 0..OBJECTS {
            api.load(source(&format!("o{number}")), true)?;
        }
        let client = kube::Client::new(api.router(), NAMESPACE);
        let [first, _] = versions;
        let cluster = Cluster::new(client.clone());
        let host = Host::start(&cluster, vec![first.clone()], &HostOptions::default())?;
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
        let maps = Api::namespaced_with(client, NAMESPACE, &resource);
        for _ in 0..OBJECTS {
            host.next_report().await?;
        }
        host.drive().settled().await;
        Ok(Self { host, maps, waiting: Mutex::default() })
    }

    /// Changes all objects repeatedly, with swaps if `versions` are given.
    async fn show(self, versions: Option<&[Loaded; 2]>) -> anyhow::Result<Shown> {
        let load = Arc::new(self);
        let over = CancellationToken::new();
        let mut people = JoinSet::new();
        for person in 0..PEOPLE {
            let load = Arc::clone(&load);
            people.spawn(async move { load.person(person).await });
        }
        let all = async {
            let mut times = Vec::new();
            while let Some(of_one) = people.join_next().await {
                times.extend(of_one??);
            }
            over.cancel();
            anyhow::Ok(times)
        };
        let (times, longest, swaps) =
            tokio::try_join!(all, load.read(&over), load.swap(versions, &over))?;
        load.host.stop().await?;
        Ok(Shown { changes: Times::new(times), longest, swaps })
    }

    /// Changes one object, waits until the change is reconciled, and continues with the next.
    #[expect(clippy::disallowed_methods, reason = "it is not the host who writes")]
    async fn person(&self, person: usize) -> anyhow::Result<Vec<Duration>> {
        let mut times = Vec::new();
        for change in 1..=CHANGES {
            for number in (person..OBJECTS).step_by(PEOPLE) {
                let name = format!("o{number}");
                let (done, is_done) = oneshot::channel();
                self.waiting.lock().insert(name.clone(), (change, done));
                let patch = json!({"data": {"sequence": change.to_string()}});
                let start = Instant::now();
                self.maps.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
                is_done.await.context("nobody reads what is reconciled")?;
                times.push(start.elapsed());
            }
        }
        Ok(times)
    }

    /// Notifies the clients of reconciled changes. Returns the longest reconcile.
    async fn read(&self, over: &CancellationToken) -> anyhow::Result<Duration> {
        let mut longest = Duration::ZERO;
        loop {
            let report = tokio::select! {
                report = self.host.next_report() => report?,
                () = over.cancelled() => return Ok(longest),
            };
            ensure!(report.failure.is_none(), "{}: {:?}", report.key, report.failure);
            longest = longest.max(report.took);
            let name = report.key.name();
            let wanted = self.waiting.lock().get(name).map(|(change, _)| change.to_string());
            let Some(wanted) = wanted else { continue };
            let made = self.maps.get(&format!("{name}-made")).await?;
            // A run for another cause may have begun before the change.
            if made.data.pointer("/data/sequence").and_then(Value::as_str) == Some(&wanted)
                && let Some((_, done)) = self.waiting.lock().remove(name)
            {
                // The client may have given up waiting.
                let _ = done.send(());
            }
        }
    }

    /// Swaps the two versions until `over` is cancelled; returns the number of swaps.
    async fn swap(
        &self,
        versions: Option<&[Loaded; 2]>,
        over: &CancellationToken,
    ) -> anyhow::Result<usize> {
        let Some(versions) = versions else { return Ok(0) };
        let mut every = interval(SWAP_INTERVAL);
        for swap in 1.. {
            tokio::select! {
                _ = every.tick() => {}
                () = over.cancelled() => return Ok(swap - 1),
            }
            let Some(next) = versions.get(swap % versions.len()) else { continue };
            let description =
                Description { version: swap.to_string(), ..(*next.description).clone() };
            let next = Loaded { description: Arc::new(description), ..next.clone() };
            self.host.swap_tried(next).await?;
        }
        Ok(0)
    }
}

// === impl Shown ===

impl Shown {
    fn rows(&self, table: &mut Table, name: &str) {
        let times = &self.changes;
        let figure = format!(
            "median {}, p99 {}, longest {}; longest call {}",
            millis(times.median()),
            millis(times.at(99)),
            millis(times.at(100)),
            millis(self.longest)
        );
        table.row(name, figure, "");
    }
}

// === files ===

/// Measures the time from replacing a module's file to the first call of the new module.
async fn files(table: &mut Table) -> anyhow::Result<()> {
    let api = EmbeddedApi::new(Options::default());
    let cluster = Cluster::new(kube::Client::new(api.router(), NAMESPACE));
    let (modules, cache) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let bytes = module().await?;
    replace(modules.path(), &bytes)?;
    local::apply(&cluster, resources()).await?;
    let cluster = Cluster::new(kube::Client::new(api.router(), NAMESPACE));
    let host = Arc::new(Host::start(&cluster, Vec::new(), &HostOptions::default())?);
    let options = operator::Options {
        namespace: None,
        modules: modules.path().to_owned(),
        images: mortise_tests::registry::none(),
        now: HostOptions::default().now,
        lease: Guard::none(),
        largest: operator::Largest::default(),
    };
    let engine = engine(cache.path())?;
    let operator = Operator::open(&cluster, &engine, &host, options).await?;
    let stop = CancellationToken::new();
    let supervised = operator.run(stop.clone());
    let measured = async {
        first_call(&host, &bytes).await?;
        let builds: Vec<Vec<u8>> =
            (0..REPLACEMENTS).map(|build| rebuilt(&bytes, &build.to_string())).collect();
        for cached in ["without its code in the cache", "with its code in the cache"] {
            let mut times = Vec::new();
            for build in &builds {
                let start = Instant::now();
                replace(modules.path(), build)?;
                first_call(&host, build).await?;
                times.push(start.elapsed());
            }
            let times = Times::new(times);
            let figure =
                format!("median {}, longest {}", millis(times.median()), millis(times.at(100)));
            table.row(format!("a replaced module, to its first call, {cached}"), figure, "< 1 s");
        }
        stop.cancel();
        anyhow::Ok(())
    };
    tokio::try_join!(supervised, measured)?;
    host.stop().await
}

/// Returns the definition of Processors, an account that may do everything, a Processor and one
/// object for it.
pub(crate) fn resources() -> Vec<Value> {
    let rbac = "rbac.authorization.k8s.io";
    let consent = json!({"mortise.dev/processor": "*"});
    vec![
        definition::processors(),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "everything"},
            "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
        }),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "everything"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "everything"},
            "subjects": [{"kind": "ServiceAccount", "name": "puppet", "namespace": NAMESPACE}],
        }),
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "puppet", "namespace": NAMESPACE, "annotations": consent},
        }),
        source("o0"),
        json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor",
            "metadata": {"name": "puppet", "namespace": NAMESPACE},
            "spec": {
                "module": {"path": "puppet.wasm"}, "serviceAccountName": "puppet", "config": play("1"),
            },
        }),
    ]
}

/// Replaces the module atomically: a complete file is renamed.
fn replace(folder: &Path, module: &[u8]) -> anyhow::Result<()> {
    fs::write(folder.join("next"), module)?;
    Ok(fs::rename(folder.join("next"), folder.join("puppet.wasm"))?)
}

pub(crate) async fn first_call(host: &Host, module: &[u8]) -> anyhow::Result<()> {
    let digest = Digest::of(module);
    loop {
        let report = host.next_report().await?;
        ensure!(report.failure.is_none(), "{}: {:?}", report.key, report.failure);
        if report.version.is_some_and(|version| version.digest == digest) {
            return Ok(());
        }
    }
}

pub(crate) fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}
