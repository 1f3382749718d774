//! Counts of dropped lines of the program's own log. There is one log in a process, so they are
//! counted in one place; each [`super::Metrics`] reports them.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;

use super::series::Series;

/// The dropped lines about a processor that exceeded its limit.
pub(super) static LIMITED: LazyLock<Series<Counter>> =
    LazyLock::new(|| Series::new(Counter::default));
/// The other dropped lines.
pub(super) static LOST: LazyLock<Counter> = LazyLock::new(Counter::default);

/// The time at which a line about a processor was last dropped, if recently.
static LIMITED_AT: LazyLock<Mutex<HashMap<Arc<str>, Instant>>> = LazyLock::new(Mutex::default);
/// The time for which a processor counts as limited after a dropped line.
const LIMITED_PERIOD: Duration = Duration::from_mins(1);

/// Counts a line over its limit; `None` for a line about no processor.
pub(crate) fn count(processor: Option<&Arc<str>>) {
    let Some(name) = processor else {
        LOST.inc();
        return;
    };
    LIMITED.of(name, []).inc();
    let mut all = LIMITED_AT.lock();
    if let Some(at) = all.get_mut(name) {
        *at = Instant::now();
        return;
    }
    all.retain(|_, at| at.elapsed() < LIMITED_PERIOD);
    all.insert(Arc::clone(name), Instant::now());
}

/// Returns whether lines about a processor were dropped in the last minute.
pub(crate) fn is_limited(processor: &str) -> bool {
    LIMITED_AT.lock().get(processor).is_some_and(|at| at.elapsed() < LIMITED_PERIOD)
}
