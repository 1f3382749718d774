//! Builds every part of a host, owns every task, and waits for their end. If one of them ends by itself, the host ends with its
//! error: nothing limps on.

mod exchange;
mod open;
mod options;
mod probation;
mod registry;
mod settings;
mod status;
mod trial;
mod watches;
mod work;

pub use options::{Bounds, Clock, Drive, Options, Skip};
pub use probation::{Trust, Verdict};
pub use registry::{LastFailure, Version};
pub use settings::{Ending, Mode, Settings};
pub use status::{LimitMet, ProcessorStatus};
pub use trial::NotExchanged;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
};

use anyhow::Context as _;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{
    runtime::Handle,
    sync::{mpsc, watch as latest},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use self::{
    exchange::Prepared,
    open::{Opened, run_watches},
    work::Shared,
};
use crate::{
    admin::Admin,
    cluster::{Cluster, Reach},
    contract::{Description, Kind, ObjectRef},
    kept,
    processor::Processor,
    queue::{self, Key, Run},
    reconciler::{Parts, Report},
    record::Record,
    store::Stores,
    watch::{self, Watch},
};

/// How many reports wait for somebody who reads them.
const REPORTS: usize = 1024;

/// A processor that has described itself.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The component.
    pub processor: Processor,
    /// What it said of itself.
    pub description: Arc<Description>,
    /// Its configuration, as JSON.
    pub config: Arc<str>,
    /// What else decides how it runs.
    pub settings: Settings,
}

/// A running host.
pub struct Host {
    options: Options,
    shared: Arc<Shared>,
    tasks: Mutex<JoinSet<anyhow::Result<()>>>,
    reports: tokio::sync::Mutex<mpsc::Receiver<Report>>,
    /// The versions of a processor are exchanged one after the other.
    turns: Mutex<BTreeMap<Arc<str>, Arc<tokio::sync::Mutex<()>>>>,
    users: AtomicU64,
    stop: CancellationToken,
    /// Cancelled when no run is to begin any more: then, or before.
    begin_nothing: CancellationToken,
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
        settings: Settings,
    ) -> anyhow::Result<Self> {
        let description =
            processor.describe(config).await.context("the processor does not describe itself")?;
        Ok(Self { processor, description: Arc::new(description), config: config.into(), settings })
    }

    /// As what it is known: its keys, reports and metrics say it. `namespace/name` of its Processor resource; what it calls itself
    /// where there is none.
    pub fn name(&self) -> Arc<str> {
        match &self.settings.name {
            Some(name) => format!("{}/{name}", self.settings.namespace).into(),
            None => self.description.name.as_str().into(),
        }
    }
}

