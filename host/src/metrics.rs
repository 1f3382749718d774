//! The metrics of the host.
//!
//! Labels are processor, kind, verb, reason and the like, each with few values; never an object's
//! name, of which there is no bound. Events are counted when they happen; states are sampled at
//! each scrape.

pub(crate) mod dropped_lines;
mod hooks;
mod labels;
mod series;
#[cfg(test)]
mod tests;

pub use hooks::HookRequest;

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use mortise_core::{
    contract::Kind,
    grant::rights::Denial,
    queue::{self, Key},
    reads::record::{Ending, MustRun},
    reconcile::Report,
    store::Memory,
    write::Change,
};
use parking_lot::Mutex;
use prometheus_client::{
    encoding::text,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

use self::{
    hooks::Hooks,
    labels::{
        Compiled, Denied, Ended, Keys, LibraryCall, LookedUp, NotSkipped, OfKind, OfProcessor,
        OfVerb, Stored, Trapped,
    },
    series::{OTHER, Series},
};

/// The media type of [`Metrics::text`].
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The smallest bucket of a duration. A reconcile without changes takes a millisecond; one that
/// waits for a slow API server takes some seconds.
const MIN_SECONDS: f64 = 0.0005;
/// The number of buckets: up to 16 s, each twice the one before.
const BUCKETS: u16 = 16;

/// The shortest wait that is counted: taking a free slot takes less.
const MIN_WAIT: Duration = Duration::from_millis(1);

/// The smallest bucket of a compilation. A small module is compiled in a fraction of a second, a
/// large one in minutes.
const MIN_COMPILE_SECONDS: f64 = 0.05;
const COMPILE_BUCKETS: u16 = 14;

/// The number of kinds whose restarts are counted separately: descriptions can name any number of
/// kinds.
const MAX_RESTARTED_KINDS: usize = 512;

/// The metrics of a host. Clones share their state.
#[derive(Clone)]
pub struct Metrics(Arc<All>);

/// The states that are sampled at each scrape.
#[derive(Debug, Default)]
pub struct Sample {
    /// The number of keys of each processor, by state.
    pub queues: Vec<(Arc<str>, queue::State)>,
    /// The number of calls of each processor that wait for a slot.
    pub waiting: Vec<(Arc<str>, usize)>,
    /// The memory of the stored objects of each kind.
    pub stores: Vec<(Arc<Kind>, Memory)>,
    /// True if the host may write.
    pub leads: bool,
}

struct All {
    registry: Registry,
    reconciles: Series<Ended, Counter>,
    reconcile_duration: Series<OfKind, Histogram>,
    reconciles_skipped: Series<OfKind, Counter>,
    reconciles_not_skipped: Series<NotSkipped, Counter>,
    queue_keys: Family<Keys, Gauge>,
    queue_retries: Series<OfProcessor, Counter>,
    calls_trapped: Series<Trapped, Counter>,
    library_calls: Series<LibraryCall, Counter>,
    calls_waiting: Family<OfProcessor, Gauge>,
    call_wait: Series<OfProcessor, Histogram>,
    hooks: Hooks,
    reads: Series<OfProcessor, Counter>,
    read_bytes: Series<OfProcessor, Counter>,
    writes: Series<OfVerb, Counter>,
    writes_skipped: Series<OfProcessor, Counter>,
    conflicts_forced: Series<OfKind, Counter>,
    store_objects: Family<Stored, Gauge>,
    store_bytes: Family<Stored, Gauge>,
    denied: Series<Denied, Counter>,
    watch_restarts: Family<Stored, Counter>,
    /// The kinds whose restarts are counted.
    restarted: Mutex<BTreeSet<String>>,
    log_lines_dropped: Series<OfProcessor, Counter>,
    code_lookups: Family<LookedUp, Counter>,
    compile_duration: Family<Compiled, Histogram, fn() -> Histogram>,
    leading: Gauge,
}

// === impl Metrics ===

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Creates all metrics, at zero.
    pub fn new() -> Self {
        Self(Arc::new(All::new()))
    }

    /// Counts a reconcile that has ended or was skipped.
    pub fn ended(&self, report: &Report) {
        let key = &report.key;
        if let Some(why) = report.not_skipped {
            self.not_skipped(key, why);
        }
        report.waited.iter().for_each(|waited| self.waited(key, *waited));
        report.trapped.iter().for_each(|reason| self.trapped(key, reason));
        report.forced.iter().for_each(|kind| self.forced(key, kind));
        if report.log_dropped > 0 {
            self.log_dropped(key, report.log_dropped);
        }
        if report.skipped {
            self.skipped(report);
        } else if !report.cancelled {
            self.ran(report);
        }
    }

    fn ran(&self, report: &Report) {
        let Self(all) = self;
        let processor = report.key.processor();
        let kind = kind_label(&report.kind);
        let result = match report.record.ending {
            Ending::Success => "success",
            Ending::Failure => "failure",
        };
        let ended = Ended { processor: Arc::clone(processor), kind: kind.clone(), result };
        all.reconciles.of(ended).inc();
        let of_kind = OfKind { processor: Arc::clone(processor), kind };
        all.reconcile_duration.of(of_kind).observe(report.took.as_secs_f64());
        let of = OfProcessor { processor: Arc::clone(processor) };
        let count = |series: &Series<OfProcessor, Counter>, by: usize| {
            series.of(of.clone()).inc_by(by as u64);
        };
        count(&all.queue_retries, usize::from(report.attempt > 0));
        count(&all.reads, report.reads());
        count(&all.read_bytes, report.read_bytes());
        count(&all.writes_skipped, report.unchanged);
        for Change { action, of, .. } in &report.changes {
            let (processor, kind) = (Arc::clone(processor), kind_label(&of.kind));
            let written = OfVerb { processor, kind, verb: action.to_string() };
            all.writes.of(written).inc();
        }
    }

    fn skipped(&self, report: &Report) {
        let processor = Arc::clone(report.key.processor());
        let of_kind = OfKind { processor, kind: kind_label(&report.kind) };
        self.0.reconciles_skipped.of(of_kind).inc();
    }

    fn not_skipped(&self, key: &Key, why: MustRun) {
        let processor = Arc::clone(key.processor());
        let not_skipped = NotSkipped { processor, reason: why.label() };
        self.0.reconciles_not_skipped.of(not_skipped).inc();
    }

    fn trapped(&self, key: &Key, reason: &'static str) {
        let trapped = Trapped { processor: Arc::clone(key.processor()), reason };
        self.0.calls_trapped.of(trapped).inc();
    }

    /// Counts a call of a library: answered from the cache (`memo`), by a call of its own (`call`),
    /// by another caller's call in progress (`shared`), or failed (`trap`).
    pub(crate) fn called_library(&self, processor: &Arc<str>, result: &'static str) {
        let called = LibraryCall { processor: Arc::clone(processor), result };
        self.0.library_calls.of(called).inc();
    }

    fn waited(&self, key: &Key, waited: Duration) {
        if waited >= MIN_WAIT {
            let of = OfProcessor { processor: Arc::clone(key.processor()) };
            self.0.call_wait.of(of).observe(waited.as_secs_f64());
        }
    }

    fn log_dropped(&self, key: &Key, lines: u32) {
        let of = OfProcessor { processor: Arc::clone(key.processor()) };
        self.0.log_lines_dropped.of(of).inc_by(lines.into());
    }

    fn forced(&self, key: &Key, kind: &Kind) {
        let of = OfKind { processor: Arc::clone(key.processor()), kind: kind_label(kind) };
        self.0.conflicts_forced.of(of).inc();
    }

    /// Counts a denied read or write of a processor: its account lacks the right, or its
    /// description the declaration. Undeclared kinds are counted together: a guest can name any
    /// number.
    pub fn denied(&self, processor: &Arc<str>, denial: &Denial, declared: &[Kind]) {
        let is_declared = declared.iter().any(|of| of.is_same(&denial.kind));
        let kind = if is_declared { kind_label(&denial.kind) } else { OTHER.to_owned() };
        let verb = denial.lack.verb().to_owned();
        let denied = Denied { processor: Arc::clone(processor), verb, kind };
        self.0.denied.of(denied).inc();
    }

    /// Removes all series of a deleted processor.
    pub fn forget_processor(&self, processor: &str) {
        let Self(all) = self;
        all.reconciles.forget(processor);
        all.reconcile_duration.forget(processor);
        all.reconciles_skipped.forget(processor);
        all.reconciles_not_skipped.forget(processor);
        all.queue_retries.forget(processor);
        all.calls_trapped.forget(processor);
        all.library_calls.forget(processor);
        all.call_wait.forget(processor);
        all.hooks.forget(processor);
        all.reads.forget(processor);
        all.read_bytes.forget(processor);
        all.writes.forget(processor);
        all.writes_skipped.forget(processor);
        all.conflicts_forced.forget(processor);
        all.denied.forget(processor);
        all.log_lines_dropped.forget(processor);
        dropped_lines::LIMITED.forget(processor);
    }

    /// Counts a watch that has failed and is restarted.
    pub fn watch_restarted(&self, kind: &Kind) {
        let kind = kind_label(kind);
        let mut known = self.0.restarted.lock();
        let is_other = known.len() >= MAX_RESTARTED_KINDS && !known.contains(&kind);
        let stored = Stored { kind: if is_other { OTHER.to_owned() } else { kind } };
        self.0.watch_restarts.get_or_create(&stored).inc();
        known.insert(stored.kind);
    }

    /// Counts a lookup of a module's code in the cache: `hit`, `miss`, or `refused` for an entry
    /// that must not be used.
    pub fn code_looked_up(&self, result: &'static str) {
        self.0.code_lookups.get_or_create(&LookedUp { result }).inc();
    }

    /// Counts a compilation and its duration. `result`: `success`, or the reason of the failure in
    /// one word.
    pub fn compiled(&self, took: Duration, result: &'static str) {
        let compiled = Compiled { result };
        self.0.compile_duration.get_or_create(&compiled).observe(took.as_secs_f64());
    }

    /// Returns all metrics in the `OpenMetrics` text format.
    pub fn text(&self, sample: &Sample) -> Result<String, fmt::Error> {
        let Self(all) = self;
        // Processors and kinds that have disappeared since the last scrape are no longer reported.
        all.queue_keys.clear();
        all.calls_waiting.clear();
        // A line may arrive after its processor was removed.
        dropped_lines::LIMITED
            .retain(|processor| sample.queues.iter().any(|(known, _)| **known == *processor));
        all.store_objects.clear();
        all.store_bytes.clear();
        all.leading.set(sample.leads.into());
        for (processor, state) in &sample.queues {
            for (state, count) in
                [("ready", state.ready), ("running", state.running), ("delayed", state.delayed)]
            {
                let keys = Keys { processor: Arc::clone(processor), state };
                all.queue_keys.get_or_create(&keys).set(whole(count));
            }
        }
        for (processor, count) in &sample.waiting {
            let of = OfProcessor { processor: Arc::clone(processor) };
            all.calls_waiting.get_or_create(&of).set(whole(*count));
        }
        for (kind, memory) in &sample.stores {
            let stored = Stored { kind: kind_label(kind) };
            all.store_objects.get_or_create(&stored).set(whole(memory.objects));
            all.store_bytes.get_or_create(&stored).set(whole(memory.total));
        }
        all.forget_restarts(&sample.stores);
        let mut text = String::new();
        text::encode(&mut text, &all.registry)?;
        Ok(text)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Metrics").finish_non_exhaustive()
    }
}

