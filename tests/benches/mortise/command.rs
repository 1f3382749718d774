//! `mortise run` as users start it, on a real control plane: the time until ten processors have
//! reconciled an object, with no compiled code in the cache and with all of it; the memory of idle
//! processors; and time and memory of the process for 1,000 and 5,000 APIRules, at the first start
//! and at the next.

use std::{
    fs,
    ops::Range,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use mortise::local;
use mortise_core::grant::rights::Account;
use mortise_host::{cluster::Cluster, operator::api::definition};
use mortise_tests::{cluster, rebuilt};
use program::{Program, get};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    calls::runtime,
    process::{self, Memory},
    rules,
    table::Table,
};

#[expect(
    dead_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "it is written for tests, which need more of it"
)]
#[path = "../../it/cluster/program.rs"]
pub(crate) mod program;

const IDLE: &str = "tests/guests/idle";
const API_RULE: &str = "guests/api-rule";
const PROCESSORS: usize = 10;
/// Enough processors to make the memory of each visible.
const MANY_PROCESSORS: usize = 100;
/// The namespace of the Processors, and their account.
const HOME: &str = "kyma-system";
const ACCOUNT: &str = "processors";
/// The interval of asking the host for its progress, long enough to cost the host no significant
/// time.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const SLOW_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Timeout that only a fault reaches.
const DEADLINE: Duration = Duration::from_mins(20);

/// A control plane with Processors that no host runs yet.
struct Stage {
    plane: cluster::Cluster,
    folder: TempDir,
}

/// Time and memory of a process until it had nothing left to do.
struct Took {
    wall: Duration,
    cpu: Duration,
    memory: Memory,
}

/// Adds the cost of `mortise run`.
///
/// # Errors
///
/// Fails without Go, which builds the control plane, or if a host does not do its work.
pub(crate) fn run(table: &mut Table) -> anyhow::Result<()> {
    let runtime = runtime(2, "command")?;
    runtime.block_on(async {
        Box::pin(starts(table)).await?;
        Box::pin(idle(table)).await?;
        Box::pin(many_rules(1_000, table)).await?;
        Box::pin(many_rules(5_000, table)).await
    })
}

async fn starts(table: &mut Table) -> anyhow::Result<()> {
    let stage = Stage::open(Vec::new(), IDLE).await?;
    stage.add_idle(0..PROCESSORS).await?;
    for (cache, budget) in [("cold", ""), ("warm", "< 1 s")] {
        stage.apply(vec![map(cache)]).await?;
        let took = stage.start_until(POLL_INTERVAL, have_run(PROCESSORS)).await?;
        table.row(
            format!("`mortise run` to the first reconcile of {PROCESSORS}, cache {cache}"),
            format!("{:.0} ms", took.wall.as_secs_f64() * 1e3),
            budget,
        );
    }
    Ok(())
}

/// Measures idle processors, with the code of all of them in the cache.
async fn idle(table: &mut Table) -> anyhow::Result<()> {
    let stage = Stage::open(Vec::new(), IDLE).await?;
    let mut all = 0;
    let mut first = 0;
    for count in [1, PROCESSORS + 1, MANY_PROCESSORS + 1] {
        stage.add_idle(all..count).await?;
        stage.apply(vec![map(&format!("{count}, cache cold"))]).await?;
        stage.start_until(POLL_INTERVAL, have_run(count)).await?;
        stage.apply(vec![map(&format!("{count}, cache warm"))]).await?;
        let memory = stage.start_until(POLL_INTERVAL, have_run(count)).await?.memory;
        if all == 0 {
            first = memory.resident();
            table.row("`mortise run` with one idle processor".to_owned(), memory.to_string(), "");
        } else {
            let each = memory.resident().saturating_sub(first) / (count - 1);
            let what = format!("  {} more: each of them", count - 1);
            table.row(what, format!("{} KiB", each >> 10), "< 1024 KiB");
        }
        all = count;
    }
    Ok(())
}

async fn many_rules(rules: usize, table: &mut Table) -> anyhow::Result<()> {
    let istio = cluster::istio().await?.context("the control plane is built with Go")?;
    let stage = Stage::open(istio, API_RULE).await?;
    fs::copy(mortise_tests::guest(API_RULE)?, stage.module("api-rule"))?;
    stage.apply((0..rules).map(rules::rule).collect()).await?;
    stage.apply(vec![processor("api-rule")]).await?;
    // Each key waits only for its resync.
    let are_settled = |told: &[Value]| {
        let are = |count: &str, number| told.iter().all(|of| of[count] == json!(number));
        told.len() == 1 && are("delayed", rules) && are("ready", 0) && are("running", 0)
    };
    let budget_of_memory = if rules == 1_000 { "< 85 MiB" } else { "< 240 MiB" };
    for (when, budget) in [("first time", ""), ("the next start", "< 2.5 s of CPU for 5,000")] {
        let Took { wall, cpu, memory } = stage.start_until(SLOW_POLL_INTERVAL, are_settled).await?;
        let (wall, cpu) = (wall.as_secs_f64(), cpu.as_secs_f64());
        let figure = format!("{wall:.2} s, CPU {cpu:.2} s");
        table.row(format!("`mortise run`, {rules} rules, {when}"), figure, budget);
        table.row("  resident memory", memory.to_string(), budget_of_memory);
    }
    Ok(())
}

