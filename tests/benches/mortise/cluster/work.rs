//! A host at work on an API with rules.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use kube::{
    api::{DeleteParams, DynamicObject, ListParams, PostParams},
    runtime::wait::await_condition,
};
use mortise_host::{
    cluster::Cluster,
    host::{Host, Options},
};
use serde_json::Value;

use super::{
    loaded,
    plane::{Plane, Used},
    tap::Tap,
};
use crate::{process, restart::PAST_RESYNC, settle, table::Times};

/// Number of objects that are deleted or changed.
const DRIFTS: u32 = 15;

/// A host, and the tap on its requests.
pub(super) struct Work<'a> {
    plane: &'a Plane,
    pub(super) host: Host,
    pub(super) tap: Tap,
    rules: usize,
}

/// A user's change of a produced object.
#[derive(Clone, Copy)]
pub(super) enum Drift {
    Deleted,
    Changed,
}

/// The cost of some work.
pub(super) struct Took {
    pub(super) wall: Duration,
    pub(super) host: Duration,
    pub(super) used: Used,
    pub(super) runs: u64,
    pub(super) requests: String,
}

/// The usage up to a moment.
#[derive(Clone, Copy)]
struct Sample {
    at: Instant,
    cpu: process::Cpu,
    used: Used,
    runs: u64,
}

// === impl Work ===

impl<'a> Work<'a> {
    /// Starts a host, and waits until every rule has been reconciled and nothing is left to do.
    /// Returns the cost until the last rule was reconciled.
    pub(super) async fn first(plane: &'a Plane, rules: usize) -> anyhow::Result<(Self, Took)> {
        let (work, begun) = Self::start(plane, rules, true).await?;
        let settled = settle::settled(&work.host, rules, || work.sample()).await?;
        let all_ran = settled.all_ran.context("not every rule was reconciled")?;
        let took = work.took(begun, all_ran);
        Ok((work, took))
    }

    /// Starts a host on settled rules, and waits until it has checked all of them.
    pub(super) async fn again(plane: &'a Plane, rules: usize) -> anyhow::Result<(Self, Took)> {
        let (work, begun) = Self::start(plane, rules, false).await?;
        let settled = settle::settled(&work.host, rules, || work.sample()).await?;
        let took = work.took(begun, settled.end);
        Ok((work, took))
    }

    async fn start(plane: &'a Plane, rules: usize, record: bool) -> anyhow::Result<(Self, Sample)> {
        let tap = Tap::new(plane.client().await?, record);
        let (cluster, loaded) = (Cluster::new(tap.client()), loaded().await?);
        let begun = Sample::take(plane, None)?;
        let options = Options { skips: true, ..Options::default() };
        let host = Host::start(&cluster, Vec::new(), &options)?;
        host.swap(loaded).await?;
        Ok((Self { plane, host, tap, rules }, begun))
    }

    /// Advances the time until every rule has a resync.
    pub(super) async fn resync(&self) -> anyhow::Result<Took> {
        self.tap.forget();
        self.host.drive().stand_still();
        let begun = self.sample()?;
        self.host.drive().advance(PAST_RESYNC);
        let settled = settle::settled(&self.host, self.rules, || self.sample()).await?;
        Ok(self.took(begun, settled.end))
    }

    /// Adds a host name to the Gateway that all rules read; the rules' outcomes stay the same.
    pub(super) async fn gateway_changes(&self) -> anyhow::Result<Took> {
        let gateways = self.plane.api("networking.istio.io/v1", "Gateway", "kyma-system").await?;
        let mut gateway = gateways.get("kyma-gateway").await?;
        let hosts = gateway.data.pointer_mut("/spec/servers/1/hosts").and_then(Value::as_array_mut);
        hosts.context("the Gateway has a second server")?.push("other.example.com".into());
        self.tap.forget();
        let begun = self.sample()?;
        gateways.replace("kyma-gateway", &PostParams::default(), &gateway).await?;
        let all_ran = settle::all_run(&self.host, self.rules, || self.sample()).await?;
        Ok(self.took(begun, all_ran))
    }

    /// Deletes or changes one produced object after the other, because the host gives in to a user
    /// who takes the same field repeatedly. Returns the time until each object was restored.
    pub(super) async fn drifts(&self, how: Drift) -> anyhow::Result<Times> {
        let services = self.plane.api("networking.istio.io/v1", "VirtualService", "shop").await?;
        let mut times = Vec::new();
        for first in services.list(&ListParams::default().limit(DRIFTS)).await?.items {
            let name = first.metadata.name.clone().context("the object has no name")?;
            let start = Instant::now();
            match how {
                Drift::Deleted => drop(services.delete(&name, &DeleteParams::default()).await?),
                Drift::Changed => {
                    let mut changed = first.clone();
                    let hosts =
                        changed.data.pointer_mut("/spec/hosts").context("no `spec.hosts`")?;
                    *hosts = serde_json::json!(["elsewhere.example.com"]);
                    services.replace(&name, &PostParams::default(), &changed).await?;
                }
            }
            let is_back = |found: Option<&DynamicObject>| {
                found.is_some_and(|found| {
                    let is_new = found.metadata.resource_version != first.metadata.resource_version;
                    is_new && found.data.get("spec") == first.data.get("spec")
                })
            };
            await_condition(services.clone(), &name, is_back).await?;
            times.push(start.elapsed());
            settle::settled(&self.host, self.rules, || Ok(())).await?;
        }
        ensure!(!times.is_empty(), "there is no VirtualService");
        Ok(Times::new(times))
    }

    fn sample(&self) -> anyhow::Result<Sample> {
        Sample::take(self.plane, Some(&self.host))
    }

    fn took(&self, begun: Sample, end: Sample) -> Took {
        Took {
            wall: end.at - begun.at,
            host: (end.cpu - begun.cpu).host,
            used: end.used - begun.used,
            runs: end.runs - begun.runs,
            requests: self.tap.counts(),
        }
    }
}

// === impl Sample ===

impl Sample {
    fn take(plane: &Plane, host: Option<&Host>) -> anyhow::Result<Self> {
        let runs = host.and_then(|host| Some(host.status().first()?.runs)).unwrap_or(0);
        Ok(Self { at: Instant::now(), cpu: process::cpu()?, used: plane.used()?, runs })
    }
}
