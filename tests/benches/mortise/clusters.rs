//! `kube-bind` between two APIs in memory: objects up and their status down, beside a client that
//! makes only the writes; changes in both directions; and a host that has nothing to do. The
//! APIs answer on threads of their own.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use kube::{Client, client::Body};
use mortise::local;
use mortise_embedded_api::{EmbeddedApi, Options};
use mortise_host::{
    cluster::{
        Cluster, clusters,
        remote::{Connect, Connected, Refused},
    },
    host::{ClusterGrant, Host, Loaded, Options as HostOptions},
};
use mortise_tests::objects_in;
use serde_json::{Value, json};
use tokio::runtime::Handle;

use crate::{
    calls::runtime,
    process::{self, API_THREAD, Cpu},
    rules::{self, counted, requests},
    table::{Table, Times},
};

const GUEST: &str = "guests/kube-bind";
const CONFIG: &str = r#"{"groups":["example.com"]}"#;
/// The namespaces of objects at home and at the provider.
const HOME: &str = "team";
const PLACE: &str = "kube-bind-example";
const THERE: &str = "kube-bind-example-team";
const OBJECTS: usize = 5_000;
/// The number of writes that the bare client makes at once.
const PARALLEL: usize = 16;
const CHANGES: u32 = 300;
const IDLE: Duration = Duration::from_secs(10);
/// The server that the kubeconfig names.
const SERVER: &str = "https://api.provider.example:6443";
/// The interval of looking whether a host has got somewhere.
const GLANCE: Duration = Duration::from_millis(20);
/// Timeout that only a fault reaches.
const DEADLINE: Duration = Duration::from_mins(10);

/// Connects every cluster's name to the provider.
struct ToProvider(Client);

/// Two APIs in memory, the binding at home, and the export at the provider.
struct Setting {
    home: EmbeddedApi,
    provider: EmbeddedApi,
    clients: [Client; 2],
}

/// The cost of a part.
struct Took {
    wall: Duration,
    cpu: Cpu,
}

/// Adds the cost of a processor between two clusters.
///
/// # Errors
///
/// Fails if an object does not get to the other side, or a host fails.
pub(crate) fn run(table: &mut Table) -> anyhow::Result<()> {
    let serving = runtime(2, API_THREAD)?;
    let hosting = runtime(2, "host")?;
    let result = hosting.block_on(async {
        let bare = Setting::bound(serving.handle()).await?;
        let setting = Setting::bound(serving.handle()).await?;
        let host = setting.host().await?;
        setting.up(&host, &bare, table).await?;
        setting.down(&host, table).await?;
        setting.changes(&host, table).await?;
        setting.idle(&host, table).await?;
        host.stop().await?;
        bare.stop();
        setting.stop();
        anyhow::Ok(())
    });
    serving.shutdown_background();
    result
}

/// Returns a Rocket with a number of stages.
fn rocket(namespace: &str, number: usize, stages: usize) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Rocket",
        "metadata": {"namespace": namespace, "name": format!("saturn-{number}")},
        "spec": {"stages": stages},
    })
}

fn path(namespace: &str, number: usize) -> String {
    format!("/apis/example.com/v1/namespaces/{namespace}/rockets/saturn-{number}")
}

async fn loaded() -> anyhow::Result<Loaded> {
    let mut loaded = mortise_tests::loaded(GUEST, CONFIG).await?;
    let servers = vec![SERVER.to_owned()];
    loaded.settings.clusters = [ClusterGrant { servers, namespace: None }].into();
    Ok(loaded)
}

async fn patch(client: &Client, path: &str, kind: &str, body: &Value) -> anyhow::Result<()> {
    let request = http::Request::patch(path).header("content-type", kind);
    let request = request.body(Body::from(body.to_string().into_bytes()))?;
    let answer = client.send(request).await?;
    ensure!(answer.status().is_success(), "{path} is answered {}", answer.status());
    Ok(())
}

async fn apply(client: &Client, path: &str, body: &Value) -> anyhow::Result<()> {
    patch(
        client,
        &format!("{path}?fieldManager=bare&force=true"),
        "application/apply-patch+yaml",
        body,
    )
    .await
}

async fn merge(client: &Client, path: &str, body: &Value) -> anyhow::Result<()> {
    patch(client, path, "application/merge-patch+json", body).await
}

