//! The first reconcile of many APIRules on the embedded API, then a new host when nothing has
//! changed.

pub(crate) use mortise_tests::rules::{rule, rule_of_three_versions, surroundings};

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use axum::body::HttpBody;
use bytes::Bytes;
use futures::stream::poll_fn;
use http_body_util::{BodyExt as _, StreamBody};
use kube::{Client, client::Body};
use mortise::local;
use mortise_embedded_api::{EmbeddedApi, Options};
use mortise_host::{
    cluster::Cluster,
    host::{Host, Loaded, Options as HostOptions},
};
use serde_json::Value;
use tokio::{runtime::Handle, sync::mpsc};
use tower::{BoxError, ServiceExt as _};

use crate::{
    calls::runtime,
    process::{self, API_THREAD, Cpu},
    table::Table,
};

/// Timeout that only a fault reaches.
const DEADLINE: Duration = Duration::from_mins(10);
/// Pieces of a body that are buffered for its reader.
const FRAMES: usize = 64;
const PRODUCED: [&str; 3] = ["VirtualService", "AuthorizationPolicy", "RequestAuthentication"];
/// Objects that are made for each rule: a `VirtualService`, a policy for each open path and each
/// authorization, and one for the tokens.
const PER_RULE: usize = 6;

/// The versions that rules are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// All in v2.
    Alike,
    /// In v1beta1, v2alpha1 and v2, each in turn.
    InThreeVersions,
}

/// An API, and a processor for hosts that use it.
pub(crate) struct Setting {
    pub(crate) api: EmbeddedApi,
    pub(crate) cluster: Cluster,
    pub(crate) loaded: Loaded,
    pub(crate) rules: usize,
    written: Written,
}

/// The cost until nothing was left to do.
struct Settled {
    wall: Duration,
    cpu: Cpu,
    runs: usize,
    resident: usize,
    stores: usize,
    requests: BTreeMap<String, u64>,
}

/// Adds the cost of many rules, and of four times as many.
///
/// # Errors
///
/// Fails if a rule does not become ready, or a host fails.
pub(crate) fn run(table: &mut Table) -> anyhow::Result<()> {
    [1_000, 4_000].into_iter().try_for_each(|rules| settle(rules, table))
}

/// Adds the cost of this many rules.
fn settle(rules: usize, table: &mut Table) -> anyhow::Result<()> {
    let serving = runtime(2, API_THREAD)?;
    let hosting = runtime(2, "host")?;
    let result = hosting.block_on(async {
        let setting = Setting::new(rules, Written::Alike, serving.handle().clone()).await?;
        let first = setting.settle().await?;
        setting.check()?;
        first.rows(table, &format!("{rules} rules, first time"), rules, "host < half a core");
        let second = setting.settle().await?;
        second.rows(
            table,
            &format!("{rules} rules, nothing changed"),
            rules,
            "no write, host < 0.2 ms per object",
        );
        setting.api.stop();
        anyhow::Ok(())
    });
    serving.shutdown_background();
    result
}

/// Returns the number of requests to an API since the last reset, by verb.
pub(crate) fn requests(api: &EmbeddedApi) -> BTreeMap<String, u64> {
    let mut requests = BTreeMap::new();
    for (request, count) in api.requests() {
        *requests.entry(format!("{:?}", request.verb).to_lowercase()).or_default() += count;
    }
    requests
}

/// Returns counts by name as text.
pub(crate) fn counted(counts: &BTreeMap<String, u64>) -> String {
    let counts = counts.iter().map(|(name, count)| format!("{name} {count}"));
    counts.collect::<Vec<_>>().join(", ")
}

/// Returns a client of an API that answers on threads of its own, so that its CPU time can be
/// separated from the host's.
pub(crate) fn client(api: &EmbeddedApi, serving: Handle) -> Client {
    let router = api.router();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let answer = serving.spawn(router.clone().oneshot(request));
        let serving = serving.clone();
        async move {
            let answer = answer.await?.unwrap_or_else(|never| match never {});
            Ok::<_, BoxError>(answer.map(|body| made_by(&serving, body)))
        }
    });
    Client::new(service, "default")
}

/// Returns a body that is produced on other threads than its reader's: a watch makes each event
/// when it is polled.
fn made_by(
    serving: &Handle,
    mut body: axum::body::Body,
) -> impl HttpBody<Data = Bytes, Error = axum::Error> + Send + use<> {
    let (sender, mut frames) = mpsc::channel(FRAMES);
    serving.spawn(async move {
        loop {
            let frame = tokio::select! {
                () = sender.closed() => return,
                frame = body.frame() => frame,
            };
            let Some(frame) = frame else { return };
            if sender.send(frame).await.is_err() {
                return;
            }
        }
    });
    StreamBody::new(poll_fn(move |context| frames.poll_recv(context)))
}

// === impl Setting ===

