//! Calls to a system outside of the cluster: one call beside the same request by a client that does
//! nothing else, and `konnect` with 10,000 entities on a real control plane, as `mortise run` with
//! the fake of Konnect. The fake is in this process, so its time is not the host's.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use konnect_fake::{Config, Konnect, Server, server};
use mortise::{egress::Grant, local};
use mortise_core::{
    grant::rights::Account,
    outbound::{Allowed, Egress, Method, Outbound as _, Target},
};
use mortise_host::{cluster::Cluster, host::Options, operator::api::definition, outbound::Client};
use mortise_tests::{cluster, tls};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::{net::TcpStream, task::JoinSet};
use tokio_rustls::TlsConnector;

use crate::{
    calls::runtime,
    rules::counted,
    running::{self, Running},
    table::{Table, Times, micros},
};

const GUEST: &str = "guests/konnect";
const ORIGIN: &str = "https://*.api.konghq.com";
/// The origins that the guest declares, as an option of the host.
const ORIGINS: &str = "https://*.api.konghq.com,https://*.api.konghq.tech";
const HOST: &str = "eu.api.konghq.com";
const LIST: &str = "/v2/control-planes";
/// The namespace of everything, and the account.
const HOME: &str = "shop";
const ACCOUNT: &str = "konnect";
const CALLS: usize = 2_000;
const WARM_UP: usize = 100;
const ENTITIES: usize = 10_000;
/// The sync period of the processor, which is its default.
const PERIOD: Duration = Duration::from_mins(1);
/// The rate of the grant.
const PER_SECOND: u32 = 500;

/// Adds the cost of calls.
///
/// # Errors
///
/// Fails without Go, which builds the control plane, or if an entity is not made.
pub(crate) fn run(table: &mut Table) -> anyhow::Result<()> {
    let runtime = runtime(2, "outbound")?;
    runtime.block_on(async {
        Box::pin(one_call(table)).await?;
        Box::pin(many_entities(table)).await
    })
}

/// Measures calls and bare requests in turn, each on a connection that is kept.
async fn one_call(table: &mut Table) -> anyhow::Result<()> {
    let server = Server::start(Konnect::new(Config::default()), server::Options::default()).await?;
    let options = Options::default();
    let client = Client::new(None, Arc::clone(&options.now), options.metrics.clone());
    let (mut bare, _served) = bare(&server).await?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for call in 0..WARM_UP + CALLS {
        let start = Instant::now();
        let answer =
            client.send(allowed(&server)?).await.map_err(|error| anyhow::anyhow!("{error:?}"))?;
        let took = start.elapsed();
        ensure!(answer.status == 401, "a call without a token is answered {}", answer.status);
        bare.ready().await?;
        let start = Instant::now();
        let request = http::Request::get(LIST).header("host", HOST).body(Empty::new())?;
        bare.send_request(request).await?.into_body().collect().await?;
        if call >= WARM_UP {
            with.push(took);
            without.push(start.elapsed());
        }
    }
    let (with, without) = (Times::new(with), Times::new(without));
    let of =
        |times: &Times| format!("median {}, p99 {}", micros(times.median()), micros(times.at(99)));
    table.row("a call on a kept connection", of(&with), "< 150 µs over the bare client");
    table.row("  the same request by a bare client", of(&without), "");
    Ok(())
}

/// A connection, and the task that serves it.
type Bare = (SendRequest<Empty<Bytes>>, JoinSet<hyper::Result<()>>);

/// Returns a connection to a server that is used by nothing else.
async fn bare(server: &Server) -> anyhow::Result<Bare> {
    let config = tls::trusting(server.authority())?.with_no_client_auth();
    let stream = TcpStream::connect(server.address()).await?;
    let name = ServerName::try_from(HOST)?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut connections = JoinSet::new();
    connections.spawn(connection);
    Ok((sender, connections))
}

fn allowed(server: &Server) -> anyhow::Result<Allowed> {
    Ok(Allowed {
        method: Method::Get,
        target: Target::parse(&format!("https://{HOST}{LIST}")).map_err(anyhow::Error::msg)?,
        headers: Vec::new(),
        body: None,
        authorization: None,
        egress: Arc::new(Egress {
            origin: ORIGIN.to_owned(),
            credentials: Vec::new(),
            rate: None,
            ca_bundle: Some(server.authority().into()),
            private: true,
            connect: Some(server.address().to_string().into()),
        }),
        pause: Duration::ZERO,
        timeout: Duration::from_secs(10),
        processor: "shop/konnect".into(),
    })
}

/// The requests that the fake has answered: when, and the method.
type Asked = Arc<Mutex<Vec<(Instant, String)>>>;

/// A control plane with services that no host has synchronised yet, and the fake.
struct Stage {
    plane: cluster::Cluster,
    fake: Server,
    asked: Asked,
    folder: tempfile::TempDir,
}

