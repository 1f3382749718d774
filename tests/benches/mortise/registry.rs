//! Modules from a registry on this machine: the time from a push under a tag to the new version's
//! first reconcile; the memory of `mortise run` while a large module comes and is compiled; and the
//! time of a neighbour's changes while a registry sends next to nothing.

use std::{
    fs,
    os::linux::fs::MetadataExt as _,
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
use mortise_embedded_api::{EmbeddedApi, Options};
use mortise_host::{
    cache_dir::CacheDir,
    cluster::{Cluster, lease::Guard},
    host::{Host, Options as HostOptions},
    oci::{
        Blob, Reference, Registries, Store,
        artifact::{Annotations, Artifact, Descriptor, LAYER, MANIFEST},
    },
    operator::{self, ImageOptions, Operator},
};
use mortise_tests::{
    rebuilt,
    registry::fake::{Answer, Fake},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    calls::runtime,
    command::{end, program::Program},
    start::{engine, modules},
    swap::{NAMESPACE, first_call, millis, module, resources, source},
    table::{Table, Times},
};

const REPOSITORY: &str = "bench/puppet";
/// The time between two resolutions of a tag.
const RESOLUTION_INTERVAL: Duration = Duration::from_secs(2);
const PUSHES: usize = 9;
/// The bytes of the module that is pushed, and of the large one.
const MODULE_BYTES: usize = 1_000_000;
const LARGE_MODULE_BYTES: usize = 58 << 20;
/// The bytes of one function of the large one, as it was found.
const FUNCTION_BYTES: usize = 2016;
/// The time between two looks at the memory of a process.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The changes of a neighbour's object, with and without a slow registry.
const CHANGES: usize = 1000;
/// The Processors that wait for a slow registry.
const WAITING_PROCESSORS: usize = 8;
const DEADLINE: Duration = Duration::from_mins(15);

/// Adds the costs of registries.
///
/// # Errors
///
/// Fails if a version is not swapped in, or a change not followed.
pub(crate) fn run(table: &mut Table) -> anyhow::Result<()> {
    let runtime = runtime(2, "registry")?;
    runtime.block_on(async {
        Box::pin(pushes(table)).await?;
        Box::pin(memory(table)).await?;
        Box::pin(neighbour(table)).await
    })
}

/// Returns the puppet with a memory that makes it this large.
async fn of_size(bytes: usize) -> anyhow::Result<Vec<u8>> {
    let module = module().await?;
    let more = bytes.saturating_sub(module.len());
    Ok(modules::with_data(&module, more))
}

/// Pushes a component under a tag, as `mortise push` does.
async fn push(fake: &Fake, tag: &str, component: &[u8]) -> anyhow::Result<()> {
    let registries = Registries::build(mortise_host::oci::Options::default())?;
    let reference: Reference = format!("{}/{REPOSITORY}:{tag}", fake.host()).parse()?;
    let repository = registries.repository(&reference, None, true);
    let layer = Descriptor::of(LAYER, component);
    let artifact = Artifact::build(layer, (Vec::new(), Vec::new()), Annotations::new())?;
    repository.push_blob(&artifact.layer, Blob::Bytes(component)).await?;
    repository.push_blob(&artifact.config_descriptor, Blob::Bytes(&artifact.config)).await?;
    Ok(repository.push_manifest(tag, MANIFEST, &artifact.manifest).await?)
}

/// Returns the objects of `swap`, with a module from the registry.
fn objects(fake: &Fake) -> Vec<Value> {
    let mut objects = resources();
    for object in objects.iter_mut().filter(|object| object["kind"] == "Processor") {
        let image = format!("{}/{REPOSITORY}:stable", fake.host());
        object["spec"]["module"] = json!({"image": image});
    }
    objects
}

/// A host in this process that follows tags.
struct Place {
    api: EmbeddedApi,
    host: Arc<Host>,
    operator: Operator,
    _folders: [tempfile::TempDir; 2],
}

impl Place {
    async fn open(objects: Vec<Value>) -> anyhow::Result<Self> {
        let api = EmbeddedApi::new(Options::default());
        let cluster = Cluster::new(kube::Client::new(api.router(), NAMESPACE));
        let (modules, cache) = (tempfile::tempdir()?, tempfile::tempdir()?);
        local::apply(&cluster, objects).await?;
        let host = Arc::new(Host::start(&cluster, Vec::new(), &HostOptions::default())?);
        let dir = CacheDir::open(&cache.path().join("cache"))?;
        let options = operator::Options {
            namespace: None,
            modules: modules.path().to_owned(),
            images: ImageOptions {
                registries: Registries::build(mortise_host::oci::Options::default())?,
                store: Store::open(&dir, 1 << 30)?,
                interval: RESOLUTION_INTERVAL,
                policy: None,
            },
            now: HostOptions::default().now,
            lease: Guard::none(),
            largest: operator::Largest::default(),
        };
        let engine = engine(&cache.path().join("cache"))?;
        let operator = Operator::open(&cluster, &engine, &host, options).await?;
        Ok(Self { api, host, operator, _folders: [modules, cache] })
    }
}

/// Waits for the first call of a module. If there is none, the error has the Processor's status.
async fn called(api: &EmbeddedApi, host: &Host, module: &[u8]) -> anyhow::Result<()> {
    if let Ok(called) = tokio::time::timeout(DEADLINE, first_call(host, module)).await {
        return called;
    }
    let cluster = Cluster::new(kube::Client::new(api.router(), NAMESPACE));
    let processor = processors(&cluster).get("puppet").await?;
    anyhow::bail!("the module is not called: {:#}", processor.data["status"])
}

async fn pushes(table: &mut Table) -> anyhow::Result<()> {
    let fake = Fake::plain().await;
    let base = of_size(MODULE_BYTES).await?;
    push(&fake, "stable", &base).await?;
    let Place { api, host, operator, _folders } = Place::open(objects(&fake)).await?;
    let stop = CancellationToken::new();
    let supervised = operator.run(stop.clone());
    let measured = async {
        called(&api, &host, &base).await?;
        let mut times = Vec::new();
        for build in 0..PUSHES {
            let next = rebuilt(&base, &build.to_string());
            let start = Instant::now();
            push(&fake, "stable", &next).await?;
            called(&api, &host, &next).await?;
            times.push(start.elapsed());
        }
        stop.cancel();
        anyhow::Ok(Times::new(times))
    };
    let ((), times) = tokio::try_join!(supervised, measured)?;
    let figure = format!("median {}, longest {}", millis(times.median()), millis(times.at(100)));
    table.row("a push of 1 MB, to the new version's first call, tag each 2 s", figure, "< 5 s");
    host.stop().await
}

/// The memory of a process that no file can take, and its files in memory.
fn held(process: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let field = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = value.and_then(|value| value.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kib.map(|kib| kib << 10).with_context(|| format!("no {name}"))
    };
    let mut held = field("RssAnon:")?;
    for entry in fs::read_dir(format!("/proc/{process}/fd"))? {
        let path = entry?.path();
        let is_memory = fs::read_link(&path).is_ok_and(|to| to.starts_with("/memfd:"));
        if is_memory && let Ok(metadata) = fs::metadata(&path) {
            held += metadata.st_blocks() * 512;
        }
    }
    Ok(held)
}

async fn memory(table: &mut Table) -> anyhow::Result<()> {
    let fake = Fake::plain().await;
    let small = module().await?;
    let large = modules::with_code(&small, LARGE_MODULE_BYTES / FUNCTION_BYTES);
    push(&fake, "small", &small).await?;
    push(&fake, "stable", &large).await?;
    let api = EmbeddedApi::new(Options::default());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}", listener.local_addr()?);
    let stop = CancellationToken::new();
    let served = api.serve(listener, stop.clone());
    let measured = async {
        let folder = tempfile::tempdir()?;
        let taken = large_one(&fake, &api, (&address, folder.path())).await?;
        stop.cancel();
        anyhow::Ok(taken)
    };
    let (served, measured) = tokio::join!(served, measured);
    served?;
    let (before, peak, took) = measured?;
    #[expect(clippy::cast_precision_loss, reason = "sizes of memory are far below 2^52")]
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    table.row(
        format!(
            "memory of `mortise run` while {:.0} MiB come and are compiled",
            mib(large.len() as u64)
        ),
        format!(
            "{:.1} MiB more than {:.1}, in {:.0} s",
            mib(peak - before),
            mib(before),
            took.as_secs_f64()
        ),
        "< 16 MiB more",
    );
    Ok(())
}

