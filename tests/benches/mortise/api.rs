//! The embedded API's performance: writes, applies, a list, watches; and all at the same time, with
//! many objects.
//!
//! Requests go straight to the service, without a connection. Watches have a thread of their own,
//! as in other programs.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use axum::body::Body;
use futures::StreamExt as _;
use http::{Method, Request, Response};
use mortise_embedded_api::{EmbeddedApi, Options};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    task::JoinSet,
};
use tower::ServiceExt as _;

use crate::{
    calls::runtime,
    process,
    table::{Table, Times, micros},
};

const WRITES: usize = 5_000;
const LISTED_OBJECTS: usize = 10_000;
const MANY_OBJECTS: usize = 50_000;
const WATCHERS: usize = 100;
/// Writes that are awaited until the last watch has delivered them.
const AWAITED_WRITES: usize = 500;
const OBJECT_BYTES: usize = 3_000;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// An API and the service that answers for it.
struct Server {
    api: EmbeddedApi,
    router: axum::Router,
}

/// The running watches. Each reports the time of every event.
struct Watchers {
    came: UnboundedReceiver<Instant>,
    _watching: JoinSet<()>,
}

/// Adds the cost of requests, first alone, then with [`MANY_OBJECTS`] objects and [`WATCHERS`]
/// watches.
///
/// # Errors
///
/// Fails if a request is refused.
pub(crate) fn run(table: &mut Table) -> anyhow::Result<()> {
    let (asking, watching) = (runtime(1, "asking")?, runtime(1, "watching")?);
    let memory = process::resident()?;
    let server = Server::new();
    asking.block_on(server.alone(table))?;
    asking.block_on(server.list(table))?;
    asking.block_on(server.fan_out(watching.handle(), table))?;
    drop(server);
    let server = Server::new();
    asking.block_on(server.crowded(memory, watching.handle(), table))?;
    server.api.stop();
    Ok(())
}

/// A `ConfigMap` of 3 KB.
fn object(name: &str, round: usize) -> Value {
    let text = "0123456789".repeat(OBJECT_BYTES / 30);
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"app": "bench"}},
        "data": {"round": round.to_string(), "one": text, "two": text, "three": text},
    })
}

fn name(index: usize) -> String {
    format!("object-{index}")
}

fn rate(count: usize, times: &Times, wall: Duration) -> String {
    let each = wall.as_secs_f64() / f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    format!(
        "{:.0} a second, median {}, p99 {}",
        1.0 / each,
        micros(times.median()),
        micros(times.at(99))
    )
}

// === impl Server ===

impl Server {
    fn new() -> Self {
        let api = EmbeddedApi::new(Options::default());
        Self { router: api.router(), api }
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: Vec<u8>,
    ) -> anyhow::Result<Response<Body>> {
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let request = request.body(Body::from(body))?;
        let response = self.router.clone().oneshot(request).await?;
        ensure!(response.status().is_success(), "{path} was answered with {}", response.status());
        Ok(response)
    }

    /// Sends a request and reads the whole answer; returns the answer's size.
    async fn whole(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: Vec<u8>,
    ) -> anyhow::Result<usize> {
        let mut stream = self.ask(method, path, kind, body).await?.into_body().into_data_stream();
        let mut size = 0;
        while let Some(part) = stream.next().await {
            size += part?.len();
        }
        Ok(size)
    }

    async fn create(&self, index: usize) -> anyhow::Result<usize> {
        let body = object(&name(index), 0).to_string();
        self.whole(Method::POST, MAPS, "application/json", body.into()).await
    }

    async fn replace(&self, index: usize, round: usize) -> anyhow::Result<usize> {
        let (path, body) =
            (format!("{MAPS}/{}", name(index)), object(&name(index), round).to_string());
        self.whole(Method::PUT, &path, "application/json", body.into()).await
    }

    async fn apply(&self, index: usize, round: usize) -> anyhow::Result<usize> {
        let path = format!("{MAPS}/{}?fieldManager=bench&force=true", name(index));
        let body = object(&name(index), round).to_string();
        self.whole(Method::PATCH, &path, "application/apply-patch+yaml", body.into()).await
    }

    /// Measures one request after the other, without watches.
    async fn alone(&self, table: &mut Table) -> anyhow::Result<()> {
        for what in ["create", "replace", "apply", "apply of what is so"] {
            let (mut times, start) = (Vec::new(), Instant::now());
            for index in 0..WRITES {
                let before = Instant::now();
                match what {
                    "create" => self.create(index).await?,
                    "replace" => self.replace(index, 1).await?,
                    _ => self.apply(index, 2).await?,
                };
                times.push(before.elapsed());
            }
            let figure = rate(WRITES, &Times::new(times), start.elapsed());
            table.row(format!("embedded API, {what}, 3 KB"), figure, "< 1 ms each");
        }
        Ok(())
    }