// === impl All ===

impl All {
    fn new() -> Self {
        let histogram: fn() -> Histogram =
            || Histogram::new(exponential_buckets(MIN_SECONDS, 2.0, BUCKETS));
        let compile: fn() -> Histogram =
            || Histogram::new(exponential_buckets(MIN_COMPILE_SECONDS, 2.0, COMPILE_BUCKETS));
        let mut all = Self {
            registry: Registry::with_prefix("mortise"),
            reconciles: Series::default(),
            reconcile_duration: Series::new(Family::new_with_constructor(histogram)),
            reconciles_skipped: Series::default(),
            reconciles_not_skipped: Series::default(),
            queue_keys: Family::default(),
            queue_retries: Series::default(),
            calls_trapped: Series::default(),
            library_calls: Series::default(),
            calls_waiting: Family::default(),
            call_wait: Series::new(Family::new_with_constructor(histogram)),
            hooks: Hooks::new(histogram),
            reads: Series::default(),
            read_bytes: Series::default(),
            writes: Series::default(),
            writes_skipped: Series::default(),
            conflicts_forced: Series::default(),
            store_objects: Family::default(),
            store_bytes: Family::default(),
            denied: Series::default(),
            watch_restarts: Family::default(),
            restarted: Mutex::default(),
            log_lines_dropped: Series::default(),
            code_lookups: Family::default(),
            compile_duration: Family::new_with_constructor(compile),
            leading: Gauge::default(),
        };
        all.register();
        all
    }

