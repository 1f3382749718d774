//! Calls of a processor, each in a fresh instance as in production.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use mortise::local;
use mortise_core::{
    contract::{ObjectRef, Request},
    grant::Grant,
    reads::{PAGE_BYTES, View},
    store::Stores,
};
use mortise_host::{
    host::Loaded,
    wasm::{Called, Input, Moment},
};
use serde_json::{Value, json};
use tokio::{runtime::Runtime, task::JoinSet};

use crate::{
    rules, samples,
    table::{Table, Times, micros},
};

const CALLS: usize = 4_000;
const WARM_UP: usize = 200;
/// 2023-11-14T22:13:20Z.
const MOMENT: Moment = Moment { now_ms: 1_700_000_000_000, seed: 7 };

/// A processor with everything that a call of it needs.
pub(crate) struct Callee {
    pub(crate) loaded: Loaded,
    pub(crate) stores: Stores,
    grant: Arc<Grant>,
    request: Request,
}

/// Builds a runtime with this many threads.
pub(crate) fn runtime(threads: usize, name: &str) -> anyhow::Result<Runtime> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(threads).thread_name(name).enable_all();
    runtime.build().context("cannot start threads")
}

/// Adds the cost of calls on one and two threads.
///
/// # Errors
///
/// Fails if a guest does not build or load, or a call fails.
pub(crate) fn run(table: &mut Table) -> anyhow::Result<()> {
    for threads in [1, 2] {
        let runtime = runtime(threads, "calls")?;
        let idle = Arc::new(runtime.block_on(idle())?);
        let rule = Arc::new(runtime.block_on(api_rule())?);
        let large = Arc::new(runtime.block_on(announce("large"))?);
        for (name, callee, budget) in [
            ("does nothing, 3 KB", idle, "< 50 µs at the median"),
            ("api-rule, 3 paths", rule, ""),
            ("a remembered answer of a library, 1.5 MiB", large, "< 1 ms at the median"),
        ] {
            let times = runtime.block_on(calls(&callee, threads))?;
            let figure = format!("median {}, p99 {}", micros(times.median()), micros(times.at(99)));
            table.row(format!("call, {name}, {threads} thread(s)"), figure, budget);
        }
    }
    Ok(())
}

async fn calls(callee: &Arc<Callee>, threads: usize) -> anyhow::Result<Times> {
    let mut tasks = JoinSet::new();
    for _ in 0..threads {
        let callee = Arc::clone(callee);
        tasks.spawn(async move { callee.times(CALLS).await });
    }
    let mut times = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        times.extend(ended??);
    }
    Ok(Times::new(times))
}

async fn idle() -> anyhow::Result<Callee> {
    let loaded = mortise_tests::loaded("tests/guests/idle", "{}").await?;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map", "namespace": "default"}, "list": []});
    let map = samples::fill(map, "/list");
    Callee::new(loaded, Stores::new(), &map)
}

/// Returns a processor that hands this text to its library.
async fn announce(text: &str) -> anyhow::Result<Callee> {
    let loaded = mortise_tests::loaded("tests/guests/announce", "{}").await?;
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"text": text},
        "metadata": {"name": "map", "namespace": "default", "labels": {"announce": "yes"}},
    });
    Callee::new(loaded, Stores::new(), &map)
}

async fn api_rule() -> anyhow::Result<Callee> {
    let loaded = mortise_tests::loaded("guests/api-rule", "{}").await?;
    let mut objects = rules::surroundings()?;
    objects.push(rules::rule(0));
    let stores = filled(&loaded, objects)?;
    Callee::new(loaded, stores, &rules::rule(0))
}

/// Returns stores of all that a processor reads, filled with objects.
///
/// # Errors
///
/// Fails if the declared reads are not valid.
pub(crate) fn filled(loaded: &Loaded, mut objects: Vec<Value>) -> anyhow::Result<Stores> {
    for (index, object) in objects.iter_mut().enumerate() {
        if let Some(metadata) = object.pointer_mut("/metadata") {
            metadata["uid"] = format!("uid-{index}").into();
            metadata["resourceVersion"] = (index + 1).to_string().into();
        }
    }
    let (stores, grant) = (Stores::new(), Grant::new(&loaded.description)?);
    for (kind, scope, wanted) in grant.wanted() {
        stores.open(kind, scope, wanted);
        let feed = stores.feed(kind, scope).context("the store is not open")?;
        feed.begin_list();
        let is_of = |object: &&Value| {
            let of = local::kind_of(object);
            (&of.group, &of.kind) == (&kind.group, &kind.kind) && scope.holds(object)
        };
        objects.iter().filter(is_of).for_each(|object| feed.list_item(object));
        feed.end_list();
    }
    Ok(stores)
}

// === impl Callee ===

impl Callee {
    /// Prepares calls of this processor for this object.
    pub(crate) fn new(loaded: Loaded, stores: Stores, object: &Value) -> anyhow::Result<Self> {
        let text =
            |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let reconciler = loaded.description.reconcilers.first().context("no reconciler")?;
        let request = Request {
            reconciler: reconciler.name.clone(),
            ref_: ObjectRef {
                kind: reconciler.of.kind.clone(),
                namespace: Some(text("/metadata/namespace").to_owned()),
                name: text("/metadata/name").to_owned(),
            },
            object: Some(object.to_string()),
            config: loaded.config.to_string(),
            attempt: 0,
            failed_writes: Vec::new(),
            note: None,
        };
        let grant = Arc::new(Grant::new(&loaded.description)?);
        Ok(Self { loaded, stores, grant, request })
    }

    /// Makes one call, with `config` in place of the processor's configuration if given.
    pub(crate) async fn call(&self, config: Option<&str>) -> anyhow::Result<Called> {
        let mut request = self.request.clone();
        if let Some(config) = config {
            config.clone_into(&mut request.config);
        }
        let view = View::new(self.stores.clone(), Arc::clone(&self.grant), PAGE_BYTES);
        Ok(self.loaded.processor.call(Input::new(view, &request, MOMENT)).await)
    }

    async fn times(&self, calls: usize) -> anyhow::Result<Vec<Duration>> {
        let mut times = Vec::with_capacity(calls);
        for call in 0..WARM_UP + calls {
            let start = Instant::now();
            let called = self.call(None).await?;
            let took = start.elapsed();
            let outcome = called.outcome?;
            outcome.map_err(|failure| anyhow::anyhow!("a call failed: {}", failure.message))?;
            if call >= WARM_UP {
                times.push(took);
            }
        }
        Ok(times)
    }
}
