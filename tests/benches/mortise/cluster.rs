//! Many APIRules on a real control plane: from nothing to settled, beside a bare client that sends the same requests to another
//! one; again by a new host; after a change of a Gateway that all of them read; and one produced object, until it is mended.

mod bare;
mod plane;
mod tap;

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use kube::api::{DeleteParams, PostParams};
use mortise_host::{
    cluster::{Account, Cluster},
    run::{Host, Loaded, Options, Settings},
};

use crate::{
    calls::runtime,
    process,
    table::{Table, Times},
};
use serde_json::Value;

use plane::{Plane, Used};
use tap::Tap;

/// Only a fault takes longer.
const DEADLINE: Duration = Duration::from_mins(20);
/// Calls, and so streams of requests, at once: the host's own choice.
const PARALLEL: usize = 4;
/// How often an object is taken away.
const DRIFTS: usize = 15;
/// The account that the processor has.
const ACCOUNT: (&str, &str) = ("kyma-system", "api-rule");

/// What it took until nothing was to be done any more.
struct Settled {
    wall: Duration,
    host: Duration,
    used: Used,
    runs: usize,
    resident: usize,
}

/// A host at work on a control plane.
struct Work {
    host: Host,
    tap: Tap,
    rules: usize,
}

/// Adds what 1,000 and 5,000 rules cost.
///
/// # Errors
///
/// No Go to build the control plane with, rules that do not become ready, or a host that fails.
pub(crate) fn run(table: &mut Table) -> anyhow::Result<()> {
    [1_000, 5_000].into_iter().try_for_each(|rules| {
        let runtime = runtime(2, "host")?;
        let result = runtime.block_on(Box::pin(rows(rules, table)));
        runtime.shutdown_background();
        result
    })
}

async fn rows(rules: usize, table: &mut Table) -> anyhow::Result<()> {
    let plane = Plane::start(rules).await?;
    let before = plane.versions().await?;
    let (work, first) = Work::start(&plane, rules, true).await?;
    plane.check().await?;
    first.rows(table, &format!("{rules} rules, first time"), rules, &work.tap);
    let recorded = work.tap.take_recorded();
    let writes = recorded.len();
    table.row("  API server and etcd", first.used.per_write(writes), "");
    work.host.stop().await?;

    let (work, again) = Work::start(&plane, rules, false).await?;
    again.rows(table, &format!("{rules} rules, a new host, nothing changed"), rules, &work.tap);
    work.gateway_changes(&plane, table).await?;
    work.drifts(&plane, table).await?;
    work.host.stop().await?;
    drop(plane);

    let other = Plane::start(rules).await?;
    let after = other.versions().await?;
    let sent = bare::send(&other, recorded, &before, &after, PARALLEL).await?;
    other.check().await?;
    table.row(
        format!("{rules} rules, a bare client sends the same {writes} requests"),
        format!("{:.2} s, CPU {:.2} s", sent.wall.as_secs_f64(), sent.client.as_secs_f64()),
        "",
    );
    table.row("  API server and etcd", sent.used.per_write(writes), "");
    let ratio = first.wall.as_secs_f64() / sent.wall.as_secs_f64();
    table.row("  the host beside it", format!("{ratio:.2} × its time"), "< 1.3 ×");
    Ok(())
}

// === impl Work ===

impl Work {
    /// Starts a host, and waits until nothing is to be done any more.
    async fn start(plane: &Plane, rules: usize, record: bool) -> anyhow::Result<(Self, Settled)> {
        let tap = Tap::new(plane.client().await?, record);
        let cluster = Cluster::new(tap.client());
        let loaded = loaded().await?;
        let (cpu, used, start) = (process::cpu()?, plane.used()?, Instant::now());
        let host = Host::start(&cluster, Vec::new(), &Options::default())?;
        host.exchange(loaded).await?;
        let work = Self { host, tap, rules };
        let runs = work.all_run().await?;
        let settled = Settled {
            wall: start.elapsed(),
            host: (process::cpu()? - cpu).host,
            used: plane.used()? - used,
            runs,
            resident: process::resident()?,
        };
        Ok((work, settled))
    }

