//! Istio's processors: the renderer as a library beside a native build of it, and the sidecars of
//! 10,000 Pods.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use mortise::local;
use mortise_core::store::{Memory, Stores};
use mortise_host::wasm::Processor;
use mortise_tests::istio_client;
use serde_json::{Value, json};

use crate::{
    calls::{self, Callee, filled},
    process,
    table::{Table, Times, micros},
};

const RENDER: &str = "tests/guests/render";
const VERSION: &str = "1.31";
const RENDERINGS: usize = 10;
const INSTANTIATIONS: usize = 5;
const PODS: usize = 10_000;
const RUNS: usize = 20;
const IMAGE: &str = "docker.io/istio/proxyv2:1.31.0-distroless";

/// Adds the cost of rendering and of looking at Pods. Without Go there are no figures of the
/// renderer.
///
/// # Errors
///
/// Fails if a guest or the library does not build or load, or a call fails.
pub(crate) fn run(table: &mut Table) -> anyhow::Result<()> {
    let runtime = calls::runtime(1, "istio")?;
    runtime.block_on(pods(table))?;
    if istio_client::component(istio_client::version(VERSION)?)?.is_none() {
        return Ok(());
    }
    compile(table)?;
    runtime.block_on(render(table))
}

/// Adds the time of compiling the renderer, and the memory that this process has had by then, and
/// the time of instantiating it.
fn compile(table: &mut Table) -> anyhow::Result<()> {
    let (cache, parts) = (tempfile::tempdir()?, mortise_tests::parts(RENDER)?);
    let runtime = calls::runtime(2, "compile")?;
    let load = || -> anyhow::Result<(Processor, Duration)> {
        let begun = Instant::now();
        let engine = local::engine(Some(cache.path()), false)?;
        let processor = runtime.block_on(local::component(&engine, parts.clone()))?;
        Ok((processor, begun.elapsed()))
    };
    let ((_, cold), (_, warm)) = (load()?, load()?);
    let peak = process::Memory::of(std::process::id())?.peak();
    let figure = format!(
        "{:.1} s, {} MiB at most; from the cache {:.0} ms",
        cold.as_secs_f64(),
        peak >> 20,
        warm.as_secs_f64() * 1e3
    );
    table.row("Istio's renderer, 58 MB: compiling", figure, "");
    let mut times = Vec::new();
    for _ in 0..INSTANTIATIONS {
        // A new engine remembers no answer.
        let (processor, _) = load()?;
        let begun = Instant::now();
        runtime.block_on(processor.describe("{}"))?;
        times.push(begun.elapsed());
    }
    let figure = format!("{:.1} ms", Times::new(times).median().as_secs_f64() * 1e3);
    table.row("instantiating it, with the answer of its version", figure, "");
    Ok(())
}

/// Adds the times of renderings, remembered and not, beside those of a native build.
async fn render(table: &mut Table) -> anyhow::Result<()> {
    let loaded = mortise_tests::loaded(RENDER, "{}").await?;
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}});
    let guest = Callee::new(loaded, Stores::new(), &object)?;
    let (mut first, mut again, mut bytes) = (Vec::new(), Vec::new(), 0);
    process::forget_peak()?;
    let before = process::resident()?;
    for number in 0..RENDERINGS {
        let config = json!({"spec": spec(number), "brief": true}).to_string();
        for times in [&mut first, &mut again] {
            let begun = Instant::now();
            let called = guest.call(Some(&config)).await?;
            times.push(begun.elapsed());
            let outcome = called.outcome?.map_err(|failure| anyhow::anyhow!(failure.message))?;
            let answer: Value = serde_json::from_str(&outcome.status.context("no answer")?)?;
            bytes = answer.get("bytes").and_then(Value::as_u64).context("no rendering")?;
        }
    }
    let peak = process::Memory::of(std::process::id())?.peak().saturating_sub(before);
    let native = native()?;
    let (first, again) = (Times::new(first), Times::new(again));
    let ratio = first.median().as_secs_f64() / native.median().as_secs_f64();
    let millis = |time: Duration| format!("{:.0} ms", time.as_secs_f64() * 1e3);
    let figure = format!(
        "{} at the median; natively {}: {ratio:.1} ×",
        millis(first.median()),
        millis(native.median())
    );
    table.row(format!("rendering of {} KB", bytes >> 10), figure, "< 3.5 ×");
    table.row("the same, remembered", micros(again.median()), "< 1 ms");
    table.row("the most memory of renderings, one at a time", format!("{} MiB", peak >> 20), "");
    Ok(())
}

/// Returns an `IstioOperator`, each number another one.
fn spec(number: usize) -> String {
    let operator = json!({
        "apiVersion": "install.istio.io/v1alpha1", "kind": "IstioOperator",
        "metadata": {"name": format!("default-{number}"), "namespace": "istio-system"},
        "spec": {"profile": "default", "components": {"cni": {"enabled": true}}},
    });
    operator.to_string()
}

