//! Builds every part of a host, owns every task, and waits for their end. If one of them ends by itself, the host ends with its
//! error: nothing limps on.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{
    sync::{mpsc, watch as latest},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    admin::Admin,
    cluster::Cluster,
    contract::{Description, Kind, ObjectRef},
    metrics::Metrics,
    processor::Processor,
    queue::{self, Cause, Key, Priority, Queue, Run},
    reconciler::{Parts, Reconciler, Report},
    record::{Record, Records},
    store::{Scope, Stores, Wanted},
    triggers::Triggers,
    view::Readable,
    watch::{self, Watch},
};

/// Tells the time, so that tests and simulations decide it.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How long the first runs wait for the first lists.
const FIRST_LISTS: Duration = Duration::from_secs(10);
/// How many reports wait for somebody who reads them.
const REPORTS: usize = 1024;

/// How a host runs.
#[derive(Clone)]
pub struct Options {
    /// The time.
    pub now: Clock,
    /// Whether the host runs what is ready by itself; else [`Host::run`] is called for it.
    pub drive: Drive,
    /// How many calls of one processor run at once.
    pub concurrency: usize,
}

/// Who runs what is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drive {
    /// The host, as soon as it can.
    Host,
    /// The caller, one by one, and at once: changes that follow each other closely are not taken together.
    Caller,
}

/// A processor that has described itself.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The component.
    pub processor: Processor,
    /// What it said of itself.
    pub description: Arc<Description>,
    /// Its configuration, as JSON.
    pub config: Arc<str>,
    /// The namespace of the Processor resource; part of its field managers.
    pub namespace: Arc<str>,
}

/// A running host.
pub struct Host {
    shared: Arc<Shared>,
    watches: Vec<Watch>,
    tasks: JoinSet<anyhow::Result<()>>,
    reports: mpsc::Receiver<Report>,
    stop: CancellationToken,
}

/// What the tasks of a host share.
struct Shared {
    stores: Stores,
    triggers: Arc<Mutex<Triggers>>,
    queue: Queue,
    reconcilers: BTreeMap<Arc<str>, Reconciler>,
    records: Arc<Records>,
    metrics: Metrics,
}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        Self { now: Arc::new(Timestamp::now), drive: Drive::Host, concurrency: 4 }
    }
}

// === impl Loaded ===

impl Loaded {
    /// Asks a component for its description.
    ///
    /// # Errors
    ///
    /// A component that fails, or that refuses its configuration.
    pub async fn describe(
        processor: Processor,
        config: &str,
        namespace: &str,
    ) -> anyhow::Result<Self> {
        let description =
            processor.describe(config).await.context("the processor does not describe itself")?;
        for kind in declared_kinds(&description) {
            let is_any = kind.kind == "*" || kind.group == "*";
            let name = &description.name;
            anyhow::ensure!(
                !is_any,
                "`{name}` declares the kind `*`, which is not supported yet: name the kinds"
            );
        }
        Ok(Self {
            processor,
            description: Arc::new(description),
            config: config.into(),
            namespace: namespace.into(),
        })
    }
}

/// Every kind that a description names, once.
pub fn declared_kinds(description: &Description) -> Vec<Kind> {
    let reconciled = description.reconcilers.iter().map(|reconciler| &reconciler.of.kind);
    let read = description.reads.iter().map(|selection| &selection.kind);
    let written = description.writes.iter().map(|rule| &rule.of.kind);
    let mut kinds: Vec<Kind> = Vec::new();
    for kind in reconciled.chain(read).chain(written) {
        if !kinds.contains(kind) {
            kinds.push(kind.clone());
        }
    }
    kinds
}

// === impl Host ===

