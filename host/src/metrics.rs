//! Metrics: every one that the host has, in one list.
//!
//! Labels are processor, kind, verb, reason and the like, all of them few; never an object's name, of which there is no bound.
//! What happens is counted where it happens; what is, is sampled when somebody asks.

use std::{fmt, sync::Arc, time::Duration};

use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

use crate::{
    access::Denial,
    contract::Kind,
    queue::{self, Key},
    reconciler::Report,
    record::{Ending, MustRun},
    store::Memory,
    write::Change,
};

#[cfg(test)]
mod tests;

/// The media type of [`Metrics::text`].
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A reconcile that finds nothing to do takes a millisecond; one that waits for a slow API server some seconds.
const SHORTEST_SECONDS: f64 = 0.0005;
/// Up to 16 s, each bucket twice as long as the one before.
const BUCKETS: u16 = 16;

/// To find a slot that is free takes less.
const LEAST_WAIT: Duration = Duration::from_millis(1);

/// A small module is compiled in a fraction of a second, a large one in minutes.
const SHORTEST_COMPILE_SECONDS: f64 = 0.05;
const COMPILE_BUCKETS: u16 = 14;

/// The metrics of a host. Clones are handles of the same ones.
#[derive(Clone)]
pub struct Metrics(Arc<All>);

/// What is, at the moment when somebody asks.
#[derive(Debug, Default)]
pub struct Sample {
    /// The keys of each processor.
    pub queues: Vec<(Arc<str>, queue::State)>,
    /// The calls of each processor that wait for a slot.
    pub waiting: Vec<(Arc<str>, usize)>,
    /// What is kept of each kind.
    pub stores: Vec<(Arc<Kind>, Memory)>,
    /// Whether the host may write.
    pub leads: bool,
}

