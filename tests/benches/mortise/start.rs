//! From the start of an engine to the first reconcile of ten processors, with no code in the cache
//! and with all of it; the memory of idle processors; and a large module that is loaded while a
//! small one is called.

#[expect(dead_code, reason = "the tests of the compiler need more of them")]
#[path = "../../../host/cli/tests/commands/compile/modules.rs"]
pub(crate) mod modules;

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use mortise_embedded_api::{EmbeddedApi, Options};
use mortise_host::{
    cache_dir::CacheDir,
    cluster::Cluster,
    host::{Host, Loaded, Options as HostOptions, Settings},
    wasm::{self, CompileLimits, Compiler, Engine, Limits, Processor},
};
use serde_json::json;

use crate::{
    calls::runtime,
    process,
    table::{Table, Times, micros},
};

const GUEST: &str = "tests/guests/idle";
const PROCESSORS: usize = 10;
const MANY_PROCESSORS: usize = 100;
/// Number of functions, of 2 KiB each, and bytes of data: 50 MiB of each.
const FUNCTIONS: usize = 26_000;
const DATA_BYTES: usize = 50 << 20;

/// Adds the cost of a start.
///
/// # Errors
///
/// Fails if a guest does not build or load, or a host fails.
pub(crate) fn run(table: &mut Table) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let module = fs::read(mortise_tests::guest(GUEST)?)?;
    for (cache, budget) in [("cold", ""), ("warm", "< 1 s")] {
        let runtime = runtime(2, "start")?;
        let took = runtime.block_on(first_reconciles(&module, folder.path()))?;
        let figure = format!("{:.0} ms", took.as_secs_f64() * 1e3);
        table.row(
            format!("start to the first reconcile of {PROCESSORS}, cache {cache}"),
            figure,
            budget,
        );
    }
    runtime(2, "idle")?.block_on(memory(&module, folder.path(), table))?;
    for (name, large) in [
        ("code", modules::with_code(&module, FUNCTIONS)),
        ("data", modules::with_data(&module, DATA_BYTES)),
    ] {
        for cache in ["cold", "warm"] {
            let what = format!("{} MiB, mostly {name}, cache {cache}", large.len() >> 20);
            let runtime = runtime(2, "load")?;
            runtime.block_on(beside_calls(&module, &large, folder.path(), &what, table))?;
        }
    }
    Ok(())
}

/// Creates an engine as `mortise run` does, which compiles in child processes.
pub(crate) fn engine(folder: &Path) -> anyhow::Result<Engine> {
    let program = crate::command::program::built();
    let compiler = Compiler::Child { program, limits: CompileLimits::default() };
    let cache = Some(CacheDir::open(folder)?);
    Ok(Engine::new(wasm::Options { cache, compiler, ..wasm::Options::default() })?)
}

/// Loads the guest with a digest of its own, by an additional custom section.
async fn load(engine: &Engine, module: &[u8], index: usize) -> anyhow::Result<Loaded> {
    let name = format!("idle-{index}");
    let section = [&[u8::try_from(name.len())?], name.as_bytes()].concat();
    let module = [module, &[0, u8::try_from(section.len())?], &section].concat();
    let processor = Processor::load(engine, &name, module.into(), Limits::default()).await?;
    let settings = Settings { name: Some(name.into()), ..Settings::in_namespace("default") };
    Loaded::describe(processor, "{}", settings).await
}

async fn first_reconciles(module: &[u8], folder: &Path) -> anyhow::Result<Duration> {
    let api = EmbeddedApi::new(Options::default());
    let metadata = json!({"name": "map", "namespace": "default"});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    api.load(map, true).context("the object is refused")?;
    let cluster = Cluster::new(kube::Client::new(api.router(), "default"));
    let start = Instant::now();
    let engine = engine(folder)?;
    let loaded = try_join_all((0..PROCESSORS).map(|index| load(&engine, module, index))).await?;
    let host = Host::start(&cluster, loaded, &HostOptions::default())?;
    let mut seen = BTreeSet::new();
    while seen.len() < PROCESSORS {
        let report = host.next_report().await?;
        ensure!(report.failure.is_none(), "{}: {:?}", report.key, report.failure);
        seen.insert(report.key.processor().to_string());
    }
    let took = start.elapsed();
    host.stop().await?;
    Ok(took)
}

async fn memory(module: &[u8], folder: &Path, table: &mut Table) -> anyhow::Result<()> {
    // Compiled code is mapped from its file afterwards, as after a start with a warm cache.
    let engine = engine(folder)?;
    let mut all = vec![load(&engine, module, 0).await?];
    let before = process::resident()?;
    for count in [PROCESSORS, MANY_PROCESSORS] {
        while all.len() <= count {
            all.push(load(&engine, module, all.len()).await?);
        }
        let taken = process::resident()?.saturating_sub(before);
        let figure = format!("{} KiB each", (taken / count) >> 10);
        table.row(format!("memory of {count} idle processors"), figure, "< 1024 KiB each");
    }
    Ok(())
}

/// Measures the calls of a processor while another module is loaded.
async fn beside_calls(
    module: &[u8],
    large: &[u8],
    folder: &Path,
    what: &str,
    table: &mut Table,
) -> anyhow::Result<()> {
    let engine = engine(folder)?;
    let small = load(&engine, module, 0).await?.processor;
    let (large, start) = (large.to_vec().into(), Instant::now());
    let loading = Processor::load(&engine, "large", large, Limits::default());
    tokio::pin!(loading);
    let mut times = Vec::new();
    loop {
        let begun = Instant::now();
        tokio::select! {
            biased;
            loaded = &mut loading => { loaded?; break }
            described = small.describe("{}") => { described?; }
        }
        times.push(begun.elapsed());
    }
    let times = Times::new(times);
    let (median, longest) = (micros(times.median()), micros(times.at(100)));
    let took = start.elapsed().as_secs_f64();
    table.row(format!("loading {what}"), format!("{took:.2} s"), "");
    table.row("  calls of another meanwhile", format!("median {median}, longest {longest}"), "");
    Ok(())
}