impl Host {
    /// Opens the watches of the processors and, unless the caller drives, starts to run.
    ///
    /// # Errors
    ///
    /// A description that asks for what does not exist.
    pub fn start(
        cluster: &Cluster,
        processors: Vec<Loaded>,
        options: &Options,
    ) -> anyhow::Result<Self> {
        let stores = Stores::new();
        let mut triggers = Triggers::new();
        let queue = Queue::new();
        let parts = Parts::new(cluster, &stores, &options.now);
        let mut reconcilers = BTreeMap::new();
        let mut wanted = Vec::new();
        for loaded in processors {
            let name: Arc<str> = loaded.description.name.as_str().into();
            let concurrency =
                if options.drive == Drive::Caller { usize::MAX } else { options.concurrency };
            queue.set_processor(&name, queue::Limits { concurrency, rate: None });
            for reconciler in &loaded.description.reconcilers {
                let interval = match options.drive {
                    Drive::Host => Duration::from_millis(reconciler.min_interval),
                    Drive::Caller => Duration::ZERO,
                };
                queue.set_min_interval(&name, &reconciler.name.as_str().into(), interval);
                let there = triggers
                    .add_reconciler(&name, reconciler, &stores)
                    .map_err(anyhow::Error::msg)?;
                for key in &there {
                    queue.add(key, Cause::Start, Priority::Change);
                }
            }
            let readable = Readable::new(&loaded.description)
                .with_context(|| format!("processor `{name}`"))?;
            wanted.extend_from_slice(readable.wanted());
            let reconciler = Reconciler::new(loaded, Arc::new(readable), parts.clone())?;
            anyhow::ensure!(
                reconcilers.insert(Arc::clone(&name), reconciler).is_none(),
                "two processors are called `{name}`"
            );
        }
        let shared = Arc::new(Shared {
            stores,
            triggers: Arc::new(Mutex::new(triggers)),
            queue,
            reconcilers,
            records: parts.records,
            metrics: parts.metrics,
        });
        let (report, reports) = mpsc::channel(REPORTS);
        let mut host = Self {
            shared,
            watches: Vec::new(),
            tasks: JoinSet::new(),
            reports,
            stop: CancellationToken::new(),
        };
        host.open(cluster, &wanted);
        host.tasks.spawn(Arc::clone(&host.shared).pump());
        let stop = host.stop.clone();
        match options.drive {
            Drive::Host => {
                let watches = host.watches.clone();
                host.tasks.spawn(Arc::clone(&host.shared).dispatch(watches, report, stop));
            }
            // Nothing runs by itself: to be told to stop is all that there is to wait for.
            Drive::Caller => {
                host.tasks.spawn(async move {
                    stop.cancelled().await;
                    Ok(())
                });
            }
        }
        Ok(host)
    }

    fn open(&mut self, cluster: &Cluster, wanted: &[(Kind, Scope, Wanted)]) {
        let (sender, crds) = latest::channel(0);
        self.tasks.spawn(ended("the watch of CRDs", watch::run_crds(cluster.clone(), sender)));
        let context = watch::Context {
            cluster: cluster.clone(),
            stores: self.shared.stores.clone(),
            crds,
            metrics: self.shared.metrics.clone(),
        };
        for (watch, wanted) in watch::plan(wanted) {
            self.shared.stores.open(&watch.kind, &watch.scope, &wanted);
            self.tasks.spawn(ended("a watch", watch.clone().run(context.clone())));
            self.watches.push(watch);
        }
    }

    /// The next finished reconcile.
    ///
    /// # Errors
    ///
    /// A task of the host has ended: the host is of no use any more.
    pub async fn next_report(&mut self) -> anyhow::Result<Report> {
        tokio::select! {
            Some(report) = self.reports.recv() => Ok(report),
            Some(ended) = self.tasks.join_next() => {
                ended.context("a task of the host failed")??;
                anyhow::bail!("a task of the host ended")
            }
        }
    }

