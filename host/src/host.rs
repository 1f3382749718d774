//! Builds every part of a host, owns every task, and waits for their end. If a task ends by itself,
//! the host ends with that task's error: a host never runs without one of its parts.

mod clusters;
mod driver;
mod egress;
mod hooks;
mod open;
mod options;
mod owners;
mod probation;
mod registry;
mod status;
mod swap;
mod trial;
mod watches;
mod work;

pub use driver::Driver;
pub use hooks::{Hooking, NoAnswer, Port};
pub(crate) use hooks::{is_converted, log_lines};
pub use mortise_core::reconcile::{ClusterGrant, Mode, Removal, Settings, Version};
pub use options::{Bounds, Drive, Options};
pub use probation::{Trust, Verdict};
pub use registry::LastFailure;
pub use status::{ClustersStatus, LimitMet, NotServed, ProcessorStatus};
pub use trial::NotSwapped;

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
use mortise_core::{
    contract::{Description, hooks::Hooks},
    dispatch::Dispatch,
    queue::{self, Key, Queue},
    reads::record::Record,
    reconcile::{Parts, Report},
    store::Stores,
};
use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, watch as latest},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use self::{
    open::{Opened, run_watches},
    swap::Prepared,
    work::HostState,
};
use crate::{
    cluster::{
        Cluster,
        watch::{self, Watch},
    },
    wasm::Processor,
};

/// The number of reports that can wait for [`Host::next_report`]. While so many wait, no further key
/// is run.
const REPORT_CAPACITY: usize = 1024;

/// A function that returns a current value of a host, also after its [`Host`] was moved.
pub type Source<T> = Arc<dyn Fn() -> T + Send + Sync>;

/// A component with its description, its configuration and its settings.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The component.
    pub processor: Processor,
    /// The description that the component returned for this configuration.
    pub description: Arc<Description>,
    /// The kinds that the component converts, and its hooks, for this configuration.
    pub hooks: Arc<Hooks>,
    /// The configuration, as JSON.
    pub config: Arc<str>,
    /// The settings that the description does not hold.
    pub settings: Settings,
}

/// A running host.
pub struct Host {
    options: Options,
    shared: Arc<HostState>,
    tasks: Mutex<JoinSet<anyhow::Result<()>>>,
    reports: tokio::sync::Mutex<mpsc::Receiver<Report>>,
    /// Locks by processor name, which serialize the swaps of a processor.
    turns: Mutex<BTreeMap<Arc<str>, Arc<tokio::sync::Mutex<()>>>>,
    users: AtomicU64,
    /// A counter that changes with each change of a `CustomResourceDefinition`.
    definitions: latest::Receiver<u64>,
    stop: CancellationToken,
    /// Cancelled when no new run may begin: together with `stop`, or earlier.
    begin_nothing: CancellationToken,
}

// === impl Loaded ===

impl Loaded {
    /// Asks a component for its description.
    ///
    /// # Errors
    ///
    /// Fails if the component fails, or if it refuses its configuration.
    pub async fn describe(
        processor: Processor,
        config: &str,
        settings: Settings,
    ) -> anyhow::Result<Self> {
        let description =
            processor.describe(config).await.context("the processor does not describe itself")?;
        let hooks =
            processor.hooks(config).await.context("the processor does not tell its hooks")?;
        let (description, hooks) = (Arc::new(description), Arc::new(hooks));
        Ok(Self { processor, description, hooks, config: config.into(), settings })
    }

    /// Returns the name that keys, reports and metrics carry: `namespace/name` of the Processor
    /// resource, or the name in the description if there is no such resource.
    pub fn name(&self) -> Arc<str> {
        match &self.settings.name {
            Some(name) => format!("{}/{name}", self.settings.namespace).into(),
            None => self.description.name.as_str().into(),
        }
    }
}

// === impl Host ===

impl Host {
    /// Opens the watches of the processors and, with [`Drive::Host`], starts to run keys. The
    /// caller has to take the reports then: see [`Host::next_report`].
    ///
    /// # Errors
    ///
    /// Fails if a description is not valid, or if two processors have the same name.
    pub fn start(
        cluster: &Cluster,
        processors: Vec<Loaded>,
        options: &Options,
    ) -> anyhow::Result<Self> {
        let (crds, changes) = latest::channel(0);
        let (report, reports) = mpsc::channel(REPORT_CAPACITY);
        let (open, opened) = mpsc::unbounded_channel();
        let host = Self::idle(cluster, options, (open, reports), changes.clone());
        let mut names = BTreeSet::new();
        for loaded in &processors {
            let name = loaded.name();
            anyhow::ensure!(names.insert(Arc::clone(&name)), "two processors are called `{name}`");
        }
        let prepared: anyhow::Result<Vec<Prepared>> =
            processors.into_iter().map(|loaded| host.prepare(loaded)).collect();
        let prepared = prepared?;
        host.spawn(ended("the watch of CRDs", watch::run_crds(cluster.clone(), crds)));
        host.shared.follow_clusters();
        host.spawn(host.shared.clusters.clone().run());
        let rights = Arc::clone(&host.shared).keep_rights(changes.clone());
        host.spawn(ended("the renewal of rights", rights));
        let outbound = host.shared.outbound.clone();
        host.spawn(ended("the closing of idle connections", outbound.close_idle()));
        host.spawn(ended("the reopening of watches", Arc::clone(&host.shared).try_again()));
        host.spawn(run_watches(opened, host.watching(changes)));
        host.open(&prepared);
        for prepared in prepared {
            host.put(prepared);
        }
        let dispatch = Arc::clone(&host.shared.parts.dispatch);
        host.spawn(async move { dispatch.pump().await });
        host.spawn(host.work(report));
        Ok(host)
    }