impl Setting {
    pub(crate) async fn new(
        rules: usize,
        written: Written,
        serving: Handle,
    ) -> anyhow::Result<Self> {
        let api = EmbeddedApi::new(Options::default());
        let cluster = Cluster::new(client(&api, serving));
        let config = match written {
            Written::Alike => "{}",
            Written::InThreeVersions => r#"{"v1beta1": "allowed"}"#,
        };
        let loaded = mortise_tests::loaded("guests/api-rule", config).await?;
        local::apply(&cluster, mortise_tests::definitions("guests/api-rule")?).await?;
        local::serve_untyped(&api, &loaded.description, |_| false);
        local::apply(&cluster, surroundings()?).await?;
        for index in 0..rules {
            let rule = match written {
                Written::Alike => rule(index),
                Written::InThreeVersions => rule_of_three_versions(index)?,
            };
            let loaded = api.load(rule, written == Written::Alike);
            loaded.with_context(|| format!("the API refuses rule {index}"))?;
        }
        Ok(Self { api, cluster, loaded, rules, written })
    }

    /// Starts a host, waits until nothing is left to do, and ends it.
    async fn settle(&self) -> anyhow::Result<Settled> {
        self.api.reset_requests();
        let (cpu, start) = (process::cpu()?, Instant::now());
        let mut host =
            Host::start(&self.cluster, vec![self.loaded.clone()], &HostOptions::default())?;
        let settled = tokio::time::timeout(DEADLINE, self.settled(&mut host, cpu, start)).await;
        let settled = settled.context("the rules did not settle")??;
        host.stop().await?;
        Ok(settled)
    }

    async fn settled(&self, host: &mut Host, cpu: Cpu, start: Instant) -> anyhow::Result<Settled> {
        let mut progress = host.drive().stores().progress();
        let (mut seen, mut runs) = (BTreeSet::new(), 0);
        loop {
            tokio::select! {
                biased;
                report = host.next_report() => {
                    let report = report?;
                    anyhow::ensure!(report.failure.is_none(), "{}: {:?}", report.key, report.failure);
                    runs += 1;
                    seen.insert(report.key);
                }
                changed = progress.changed() => changed?,
            }
            if seen.len() < self.rules || !host.drive().is_idle() {
                continue;
            }
            let (wall, cpu) = (start.elapsed(), process::cpu()? - cpu);
            // Checked after the time was taken: the check costs more than the measured work where
            // nothing changes.
            if host.drive().holds(&self.api.objects()) {
                let (resident, stores) =
                    (process::resident()?, host.drive().stores().memory().total);
                return Ok(Settled {
                    wall,
                    cpu,
                    runs,
                    resident,
                    stores,
                    requests: self.requests(),
                });
            }
        }
    }

    /// Returns the number of requests since the last reset, by verb.
    pub(crate) fn requests(&self) -> BTreeMap<String, u64> {
        requests(&self.api)
    }

    /// Checks that every rule is ready and all of its objects exist.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let objects = self.api.objects();
        let text = |object: &Value, at: &str| {
            object.pointer(at).and_then(Value::as_str).map(str::to_owned)
        };
        // Version v1beta1 is deprecated, and its status says so.
        let deprecated = self.written == Written::InThreeVersions;
        let ready = |object: &&Value| match text(object, "/status/state").as_deref() {
            Some("Ready") => true,
            Some("Warning") => deprecated,
            _ => false,
        };
        let is_produced =
            |object: &&Value| text(object, "/kind").is_some_and(|kind| PRODUCED.contains(&&*kind));
        let counts =
            (objects.iter().filter(ready).count(), objects.iter().filter(is_produced).count());
        if deprecated {
            anyhow::ensure!(counts.0 == self.rules, "{} rules of {}", counts.0, self.rules);
            return Ok(());
        }
        let expected = (self.rules, self.rules * PER_RULE);
        anyhow::ensure!(counts == expected, "ready rules, objects: {counts:?}, not {expected:?}");
        Ok(())
    }
}

// === impl Settled ===

impl Settled {
    fn rows(&self, table: &mut Table, name: &str, rules: usize, budget: &str) {
        let count = u32::try_from(rules).unwrap_or(u32::MAX);
        let (wall, cpu) = (self.wall, self.cpu);
        let each = (wall / count).as_secs_f64() * 1e3;
        let figure =
            format!("{:.2} s ({each:.2} ms per rule), {} runs", wall.as_secs_f64(), self.runs);
        table.row(name, figure, "the cost per rule does not grow");
        let seconds = |time: Duration| time.as_secs_f64();
        let used = seconds(cpu.host) / seconds(wall).max(f64::EPSILON);
        let figure = format!(
            "host {:.2} s ({used:.2} cores), API {:.2} s",
            seconds(cpu.host),
            seconds(cpu.api)
        );
        table.row("  CPU", figure, budget);
        let mib = |bytes: usize| bytes >> 20;
        let figure = format!("{} MiB, of it stores {} MiB", mib(self.resident), mib(self.stores));
        table.row("  resident, with the API's own", figure, "");
        table.row("  requests", counted(&self.requests), "");
    }
}
