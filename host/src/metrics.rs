//! The metrics of the host.
//!
//! Labels are processor, kind, verb, reason and the like, each with few values; never an object's
//! name, of which there is no bound. Events are counted when they happen; states are sampled at
//! each scrape.

pub(crate) mod dropped_lines;
mod series;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, LazyLock},
    time::Duration,
};

use mortise_core::{
    contract::Kind,
    grant::rights::Denial,
    queue,
    reads::record::{Ending, Made},
    reconcile::Report,
    store::Memory,
    write::Change,
};
use parking_lot::Mutex;
use prometheus_client::{
    encoding::text,
    metrics::{
        counter::Counter,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use self::series::{Builder, ByLabels, Forget, Labels, OTHER, Series, labels};

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

/// The number of kinds whose restarts are counted separately, at home and in other clusters each:
/// descriptions can name any number of kinds.
const MAX_RESTARTED_KINDS: usize = 512;

/// The number of objects that counted as absent. Watches belong to a process, not to a host.
pub(crate) static OBJECTS_TOO_LARGE: LazyLock<Counter> = LazyLock::new(Counter::default);

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
    /// The other clusters, and whether each is connected.
    pub clusters: Vec<(Arc<str>, bool)>,
    /// True if the host may write.
    pub leads: bool,
}

/// A request of the API server for a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookRequest<'a> {
    /// A conversion.
    Convert,
    /// An admission by the declared hook of this name.
    Admit(&'a str),
    /// An admission by an undeclared hook: callers can name any number.
    Unknown,
}

struct All {
    registry: Registry,
    forget: Forget,
    described: Vec<(String, String)>,
    reconciles: Series<Counter>,
    reconcile_duration: Series<Histogram>,
    reconciles_skipped: Series<Counter>,
    reconciles_not_skipped: Series<Counter>,
    queue_keys: ByLabels<Gauge>,
    queue_retries: Series<Counter>,
    calls_trapped: Series<Counter>,
    library_calls: Series<Counter>,
    calls_waiting: ByLabels<Gauge>,
    call_wait: Series<Histogram>,
    hook_requests: Series<Counter>,
    hook_duration: Series<Histogram>,
    reads: Series<Counter>,
    read_bytes: Series<Counter>,
    writes: Series<Counter>,
    writes_skipped: Series<Counter>,
    conflicts_forced: Series<Counter>,
    events_refused: Series<Counter>,
    store_objects: ByLabels<Gauge>,
    store_bytes: ByLabels<Gauge>,
    cluster_store_bytes: ByLabels<Gauge>,
    cluster_connected: ByLabels<Gauge>,
    denied: Series<Counter>,
    watch_restarts: ByLabels<Counter>,
    /// The clusters and kinds whose restarts are counted.
    restarted: Mutex<BTreeSet<(String, String)>>,
    log_lines_dropped: Series<Counter>,
    outbound_calls: Series<Counter>,
    outbound_duration: Series<Histogram>,
    outbound_paused: Series<Counter>,
    code_lookups: ByLabels<Counter>,
    compile_duration: ByLabels<Histogram>,
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
        let Self(all) = self;
        let processor = report.key.processor();
        let kind = kind_label(&report.kind);
        if let Some(why) = report.not_skipped {
            all.reconciles_not_skipped.of(processor, [("reason", why.label())]).inc();
        }
        for waited in report.waited.iter().filter(|waited| **waited >= MIN_WAIT) {
            all.call_wait.of(processor, []).observe(waited.as_secs_f64());
        }
        for reason in &report.trapped {
            all.calls_trapped.of(processor, [("reason", reason)]).inc();
        }
        for kind in &report.forced {
            all.conflicts_forced.of(processor, [("kind", &kind_label(kind))]).inc();
        }
        for cluster in &report.refused_events {
            all.events_refused.of(processor, [("cluster", cluster)]).inc();
        }
        report.record.calls.iter().for_each(|made| self.refused_outside(processor, made));
        if report.log_dropped > 0 {
            all.log_lines_dropped.of(processor, []).inc_by(report.log_dropped.into());
        }
        if report.skipped {
            all.reconciles_skipped.of(processor, [("kind", &kind)]).inc();
        } else if !report.cancelled {
            self.ran(report, processor, &kind);
        }
    }

    fn ran(&self, report: &Report, processor: &Arc<str>, kind: &str) {
        let Self(all) = self;
        let result = match report.record.ending {
            Ending::Success => "success",
            Ending::Failure => "failure",
        };
        all.reconciles.of(processor, [("kind", kind), ("result", result)]).inc();
        let duration = all.reconcile_duration.of(processor, [("kind", kind)]);
        duration.observe(report.took.as_secs_f64());
        let count = |series: &Series<Counter>, by: usize| {
            series.of(processor, []).inc_by(by as u64);
        };
        count(&all.queue_retries, usize::from(report.attempt > 0));
        count(&all.reads, report.reads());
        count(&all.read_bytes, report.read_bytes());
        count(&all.writes_skipped, report.unchanged);
        for Change { action, of, .. } in &report.changes {
            let kind = kind_label(&of.kind);
            all.writes.of(processor, [("kind", &kind), ("verb", action.name())]).inc();
        }
    }

    /// Counts a call of a library: answered from the cache (`memo`), by a call of its own (`call`),
    /// by another caller's call in progress (`shared`), or failed (`trap`).
    pub(crate) fn called_library(&self, processor: &Arc<str>, result: &'static str) {
        self.0.library_calls.of(processor, [("result", result)]).inc();
    }

    /// Counts a call to a system outside of the cluster: the origin as granted, the method, and the
    /// status or the word of the error.
    pub(crate) fn called_outside(
        &self,
        processor: &Arc<str>,
        (origin, method, code): (&str, &str, &str),
        took: Duration,
    ) {
        let Self(all) = self;
        let labels = [("origin", origin), ("method", method), ("code", code)];
        all.outbound_calls.of(processor, labels).inc();
        all.outbound_duration.of(processor, [("origin", origin)]).observe(took.as_secs_f64());
    }

    /// Counts a call that the rules have refused. Origins that are not granted are counted together:
    /// a guest can name any number.
    fn refused_outside(&self, processor: &Arc<str>, made: &Made) {
        let (Some(origin), Some(error)) = (&made.refused, made.error) else { return };
        let origin = if origin.is_empty() { OTHER } else { origin };
        let method = made.method.name().to_ascii_lowercase();
        let labels = [("origin", origin), ("method", &method), ("code", error_label(error))];
        self.0.outbound_calls.of(processor, labels).inc();
    }

    /// Counts a call that was not sent because of a pause. `reason`: `asked` (the other side has
    /// asked for it) or `rate` (the grant's).
    pub(crate) fn call_paused(&self, processor: &Arc<str>, origin: &str, reason: &'static str) {
        self.0.outbound_paused.of(processor, [("origin", origin), ("reason", reason)]).inc();
    }

    /// Counts a request for a hook and its duration. `result`: `success`, `refused` (by the
    /// processor), `failed` (the API server was answered with 5xx), or `invalid` (4xx).
    pub fn hooked(
        &self,
        processor: &str,
        request: HookRequest<'_>,
        result: &'static str,
        took: Duration,
    ) {
        let (processor, hook) = (&processor.into(), request.label());
        self.0.hook_duration.of(processor, [("hook", &hook)]).observe(took.as_secs_f64());
        self.0.hook_requests.of(processor, [("hook", &hook), ("result", result)]).inc();
    }

    /// Counts a denied read or write of a processor: its account lacks the right, or its
    /// description the declaration. Kinds and other clusters that are not declared are counted
    /// together: a guest can name any number. `declared` are the kinds that are declared at home if
    /// the denied one is there, else those in other clusters.
    pub fn denied(&self, processor: &Arc<str>, denial: &Denial, declared: &[Kind]) {
        let (cluster, kind) = (&*denial.kind.cluster, kind_label(&denial.kind));
        let (cluster, kind) = if declared.iter().any(|of| kind_label(of) == kind) {
            (cluster, &*kind)
        } else {
            (if cluster.is_empty() { cluster } else { OTHER }, OTHER)
        };
        let labels = [("verb", denial.lack.verb()), ("kind", kind), ("cluster", cluster)];
        self.0.denied.of(processor, labels).inc();
    }

    /// Removes all series of a deleted processor.
    pub fn forget_processor(&self, processor: &str) {
        self.0.forget.iter().for_each(|forget| forget(processor));
    }

    /// Counts a watch that has failed and is restarted.
    pub fn watch_restarted(&self, kind: &Kind) {
        let mut of = restarts_of(kind);
        let mut known = self.0.restarted.lock();
        let is_home = kind.cluster.is_empty();
        // Other clusters leave the series of home as they are.
        let count = known.iter().filter(|(cluster, _)| cluster.is_empty() == is_home).count();
        if count >= MAX_RESTARTED_KINDS && !known.contains(&of) {
            of = (if is_home { "" } else { OTHER }.to_owned(), OTHER.to_owned());
        }
        self.0.watch_restarts.get_or_create(&restart_labels(&of)).inc();
        known.insert(of);
    }

    /// Counts a lookup of a module's code in the cache: `hit`, `miss`, or `refused` for an entry
    /// that must not be used.
    pub fn code_looked_up(&self, result: &'static str) {
        self.0.code_lookups.get_or_create(&labels([("result", result)])).inc();
    }

    /// Counts a compilation and its duration. `result`: `success`, or the reason of the failure in
    /// one word.
    pub fn compiled(&self, took: Duration, result: &'static str) {
        let compiled = self.0.compile_duration.get_or_create(&labels([("result", result)]));
        compiled.observe(took.as_secs_f64());
    }

    /// Returns the full name and the help text of each metric.
    pub fn described(&self) -> &[(String, String)] {
        &self.0.described
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
        all.cluster_store_bytes.clear();
        all.cluster_connected.clear();
        all.leading.set(sample.leads.into());
        for (processor, state) in &sample.queues {
            for (state, count) in
                [("ready", state.ready), ("running", state.running), ("delayed", state.delayed)]
            {
                let keys = labels([("processor", processor), ("state", state)]);
                all.queue_keys.get_or_create(&keys).set(whole(count));
            }
        }
        for (processor, count) in &sample.waiting {
            let of = labels([("processor", processor)]);
            all.calls_waiting.get_or_create(&of).set(whole(*count));
        }
        for (cluster, is_connected) in &sample.clusters {
            let of = labels([("cluster", cluster)]);
            all.cluster_connected.get_or_create(&of).set((*is_connected).into());
        }
        for (kind, memory) in &sample.stores {
            if !kind.cluster.is_empty() {
                let stored = labels([("cluster", &*kind.cluster), ("kind", &kind_label(kind))]);
                all.cluster_store_bytes.get_or_create(&stored).set(whole(memory.total));
                continue;
            }
            let stored = labels([("kind", &kind_label(kind))]);
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

// === impl HookRequest ===

impl HookRequest<'_> {
    /// Returns the label: `convert`, or `admit/` and the hook's name, as in its path.
    fn label(self) -> String {
        match self {
            Self::Convert => "convert".to_owned(),
            Self::Admit(hook) => format!("admit/{hook}"),
            Self::Unknown => OTHER.to_owned(),
        }
    }
}

// === impl All ===

impl All {
    #[expect(clippy::too_many_lines, reason = "a flat table")]
    fn new() -> Self {
        let duration = || Histogram::new(exponential_buckets(MIN_SECONDS, 2.0, BUCKETS));
        let compile =
            || Histogram::new(exponential_buckets(MIN_COMPILE_SECONDS, 2.0, COMPILE_BUCKETS));
        let mut of = Builder::new();
        of.series(
            "log_lines_limited",
            "Log lines of the host about a processor that were dropped: over the limit; by processor",
            dropped_lines::LIMITED.clone(),
        );
        of.metric(
            "log_lines_lost",
            "Other log lines that were dropped: standard error was blocked, or one line came too often",
            dropped_lines::LOST.clone(),
        );
        of.metric(
            "objects_too_large",
            "Objects that counted as absent, since they are too large for the host or cannot be read; the log names them",
            OBJECTS_TOO_LARGE.clone(),
        );
        Self {
            reconciles: of.counters(
                "reconciles",
                "Reconciles, by processor, kind and result (success, failure)",
            ),
            reconciles_skipped: of.counters(
                "reconciles_skipped",
                "Resyncs that were skipped, since no object that the last run read or wrote has changed; by processor and kind",
            ),
            reconciles_not_skipped: of.counters(
                "reconciles_not_skipped",
                "Resyncs that were run, by processor and by the reason why they could not be skipped",
            ),
            reconcile_duration: of.histograms(
                "reconcile_duration_seconds",
                "Duration of reconciles with their writes, by processor and kind",
                duration,
            ),
            queue_keys: of.metric(
                "queue_keys",
                "Keys in the queue, by processor and state (ready, running, delayed)",
                ByLabels::new_with_constructor(Gauge::default),
            ),
            queue_retries: of.counters(
                "queue_retries",
                "Reconciles of keys whose last reconcile failed, by processor",
            ),
            reads: of.counters("reads", "Reads, by processor"),
            read_bytes: of.counters(
                "read_bytes",
                "Bytes of the objects that reads returned, by processor",
            ),
            writes: of.counters(
                "writes",
                "Writes that the API server accepted, by processor, kind and verb",
            ),
            writes_skipped: of.counters(
                "writes_skipped",
                "Writes that were not sent, since the object was already as wanted; by processor",
            ),
            conflicts_forced: of.counters(
                "conflicts_forced",
                "Writes that took fields from other field managers by force; by processor and kind",
            ),
            events_refused: of.counters(
                "events_refused",
                "Events that an API server refused, which fails no reconcile; by processor and cluster (empty: home)",
            ),
            denied: of.counters(
                "denied",
                "Reads and writes that were denied: the account lacks the right, or they are not declared; by processor, verb, kind and cluster (empty: home)",
            ),
            log_lines_dropped: of.counters(
                "log_lines_dropped",
                "Log lines of processors that were dropped: over the limit; by processor",
            ),
            calls_trapped: of.counters(
                "calls_trapped",
                "Calls that returned no answer, by processor and reason (a trap, or a limit)",
            ),
            library_calls: of.counters(
                "library_calls",
                "Calls of libraries, by processor and result (memo: answer remembered, call: called, shared: joined a running call, trap: no answer)",
            ),
            calls_waiting: of.metric(
                "calls_waiting",
                "Calls that wait for a slot, by processor",
                ByLabels::new_with_constructor(Gauge::default),
            ),
            call_wait: of.histograms(
                "call_wait_seconds",
                "Time that calls waited for a slot when none was free, by processor",
                duration,
            ),
            outbound_calls: of.counters(
                "outbound_calls",
                "Calls to systems outside of the cluster, by processor, origin (as granted; other: not granted), method and code (the status; denied, not-held, credential, invalid: refused by the rules; not-sent, no-answer, too-large, paused)",
            ),
            outbound_duration: of.histograms(
                "outbound_duration_seconds",
                "Duration of calls to systems outside of the cluster, with the wait for a place; by processor and origin",
                duration,
            ),
            outbound_paused: of.counters(
                "outbound_paused",
                "Calls that were not sent because of a pause, by processor, origin and reason (asked: by an answer of 429 or 503, rate: of the grant)",
            ),
            hook_requests: of.counters(
                "hook_requests",
                "Conversion and admission requests of the API server, by processor, hook (convert, admit/HOOK) and result (success, refused: the processor refused, failed: 5xx, invalid: 4xx)",
            ),
            hook_duration: of.histograms(
                "hook_duration_seconds",
                "Duration of conversion and admission requests, with bodies and the wait for a slot; by processor and hook",
                duration,
            ),
            store_objects: of.metric(
                "store_objects",
                "Objects in the stores, by kind",
                ByLabels::new_with_constructor(Gauge::default),
            ),
            store_bytes: of.metric(
                "store_bytes",
                "Estimated memory of the objects in the stores and their indexes, by kind",
                ByLabels::new_with_constructor(Gauge::default),
            ),
            cluster_store_bytes: of.metric(
                "cluster_store_bytes",
                "Estimated memory of the objects of other clusters in the stores and their indexes, by cluster and kind",
                ByLabels::new_with_constructor(Gauge::default),
            ),
            cluster_connected: of.metric(
                "cluster_connected",
                "1 if another cluster is connected and answers, by cluster",
                ByLabels::new_with_constructor(Gauge::default),
            ),
            watch_restarts: of.metric(
                "watch_restarts",
                "Watches that failed and were restarted, by kind and cluster (empty: home)",
                ByLabels::new_with_constructor(Counter::default),
            ),
            restarted: Mutex::default(),
            code_lookups: of.metric(
                "code_lookups",
                "Lookups of compiled modules in the cache, by result (hit, miss, refused: damaged)",
                ByLabels::new_with_constructor(Counter::default),
            ),
            compile_duration: of.metric(
                "compile_duration_seconds",
                "Duration of compilations of modules, by result (success, refused, or what ended it)",
                ByLabels::new_with_constructor(compile),
            ),
            leading: of.metric(
                "leading",
                "1 if the host may write, since it holds the Lease or needs none; else 0",
                Gauge::default(),
            ),
            registry: of.registry,
            forget: of.forget,
            described: of.described,
        }
    }

    /// Removes the restarts of kinds that are no longer watched, once many kinds are counted.
    fn forget_restarts(&self, stores: &[(Arc<Kind>, Memory)]) {
        let mut known = self.restarted.lock();
        if known.len() <= MAX_RESTARTED_KINDS / 2 {
            return;
        }
        let watched: BTreeSet<_> = stores.iter().map(|(kind, _)| restarts_of(kind)).collect();
        for gone in known.extract_if(.., |of| !watched.contains(of)) {
            self.watch_restarts.remove(&restart_labels(&gone));
        }
    }
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Returns the cluster and the kind whose restarts are counted together.
fn restarts_of(kind: &Kind) -> (String, String) {
    ((*kind.cluster).to_owned(), kind_label(kind))
}

fn restart_labels((cluster, kind): &(String, String)) -> Labels {
    labels([("kind", kind), ("cluster", cluster)])
}

/// Returns the label of a call that had no answer: one word for all faults of a credential.
pub(crate) fn error_label(code: &'static str) -> &'static str {
    if code.starts_with("credential-") { "credential" } else { code }
}

/// Returns a kind as the value of the label `kind`, in the form that `kubectl` accepts:
/// `VirtualService.networking.istio.io`. Texts for people use
/// [`display_kind`](mortise_core::contract::display_kind).
fn kind_label(kind: &Kind) -> String {
    if kind.group.is_empty() { kind.kind.clone() } else { format!("{}.{}", kind.kind, kind.group) }
}
