//! The series of processors: bounded for each processor, and removed with it.

use std::{
    collections::{HashMap, HashSet},
    fmt::Debug,
    hash::Hash,
    sync::Arc,
};

use parking_lot::Mutex;
use prometheus_client::metrics::family::{Family, MetricConstructor};

/// The maximum number of series of one processor in one metric, more than any metric needs. Kinds
/// and verbs come from its description, which its owner may change at will.
const MAX_SERIES_PER_PROCESSOR: usize = 512;
/// The kind in series past the limit, and for undeclared kinds.
pub(super) const OTHER: &str = "other";

/// The labels of a series of one processor.
pub(crate) trait Labels: Clone + Debug + Hash + Eq {
    /// Returns the processor of the series.
    fn processor(&self) -> &Arc<str>;

    /// Returns the same labels with the kind [`OTHER`], if they have a kind.
    #[must_use]
    fn other(self) -> Self;
}

/// A metric with series of processors.
pub(crate) struct Series<L, M, C = fn() -> M> {
    pub(crate) family: Family<L, M, C>,
    known: Mutex<HashMap<Arc<str>, HashSet<L>>>,
}

// === impl Series ===

impl<L: Labels, M: Default> Default for Series<L, M> {
    fn default() -> Self {
        Self { family: Family::default(), known: Mutex::default() }
    }
}

impl<L: Labels, M: Clone, C: MetricConstructor<M>> Series<L, M, C> {
    pub(crate) fn new(family: Family<L, M, C>) -> Self {
        Self { family, known: Mutex::default() }
    }

    /// Returns the series with these labels; past the limit, that of the kind [`OTHER`].
    pub(crate) fn of(&self, labels: L) -> M {
        let mut known = self.known.lock();
        let of = known.entry(Arc::clone(labels.processor())).or_default();
        let is_new = !of.contains(&labels);
        let labels =
            if is_new && of.len() >= MAX_SERIES_PER_PROCESSOR { labels.other() } else { labels };
        let series = self.family.get_or_create(&labels).clone();
        if is_new {
            of.insert(labels);
        }
        series
    }

    /// Removes all series of unknown processors.
    pub(crate) fn retain(&self, is_known: impl Fn(&str) -> bool) {
        let of: Vec<Arc<str>> = self.known.lock().keys().cloned().collect();
        of.iter().filter(|processor| !is_known(processor)).for_each(|gone| self.forget(gone));
    }

    /// Removes all series of a processor.
    pub(crate) fn forget(&self, processor: &str) {
        let gone = self.known.lock().remove(processor);
        for labels in gone.into_iter().flatten() {
            self.family.remove(&labels);
        }
    }
}