    /// Registers the metrics: their names (to which the format adds `_total` for counters, and the
    /// unit) and their help texts.
    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("reconciles", "Reconciles by result", self.reconciles.family.clone());
        registry.register(
            "reconciles_skipped",
            "Resyncs and first reconciles that were skipped, since no object that the last run read or wrote has changed",
            self.reconciles_skipped.family.clone(),
        );
        registry.register(
            "reconciles_not_skipped",
            "Resyncs and first reconciles that were run, by the reason why they could not be skipped",
            self.reconciles_not_skipped.family.clone(),
        );
        registry.register_with_unit(
            "reconcile_duration",
            "Duration of reconciles, with their writes",
            Unit::Seconds,
            self.reconcile_duration.family.clone(),
        );
        registry.register(
            "queue_keys",
            "Keys in the queue by state: ready, running, delayed",
            self.queue_keys.clone(),
        );
        registry.register(
            "queue_retries",
            "Reconciles of keys whose last reconcile failed",
            self.queue_retries.family.clone(),
        );
        registry.register("reads", "Reads of processors", self.reads.family.clone());
        registry.register_with_unit(
            "read",
            "Objects returned by reads of processors",
            Unit::Bytes,
            self.read_bytes.family.clone(),
        );
        registry.register("writes", "Writes to the cluster by action", self.writes.family.clone());
        registry.register(
            "writes_skipped",
            "Writes that were not sent, since the object was already as wanted",
            self.writes_skipped.family.clone(),
        );
        registry.register(
            "conflicts_forced",
            "Writes that took fields from other field managers by force",
            self.conflicts_forced.family.clone(),
        );
        registry.register(
            "denied",
            "Reads and writes that were denied: the account lacks the right, or the read is not declared",
            self.denied.family.clone(),
        );
        self.register_of_log();
        self.register_of_calls();
        self.register_of_hooks();
        self.register_of_host();
    }

    fn register_of_log(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "log_lines_dropped",
            "Log lines of guests that were dropped: over the limit",
            self.log_lines_dropped.family.clone(),
        );
        registry.register(
            "log_lines_limited",
            "Lines about a processor that were not logged: its rate limit was exceeded",
            dropped_lines::LIMITED.family.clone(),
        );
        registry.register(
            "log_lines_lost",
            "Other lines that were not logged: standard error was blocked, or one line came too often",
            dropped_lines::LOST.clone(),
        );
    }

    fn register_of_calls(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "calls_trapped",
            "Calls of a processor that returned no answer, by cause",
            self.calls_trapped.family.clone(),
        );
        registry.register(
            "library_calls",
            "Calls of a processor's libraries by source of the answer: remembered, called, joined a running call, or none",
            self.library_calls.family.clone(),
        );
        registry.register(
            "calls_waiting",
            "Calls of a processor that wait for a slot",
            self.calls_waiting.clone(),
        );
        registry.register_with_unit(
            "call_wait",
            "Time that calls waited for a slot when none was free",
            Unit::Seconds,
            self.call_wait.family.clone(),
        );
    }

    fn register_of_hooks(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "hook_requests",
            "Conversion and admission requests of the API server, by result",
            self.hooks.requests.family.clone(),
        );
        registry.register_with_unit(
            "hook_duration",
            "Duration of conversion and admission requests, with bodies and the wait for a slot",
            Unit::Seconds,
            self.hooks.duration.family.clone(),
        );
    }

    /// Removes the restarts of kinds that are no longer watched, once many kinds are counted.
    fn forget_restarts(&self, stores: &[(Arc<Kind>, Memory)]) {
        let mut known = self.restarted.lock();
        if known.len() <= MAX_RESTARTED_KINDS / 2 {
            return;
        }
        let watched: BTreeSet<String> = stores.iter().map(|(kind, _)| kind_label(kind)).collect();
        for kind in known.extract_if(.., |kind| !watched.contains(kind)) {
            self.watch_restarts.remove(&Stored { kind });
        }
    }

    fn register_of_host(&mut self) {
        let registry = &mut self.registry;
        registry.register("store_objects", "Objects in the stores", self.store_objects.clone());
        registry.register_with_unit(
            "store",
            "Estimated memory of the objects in the stores and their indexes",
            Unit::Bytes,
            self.store_bytes.clone(),
        );
        registry.register(
            "watch_restarts",
            "Watches that failed and were restarted",
            self.watch_restarts.clone(),
        );
        registry.register(
            "code_lookups",
            "Lookups of compiled modules in the cache, by result",
            self.code_lookups.clone(),
        );
        registry.register_with_unit(
            "compile_duration",
            "Duration of compilations of modules, by result",
            Unit::Seconds,
            self.compile_duration.clone(),
        );
        registry.register(
            "leading",
            "1 if the host may write, since it holds the Lease or needs none",
            self.leading.clone(),
        );
    }
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Returns a kind as the value of the label `kind`, in the form that `kubectl` accepts:
/// `VirtualService.networking.istio.io`. Texts for people use
/// [`display_kind`](mortise_core::contract::display_kind).
fn kind_label(kind: &Kind) -> String {
    if kind.group.is_empty() { kind.kind.clone() } else { format!("{}.{}", kind.kind, kind.group) }
}