    /// Returns a host without tasks, watches or processors.
    fn idle(
        cluster: &Cluster,
        options: &Options,
        (open, reports): (mpsc::UnboundedSender<Opened>, mpsc::Receiver<Report>),
        definitions: latest::Receiver<u64>,
    ) -> Self {
        let dispatch = Arc::new(Dispatch::new(&Stores::new()));
        let parts = Parts::new(&dispatch, Arc::new(cluster.clone()), &options.now);
        let parts = Parts { skips: options.skips, ..parts };
        let stop = CancellationToken::new();
        Self {
            options: options.clone(),
            shared: Arc::new(HostState::new(parts, cluster, open, options)),
            tasks: Mutex::default(),
            reports: tokio::sync::Mutex::new(reports),
            turns: Mutex::default(),
            users: AtomicU64::new(0),
            definitions,
            begin_nothing: stop.child_token(),
            stop,
        }
    }

    fn watching(&self, crds: latest::Receiver<u64>) -> watch::Context {
        let shared = Arc::clone(&self.shared);
        let (cluster, access) = (shared.cluster.clone(), shared.access.clone());
        let (stores, metrics) = (shared.parts.dispatch.stores().clone(), shared.metrics.clone());
        let grown = Arc::new(move |watch: &Watch| shared.grown(watch));
        let clusters = self.shared.clusters.clone();
        let health = None;
        watch::Context { cluster, clusters, stores, crds, metrics, access, health, grown }
    }

    /// Runs keys once the lease is held, with [`Drive::Host`]. Ends after [`Host::stop`] was
    /// called and the last run has ended.
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
                    () = lease.held() => shared.run_keys(report, begin_nothing.clone()).await?,
                },
                // The caller runs the keys: only wait for `stop`.
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

    /// Waits for the next finished reconcile of any processor. Skipped runs are not reported.
    /// Several callers share the reports: each report goes to one caller. While 1,024 reports wait,
    /// the host runs no further key.
    ///
    /// # Errors
    ///
    /// Fails if the host was stopped, or if one of its tasks has ended: the host cannot be used any
    /// more.
    pub async fn next_report(&self) -> anyhow::Result<Report> {
        let mut reports = self.reports.lock().await;
        tokio::select! {
            // `stop` is checked first: `Host::stop` joins the tasks itself.
            biased;
            () = self.stop.cancelled() => anyhow::bail!("the host was told to stop"),
            Some(report) = reports.recv() => Ok(report),
            ended = self.task_ended() => {
                ended?;
                anyhow::bail!("a task of the host ended")
            }
        }
    }

    /// Waits until a task of the host has ended, and returns its result.
    async fn task_ended(&self) -> anyhow::Result<()> {
        let ended = poll_fn(|context| match self.tasks.lock().poll_join_next(context) {
            Poll::Ready(Some(ended)) => Poll::Ready(ended),
            // The host has tasks as long as it has not been stopped.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        });
        ended.await.context("a task of the host failed")?
    }

    /// Begins no new runs from now on. [`Host::stop`] must follow.
    pub(crate) fn begin_nothing(&self) {
        self.begin_nothing.cancel();
    }

    /// Begins no new runs, waits for the running ones, and ends the watches. No version may be
    /// swapped or removed after that. A second call does nothing.
    ///
    /// # Errors
    ///
    /// Fails if a task of the host has failed.
    pub async fn stop(&self) -> anyhow::Result<()> {
        self.stop.cancel();
        // Without a reader, a task that sends to the full channel would block forever.
        self.reports.lock().await.close();
        if self.tasks.lock().is_empty() {
            return Ok(());
        }
        let ended = self.task_ended().await;
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        tasks.shutdown().await;
        ended
    }

    /// Returns the record of a key's last run; `None` if the key has not run or its object is gone.
    pub fn record(&self, key: &Key) -> Option<Arc<Record>> {
        self.shared.parts.records.get(key)
    }

    /// Returns the queue's entries that `is_chosen` accepts, sorted by key.
    pub fn keys(&self, is_chosen: impl Fn(&queue::Entry) -> bool) -> Vec<queue::Entry> {
        self.shared.parts.dispatch.queue().entries(is_chosen)
    }

    /// Returns the options that the host was started with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the cluster, with the host's own rights.
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.shared.cluster
    }

    pub(crate) fn queue(&self) -> &Queue {
        self.shared.parts.dispatch.queue()
    }

    pub(crate) fn watch_source(&self) -> Source<Vec<Watch>> {
        let shared = Arc::clone(&self.shared);
        Arc::new(move || shared.watches.lock().all())
    }

    /// Returns the source of the number of calls of each processor that wait for a slot.
    pub(crate) fn waiting_source(&self) -> Source<Vec<(Arc<str>, usize)>> {
        let shared = Arc::clone(&self.shared);
        Arc::new(move || shared.waiting_calls())
    }

    /// Returns the source of the other clusters that are open, and whether each is connected.
    pub(crate) fn cluster_source(&self) -> Source<Vec<(Arc<str>, bool)>> {
        let shared = Arc::clone(&self.shared);
        Arc::new(move || shared.clusters.connected())
    }

    /// Returns a counter that changes with each change of a `CustomResourceDefinition`.
    pub(crate) fn definitions(&self) -> latest::Receiver<u64> {
        self.definitions.clone()
    }

    pub fn watches(&self) -> Vec<Watch> {
        self.shared.watches.lock().all()
    }

    /// Returns the stores of the watched objects.
    pub(crate) fn stores(&self) -> &Stores {
        self.shared.parts.dispatch.stores()
    }
}

/// Runs a task that must not end by itself, and fails when it ends.
async fn ended(what: &'static str, task: impl Future<Output = ()>) -> anyhow::Result<()> {
    task.await;
    anyhow::bail!("{what} ended")
}