async fn get(client: &Client, path: &str) -> anyhow::Result<Value> {
    let request = http::Request::get(path).body(Vec::new())?;
    Ok(client.request(request).await?)
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

// === impl ToProvider ===

impl Connect for ToProvider {
    fn connect(&self, _cluster: &str, _kubeconfig: &[u8]) -> Result<Connected, Refused> {
        Ok(Connected { server: SERVER.to_owned(), client: self.0.clone() })
    }
}

// === impl Setting ===

impl Setting {
    /// Starts the APIs, and has a host bind the export.
    async fn bound(serving: &Handle) -> anyhow::Result<Self> {
        let (home, provider) =
            (EmbeddedApi::new(Options::default()), EmbeddedApi::new(Options::default()));
        let clients = [&home, &provider].map(|api| rules::client(api, serving.clone()));
        let setting = Self { home, provider, clients };
        let [home, provider] = &setting.clients;
        let kinds = mortise_tests::definitions(GUEST)?;
        local::apply(&Cluster::new(provider.clone()), kinds.clone()).await?;
        for object in objects_in("guests/kube-bind/provider")? {
            let loaded = setting.provider.load(object, true);
            loaded.context("the provider refuses an object")?;
        }
        let home = Cluster::new(home.clone());
        local::apply(&home, kinds).await?;
        local::apply(&home, objects_in("guests/kube-bind/examples")?).await?;
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "provider",
            "clusters": [{"name": "provider", "cluster": {"server": SERVER}}],
            "users": [{"name": "provider", "user": {"token": "none"}}],
            "contexts": [{"name": "provider", "context": {
                "cluster": "provider", "user": "provider", "namespace": PLACE,
            }}],
        });
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"namespace": "kube-bind", "name": "provider"},
            "data": {"kubeconfig": STANDARD.encode(kubeconfig.to_string())},
        });
        local::apply(&home, vec![secret]).await?;
        let host = setting.host().await?;
        let binding = "/apis/kube-bind.io/v1alpha2/apiservicebindings/rockets";
        setting
            .until(&host, async || {
                let binding = get(&setting.clients[0], binding).await?;
                let conditions = binding.pointer("/status/conditions").and_then(Value::as_array);
                let is_ready = |of: &Value| of["type"] == "Ready" && of["status"] == "True";
                Ok(conditions.is_some_and(|conditions| conditions.iter().any(is_ready)))
            })
            .await?;
        host.stop().await?;
        Ok(setting)
    }

    async fn host(&self) -> anyhow::Result<Host> {
        let [home, provider] = &self.clients;
        let connect = Arc::new(ToProvider(provider.clone()));
        let servers = SERVER.parse().into_iter().collect();
        let clusters = clusters::Options { connect, servers };
        let options = HostOptions { clusters, ..HostOptions::default() };
        Host::start(&Cluster::new(home.clone()), vec![loaded().await?], &options)
    }

    fn stop(&self) {
        self.home.stop();
        self.provider.stop();
    }

    /// Waits for reports of a host until `holds`.
    async fn until(
        &self,
        host: &Host,
        holds: impl AsyncFn() -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let wait = async {
            while !holds().await? {
                tokio::select! {
                    report = host.next_report() => {
                        let report = report?;
                        ensure!(report.failure.is_none(), "{}: {:?}", report.key, report.failure);
                    }
                    () = tokio::time::sleep(GLANCE) => {}
                }
            }
            Ok(())
        };
        tokio::time::timeout(DEADLINE, wait).await.context("the host does not get there")?
    }

    /// Measures objects that go up, beside a client that makes as many writes of the same kind:
    /// annotations and finalizer at home, the object at the provider.
    async fn up(&self, host: &Host, bare: &Self, table: &mut Table) -> anyhow::Result<()> {
        self.forget_requests();
        let (cpu, start) = (process::cpu()?, Instant::now());
        for number in 0..OBJECTS {
            self.home.load(rocket(HOME, number, 1), true).context("home refuses a rocket")?;
        }
        self.until(host, async || Ok(rockets(&self.provider) == OBJECTS && host.drive().is_idle()))
            .await?;
        let took = Took::since(start, cpu)?;
        took.row(table, format!("{OBJECTS} objects up"), "< 1.3 × the bare client");
        table.row("  requests: home; provider", self.requests(), "");
        bare.make(table, |number| async move {
            let ([home, provider], up) = (&bare.clients, rocket(THERE, number, 1));
            bare.home.load(rocket(HOME, number, 1), true).context("home refuses a rocket")?;
            apply(home, &path(HOME, number), &marked(number)).await?;
            apply(provider, &path(THERE, number), &up).await
        })
        .await
    }

    /// Measures statuses that come down, each written at the provider before.
    async fn down(&self, host: &Host, table: &mut Table) -> anyhow::Result<()> {
        let bare = &self.clients[1];
        self.forget_requests();
        let (cpu, start) = (process::cpu()?, Instant::now());
        let flown = json!({"status": {"height": 7}});
        let write = |number| {
            let flown = &flown;
            async move { merge(bare, &format!("{}/status", path(THERE, number)), flown).await }
        };
        futures::stream::iter((0..OBJECTS).map(write))
            .buffer_unordered(PARALLEL)
            .try_collect::<()>()
            .await?;
        let written = start.elapsed();
        self.until(host, async || {
            let is_back = |of: &&Value| of["kind"] == "Rocket" && of["status"]["height"] == 7;
            Ok(host.drive().is_idle()
                && self.home.objects().iter().filter(is_back).count() == OBJECTS)
        })
        .await?;
        let took = Took::since(start, cpu)?;
        took.row(
            table,
            format!("{OBJECTS} statuses down, written at the provider in {}", ms(written)),
            "",
        );
        table.row("  requests: home; provider", self.requests(), "");
        Ok(())
    }

    /// Measures single changes until they are on the other side.
    async fn changes(&self, host: &Host, table: &mut Table) -> anyhow::Result<()> {
        let [home, provider] = &self.clients;
        let (mut up, mut down) = (Vec::new(), Vec::new());
        for change in 0..CHANGES {
            let number = 10 + change;
            let start = Instant::now();
            merge(home, &path(HOME, 0), &json!({"spec": {"stages": number}})).await?;
            self.until_equal(host, (provider, THERE), "/spec/stages", number).await?;
            up.push(start.elapsed());
            let start = Instant::now();
            let status = format!("{}/status", path(THERE, 0));
            merge(provider, &status, &json!({"status": {"height": number}})).await?;
            self.until_equal(host, (home, HOME), "/status/height", number).await?;
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

    /// Asks for an object again and again, until a field has a value.
    async fn until_equal(
        &self,
        host: &Host,
        (client, namespace): (&Client, &str),
        pointer: &str,
        value: u32,
    ) -> anyhow::Result<()> {
        let wait = async {
            while get(client, &path(namespace, 0)).await?.pointer(pointer) != Some(&json!(value)) {
                while host.next_report().now_or_never().is_some() {}
                tokio::task::yield_now().await;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(DEADLINE, wait).await.context("the change does not arrive")?
    }

    /// Counts the requests and the time of a host that has nothing to do.
    async fn idle(&self, host: &Host, table: &mut Table) -> anyhow::Result<()> {
        self.until(host, async || Ok(host.drive().is_idle())).await?;
        self.forget_requests();
        let (cpu, start) = (process::cpu()?, Instant::now());
        tokio::time::sleep(IDLE).await;
        let took = Took::since(start, cpu)?;
        took.row(table, format!("{OBJECTS} idle objects for {} s", IDLE.as_secs()), "");
        table.row("  requests: home; provider", self.requests(), "heartbeats only");
        let stores = host.drive().stores().memory().total >> 20;
        table.row("  stores", format!("{stores} MiB"), "");
        Ok(())
    }

    /// Makes all objects by a client that does nothing else.
    async fn make<F: Future<Output = anyhow::Result<()>>>(
        &self,
        table: &mut Table,
        one: impl Fn(usize) -> F,
    ) -> anyhow::Result<()> {
        self.forget_requests();
        let (cpu, start) = (process::cpu()?, Instant::now());
        let all = futures::stream::iter((0..OBJECTS).map(one)).buffer_unordered(PARALLEL);
        all.try_collect::<()>().await?;
        Took::since(start, cpu)?.row(table, "  the same writes by a bare client".to_owned(), "");
        table.row("  its requests: home; provider", self.requests(), "");
        Ok(())
    }

    fn forget_requests(&self) {
        self.home.reset_requests();
        self.provider.reset_requests();
    }

    /// Returns the requests since the last reset, by verb, as text.
    fn requests(&self) -> String {
        [&self.home, &self.provider].map(|api| counted(&requests(api))).join("; ")
    }
}

/// Returns the number of synchronised objects in a cluster.
fn rockets(api: &EmbeddedApi) -> usize {
    api.objects().iter().filter(|of| of["kind"] == "Rocket").count()
}

/// Returns what a host writes of an object at home.
fn marked(number: usize) -> Value {
    let mut marked = rocket(HOME, number, 1);
    marked["metadata"]["finalizers"] = json!(["kubebind.io/syncer"]);
    marked["metadata"]["annotations"] = json!({"kube-bind.io/provider-namespace": PLACE});
    if let Some(marked) = marked.as_object_mut() {
        marked.remove("spec");
    }
    marked
}

// === impl Took ===

impl Took {
    fn since(start: Instant, cpu: Cpu) -> anyhow::Result<Self> {
        Ok(Self { wall: start.elapsed(), cpu: process::cpu()? - cpu })
    }

    fn row(&self, table: &mut Table, what: String, budget: &str) {
        let seconds = |time: Duration| time.as_secs_f64();
        let (wall, cpu) = (seconds(self.wall), self.cpu);
        let figure = format!(
            "{wall:.2} s, CPU without the APIs {:.2} s, APIs {:.2} s",
            seconds(cpu.host),
            seconds(cpu.api)
        );
        table.row(what, figure, budget);
    }
}
