//! `kube-bind` between two real control planes, as `mortise run`: 10,000 objects of 20 bindings, up
//! and their status down, beside a client that sends the same requests; single changes in both
//! directions; a host that has nothing to do; and one that starts again.

use std::{
    fs,
    ops::Range,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::{Client, client::Body};
use mortise::local;
use mortise_core::grant::rights::Account;
use mortise_host::{cluster::Cluster, operator::api::definition};
use mortise_tests::{cluster, objects_in};
use serde_json::{Value, json};

use crate::{
    calls::runtime,
    running::{self, Moment, Running},
    table::{Table, Times},
};

const GUEST: &str = "guests/kube-bind";
const CONFIG: &str = r#"{"groups":["example.com"]}"#;
/// The namespace of the processor, and its account.
const OWN: &str = "kube-bind";
/// The namespaces of objects at home and at the provider.
const HOME: &str = "team";
const PLACE: &str = "kube-bind-example";
const THERE: &str = "kube-bind-example-team";
const BINDINGS: usize = 20;
const OBJECTS: u16 = 10_000;
/// The kind that no host synchronises, after those of the bindings.
const BARE: usize = BINDINGS;
/// The number of requests that a client sends at once.
const PARALLEL: usize = 16;
const CHANGES: u32 = 300;
const IDLE: Duration = Duration::from_secs(30);
/// Timeout that only a fault reaches.
const DEADLINE: Duration = Duration::from_mins(1);

/// A control plane, and requests of its administrator.
struct Side {
    client: Client,
    cluster: Cluster,
    plane: cluster::Cluster,
}

/// Home and provider, and the folder of the host at home.
struct Setting {
    home: Side,
    provider: Side,
    /// The address of the provider, as the kubeconfig names it.
    server: String,
    folder: tempfile::TempDir,
}

/// An object of one of the kinds: its kind and its own number.
#[derive(Clone, Copy)]
struct Rocket {
    kind: usize,
    number: usize,
}

/// Adds the cost of a processor between two clusters.
///
/// # Errors
///
/// Fails without Go, which builds the control planes, or if an object does not get to the other
/// side.
pub(crate) fn run(table: &mut Table) -> anyhow::Result<()> {
    runtime(2, "clusters")?.block_on(async {
        let setting = Setting::open().await?;
        setting.connect(table).await?;
        setting.bare(table).await?;
        let host = setting.up(table).await?;
        setting.down(&host, table).await?;
        setting.changes(table).await?;
        setting.idle(&host, table).await?;
        host.end().await?;
        setting.restart(table).await
    })
}

/// Returns the objects of the bindings, or as many of the kind that no host synchronises.
fn rockets(kinds: Range<usize>) -> impl Iterator<Item = Rocket> {
    let each = usize::from(OBJECTS) / kinds.len();
    kinds.flat_map(move |kind| (0..each).map(move |number| Rocket { kind, number }))
}

/// Returns objects of the example for the kind with this number.
fn of_kind(kind: usize, objects: &[Value]) -> anyhow::Result<Vec<Value>> {
    let rename = |object: &Value| {
        let text = object.to_string();
        let text = text.replace("rocket", &format!("rocket{kind}"));
        Ok(serde_json::from_str(&text.replace("Rocket", &format!("Rocket{kind}")))?)
    };
    objects.iter().map(rename).collect()
}

/// Does something with each object, a number of them at once.
async fn each<F: Future<Output = anyhow::Result<()>>>(
    rockets: impl Iterator<Item = Rocket>,
    one: impl Fn(Rocket) -> F,
) -> anyhow::Result<Duration> {
    let start = Instant::now();
    let all = futures::stream::iter(rockets.map(one)).buffer_unordered(PARALLEL);
    all.try_collect::<()>().await?;
    Ok(start.elapsed())
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// Returns time and CPU time of the host between two moments, as text.
fn cost(before: &Moment, after: &Moment) -> String {
    format!("{}, CPU {}", seconds(after.wall_since(before)), seconds(after.cpu_since(before)))
}

/// Adds the cost of objects that were brought to the other side.
fn moved(table: &mut Table, what: String, before: &Moment, after: &Moment) {
    table.row(what, cost(before, after), "< 1.3 × the bare client");
    let writes = after.rose_since(before, "mortise_writes_total");
    let runs = after.rose_since(before, "mortise_reconcile_duration_seconds_count");
    table.row("  writes; runs", format!("{writes}; {runs}"), "");
}

// === impl Rocket ===

impl Rocket {
    fn path(self, namespace: &str) -> String {
        let Self { kind, number } = self;
        format!("/apis/example.com/v1/namespaces/{namespace}/rocket{kind}s/saturn-{number}")
    }

    fn object(self, namespace: &str, rest: &Value) -> Value {
        let Self { kind, number } = self;
        let mut object = json!({
            "apiVersion": "example.com/v1", "kind": format!("Rocket{kind}"),
            "metadata": {"namespace": namespace, "name": format!("saturn-{number}")},
        });
        if let Some(object) = object.as_object_mut() {
            object.extend(rest.as_object().cloned().unwrap_or_default());
        }
        object
    }
}

// === impl Side ===

impl Side {
    async fn open(definitions: &[Value]) -> anyhow::Result<Self> {
        let plane = cluster::own_bare().await?.context("the control plane is built with Go")?;
        plane.install(definitions).await?;
        let client = plane.client().await?;
        Ok(Self { cluster: Cluster::new(client.clone()), client, plane })
    }

    async fn patch(&self, path: &str, kind: &str, body: &Value) -> anyhow::Result<()> {
        let request = http::Request::patch(path).header("content-type", kind);
        let request = request.body(Body::from(body.to_string().into_bytes()))?;
        let answer = self.client.send(request).await?;
        ensure!(answer.status().is_success(), "{path} is answered {}", answer.status());
        Ok(())
    }

    async fn apply(&self, path: &str, body: &Value) -> anyhow::Result<()> {
        let path = format!("{path}?fieldManager=bare&force=true");
        self.patch(&path, "application/apply-patch+yaml", body).await
    }

    async fn merge(&self, path: &str, body: &Value) -> anyhow::Result<()> {
        self.patch(path, "application/merge-patch+json", body).await
    }

    async fn get(&self, path: &str) -> anyhow::Result<Value> {
        Ok(self.client.request(http::Request::get(path).body(Vec::new())?).await?)
    }

    /// Returns the number of objects of the bindings of which this holds.
    async fn count(
        &self,
        namespace: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<usize> {
        let mut count = 0;
        for kind in 0..BINDINGS {
            let path = format!("/apis/example.com/v1/namespaces/{namespace}/rocket{kind}s");
            let list = self.get(&path).await?;
            count += list["items"].as_array().into_iter().flatten().filter(|of| holds(of)).count();
        }
        Ok(count)
    }

    /// Makes account, rights and processor, and the kubeconfig of the provider.
    async fn prepare(&self, kubeconfig: &Value, server: &str) -> anyhow::Result<()> {
        let examples = objects_in("guests/kube-bind/examples")?;
        let namespaces = examples.into_iter().filter(|of| of["kind"] == "Namespace").collect();
        local::apply(&self.cluster, namespaces).await?;
        let description = mortise_tests::loaded(GUEST, CONFIG).await?.description;
        let account = Account { namespace: OWN.to_owned(), name: OWN.to_owned() };
        let mut objects =
            mortise_tests::rules::rights(&self.cluster, &account, &description).await?;
        let config: Value = serde_json::from_str(CONFIG)?;
        objects.extend([
            json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": "provider", "namespace": OWN},
                "stringData": {"kubeconfig": kubeconfig.to_string()},
            }),
            json!({
                "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor",
                "metadata": {"namespace": OWN, "name": OWN},
                "spec": {
                    "module": {"path": format!("{OWN}.wasm")}, "serviceAccountName": OWN,
                    "config": config, "clusters": [{"servers": [server]}],
                },
            }),
        ]);
        local::apply(&self.cluster, objects).await
    }

    /// Asks for an object again and again, until a field has a value.
    async fn until_equal(&self, path: &str, pointer: &str, value: u32) -> anyhow::Result<()> {
        let wait = async {
            while self.get(path).await?.pointer(pointer) != Some(&json!(value)) {}
            anyhow::Ok(())
        };
        tokio::time::timeout(DEADLINE, wait).await.context("the change does not arrive")?
    }
}

// === impl Setting ===

impl Setting {
    /// Starts the control planes, and makes everything but the bindings.
    async fn open() -> anyhow::Result<Self> {
        let kinds = mortise_tests::definitions(GUEST)?;
        let provider = Side::open(&kinds).await?;
        let home = Side::open(&[kinds, vec![definition::processors()]].concat()).await?;
        let (once, each): (Vec<Value>, _) =
            objects_in("guests/kube-bind/provider")?.into_iter().partition(|of| {
                ["Namespace", "ClusterBinding", "APIServiceNamespace"]
                    .contains(&of["kind"].as_str().unwrap_or_default())
            });
        local::apply(&provider.cluster, once).await?;
        let namespace = format!(
            "/apis/kube-bind.io/v1alpha2/namespaces/{PLACE}/apiservicenamespaces/{HOME}/status"
        );
        provider.merge(&namespace, &json!({"status": {"namespace": THERE}})).await?;
        for kind in 0..=BARE {
            let (definitions, rest): (Vec<Value>, _) = of_kind(kind, &each)?
                .into_iter()
                .partition(|of| of["kind"] == "CustomResourceDefinition");
            provider.plane.install(&definitions).await?;
            if kind == BARE {
                home.plane.install(&definitions).await?;
            } else {
                local::apply(&provider.cluster, rest).await?;
            }
        }
        let text = fs::read_to_string(provider.plane.kubeconfig())?;
        let mut kubeconfig: Value = serde_saphyr::from_str(&text)?;
        kubeconfig["contexts"][0]["context"]["namespace"] = json!(PLACE);
        let server = kubeconfig["clusters"][0]["cluster"]["server"].as_str().unwrap_or_default();
        let server = server.to_owned();
        home.prepare(&kubeconfig, &server).await?;
        Ok(Self { home, provider, server, folder: running::folder(GUEST, OWN)? })
    }

    async fn host(&self) -> Running {
        let arguments = ["--namespace", OWN, "--clusters", &self.server];
        Running::start(&self.home.plane, self.folder.path(), arguments).await
    }

    /// Binds one export, then all; the host has stopped at the end.
    async fn connect(&self, table: &mut Table) -> anyhow::Result<()> {
        let binding = |kind| of_kind(kind, &objects_in("guests/kube-bind/examples")?);
        let is_binding = |of: &Value| of["kind"] == "APIServiceBinding";
        let host = self.host().await;
        host.until("no key waits", async || Ok(true)).await?;
        let before = host.memory()?;
        for bound in [0..1, 1..BINDINGS] {
            for kind in bound.clone() {
                let objects = binding(kind)?.into_iter().filter(is_binding).collect();
                local::apply(&self.home.cluster, objects).await?;
            }
            host.until("all bindings are ready", async || self.are_ready(bound.end).await).await?;
            if bound.end == 1 {
                let added = host.memory()?.resident().saturating_sub(before.resident());
                let figure = format!("{} KiB", added >> 10);
                table.row("memory of the first binding and its cluster", figure, "");
            }
        }
        host.end().await
    }

    async fn are_ready(&self, bindings: usize) -> anyhow::Result<bool> {
        let list = self.home.get("/apis/kube-bind.io/v1alpha2/apiservicebindings").await?;
        let is_true = |of: &Value| of["type"] == "Ready" && of["status"] == "True";
        let is_ready = |of: &&Value| {
            of["status"]["conditions"].as_array().is_some_and(|of| of.iter().any(is_true))
        };
        let ready = list["items"].as_array().into_iter().flatten().filter(is_ready).count();
        Ok(ready == bindings)
    }

    /// Creates objects at home.
    async fn create(&self, kinds: Range<usize>) -> anyhow::Result<()> {
        let spec = json!({"spec": {"stages": 1}});
        let create = |of: Rocket| {
            let body = of.object(HOME, &spec);
            async move { self.home.apply(&of.path(HOME), &body).await }
        };
        each(rockets(kinds), create).await.map(|_| ())
    }

    /// Writes a status at the provider, as its operator does.
    async fn fly(&self, kinds: Range<usize>) -> anyhow::Result<Duration> {
        let status = json!({"status": {"height": 7}});
        let fly = |of: Rocket| {
            let (path, status) = (format!("{}/status", of.path(THERE)), &status);
            async move { self.provider.merge(&path, status).await }
        };
        each(rockets(kinds), fly).await
    }

    /// Sends what a host sends, by a client that does nothing else.
    async fn bare(&self, table: &mut Table) -> anyhow::Result<()> {
        let kinds = BARE..BARE + 1;
        self.create(kinds.clone()).await?;
        let marks = json!({"kube-bind.io/provider-namespace": PLACE});
        let (spec, status) = (json!({"spec": {"stages": 1}}), json!({"status": {"height": 7}}));
        let up = |of: Rocket| {
            let marked = json!({"metadata": {"annotations": marks}});
            let (here, there) = (of.path(HOME), of.path(THERE));
            let body = of.object(THERE, &spec);
            async move {
                let held = json!({"metadata": {"finalizers": ["kubebind.io/syncer"]}});
                self.home.merge(&here, &held).await?;
                self.provider.apply(&there, &body).await?;
                self.home.merge(&here, &marked).await
            }
        };
        let took = each(rockets(kinds.clone()), up).await?;
        table.row(format!("{OBJECTS} objects up by a bare client"), seconds(took), "");
        let start = Instant::now();
        self.fly(kinds.clone()).await?;
        let down = |of: Rocket| {
            let (path, status) = (format!("{}/status", of.path(HOME)), &status);
            async move { self.home.merge(&path, status).await }
        };
        each(rockets(kinds), down).await?;
        table.row("  and a status for each, on both sides", seconds(start.elapsed()), "");
        Ok(())
    }

    /// Measures objects that go up.
    async fn up(&self, table: &mut Table) -> anyhow::Result<Running> {
        self.create(0..BINDINGS).await?;
        let host = self.host().await;
        let before = host.moment().await?;
        let all = async || Ok(self.provider.count(THERE, |_| true).await? == usize::from(OBJECTS));
        host.until("all objects are at the provider", all).await?;
        let after = host.moment().await?;
        let what = format!("{OBJECTS} objects up in {BINDINGS} bindings, from the host's start");
        moved(table, what, &before, &after);
        Ok(host)
    }

    /// Measures statuses that come down, each written at the provider before.
    async fn down(&self, host: &Running, table: &mut Table) -> anyhow::Result<()> {
        let before = host.moment().await?;
        let written = self.fly(0..BINDINGS).await?;
        let is_back = |of: &Value| of["status"]["height"] == 7;
        let all = async || Ok(self.home.count(HOME, is_back).await? == usize::from(OBJECTS));
        host.until("all statuses are at home", all).await?;
        let after = host.moment().await?;
        let what = format!("{OBJECTS} statuses, written at the provider in {}", seconds(written));
        moved(table, what, &before, &after);
        Ok(())
    }

    /// Measures single changes until they are on the other side.
    async fn changes(&self, table: &mut Table) -> anyhow::Result<()> {
        let of = Rocket { kind: 0, number: 0 };
        let (mut up, mut down) = (Vec::new(), Vec::new());
        for change in 0..CHANGES {
            let number = 10 + change;
            let start = Instant::now();
            self.home.merge(&of.path(HOME), &json!({"spec": {"stages": number}})).await?;
            self.provider.until_equal(&of.path(THERE), "/spec/stages", number).await?;
            up.push(start.elapsed());
            let start = Instant::now();
            let status = format!("{}/status", of.path(THERE));
            self.provider.merge(&status, &json!({"status": {"height": number}})).await?;
            self.home.until_equal(&of.path(HOME), "/status/height", number).await?;
            down.push(start.elapsed());
        }
        for (what, times) in
            [("a change of spec to the provider", up), ("a change of status to home", down)]
        {
            let times = Times::new(times);
            let figure = format!("median {}, p99 {}", ms(times.median()), ms(times.at(99)));
            table.row(what, figure, "p99 < 250 ms");
        }
        Ok(())
    }

    /// Counts what a host does that has nothing to do.
    async fn idle(&self, host: &Running, table: &mut Table) -> anyhow::Result<()> {
        host.until("no key waits", async || Ok(true)).await?;
        let before = host.moment().await?;
        tokio::time::sleep(IDLE).await;
        let after = host.moment().await?;
        let writes = after.rose_since(&before, "mortise_writes_total");
        let figure = format!("{}, {writes} writes", cost(&before, &after));
        table.row(format!("{OBJECTS} idle objects"), figure, "heartbeats only");
        table.row("  stores", after.stores(), "");
        table.row("  memory", host.memory()?.to_string(), "stores + 20 MiB");
        Ok(())
    }

    /// Measures a start with everything as it should be.
    async fn restart(&self, table: &mut Table) -> anyhow::Result<()> {
        let host = self.host().await;
        let before = host.moment().await?;
        let ran = async || {
            let now = host.moment().await?;
            Ok(now.value("mortise_reconcile_duration_seconds_count") >= f64::from(OBJECTS))
        };
        host.until("all objects have run", ran).await?;
        let after = host.moment().await?;
        let writes = after.rose_since(&before, "mortise_writes_total");
        let figure = format!("{}, {writes} writes", cost(&before, &after));
        table.row("the next start, until nothing is left to do", figure, "no write");
        let runs = after.rose_since(&before, "mortise_reconcile_duration_seconds_count");
        let took = after.rose_since(&before, "mortise_reconcile_duration_seconds_sum");
        let figure = format!("{:.0} µs of {runs} runs", took / runs.max(1.0) * 1e6);
        table.row("  a run, mean", figure, "< 300 µs");
        table.row("  memory", host.memory()?.to_string(), "stores + 20 MiB");
        host.end().await
    }
}
