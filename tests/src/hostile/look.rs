//! Measurements taken continuously while an attack lasts.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::task::JoinSet;

use super::host;

/// The interval of measurements.
const MEASURE_INTERVAL: Duration = Duration::from_millis(100);

/// Running measurements, which end on drop.
pub(super) struct Look {
    seen: Arc<Mutex<Seen>>,
    _tasks: JoinSet<()>,
}

/// The measurements so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Response times of `/livez`, in ascending order; without an answer, the time until that was
    /// clear.
    pub(super) livez: Vec<Duration>,
    /// Number of requests without an answer.
    pub(super) silent: usize,
    /// Maximum memory, in bytes.
    pub(super) memory: u64,
}

// === impl Look ===

impl Look {
    /// Begins to measure a process, and the response times of its port.
    pub(super) fn at(process: u32, public: &str) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(ask(public.to_owned(), Arc::clone(&seen)));
        tasks.spawn(weigh(process, Arc::clone(&seen)));
        Self { seen, _tasks: tasks }
    }

    /// Returns the measurements since the start.
    pub(super) fn seen(&self) -> Seen {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        seen.livez.sort();
        seen
    }
}

async fn ask(public: String, seen: Arc<Mutex<Seen>>) {
    loop {
        let begun = Instant::now();
        let answer = host::get(&public, "/livez").await;
        let took = begun.elapsed();
        {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.livez.push(took);
            seen.silent += usize::from(answer.is_err());
        }
        tokio::time::sleep(MEASURE_INTERVAL.saturating_sub(took).max(MEASURE_INTERVAL / 10)).await;
    }
}

async fn weigh(process: u32, seen: Arc<Mutex<Seen>>) {
    loop {
        let memory = host::resident(process);
        {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.memory = seen.memory.max(memory);
        }
        tokio::time::sleep(MEASURE_INTERVAL).await;
    }
}