async fn many_entities(table: &mut Table) -> anyhow::Result<()> {
    let stage = Stage::open().await?;
    let host = stage.start().await;
    let none = host.moment().await?;
    host.until("all entities", async || Ok(stage.entities() == ENTITIES)).await?;
    let made = host.moment().await?;
    let (wall, cpu) = (made.wall_since(&none), made.cpu_since(&none));
    let figure = format!("{:.1} s, CPU {:.1} s", wall.as_secs_f64(), cpu.as_secs_f64());
    table.row(
        format!("{ENTITIES} entities, first time, at most {PER_SECOND} calls a second"),
        figure,
        "",
    );
    // The first period has the updates of entities as they were made.
    tokio::time::sleep(PERIOD).await;
    stage.period(table, "a steady period", &host).await?;
    table.row("  memory", host.memory()?.to_string(), "stores + 150 MiB");
    host.end().await?;
    let host = stage.start().await;
    stage.period(table, "the first period of the next start", &host).await?;
    host.end().await
}

// === impl Stage ===

impl Stage {
    async fn open() -> anyhow::Result<Self> {
        let plane = cluster::own_bare().await?.context("the control plane is built with Go")?;
        let asked = Asked::default();
        let seen = Arc::clone(&asked);
        let observer: server::Observer =
            Arc::new(move |request, _| seen.lock().push((Instant::now(), request.method.clone())));
        let options = server::Options { observer: Some(observer), ..server::Options::default() };
        let fake = Server::start(Konnect::new(Config::default()), options).await?;
        let stage = Self { plane, fake, asked, folder: running::folder(GUEST, "konnect")? };
        stage.plane.install(&mortise_tests::definitions(GUEST)?).await?;
        stage.plane.install(&[definition::processors()]).await?;
        let cluster = Cluster::new(stage.plane.client().await?);
        let example = mortise_tests::objects_in("guests/konnect/examples/shop.yaml")?;
        local::apply(&cluster, example).await?;
        let description = mortise_tests::loaded(GUEST, "{}").await?.description;
        let account = Account { namespace: HOME.to_owned(), name: ACCOUNT.to_owned() };
        local::apply(
            &cluster,
            mortise_tests::rules::rights(&cluster, &account, &description).await?,
        )
        .await?;
        local::apply(&cluster, (1..ENTITIES).map(service).collect()).await?;
        let mut grants = Grant::declared(&description);
        for grant in &mut grants {
            grant.rate =
                Some(mortise::egress::GrantRate { per_second: PER_SECOND, burst: PER_SECOND });
            grant.ca_bundle = Some(stage.fake.authority().to_owned());
            grant.private = true;
            grant.connect = Some(stage.fake.address().to_string());
        }
        let processor = json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor",
            "metadata": {"namespace": HOME, "name": "konnect"},
            "spec": {
                "module": {"path": "konnect.wasm"}, "serviceAccountName": ACCOUNT,
                "egress": grants, "config": {"syncPeriodSeconds": PERIOD.as_secs()},
            },
        });
        local::apply(&cluster, vec![processor]).await?;
        Ok(stage)
    }

    async fn start(&self) -> Running {
        let arguments = ["--namespace", HOME, "--egress", ORIGINS, "--egress-private"];
        Running::start(&self.plane, self.folder.path(), arguments).await
    }

    /// Returns the number of services that the fake has.
    fn entities(&self) -> usize {
        self.fake.konnect().lock().entities("services").len()
    }

    /// Measures one period.
    async fn period(&self, table: &mut Table, name: &str, host: &Running) -> anyhow::Result<()> {
        let (before, asked) = (host.moment().await?, self.asked.lock().len());
        tokio::time::sleep(PERIOD).await;
        let after = host.moment().await?;
        let rose = |metric: &str| after.rose_since(&before, metric);
        let cpu = after.cpu_since(&before).as_secs_f64();
        let writes = rose("mortise_writes_total");
        let figure = format!("CPU {cpu:.2} s, {writes} writes to Kubernetes");
        table.row(format!("{ENTITIES} entities, {name}"), figure, "< 4 s, no write");
        let (counts, most) = self.requests(asked, before.at);
        let figure = format!("{counts}; at most {most} in a second");
        table.row("  requests to Konnect", figure, "one PUT each, at most twice the mean a second");
        let runs = rose("mortise_reconcile_duration_seconds_count");
        let own = rose("mortise_reconcile_duration_seconds_sum")
            - rose("mortise_outbound_duration_seconds_sum");
        let figure = format!("{:.0} µs of {runs} runs", own / runs.max(1.0) * 1e6);
        table.row("  a run without its call, mean", figure, "< 500 µs");
        table.row("  stores", after.stores(), "");
        Ok(())
    }

    /// Returns the requests after the first `asked` by method, as text, and the most in a second.
    fn requests(&self, asked: usize, start: Instant) -> (String, usize) {
        let all = self.asked.lock();
        let (mut methods, mut seconds) =
            (BTreeMap::<String, u64>::new(), BTreeMap::<u64, usize>::new());
        for (at, method) in all.iter().skip(asked) {
            *methods.entry(method.clone()).or_default() += 1;
            *seconds.entry(at.duration_since(start).as_secs()).or_default() += 1;
        }
        (counted(&methods), seconds.into_values().max().unwrap_or_default())
    }
}

/// Returns a service beside that of the example.
fn service(number: usize) -> Value {
    let name = format!("orders-{number}");
    json!({
        "apiVersion": "configuration.konghq.com/v1alpha1", "kind": "KongService",
        "metadata": {"namespace": HOME, "name": name},
        "spec": {
            "name": name, "host": "orders.shop.svc", "port": 8080,
            "controlPlaneRef": {
                "type": "konnectNamespacedRef", "konnectNamespacedRef": {"name": "shop"},
            },
        },
    })
}