/// Returns what `mortise run` holds before a large module comes, the most until it is at work, and
/// the time that takes.
async fn large_one(
    fake: &Fake,
    api: &EmbeddedApi,
    (address, folder): (&str, &Path),
) -> anyhow::Result<(u64, u64, Duration)> {
    let cluster = Cluster::new(kube::Client::new(api.router(), NAMESPACE));
    let mut all = objects(fake);
    let processor = all.pop().context("the Processor is the last")?;
    let mut first = processor.clone();
    first["spec"]["module"]["image"] = json!(format!("{}/{REPOSITORY}:small", fake.host()));
    all.push(first);
    local::apply(&cluster, all).await?;
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {"server": address}}],
        "users": [{"name": "bench", "user": {"token": "bench"}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    });
    fs::write(folder.join("kubeconfig"), kubeconfig.to_string())?;
    fs::create_dir(folder.join("modules"))?;
    let limits = ["--compile-memory-mib", "4096", "--compile-seconds", "1000"];
    let mut program = Program::start(
        &folder.join("kubeconfig"),
        &folder.join("modules"),
        &folder.join("cache"),
        limits,
    );
    program.ports().await;
    until(&cluster, ":small@").await?;
    // What a first load has made is there.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = held(program.id())?;
    let start = Instant::now();
    local::apply(&cluster, vec![processor]).await?;
    let mut peak = before;
    let looks = async {
        loop {
            peak = peak.max(held(program.id())?);
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        #[expect(unreachable_code, reason = "it says what the loop fails with")]
        anyhow::Ok(())
    };
    tokio::select! {
        looked = looks => looked?,
        came = until(&cluster, ":stable@") => came?,
    }
    let took = start.elapsed();
    end(&mut program).await?;
    Ok((before, peak, took))
}

