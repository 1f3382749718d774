//! The thread that increments the engines' epoch each millisecond, so that guests yield and check
//! their deadline.
//!
//! The thread sleeps while no call runs: an idle host uses no CPU time.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// The time that a guest may run before it yields to other calls on its thread.
const TICK: Duration = Duration::from_millis(1);
/// Ticks without a call until the thread sleeps. Waking the thread costs a system call, so it does
/// not sleep at once.
const TICKS_UNTIL_REST: u32 = 50;

/// Owns the thread, which ends when the `Ticker` is dropped.
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

/// A running call. The epoch advances while at least one exists.
pub(in crate::wasm) struct Running<'a> {
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
            // The thread has printed its panic, and there is no one to report it to.
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

    /// Sleeps until a call begins. `rests` is set before `running` is read, and a call does the two
    /// in the other order: so no wake-up is lost.
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

#[cfg(test)]
mod tests {
    use wasmtime::{Config, Engine, Instance, Module, Store, Trap};

    use super::*;

    /// `(module (func (export "f") (loop (br 0))))`.
    const LOOP: &[u8] = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x03\x02\x01\0\x07\x05\x01\x01f\0\0\x0a\x09\x01\x07\0\x03\x40\x0c\0\x0b\x0b";

    fn hang(engine: &Engine) -> Trap {
        let module = Module::new(engine, LOOP).unwrap();
        let mut store = Store::new(engine, ());
        store.set_epoch_deadline(1);
        let instance = Instance::new(&mut store, &module, &[]).unwrap();
        let f = instance.get_typed_func::<(), ()>(&mut store, "f").unwrap();
        *f.call(&mut store, ()).unwrap_err().downcast_ref().unwrap()
    }

    #[test]
    fn the_epoch_moves_while_a_call_runs_also_after_a_rest() {
        let mut config = Config::new();
        config.epoch_interruption(true);
        let engine = Engine::new(&config).unwrap();
        let ticker = Ticker::start(vec![engine.clone()]).unwrap();
        for _ in 0..2 {
            let running = ticker.run();
            assert_eq!(hang(&engine), Trap::Interrupt);
            drop(running);
            while !ticker.state.rests.load(SeqCst) {
                thread::yield_now();
            }
        }
    }
}