struct All {
    registry: Registry,
    reconciles: Family<Ended, Counter>,
    reconcile_duration: Family<OfKind, Histogram, fn() -> Histogram>,
    reconciles_skipped: Family<OfKind, Counter>,
    reconciles_not_skipped: Family<NotSkipped, Counter>,
    queue_keys: Family<Keys, Gauge>,
    queue_retries: Family<OfProcessor, Counter>,
    calls_trapped: Family<Trapped, Counter>,
    calls_waiting: Family<OfProcessor, Gauge>,
    call_wait: Family<OfProcessor, Histogram, fn() -> Histogram>,
    reads: Family<OfProcessor, Counter>,
    read_bytes: Family<OfProcessor, Counter>,
    writes: Family<Written, Counter>,
    writes_skipped: Family<OfProcessor, Counter>,
    conflicts_forced: Family<OfKind, Counter>,
    store_objects: Family<Stored, Gauge>,
    store_bytes: Family<Stored, Gauge>,
    denied: Family<Denied, Counter>,
    watch_restarts: Family<Stored, Counter>,
    log_lines_dropped: Family<OfProcessor, Counter>,
    code_lookups: Family<LookedUp, Counter>,
    compile_duration: Family<Compiled, Histogram, fn() -> Histogram>,
    leading: Gauge,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfProcessor {
    processor: Arc<str>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfKind {
    processor: Arc<str>,
    kind: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Ended {
    processor: Arc<str>,
    kind: String,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct NotSkipped {
    processor: Arc<str>,
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Keys {
    processor: Arc<str>,
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Trapped {
    processor: Arc<str>,
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Written {
    processor: Arc<str>,
    kind: String,
    verb: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Denied {
    processor: Arc<str>,
    verb: String,
    kind: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LookedUp {
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Compiled {
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Stored {
    kind: String,
}

// === impl Metrics ===

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All of them, at zero.
    pub fn new() -> Self {
        Self(Arc::new(All::new()))
    }

    /// A reconcile has ended.
    pub fn ran(&self, report: &Report) {
        let Self(all) = self;
        let processor = report.key.processor();
        let kind = shown(&report.kind);
        let result = match report.record.ending {
            Ending::Success => "success",
            Ending::Failure => "failure",
        };
        let ended = Ended { processor: Arc::clone(processor), kind: kind.clone(), result };
        all.reconciles.get_or_create(&ended).inc();
        let of_kind = OfKind { processor: Arc::clone(processor), kind };
        all.reconcile_duration.get_or_create(&of_kind).observe(report.took.as_secs_f64());
        let of = OfProcessor { processor: Arc::clone(processor) };
        let count = |family: &Family<OfProcessor, Counter>, by: usize| {
            family.get_or_create(&of).inc_by(by as u64);
        };
        count(&all.queue_retries, usize::from(report.attempt > 0));
        count(&all.reads, report.reads());
        count(&all.read_bytes, report.read_bytes());
        count(&all.writes_skipped, report.unchanged);
        for Change { action, of, .. } in &report.changes {
            let (processor, kind) = (Arc::clone(processor), shown(&of.kind));
            let written = Written { processor, kind, verb: action.to_string() };
            all.writes.get_or_create(&written).inc();
        }
    }

    /// A reconcile was left out, since it is known what would have come of it.
    pub fn skipped(&self, report: &Report) {
        let processor = Arc::clone(report.key.processor());
        let of_kind = OfKind { processor, kind: shown(&report.kind) };
        self.0.reconciles_skipped.get_or_create(&of_kind).inc();
    }

    /// A reconcile was made though nothing has changed that the host knows of.
    pub fn not_skipped(&self, key: &Key, why: MustRun) {
        let processor = Arc::clone(key.processor());
        let not_skipped = NotSkipped { processor, reason: why.label() };
        self.0.reconciles_not_skipped.get_or_create(&not_skipped).inc();
    }

    /// A call has ended without an answer.
    pub fn trapped(&self, key: &Key, reason: &'static str) {
        let trapped = Trapped { processor: Arc::clone(key.processor()), reason };
        self.0.calls_trapped.get_or_create(&trapped).inc();
    }

    /// A call has waited so long for a slot.
    pub fn waited(&self, key: &Key, waited: Duration) {
        if waited >= LEAST_WAIT {
            let of = OfProcessor { processor: Arc::clone(key.processor()) };
            self.0.call_wait.get_or_create(&of).observe(waited.as_secs_f64());
        }
    }

    /// A guest has said more than is kept.
    pub fn log_dropped(&self, key: &Key, lines: u32) {
        let of = OfProcessor { processor: Arc::clone(key.processor()) };
        self.0.log_lines_dropped.get_or_create(&of).inc_by(lines.into());
    }

    /// Fields of others were taken by force.
    pub fn forced(&self, key: &Key, kind: &Kind) {
        let of = OfKind { processor: Arc::clone(key.processor()), kind: shown(kind) };
        self.0.conflicts_forced.get_or_create(&of).inc();
    }

    /// A processor was refused something that its account may not do, or that it does not declare.
    pub fn denied(&self, processor: &Arc<str>, denial: &Denial) {
        let verb = denial.lack.verb().to_owned();
        let denied = Denied { processor: Arc::clone(processor), verb, kind: shown(&denial.kind) };
        self.0.denied.get_or_create(&denied).inc();
    }

    /// A watch has failed and is begun again.
    pub fn watch_restarted(&self, kind: &Kind) {
        self.0.watch_restarts.get_or_create(&Stored { kind: shown(kind) }).inc();
    }

    /// A module's code was looked for in the cache: `hit`, `miss`, or `refused` if what is there is not to be used.
    pub fn looked_for_code(&self, result: &'static str) {
        self.0.code_lookups.get_or_create(&LookedUp { result }).inc();
    }

    /// A module was compiled: `success`, or in one word why it was not.
    pub fn compiled(&self, took: Duration, result: &'static str) {
        let compiled = Compiled { result };
        self.0.compile_duration.get_or_create(&compiled).observe(took.as_secs_f64());
    }

    /// All of them in the text form that Prometheus reads.
    pub fn text(&self, sample: &Sample) -> Result<String, fmt::Error> {
        let Self(all) = self;
        // What is gone since the last time is not told any more.
        all.queue_keys.clear();
        all.calls_waiting.clear();
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
            let stored = Stored { kind: shown(kind) };
            all.store_objects.get_or_create(&stored).set(whole(memory.objects));
            all.store_bytes.get_or_create(&stored).set(whole(memory.total));
        }
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
            || Histogram::new(exponential_buckets(SHORTEST_SECONDS, 2.0, BUCKETS));
        let compile: fn() -> Histogram =
            || Histogram::new(exponential_buckets(SHORTEST_COMPILE_SECONDS, 2.0, COMPILE_BUCKETS));
        let mut all = Self {
            registry: Registry::with_prefix("mortise"),
            reconciles: Family::default(),
            reconcile_duration: Family::new_with_constructor(histogram),
            reconciles_skipped: Family::default(),
            reconciles_not_skipped: Family::default(),
            queue_keys: Family::default(),
            queue_retries: Family::default(),
            calls_trapped: Family::default(),
            calls_waiting: Family::default(),
            call_wait: Family::new_with_constructor(histogram),
            reads: Family::default(),
            read_bytes: Family::default(),
            writes: Family::default(),
            writes_skipped: Family::default(),
            conflicts_forced: Family::default(),
            store_objects: Family::default(),
            store_bytes: Family::default(),
            denied: Family::default(),
            watch_restarts: Family::default(),
            log_lines_dropped: Family::default(),
            code_lookups: Family::default(),
            compile_duration: Family::new_with_constructor(compile),
            leading: Gauge::default(),
        };
        all.register();
        all
    }

    /// The list: names (with the ending that the format asks for: `_total` of counters, the unit), and what they mean.
    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("reconciles", "Reconciles by result", self.reconciles.clone());
        registry.register(
            "reconciles_skipped",
            "Resyncs and first reconciles that were left out: what they would see and what was written is as the last one left it",
            self.reconciles_skipped.clone(),
        );
        registry.register(
            "reconciles_not_skipped",
            "Resyncs and first reconciles that were made, by what the last one did or what has changed since",
            self.reconciles_not_skipped.clone(),
        );
        registry.register_with_unit(
            "reconcile_duration",
            "How long reconciles took, writes included",
            Unit::Seconds,
            self.reconcile_duration.clone(),
        );
        registry.register(
            "queue_keys",
            "Keys that could run, that run, and that wait for their time",
            self.queue_keys.clone(),
        );
        registry.register(
            "queue_retries",
            "Reconciles after one that failed",
            self.queue_retries.clone(),
        );
        registry.register("reads", "Questions that processors asked", self.reads.clone());
        registry.register_with_unit(
            "read",
            "Objects that processors were given in answer",
            Unit::Bytes,
            self.read_bytes.clone(),
        );
        registry.register(
            "writes",
            "Changes in the cluster, by what was done",
            self.writes.clone(),
        );
        registry.register(
            "writes_skipped",
            "Writes that were not sent since all was so already",
            self.writes_skipped.clone(),
        );
        registry.register(
            "conflicts_forced",
            "Fields taken from other managers, by write",
            self.conflicts_forced.clone(),
        );
        registry.register(
            "denied",
            "Reads and writes that the accounts of processors may not do, and reads that are not declared",
            self.denied.clone(),
        );
        registry.register(
            "log_lines_dropped",
            "Lines of guests' logs over the limit",
            self.log_lines_dropped.clone(),
        );
        self.register_of_calls();
        self.register_of_host();
    }

    fn register_of_calls(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "calls_trapped",
            "Calls of a processor that gave no answer, by what ended them",
            self.calls_trapped.clone(),
        );
        registry.register(
            "calls_waiting",
            "Calls of a processor that wait for a slot",
            self.calls_waiting.clone(),
        );
        registry.register_with_unit(
            "call_wait",
            "How long calls waited for a slot that found none free",
            Unit::Seconds,
            self.call_wait.clone(),
        );
    }

    fn register_of_host(&mut self) {
        let registry = &mut self.registry;
        registry.register("store_objects", "Objects that are kept", self.store_objects.clone());
        registry.register_with_unit(
            "store",
            "Memory that kept objects take, with their indexes, estimated",
            Unit::Bytes,
            self.store_bytes.clone(),
        );
        registry.register(
            "watch_restarts",
            "Watches that failed and were begun again",
            self.watch_restarts.clone(),
        );
        registry.register(
            "code_lookups",
            "Modules whose code was looked for in the cache, by what was found",
            self.code_lookups.clone(),
        );
        registry.register_with_unit(
            "compile_duration",
            "How long modules took to compile, by what came of it",
            Unit::Seconds,
            self.compile_duration.clone(),
        );
        registry.register(
            "leading",
            "Whether the host may write: it needs no Lease, or holds it",
            self.leading.clone(),
        );
    }
}

/// As `kubectl` names it: `VirtualService.networking.istio.io`.
pub(crate) fn shown(kind: &Kind) -> String {
    if kind.group.is_empty() { kind.kind.clone() } else { format!("{}.{}", kind.kind, kind.group) }
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
