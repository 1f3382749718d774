//! The thread that moves the engines' epoch on each millisecond, so that guests give way and notice their deadline.
//!
//! It rests while no call runs: an idle host uses no time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long a guest may run before others on its thread get their turn.
const TICK: Duration = Duration::from_millis(1);
/// Ticks without a call until the thread rests; waking it costs a system call, so not at once.
const TICKS_UNTIL_REST: u32 = 50;

/// Owns the thread; it ends when this is dropped.
pub(super) struct Ticker {
    state: Arc<TickerState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct TickerState {
    running: AtomicUsize,
    rests: AtomicBool,
    stop: AtomicBool,
}

/// A call that runs; as long as one does, the epoch moves.
pub(in crate::processor) struct Running<'a> {
    state: &'a TickerState,
}

// === impl Ticker ===

impl Ticker {
    pub(super) fn start(engines: Vec<wasmtime::Engine>) -> io::Result<Self> {
        let state = Arc::new(TickerState::default());
        let shared = Arc::clone(&state);
        let thread =
            thread::Builder::new().name("ticker".into()).spawn(move || shared.tick(&engines))?;
        Ok(Self { state, thread: Some(thread) })
    }

    pub(super) fn run(&self) -> Running<'_> {
        self.state.running.fetch_add(1, SeqCst);
        if self.state.rests.load(SeqCst) {
            self.wake();
        }
        Running { state: &self.state }
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.state.stop.store(true, SeqCst);
        self.wake();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed by it; there is nobody left to tell.
            drop(thread.join());
        }
    }
}

// === impl TickerState ===

impl TickerState {
    fn tick(&self, engines: &[wasmtime::Engine]) {
        let mut idle = 0;
        while !self.stop.load(SeqCst) {
            idle = if self.running.load(SeqCst) == 0 { idle + 1 } else { 0 };
            if idle > TICKS_UNTIL_REST {
                self.rest();
                idle = 0;
            }
            thread::park_timeout(TICK);
            for engine in engines {
                engine.increment_epoch();
            }
        }
    }

    /// Waits for a call. `rests` is set before `running` is looked at, and a call does the two in the other order: one of
    /// them sees the other.
    fn rest(&self) {
        self.rests.store(true, SeqCst);
        while self.running.load(SeqCst) == 0 && !self.stop.load(SeqCst) {
            thread::park();
        }
        self.rests.store(false, SeqCst);
    }
}

// === impl Running ===

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.state.running.fetch_sub(1, SeqCst);
    }
}
