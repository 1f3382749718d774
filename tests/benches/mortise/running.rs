//! `mortise run` beside a real control plane: its progress, metrics, CPU time and memory.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::ensure;
use mortise_tests::cluster;
use serde_json::Value;

use crate::{
    command::{
        end,
        program::{Ports, Program, get},
    },
    process::{self, Memory},
};

/// The interval of asking for progress.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Timeout that only a fault reaches.
const DEADLINE: Duration = Duration::from_mins(20);

/// A running host.
pub(crate) struct Running {
    program: Program,
    ports: Ports,
}

/// What a host has done so far.
pub(crate) struct Moment {
    pub(crate) at: Instant,
    cpu: Duration,
    /// The sums of the series of each metric.
    metrics: BTreeMap<String, f64>,
}

/// Makes a folder for a host, and in it one with the module of a guest, `NAME.wasm`.
pub(crate) fn folder(guest: &str, name: &str) -> anyhow::Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    fs::create_dir(folder.path().join("modules"))?;
    let module = folder.path().join("modules").join(format!("{name}.wasm"));
    fs::copy(mortise_tests::guest(guest)?, module)?;
    Ok(folder)
}

// === impl Running ===

impl Running {
    /// Starts a host with a folder of [`folder`].
    pub(crate) async fn start<const N: usize>(
        plane: &cluster::Cluster,
        folder: &Path,
        arguments: [&str; N],
    ) -> Self {
        let (modules, cache) = (folder.join("modules"), folder.join("cache"));
        let mut program = Program::start(&plane.kubeconfig(), &modules, &cache, arguments);
        let ports = program.ports().await;
        Self { program, ports }
    }

    /// Waits until no key is ready or running and `holds` says so too.
    pub(crate) async fn until(
        &self,
        what: &str,
        holds: impl AsyncFn() -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            let (code, told) = get(&self.ports.admin, "/processors").await;
            ensure!(code == 200, "the host says {code}: {told}");
            let processors: Vec<Value> = serde_json::from_str(&told)?;
            let is_idle = |of: &Value| of["ready"] == 0 && of["running"] == 0;
            if !processors.is_empty() && processors.iter().all(is_idle) && holds().await? {
                return Ok(());
            }
            ensure!(start.elapsed() < DEADLINE, "not reached: {what}: {told}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    pub(crate) async fn moment(&self) -> anyhow::Result<Moment> {
        let (code, text) = get(&self.ports.public, "/metrics").await;
        ensure!(code == 200, "the metrics are answered {code}");
        let mut metrics: BTreeMap<String, f64> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let name = series.split('{').next().unwrap_or_default();
            *metrics.entry(name.to_owned()).or_default() += value.parse::<f64>()?;
        }
        Ok(Moment { at: Instant::now(), cpu: process::cpu_of(self.program.id())?, metrics })
    }

    pub(crate) fn memory(&self) -> anyhow::Result<Memory> {
        Memory::of(self.program.id())
    }

    pub(crate) async fn end(mut self) -> anyhow::Result<()> {
        end(&mut self.program).await
    }
}

// === impl Moment ===

impl Moment {
    /// The time between two moments.
    pub(crate) fn wall_since(&self, before: &Self) -> Duration {
        self.at.duration_since(before.at)
    }

    /// The CPU time of the host between two moments.
    pub(crate) fn cpu_since(&self, before: &Self) -> Duration {
        self.cpu.saturating_sub(before.cpu)
    }

    /// Returns the sum of the series of a metric.
    pub(crate) fn value(&self, metric: &str) -> f64 {
        self.metrics.get(metric).copied().unwrap_or_default()
    }

    /// Returns by how much that sum rose.
    pub(crate) fn rose_since(&self, before: &Self, metric: &str) -> f64 {
        self.value(metric) - before.value(metric)
    }

    /// The bytes of all stores, as text.
    pub(crate) fn stores(&self) -> String {
        format!("{:.0} MiB", self.value("mortise_store_bytes") / f64::from(1 << 20))
    }
}