/// Returns the times of a native build.
fn native() -> anyhow::Result<Times> {
    let program = istio_client::version(VERSION)?.native()?;
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().context("the child has no stdin")?;
    let mut answers = BufReader::new(child.stdout.take().context("the child has no stdout")?);
    let mut times = Vec::new();
    for number in 0..RENDERINGS {
        let begun = Instant::now();
        writeln!(input, "{}", json!({"spec": spec(number), "cluster": null}))?;
        input.flush()?;
        anyhow::ensure!(answers.read_line(&mut String::new())? > 0, "no answer");
        times.push(begun.elapsed());
    }
    drop(input);
    anyhow::ensure!(child.wait()?.success(), "the native build failed");
    Ok(Times::new(times))
}

/// Adds the cost of a run over many Pods, of which a few have an old sidecar.
async fn pods(table: &mut Table) -> anyhow::Result<()> {
    let loaded = mortise_tests::loaded("guests/sidecar-restart", "{}").await?;
    let stores = filled(&loaded, cluster())?;
    let memory = stores.memory_by_kind();
    let memory = memory.into_iter().filter(|(kind, _)| kind.kind == "Pod");
    let memory: Memory = memory.map(|(_, memory)| memory).sum();
    let guest = Callee::new(loaded, stores, &resource())?;
    let (mut times, mut peak) = (Vec::new(), 0);
    for _ in 0..RUNS {
        let begun = Instant::now();
        let called = guest.call(None).await?;
        times.push(begun.elapsed());
        peak = peak.max(called.memory);
        let outcome = called.outcome?.map_err(|failure| anyhow::anyhow!(failure.message))?;
        anyhow::ensure!(outcome.patch.len() > 1, "no Pod is restarted: {outcome:?}");
    }
    let times = Times::new(times);
    let figure = format!(
        "{:.0} ms at the median, {} MiB in the guest",
        times.median().as_secs_f64() * 1e3,
        peak >> 20
    );
    table.row(format!("sidecar-restart, {PODS} Pods"), figure, "< 200 ms, < 64 MiB");
    let (json, total) = (memory.json / PODS, memory.total / PODS);
    let budget = format!("< {} B: the projected {json} B + 300 B", json + 300);
    table.row("store, a Pod as sidecar-restart reads it", format!("{total} B"), &budget);
    Ok(())
}

/// Returns the Istio resource of a cluster in which Istio is installed.
fn resource() -> Value {
    let last = r#"{"config":{"telemetry":{"metrics":{}}},"IstioTag":"1.31.0-distroless"}"#;
    json!({
        "apiVersion": "operator.kyma-project.io/v1alpha2", "kind": "Istio",
        "metadata": {
            "name": "default", "namespace": "kyma-system", "generation": 1,
            "creationTimestamp": "2023-01-01T00:00:00Z",
            "annotations": {"operator.kyma-project.io/lastAppliedConfiguration": last},
        },
        "spec": {},
    })
}

/// Returns a cluster of many Pods, ten of a Deployment. Those of ten Deployments have an old
/// sidecar.
fn cluster() -> Vec<Value> {
    let istiod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "istiod", "namespace": "istio-system",
            "labels": {"kyma-project.io/module": "istio"},
        },
        "spec": {"containers": [
            {"name": "discovery", "image": "docker.io/istio/pilot:1.31.0-distroless"},
        ]},
        "status": {"phase": "Running"},
    });
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "one"},
        "status": {"capacity": {"cpu": "64", "memory": "256Gi"}},
    });
    let mut all = vec![istiod, node, resource()];
    for number in 0..PODS / 10 {
        let namespace = format!("shop-{}", number % 50);
        let name = format!("web-{number}");
        if number < 50 {
            all.push(json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": namespace, "labels": {"istio-injection": "enabled"}},
            }));
        }
        all.extend(workload(&namespace, &name));
        let image = if number < 10 { "docker.io/istio/proxyv2:1.30.0-distroless" } else { IMAGE };
        all.extend((0..10).map(|pod| self::pod(&namespace, &name, pod, image)));
    }
    all
}

fn workload(namespace: &str, name: &str) -> [Value; 2] {
    let of = |kind: &str, name: String, owner: Value| {
        json!({
            "apiVersion": "apps/v1", "kind": kind,
            "metadata": {"name": name, "namespace": namespace, "ownerReferences": owner},
            "spec": {"template": {"metadata": {}}},
            "status": {"replicas": 10, "readyReplicas": 10},
        })
    };
    let owner =
        json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": "owner"}]);
    [of("Deployment", name.to_owned(), json!([])), of("ReplicaSet", format!("{name}-1"), owner)]
}

fn pod(namespace: &str, name: &str, number: usize, image: &str) -> Value {
    let owner = json!([
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{name}-1"), "uid": "set"},
    ]);
    let resources = json!({
        "limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "10m", "memory": "192Mi"},
    });
    let conditions = ["Ready", "ContainersReady", "PodScheduled", "Initialized"];
    let conditions = conditions.map(|of| json!({"type": of, "status": "True"}));
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{name}-1-{number:05}"), "namespace": namespace,
            "creationTimestamp": "2023-01-01T00:00:00Z", "ownerReferences": owner,
            "labels": {"app": name, "security.istio.io/tlsMode": "istio"},
            "annotations": {"sidecar.istio.io/status": "{\"initContainers\":[\"istio-proxy\"]}"},
        },
        "spec": {
            "containers": [{"name": "app", "image": "example.com/app:1"}],
            "initContainers": [{"name": "istio-proxy", "image": image, "resources": resources}],
        },
        "status": {"phase": "Running", "conditions": conditions},
    })
}