    /// Waits until every rule has run and nothing is ready any more. How many runs that took.
    async fn all_run(&self) -> anyhow::Result<usize> {
        let all = async {
            let (mut seen, mut runs) = (BTreeSet::new(), 0);
            loop {
                tokio::select! {
                    biased;
                    report = self.host.next_report() => {
                        let report = report?;
                        ensure!(report.failure.is_none(), "{}: {:?}", report.key, report.failure);
                        runs += 1;
                        seen.insert(report.key);
                    }
                    () = self.host.settled(), if seen.len() >= self.rules => return Ok(runs),
                }
            }
        };
        tokio::time::timeout(DEADLINE, all).await.context("the rules did not settle")?
    }

    /// Adds a host to the Gateway that all rules read; it changes nothing of what they want.
    async fn gateway_changes(&self, plane: &Plane, table: &mut Table) -> anyhow::Result<()> {
        let gateways = plane.api("networking.istio.io/v1", "Gateway", "kyma-system").await?;
        let mut gateway = gateways.get("kyma-gateway").await?;
        let hosts = gateway.data.pointer_mut("/spec/servers/1/hosts").and_then(Value::as_array_mut);
        hosts.context("the Gateway has a second server")?.push("other.example.com".into());
        let (cpu, start) = (process::cpu()?, Instant::now());
        self.tap.forget();
        gateways.replace("kyma-gateway", &PostParams::default(), &gateway).await?;
        self.all_run().await?;
        let used = (process::cpu()? - cpu).host;
        let (wall, used) = (start.elapsed().as_secs_f64(), used.as_secs_f64());
        let figure = format!("{wall:.2} s, host CPU {used:.2} s, {}", self.tap.counts());
        table.row("  a Gateway that all read changes", figure, "");
        Ok(())
    }

    /// Deletes one produced object after the other; how long until each is there again.
    async fn drifts(&self, plane: &Plane, table: &mut Table) -> anyhow::Result<()> {
        let services = plane.api("networking.istio.io/v1", "VirtualService", "shop").await?;
        let mut times = Vec::new();
        for _ in 0..DRIFTS {
            let list = services.list(&kube::api::ListParams::default().limit(1)).await?;
            let first = list.items.first().context("there is a VirtualService")?;
            let name = first.metadata.name.clone().context("it has a name")?;
            let uid = first.metadata.uid.clone();
            let start = Instant::now();
            services.delete(&name, &DeleteParams::default()).await?;
            let is_back = |found: Option<&kube::api::DynamicObject>| {
                found.is_some_and(|found| found.metadata.uid != uid)
            };
            kube::runtime::wait::await_condition(services.clone(), &name, is_back).await?;
            times.push(start.elapsed());
            self.host.next_report().await?;
        }
        let times = Times::new(times);
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        let figure = format!(
            "median {:.1} ms, longest {:.1} ms",
            millis(times.median()),
            millis(times.at(100))
        );
        table.row("  a produced object is deleted, until it is there again", figure, "< 1 s");
        Ok(())
    }
}

/// The processor, with the rights of its account.
async fn loaded() -> anyhow::Result<Loaded> {
    let loaded = mortise_tests::loaded("guests/api-rule", "{}").await?;
    let (namespace, name) = ACCOUNT;
    let account = Account { namespace: namespace.to_owned(), name: name.to_owned() };
    let settings = Settings { account: Some(account), ..Settings::in_namespace(namespace) };
    Ok(Loaded { settings, ..loaded })
}

// === impl Settled ===

impl Settled {
    fn rows(&self, table: &mut Table, name: &str, rules: usize, tap: &Tap) {
        let count = u32::try_from(rules).unwrap_or(u32::MAX);
        let (wall, cpu) = (self.wall.as_secs_f64(), self.host.as_secs_f64());
        let each = (self.wall / count).as_secs_f64() * 1e3;
        table.row(name, format!("{wall:.2} s ({each:.2} ms per rule), {} runs", self.runs), "");
        let cores = cpu / wall.max(f64::EPSILON);
        table.row("  host CPU", format!("{cpu:.2} s ({cores:.2} cores)"), "< half a core");
        table.row("  host resident", format!("{} MiB", self.resident >> 20), "< 33 MiB for 1,000");
        table.row("  requests", tap.counts(), "");
    }
}