    async fn list(&self, table: &mut Table) -> anyhow::Result<()> {
        for index in WRITES..LISTED_OBJECTS {
            self.create(index).await?;
        }
        let start = Instant::now();
        let size = self.whole(Method::GET, MAPS, "", Vec::new()).await?;
        let figure = format!("{:.1} ms, {} MiB", start.elapsed().as_secs_f64() * 1e3, size >> 20);
        table.row(format!("embedded API, list of {LISTED_OBJECTS}"), figure, "");
        Ok(())
    }

    async fn fan_out(&self, on: &tokio::runtime::Handle, table: &mut Table) -> anyhow::Result<()> {
        let mut watchers = Watchers::new(self, on).await?;
        let (_, last) = self.watched_writes(&mut watchers).await?;
        let figure = format!("median {}, p99 {}", micros(last.median()), micros(last.at(99)));
        table.row(
            format!("embedded API, from a write to the last of {WATCHERS} watchers"),
            figure,
            "< 5 ms",
        );
        Ok(())
    }

    /// Measures writes, each of which all watches must deliver before the next. Returns the
    /// durations of the writes, and the times until the last watch had the event.
    async fn watched_writes(&self, watchers: &mut Watchers) -> anyhow::Result<(Times, Times)> {
        let (mut writes, mut last) = (Vec::new(), Vec::new());
        for round in 0..AWAITED_WRITES {
            let start = Instant::now();
            self.replace(round, round + 3).await?;
            writes.push(start.elapsed());
            last.push(watchers.all(1).await?.saturating_duration_since(start));
        }
        Ok((Times::new(writes), Times::new(last)))
    }

    /// Measures many objects and watches at the same time.
    async fn crowded(
        &self,
        memory: usize,
        on: &tokio::runtime::Handle,
        table: &mut Table,
    ) -> anyhow::Result<()> {
        let what = format!("embedded API, {MANY_OBJECTS} objects, {WATCHERS} watches");
        for index in 0..MANY_OBJECTS {
            self.create(index).await?;
        }
        let resident = process::resident()?.saturating_sub(memory);
        let json: usize = self.api.objects().iter().map(|object| object.to_string().len()).sum();
        let mib = |bytes: usize| bytes >> 20;
        let figure = format!("{} MiB resident, {} MiB of JSON", mib(resident), mib(json));
        table.row(
            format!("{what}: memory"),
            figure,
            &format!("< {} MiB: 2 × the JSON", mib(2 * json)),
        );
        let mut watchers = Watchers::new(self, on).await?;
        let (writes, last) = self.watched_writes(&mut watchers).await?;
        let figure = |times: &Times| {
            format!("median {}, p99 {}", micros(times.median()), micros(times.at(99)))
        };
        table.row(format!("{what}: a write"), figure(&writes), "< 1 ms");
        table.row(format!("{what}: the last has the event"), figure(&last), "< 5 ms");
        let start = Instant::now();
        for index in 0..WRITES {
            self.replace(index, 9_999).await?;
        }
        let written = start.elapsed();
        watchers.all(WRITES).await?;
        let (each, seconds) = (WRITES * WATCHERS, start.elapsed().as_secs_f64());
        let figure = format!(
            "{WRITES} writes in {:.2} s, all {each} events seen after {seconds:.2} s",
            written.as_secs_f64()
        );
        table.row(format!("{what}: without waiting"), figure, "");
        Ok(())
    }
}

// === impl Watchers ===

impl Watchers {
    /// Opens [`WATCHERS`] watches that begin now.
    async fn new(server: &Server, on: &tokio::runtime::Handle) -> anyhow::Result<Self> {
        let (sender, came) = mpsc::unbounded_channel();
        let mut watching = JoinSet::new();
        let path = format!("{MAPS}?watch=true&resourceVersion={}", server.api.revision());
        for _ in 0..WATCHERS {
            let body = server.ask(Method::GET, &path, "", Vec::new()).await?.into_body();
            watching.spawn_on(watch(body, sender.clone()), on);
        }
        Ok(Self { came, _watching: watching })
    }

    /// Waits until every watch has delivered `events` more events; returns the time of the last
    /// one.
    async fn all(&mut self, events: usize) -> anyhow::Result<Instant> {
        let mut last = None;
        for _ in 0..events * WATCHERS {
            last = last.max(Some(self.came.recv().await.context("nobody watches any more")?));
        }
        last.context("nobody watches")
    }
}

/// Reports the time of each event until the watch ends.
async fn watch(body: Body, came: UnboundedSender<Instant>) {
    let mut stream = body.into_data_stream();
    while let Some(Ok(part)) = stream.next().await {
        let now = Instant::now();
        for _ in part.iter().filter(|&&byte| byte == b'\n') {
            // At the end the receiver is gone.
            let _ = came.send(now);
        }
    }
}