fn processors(cluster: &Cluster) -> Api<DynamicObject> {
    let resource =
        ApiResource::from_gvk(&GroupVersionKind::gvk("mortise.dev", "v1alpha1", "Processor"));
    Api::namespaced_with(cluster.client().clone(), NAMESPACE, &resource)
}

/// Waits until the Processor runs an artifact whose name holds a text.
async fn until(cluster: &Cluster, image: &str) -> anyhow::Result<()> {
    let api = processors(cluster);
    let start = Instant::now();
    loop {
        let processor = api.get("puppet").await?;
        let runs = processor.data.pointer("/status/module/image").and_then(Value::as_str);
        if runs.is_some_and(|runs| runs.contains(image)) {
            return Ok(());
        }
        ensure!(
            start.elapsed() < DEADLINE,
            "the image does not run: {:#}",
            processor.data["status"]
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn neighbour(table: &mut Table) -> anyhow::Result<()> {
    let fake = Fake::plain().await;
    let base = module().await?;
    push(&fake, "stable", &base).await?;
    let Place { api, host, operator, _folders } = Place::open(objects(&fake)).await?;
    let stop = CancellationToken::new();
    let supervised = operator.run(stop.clone());
    let measured = async {
        called(&api, &host, &base).await?;
        let alone = changes(&api, &host).await?;
        // A registry that sends 1 KB a second, to as many as ask.
        let slow = rebuilt(&base, "slow");
        push(&fake, "slow", &slow).await?;
        fake.set_mood(move |request| {
            let pace = Some((1000, Duration::from_secs(1)));
            let is_blob = request.method == "GET" && request.target.contains("/blobs/");
            is_blob.then(|| Answer { pace, ..Answer::of(200).body(&slow) })
        });
        let asked = || fake.seen().iter().filter(|seen| seen.target.contains("/blobs/")).count();
        let before = asked();
        let cluster = Cluster::new(kube::Client::new(api.router(), NAMESPACE));
        let waiting = (0..WAITING_PROCESSORS).map(|number| {
            let mut object = objects(&fake).pop().unwrap_or_default();
            object["metadata"]["name"] = json!(format!("slow-{number}"));
            let image = format!("{}/{REPOSITORY}:slow", fake.host());
            object["spec"]["module"] = json!({"image": image});
            object
        });
        local::apply(&cluster, waiting.collect()).await?;
        while asked() == before {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let beside = changes(&api, &host).await?;
        let still = processors(&cluster).get("slow-0").await?.data;
        let conditions = still.pointer("/status/conditions").and_then(Value::as_array);
        let is_pulling = conditions.into_iter().flatten().any(|one| one["reason"] == "Pulling");
        ensure!(is_pulling, "the registry is not slow: {still:#}");
        stop.cancel();
        anyhow::Ok([("alone", alone), ("beside a registry that sends 1 KB/s", beside)])
    };
    let ((), measured) = tokio::try_join!(supervised, measured)?;
    for (name, times) in measured {
        let figure = format!(
            "median {}, p99 {}, longest {}",
            millis(times.median()),
            millis(times.at(99)),
            millis(times.at(100))
        );
        table.row(format!("a change of a neighbour's object, {name}"), figure, "");
    }
    host.stop().await
}

/// Changes an object again and again; returns the times until what is made of it has changed.
#[expect(clippy::disallowed_methods, reason = "it is not the host who writes")]
async fn changes(api: &EmbeddedApi, host: &Host) -> anyhow::Result<Times> {
    let client = kube::Client::new(api.router(), NAMESPACE);
    let maps = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
    let maps: Api<DynamicObject> = Api::namespaced_with(client, NAMESPACE, &maps);
    let mut times = Vec::new();
    let name = source("o0")["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    // An object begins with 0.
    for number in 1..=CHANGES {
        let patch = Patch::Merge(json!({"data": {"sequence": number.to_string()}}));
        let start = Instant::now();
        maps.patch(&name, &PatchParams::default(), &patch).await?;
        loop {
            let report = host.next_report().await?;
            ensure!(report.failure.is_none(), "{}: {:?}", report.key, report.failure);
            if report.key.name() == name && !report.changes.is_empty() {
                break;
            }
        }
        times.push(start.elapsed());
    }
    Ok(Times::new(times))
}
