//! Lines of the program's own log that were not written. There is one log in a process, so they are counted in one place; each
//! [`crate::metrics::Metrics`] tells of them.

use std::sync::{Arc, LazyLock};

use prometheus_client::metrics::counter::Counter;

use super::limit::About;
use crate::metrics::{labels::OfProcessor, series::Series};

/// Lines about a processor that were over its limit.
pub(crate) static LIMITED: LazyLock<Series<OfProcessor, Counter>> = LazyLock::new(Series::default);
/// Other lines that were not written.
pub(crate) static LOST: LazyLock<Counter> = LazyLock::new(Counter::default);

/// A line was over the limit of its subject.
pub(super) fn limited(about: &About) {
    match about {
        About::Processor(name) => {
            LIMITED.of(OfProcessor { processor: Arc::clone(name) }).inc();
        }
        About::Place(_) => _ = LOST.inc(),
    }
}
