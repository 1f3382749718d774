//! Two clusters in memory with driven time. The processor is a native function.

use std::time::Duration;

use mortise_sdk::testing::{Settled, Stub, cluster::Cluster, clusters::Clusters};
use serde_json::Value;

use super::{
    differences::Differences,
    format::{Scenario, Side},
    names::Names,
    run,
    stage::{Stage, World, cluster_names, of_consumer},
};
use crate::goldens::scenario::Report;

/// Reconciles with the processor under test until nothing is due.
pub(super) type Settle = fn(&Stub) -> Settled;

/// Two clusters in memory, and the processor.
pub(super) struct Memory {
    /// The consumer is the home cluster; all others are the provider under different names.
    clusters: Clusters,
    provider: Cluster,
    settle: Settle,
    /// The processor, while it runs.
    stub: Option<Stub>,
    /// The runs that failed last, by key.
    failures: Vec<String>,
}

/// Runs a scenario to the first step that differs from the record.
pub(super) fn run(
    scenario: &Scenario,
    crds: &[Value],
    settle: Settle,
    intended: &Differences,
) -> Report {
    match stage(scenario, crds, settle) {
        Ok(mut stage) => run::run(scenario, &mut stage, intended),
        Err(error) => Report::broken(&error),
    }
}

/// Sets up fresh clusters, in which the original's kinds are defined.
///
/// # Errors
///
/// Fails if the definitions are not valid.
pub(super) fn stage(
    scenario: &Scenario,
    crds: &[Value],
    settle: Settle,
) -> anyhow::Result<Stage<Memory>> {
    let now = "2026-01-01T00:00:00Z".parse()?;
    let consumer = Cluster::new(now, &of_consumer(crds), &[], &[]).map_err(anyhow::Error::msg)?;
    let provider = consumer.beside("provider", crds, &[], &[]).map_err(anyhow::Error::msg)?;
    let mut clusters = Clusters::new(consumer);
    for name in cluster_names(scenario) {
        clusters.add(provider.named(&name));
    }
    let memory = Memory { clusters, provider, settle, stub: None, failures: Vec::new() };
    Stage::new(scenario, memory, Names::default())
}

// === impl Memory ===

impl Memory {
    /// Starts the processor, which takes over the fields of former field managers, or stops it.
    pub(super) fn hand_over(&mut self, to_ours: Option<&[&str]>) {
        let start = |from: &[&str]| Stub::over(self.clusters.clone()).takes_over(from.to_vec());
        self.stub = to_ours.map(start);
    }
}

impl World for Memory {
    type Api = Cluster;

    const IS_DRIVEN: bool = true;

    fn cluster(&self, side: Side) -> &Cluster {
        match side {
            Side::P => &self.provider,
            Side::C => self.clusters.home(),
        }
    }

    fn revision(&self) -> u64 {
        [Side::P, Side::C].map(|side| self.cluster(side).api().revision()).iter().sum()
    }

    fn work(&mut self) {
        if let Some(stub) = &self.stub {
            let settled = (self.settle)(stub);
            let failures = settled.failures.iter();
            self.failures = failures.map(|(key, why)| format!("{key}: {why}")).collect();
        }
    }

    fn pass(&mut self, time: Duration) {
        self.clusters.home().advance(time);
    }

    fn switch(&mut self, is_started: bool) -> anyhow::Result<()> {
        self.stub = is_started.then(|| Stub::over(self.clusters.clone()));
        Ok(())
    }

    fn is_running(&self) -> bool {
        self.stub.is_some()
    }

    fn connect(&mut self, clusters: &[(String, bool)]) {
        for (name, is_reachable) in clusters {
            self.clusters.set_reachable(name, *is_reachable);
        }
    }

    fn failures(&mut self) -> Vec<String> {
        self.failures.clone()
    }
}