/// Every kind that a description names, once. Kind `*` names none.
pub fn declared_kinds(description: &Description) -> Vec<Kind> {
    let reconciled = description.reconcilers.iter().map(|reconciler| &reconciler.of.kind);
    let read = description.reads.iter().map(|selection| &selection.kind);
    let written = description.writes.iter().map(|rule| &rule.of.kind);
    let mut kinds: Vec<Kind> = Vec::new();
    for kind in reconciled.chain(read).chain(written) {
        let is_any = kind.kind == "*" || kind.group == "*";
        if !is_any && !kinds.contains(kind) {
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
    /// A description that asks for what does not exist, or two processors of one name.
    pub fn start(
        cluster: &Cluster,
        processors: Vec<Loaded>,
        options: &Options,
    ) -> anyhow::Result<Self> {
        let (crds, changes) = latest::channel(0);
        let (report, reports) = mpsc::channel(REPORTS);
        let (open, opened) = mpsc::unbounded_channel();
        let host = Self::idle(cluster, options, open, reports);
        let mut names = BTreeSet::new();
        for loaded in &processors {
            let name = loaded.name();
            anyhow::ensure!(names.insert(Arc::clone(&name)), "two processors are called `{name}`");
        }
        let prepared: anyhow::Result<Vec<Prepared>> =
            processors.into_iter().map(|loaded| host.prepare(loaded)).collect();
        let prepared = prepared?;
        host.spawn(ended("the watch of CRDs", watch::run_crds(cluster.clone(), crds)));
        let rights = Arc::clone(&host.shared).keep_rights(changes.clone());
        host.spawn(ended("the renewal of rights", rights));
        host.spawn(ended("what opens watches again", Arc::clone(&host.shared).try_again()));
        let watches_on = options.watches_on.clone().unwrap_or_else(Handle::current);
        host.spawn(run_watches(opened, host.watching(changes), watches_on));
        host.open(&prepared);
        for prepared in prepared {
            host.put(prepared);
        }
        host.spawn(forever(Arc::clone(&host.shared).pump()));
        host.spawn(host.work(report));
        if let Some(kept) = &host.shared.kept {
            let written = kept::run(Arc::clone(kept), Arc::clone(&host.shared.parts.records));
            let lease = options.lease.clone();
            // Nothing runs before that, and nothing is past before something runs.
            let written = async move {
                lease.held().await;
                written.await;
            };
            host.spawn(ended("what writes down records of runs", written));
        }
        Ok(host)
    }

    /// A host that does nothing yet.
    fn idle(
        cluster: &Cluster,
        options: &Options,
        open: mpsc::UnboundedSender<Opened>,
        reports: mpsc::Receiver<Report>,
    ) -> Self {
        let (metrics, skips) = (options.metrics.clone(), !matches!(options.skip, Skip::Never));
        let parts = Parts::new(cluster, &Stores::new(), &options.now);
        let parts = Parts { metrics, skips, ..parts };
        let kept = options.skip.open(&parts.records);
        let stop = CancellationToken::new();
        Self {
            options: options.clone(),
            shared: Arc::new(Shared::new(parts, kept, open, options.bounds)),
            tasks: Mutex::default(),
            reports: tokio::sync::Mutex::new(reports),
            turns: Mutex::default(),
            users: AtomicU64::new(0),
            begin_nothing: stop.child_token(),
            stop,
        }
    }

    fn watching(&self, crds: latest::Receiver<u64>) -> watch::Context {
        let Parts { cluster, stores, metrics, access, .. } = self.shared.parts.clone();
        let shared = Arc::clone(&self.shared);
        let grown = Arc::new(move |watch: &Watch| shared.grown(watch));
        watch::Context { cluster, stores, crds, metrics, access, grown }
    }

    /// What ends when the host is told to stop, once nothing runs any more.
    fn work(
        &self,
        report: mpsc::Sender<Report>,
    ) -> impl Future<Output = anyhow::Result<()>> + Send + 'static {
        let (shared, stop) = (Arc::clone(&self.shared), self.stop.clone());
        let begin_nothing = self.begin_nothing.clone();
        let (drive, lease) = (self.options.drive, self.options.lease.clone());
        async move {
            match drive {
                Drive::Host => tokio::select! {
                    () = begin_nothing.cancelled() => {}
                    () = lease.held() => shared.dispatch(report, begin_nothing.clone()).await?,
                },
                // Nothing runs by itself: to be told to stop is all that there is to wait for.
                Drive::Caller => {}
            }
            stop.cancelled().await;
            Ok(())
        }
    }

    fn spawn(&self, task: impl Future<Output = anyhow::Result<()>> + Send + 'static) {
        self.tasks.lock().spawn(task);
    }

    fn next_user(&self) -> u64 {
        self.users.fetch_add(1, Ordering::Relaxed)
    }

    /// The next finished reconcile, of any processor. Several callers share them.
    ///
    /// # Errors
    ///
    /// The host was told to stop, or a task of it has ended: it is of no use any more.
    pub async fn next_report(&self) -> anyhow::Result<Report> {
        let mut reports = self.reports.lock().await;
        tokio::select! {
            // Before the tasks are looked at: who stops the host waits for their ends.
            biased;
            () = self.stop.cancelled() => anyhow::bail!("the host was told to stop"),
            Some(report) = reports.recv() => Ok(report),
            ended = self.task_ended() => {
                ended?;
                anyhow::bail!("a task of the host ended")
            }
        }
    }

    /// Waits for the end of a task that does not end by itself.
    async fn task_ended(&self) -> anyhow::Result<()> {
        let ended = poll_fn(|context| match self.tasks.lock().poll_join_next(context) {
            Poll::Ready(Some(ended)) => Poll::Ready(ended),
            // The host has tasks as long as it has not been stopped.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        });
        ended.await.context("a task of the host failed")?
    }

    /// Takes no new runs from now on; [`Host::stop`] is to follow.
    pub fn begin_nothing(&self) {
        self.begin_nothing.cancel();
    }

    /// Takes no new runs, waits for those that are on their way, and ends the watches. Nothing is to be exchanged or removed any
    /// more; a second call has nothing to do.
    ///
    /// # Errors
    ///
    /// A task had failed.
    pub async fn stop(&self) -> anyhow::Result<()> {
        self.stop.cancel();
        // Who waits to report would wait for ever once nobody reads.
        self.reports.lock().await.close();
        if self.tasks.lock().is_empty() {
            return Ok(());
        }
        let ended = self.task_ended().await;
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        tasks.shutdown().await;
        if let Some(kept) = &self.shared.kept {
            kept.lock().await.close(&self.shared.parts.records).await;
        }
        ended
    }

    /// All that is ready to run, for a caller that drives.
    pub fn take_ready(&self) -> Vec<Run> {
        self.shared.feed();
        std::iter::from_fn(|| self.shared.queue.try_next()).collect()
    }

    /// The keys that are ready to run, in their own order, for a caller that drives and takes one after the other.
    pub fn ready(&self) -> Vec<Key> {
        self.shared.feed();
        self.shared.queue.ready()
    }

    /// One key that is ready to run, for a caller that drives.
    pub fn take(&self, key: &Key) -> Option<Run> {
        self.shared.queue.take_key(key)
    }

    /// Moves the time on by which retries, requeues and resyncs are due, after [`Host::stand_still`]. The time that calls are told
    /// is [`Options::now`].
    pub fn advance(&self, by: std::time::Duration) {
        self.shared.queue.advance(by);
    }

    /// Runs one key, for a caller that drives.
    pub async fn run(&self, run: Run) -> Report {
        self.shared.run(run).await
    }

    /// Lets no time pass for the keys but by [`Host::advance`]: what waits for its time waits for that, what changes runs as ever.
    pub fn stand_still(&self) {
        self.shared.queue.stand_still();
    }

    /// Ends a run without running it: the key comes back when something changes.
    pub fn leave(&self, run: &Run) {
        self.shared.queue.done(&run.key, queue::Done::Success { requeue: None });
    }

    /// The object that a key stands for.
    pub fn object_of(&self, key: &Key) -> Option<ObjectRef> {
        self.shared.registry.lock().get(key.processor())?.reconciler.object_of(key)
    }

    /// The record of a key's last run; none if it has not run, or if its object is gone.
    pub fn record(&self, key: &Key) -> Option<Arc<Record>> {
        self.shared.parts.records.get(key)
    }

    /// What is known of the keys that are chosen, in their own order.
    pub fn keys(&self, is_chosen: impl Fn(&queue::Entry) -> bool) -> Vec<queue::Entry> {
        self.shared.queue.entries(is_chosen)
    }

    /// What is told to those who run it. It is ready once the first lists of what is watched now are complete.
    pub fn admin(&self) -> Admin {
        let shared = Arc::clone(&self.shared);
        Admin {
            metrics: self.shared.parts.metrics.clone(),
            queue: self.shared.queue.clone(),
            stores: self.shared.parts.stores.clone(),
            watches: {
                let shared = Arc::clone(&shared);
                Arc::new(move || shared.watches.lock().all())
            },
            waiting: Arc::new(move || shared.waiting_calls()),
            lease: self.options.lease.clone(),
            reach: Reach::new(self.shared.parts.cluster.client()),
            also: Arc::new(|| None),
        }
    }

    /// A number that moves with each event that a store has taken in.
    pub fn progress(&self) -> latest::Receiver<u64> {
        self.shared.parts.stores.progress()
    }

    /// Whether nothing is ready and nothing runs. What waits for its time does not count.
    pub fn is_idle(&self) -> bool {
        self.shared.queue.is_idle()
    }

    /// Whether all objects of what is watched are known, and nothing is left to do for now; see [`queue::Queue::is_settled`].
    pub fn is_settled(&self) -> bool {
        self.shared.feed();
        self.is_listed() && self.shared.queue.is_settled()
    }

    /// Waits until the host is settled.
    pub async fn settled(&self) {
        let mut progress = self.progress();
        loop {
            self.shared.feed();
            self.shared.queue.settled().await;
            progress.mark_unchanged();
            if self.is_settled() {
                return;
            }
            if !self.is_listed() && progress.changed().await.is_err() {
                return;
            }
        }
    }

    fn is_listed(&self) -> bool {
        let stores = &self.shared.parts.stores;
        self.watches().iter().all(|watch| stores.is_settled(&watch.kind, &watch.scope))
    }

    /// Whether the stores hold these objects of the watched kinds, and no others.
    pub fn holds(&self, objects: &[Value]) -> bool {
        let stores = &self.shared.parts.stores;
        self.watches().iter().all(|watch| {
            let there: BTreeSet<_> =
                objects.iter().filter_map(|object| watch.version_of(object)).collect();
            let known = stores.resource_versions(&watch.kind, &watch.scope);
            stores.is_settled(&watch.kind, &watch.scope)
                && known.into_iter().collect::<BTreeSet<_>>() == there
        })
    }

    /// What is watched.
    pub fn watches(&self) -> Vec<Watch> {
        self.shared.watches.lock().all()
    }

    /// The watched objects as they are known.
    pub fn stores(&self) -> &Stores {
        &self.shared.parts.stores
    }
}

/// A task that never ends by itself; if it does, that is the error.
async fn ended(what: &'static str, task: impl Future<Output = ()>) -> anyhow::Result<()> {
    task.await;
    anyhow::bail!("{what} ended")
}

async fn forever(task: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    task.await?;
    anyhow::bail!("what hands changes on ended")
}
