//! What is looked at all the time while an attack lasts.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::task::JoinSet;

use super::host;

/// How often.
const PACE: Duration = Duration::from_millis(100);

/// Looks until it is dropped.
pub(super) struct Look {
    seen: Arc<Mutex<Seen>>,
    _tasks: JoinSet<()>,
}

/// What was seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// How long `/livez` took, in ascending order; where there was no answer, until that was clear.
    pub(super) livez: Vec<Duration>,
    /// How often there was none.
    pub(super) silent: usize,
    /// The most memory, in bytes.
    pub(super) memory: u64,
}

// === impl Look ===

impl Look {
    /// At a process, and the port where it answers.
    pub(super) fn at(process: u32, public: &str) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(ask(public.to_owned(), Arc::clone(&seen)));
        tasks.spawn(weigh(process, Arc::clone(&seen)));
        Self { seen, _tasks: tasks }
    }

    /// What was seen since it began.
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
        tokio::time::sleep(PACE.saturating_sub(took).max(PACE / 10)).await;
    }
}

async fn weigh(process: u32, seen: Arc<Mutex<Seen>>) {
    loop {
        let memory = host::resident(process);
        {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.memory = seen.memory.max(memory);
        }
        tokio::time::sleep(PACE).await;
    }
}
