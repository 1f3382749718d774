//! The series of processors: bounded for each processor, and removed with it.

use std::{
    collections::{HashMap, HashSet},
    fmt::Debug,
    sync::Arc,
};

use mortise_core::contract::bounds::text::escaped;
use parking_lot::Mutex;
use prometheus_client::{
    encoding::EncodeMetric,
    metrics::{MetricType, TypedMetric, counter::Counter, family::Family, histogram::Histogram},
    registry::{Metric, Registry, Unit},
};

/// The prefix of all names.
const PREFIX: &str = "mortise";
/// The maximum number of series of one processor in one metric, more than any metric needs. Kinds
/// and verbs come from its description, which its owner may change at will.
const MAX_SERIES_PER_PROCESSOR: usize = 512;
/// The value of [`NAMED_BY_OTHERS`] in series past the limit, and for undeclared kinds.
pub(super) const OTHER: &str = "other";
/// The labels whose values a processor can choose, or a system that it calls: another cluster names
/// the verb that it denies.
const NAMED_BY_OTHERS: [&str; 6] = ["kind", "hook", "origin", "verb", "cluster", "code"];

/// The labels of a series, in the order in which they are shown.
pub(super) type Labels = Vec<(&'static str, String)>;
/// A metric whose series are neither bounded nor removed here.
pub(super) type ByLabels<M> = Family<Labels, M, fn() -> M>;

/// A metric with series of processors. Clones share their state.
#[derive(Clone)]
pub(crate) struct Series<M>(Arc<Inner<M>>);

struct Inner<M> {
    family: ByLabels<M>,
    known: Mutex<HashMap<Arc<str>, HashSet<Labels>>>,
}

/// Functions that remove the series of a processor.
pub(super) type Forget = Vec<Box<dyn Fn(&str) + Send + Sync>>;

/// Builds metrics and registers them. In a name, the suffix `_seconds` or `_bytes` is the unit; the
/// format adds `_total` to the names of counters.
pub(super) struct Builder {
    pub(super) registry: Registry,
    /// One for each metric with series of processors.
    pub(super) forget: Forget,
    /// The full name and the help text of each metric.
    pub(super) described: Vec<(String, String)>,
}

/// Returns labels of a series. Of a text, the format itself escapes quotes, `\` and line ends.
pub(super) fn labels<const N: usize>(labels: [(&'static str, &str); N]) -> Labels {
    labels.map(|(name, value)| (name, escaped(value).into_owned())).into()
}

// === impl Series ===

impl<M: Clone> Series<M> {
    pub(super) fn new(metric: fn() -> M) -> Self {
        let family = ByLabels::new_with_constructor(metric);
        Self(Arc::new(Inner { family, known: Mutex::default() }))
    }

    /// Returns the series of a processor with further labels; past the limit, that with the value
    /// [`OTHER`].
    pub(crate) fn of<const N: usize>(
        &self,
        processor: &Arc<str>,
        more: [(&'static str, &str); N],
    ) -> M {
        let mut labels = labels([("processor", processor)]);
        labels.extend(self::labels(more));
        let mut known = self.0.known.lock();
        let of = known.entry(Arc::clone(processor)).or_default();
        if !of.contains(&labels) {
            if of.len() >= MAX_SERIES_PER_PROCESSOR {
                let chosen = labels.iter_mut().filter(|(name, _)| NAMED_BY_OTHERS.contains(name));
                chosen.for_each(|(_, value)| OTHER.clone_into(value));
            }
            of.insert(labels.clone());
        }
        self.0.family.get_or_create(&labels).clone()
    }

    /// Removes all series of unknown processors.
    pub(super) fn retain(&self, is_known: impl Fn(&str) -> bool) {
        let of: Vec<Arc<str>> = self.0.known.lock().keys().cloned().collect();
        of.iter().filter(|processor| !is_known(processor)).for_each(|gone| self.forget(gone));
    }

    /// Removes all series of a processor.
    fn forget(&self, processor: &str) {
        let gone = self.0.known.lock().remove(processor);
        for labels in gone.into_iter().flatten() {
            self.0.family.remove(&labels);
        }
    }
}

// === impl Builder ===

impl Builder {
    pub(super) fn new() -> Self {
        let registry = Registry::with_prefix(PREFIX);
        Self { registry, forget: Vec::new(), described: Vec::new() }
    }

    pub(super) fn metric<M>(&mut self, name: &str, help: &str, metric: M) -> M
    where
        M: Metric + TypedMetric + Clone,
    {
        let total = if matches!(M::TYPE, MetricType::Counter) { "_total" } else { "" };
        self.described.push((format!("{PREFIX}_{name}{total}"), help.to_owned()));
        let units = [("_seconds", Unit::Seconds), ("_bytes", Unit::Bytes)];
        let unit = units
            .into_iter()
            .find_map(|(suffix, unit)| name.strip_suffix(suffix).map(|name| (name, unit)));
        match unit {
            Some((name, unit)) => {
                self.registry.register_with_unit(name, help, unit, metric.clone());
            }
            None => self.registry.register(name, help, metric.clone()),
        }
        metric
    }

    /// Builds a metric with the series of processors.
    pub(super) fn series<M>(&mut self, name: &str, help: &str, series: Series<M>) -> Series<M>
    where
        M: EncodeMetric + TypedMetric + Clone + Debug + Send + Sync + 'static,
    {
        self.metric(name, help, series.0.family.clone());
        let of = series.clone();
        self.forget.push(Box::new(move |processor| of.forget(processor)));
        series
    }

    pub(super) fn counters(&mut self, name: &str, help: &str) -> Series<Counter> {
        self.series(name, help, Series::new(Counter::default))
    }

    pub(super) fn histograms(
        &mut self,
        name: &str,
        help: &str,
        histogram: fn() -> Histogram,
    ) -> Series<Histogram> {
        self.series(name, help, Series::new(histogram))
    }
}
