//! Lines on their way to standard error.
//!
//! One thread writes them; who logs hands over a line and goes on. Where standard error stands still, as a pipe that nobody reads
//! does, lines are kept up to a bound and then dropped and counted: no other thread ever waits for whoever reads the log.

use std::{
    collections::VecDeque,
    io,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

/// How many lines wait at most.
const LINES: usize = 8192;
/// And how many bytes of them: what a host says in a minute of trouble.
const BYTES: usize = 4 << 20;

/// Lines that wait for the thread that writes them.
#[derive(Debug, Default)]
pub(super) struct Lines {
    waiting: Mutex<Waiting>,
    /// Something waits.
    filled: Condvar,
    /// Nothing waits any more.
    drained: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: VecDeque<Box<[u8]>>,
    bytes: usize,
    /// Lines that there was no room for since it was told last.
    lost: u64,
    /// A line is being written.
    is_writing: bool,
    /// The last line was handed over: what other threads say after it is not written.
    is_over: bool,
}

// === impl Lines ===

impl Lines {
    /// Hands over a line; false where there was no room for it, or after the last one.
    pub(super) fn push(&self, line: &[u8]) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.is_over {
            return false;
        }
        if waiting.lines.len() >= LINES || waiting.bytes + line.len() > BYTES {
            waiting.lost += 1;
            return false;
        }
        waiting.bytes += line.len();
        waiting.lines.push_back(line.into());
        self.filled.notify_one();
        true
    }

    /// Hands over the last line that there is, which there is always room for.
    pub(super) fn push_last(&self, line: &[u8]) {
        let mut waiting = self.waiting.lock();
        waiting.is_over = true;
        waiting.bytes += line.len();
        waiting.lines.push_back(line.into());
        self.filled.notify_one();
    }

    /// Writes the lines that wait, and comes back when none has come for a time.
    ///
    /// `lost` is told how many lines there was no room for, as soon as some are written again.
    pub(super) fn write(&self, to: &mut impl io::Write, wait: Duration, lost: impl Fn(u64)) {
        let until = Instant::now() + wait;
        while let Some(line) = self.next(until) {
            // Where standard error is gone there is nobody to tell.
            let _ = to.write_all(&line).and_then(|()| to.flush());
            let dropped = self.written(line.len());
            if dropped > 0 {
                lost(dropped);
            }
        }
    }

    /// Waits until all lines are written, for a time. Returns whether they are.
    pub(super) fn drained(&self, within: Duration) -> bool {
        let until = Instant::now() + within;
        let mut waiting = self.waiting.lock();
        while waiting.is_writing || !waiting.lines.is_empty() {
            if self.drained.wait_until(&mut waiting, until).timed_out() {
                return false;
            }
        }
        true
    }

    fn next(&self, until: Instant) -> Option<Box<[u8]>> {
        let mut waiting = self.waiting.lock();
        while waiting.lines.is_empty() {
            if self.filled.wait_until(&mut waiting, until).timed_out() {
                return None;
            }
        }
        // Busy or not, its time is over now and then.
        if Instant::now() >= until {
            return None;
        }
        waiting.is_writing = true;
        waiting.lines.pop_front()
    }

    /// Returns how many lines were lost meanwhile.
    fn written(&self, bytes: usize) -> u64 {
        let mut waiting = self.waiting.lock();
        waiting.is_writing = false;
        waiting.bytes -= bytes;
        if waiting.lines.is_empty() {
            self.drained.notify_all();
        }
        std::mem::take(&mut waiting.lost)
    }
}