    /// Takes no new runs, waits for those that are on their way, and ends the watches.
    ///
    /// # Errors
    ///
    /// A task had failed.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.stop.cancel();
        // Who waits to report would wait for ever once nobody reads.
        self.reports.close();
        while let Some(ended) = self.tasks.join_next().await {
            match ended {
                Ok(Ok(())) => self.tasks.abort_all(),
                Ok(Err(error)) => return Err(error),
                Err(error) if error.is_cancelled() => {}
                Err(error) => return Err(error).context("a task of the host failed"),
            }
        }
        Ok(())
    }

    /// All that is ready to run, for a caller that drives.
    pub fn take_ready(&self) -> Vec<Run> {
        self.shared.feed();
        std::iter::from_fn(|| self.shared.queue.try_next()).collect()
    }

    /// Runs one key, for a caller that drives.
    pub async fn run(&self, run: Run) -> Report {
        self.shared.run(run).await
    }

    /// Lets no time pass for the keys: what waits for its time waits for ever, what changes runs as ever.
    pub fn stand_still(&self) {
        self.shared.queue.stand_still();
    }

    /// Ends a run without running it: the key comes back when something changes.
    pub fn leave(&self, run: &Run) {
        self.shared.queue.done(&run.key, queue::Done::Success { requeue: None });
    }

    /// The object that a key stands for.
    pub fn object_of(&self, key: &Key) -> Option<ObjectRef> {
        self.shared.reconcilers.get(key.processor())?.object_of(key)
    }

    /// The record of a key's last run; none if it has not run, or if its object is gone.
    pub fn record(&self, key: &Key) -> Option<Arc<Record>> {
        self.shared.records.get(key)
    }

    /// What is told to those who run it. It is ready once the first lists of what is watched now are complete.
    pub fn admin(&self) -> Admin {
        Admin {
            metrics: self.shared.metrics.clone(),
            queue: self.shared.queue.clone(),
            stores: self.shared.stores.clone(),
            watches: self.watches.as_slice().into(),
        }
    }

    /// A number that moves with each event that a store has taken in.
    pub fn progress(&self) -> latest::Receiver<u64> {
        self.shared.stores.progress()
    }

    /// Whether nothing is ready and nothing runs. What waits for its time does not count.
    pub fn is_idle(&self) -> bool {
        self.shared.queue.is_idle()
    }

    /// Whether the stores hold these objects of the watched kinds, and no others.
    pub fn holds(&self, objects: &[Value]) -> bool {
        let stores = &self.shared.stores;
        self.watches.iter().all(|watch| {
            let there: BTreeSet<_> =
                objects.iter().filter_map(|object| watch.version_of(object)).collect();
            let known = stores.resource_versions(&watch.kind, &watch.scope);
            stores.is_settled(&watch.kind, &watch.scope)
                && known.into_iter().collect::<BTreeSet<_>>() == there
        })
    }

    /// What is watched.
    pub fn watches(&self) -> &[Watch] {
        &self.watches
    }

    /// The watched objects as they are known.
    pub fn stores(&self) -> &Stores {
        &self.shared.stores
    }
}

/// A task that never ends by itself; if it does, that is the error.
async fn ended(what: &'static str, task: impl Future<Output = ()>) -> anyhow::Result<()> {
    task.await;
    anyhow::bail!("{what} ended")
}

// === impl Shared ===

impl Shared {
    /// Queues what the stores' changes trigger.
    fn feed(&self) {
        // Under one lock, so that events are seen in the order in which the stores took them in.
        let mut triggers = self.triggers.lock();
        for event in self.stores.take_events() {
            for (key, cause) in triggers.on_event(&event) {
                self.queue.add(&key, cause, Priority::Change);
            }
        }
    }

    async fn pump(self: Arc<Self>) -> anyhow::Result<()> {
        loop {
            self.stores.changed().await;
            self.feed();
        }
    }

    /// Runs what is ready until it is told to stop, then waits for what runs: a call is never dropped.
    async fn dispatch(
        self: Arc<Self>,
        watches: Vec<Watch>,
        reports: mpsc::Sender<Report>,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        self.first_lists(&watches).await;
        let mut runs: JoinSet<Report> = JoinSet::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(ran) = runs.join_next() => {
                    // Nobody reads any more: the host is about to stop.
                    let _ = reports.send(ran.context("a reconcile failed")?).await;
                }
                run = self.queue.next() => {
                    let shared = Arc::clone(&self);
                    runs.spawn(async move { shared.run(run).await });
                }
            }
        }
        while let Some(ran) = runs.join_next().await {
            ran.context("a reconcile failed")?;
        }
        Ok(())
    }

    /// Waits for the first lists, so that the first runs do not meet half of a cluster. What takes longer is answered as
    /// unavailable, and runs again when it is there.
    async fn first_lists(&self, watches: &[Watch]) {
        let mut progress = self.stores.progress();
        let complete = async {
            while !watches.iter().all(|watch| self.stores.is_settled(&watch.kind, &watch.scope)) {
                if progress.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(FIRST_LISTS, complete).await;
    }

    async fn run(&self, run: Run) -> Report {
        let Some(reconciler) = self.reconcilers.get(run.key.processor()) else {
            self.queue.done(&run.key, queue::Done::Success { requeue: None });
            return Report::new(&run);
        };
        let (report, again) = reconciler.run(&run, &self.triggers, || self.feed()).await;
        // What its own writes have changed is on its way to other keys before this one counts as done.
        self.feed();
        let done = again.done;
        for cause in again.causes {
            self.queue.add(&run.key, cause, Priority::Change);
        }
        self.queue.done(&run.key, done);
        report
    }
}