/// Returns whether this many processors have called their guest.
fn have_run(count: usize) -> impl Fn(&[Value]) -> bool {
    move |told| told.len() == count && told.iter().all(|of| of["runs"].as_u64() > Some(0))
}

/// Returns the object that the idle processors read. Another value makes the next start reconcile
/// it again.
fn map(value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": HOME, "name": "map"}, "data": {"value": value},
    })
}

/// Returns a Processor whose module has its name.
fn processor(name: &str) -> Value {
    json!({
        "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor",
        "metadata": {"namespace": HOME, "name": name},
        "spec": {"module": {"path": format!("{name}.wasm")}, "serviceAccountName": ACCOUNT},
    })
}

/// Ends a host, and waits for it.
///
/// # Errors
///
/// Fails if it does not end well.
pub(crate) async fn end(program: &mut Program) -> anyhow::Result<()> {
    program.terminate();
    let (status, said) = program.ended().await;
    ensure!(status.success(), "the host ended with {status}: {said}");
    Ok(())
}

// === impl Stage ===

impl Stage {
    /// Starts a control plane with these kinds in addition to a guest's own, the objects that the
    /// examples refer to, and an account with the rights that the guest needs.
    async fn open(definitions: Vec<Value>, guest: &str) -> anyhow::Result<Self> {
        let plane = cluster::own().await?.context("the control plane is built with Go")?;
        plane.install(&definitions).await?;
        plane.install(&mortise_tests::definitions(API_RULE)?).await?;
        plane.install(&[definition::processors()]).await?;
        let stage = Self { plane, folder: tempfile::tempdir()? };
        fs::create_dir(stage.modules())?;
        let mut objects = rules::surroundings()?;
        if guest == IDLE {
            // The guest needs only built-in kinds.
            objects.retain(|object| object["kind"] == "Namespace");
        }
        stage.apply(objects).await?;
        let account = Account { namespace: HOME.to_owned(), name: ACCOUNT.to_owned() };
        let description = mortise_tests::loaded(guest, "{}").await?.description;
        let home = stage.home().await?;
        stage.apply(mortise_tests::rules::rights(&home, &account, &description).await?).await?;
        Ok(stage)
    }

    /// Adds idle processors, each with a module of its own.
    async fn add_idle(&self, numbers: Range<usize>) -> anyhow::Result<()> {
        let module = fs::read(mortise_tests::guest(IDLE)?)?;
        let mut processors = Vec::new();
        for number in numbers {
            let name = format!("idle-{number}");
            fs::write(self.module(&name), rebuilt(&module, &name))?;
            processors.push(processor(&name));
        }
        self.apply(processors).await
    }

    fn modules(&self) -> PathBuf {
        self.folder.path().join("modules")
    }

    fn module(&self, name: &str) -> PathBuf {
        self.modules().join(format!("{name}.wasm"))
    }

    /// Returns the control plane with an administrator's rights.
    async fn home(&self) -> anyhow::Result<Cluster> {
        Ok(Cluster::new(self.plane.client().await?))
    }

    async fn apply(&self, objects: Vec<Value>) -> anyhow::Result<()> {
        local::apply(&self.home().await?, objects).await
    }

    /// Starts a host, waits until `holds` is true of its report on the processors, and ends it.
    async fn start_until(
        &self,
        glance: Duration,
        holds: impl Fn(&[Value]) -> bool,
    ) -> anyhow::Result<Took> {
        let (kubeconfig, cache) = (self.plane.kubeconfig(), self.folder.path().join("cache"));
        let start = Instant::now();
        let mut program =
            Program::start(&kubeconfig, &self.modules(), &cache, ["--namespace", HOME]);
        let ports = program.ports().await;
        loop {
            let (code, told) = get(&ports.admin, "/processors").await;
            ensure!(code == 200, "the host says {code}: {told}");
            let told: Vec<Value> = serde_json::from_str(&told)?;
            if holds(&told) {
                break;
            }
            ensure!(start.elapsed() < DEADLINE, "the host does not get there: {told:?}");
            tokio::time::sleep(glance).await;
        }
        let wall = start.elapsed();
        let (cpu, memory) = (process::cpu_of(program.id())?, Memory::of(program.id())?);
        end(&mut program).await?;
        Ok(Took { wall, cpu, memory })
    }
}
