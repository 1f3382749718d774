//! The queue of lines for standard error.
//!
//! A single thread writes them; a thread that logs only queues a line. If standard error is
//! blocked, such as a pipe without a reader, lines are kept up to a limit and then dropped and
//! counted: no other thread ever waits for the reader of the log.

use std::{
    collections::VecDeque,
    io,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

/// The maximum number of queued lines.
const MAX_WAITING_LINES: usize = 8192;
/// The maximum size of queued lines, in bytes: those of a host in a minute of trouble.
const MAX_WAITING_BYTES: usize = 4 << 20;

/// Lines queued for the thread that writes them.
#[derive(Debug, Default)]
pub(super) struct Lines {
    waiting: Mutex<Waiting>,
    /// Notified when a line is queued.
    filled: Condvar,
    /// Notified when the queue is empty.
    drained: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: VecDeque<Box<[u8]>>,
    bytes: usize,
    /// The number of lines dropped since the last report, because the queue was full.
    lost: u64,
    /// True while a line is being written.
    is_writing: bool,
    /// True once the last line was queued: lines that other threads log after it are dropped.
    is_over: bool,
}

// === impl Lines ===

impl Lines {
    /// Queues a line; returns false if the queue is full, or after the last line.
    pub(super) fn push(&self, line: &[u8]) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.is_over {
            return false;
        }
        if waiting.lines.len() >= MAX_WAITING_LINES
            || waiting.bytes + line.len() > MAX_WAITING_BYTES
        {
            waiting.lost += 1;
            return false;
        }
        waiting.bytes += line.len();
        waiting.lines.push_back(line.into());
        self.filled.notify_one();
        true
    }

    /// Queues the last line of the program, even if the queue is full.
    pub(super) fn push_last(&self, line: &[u8]) {
        let mut waiting = self.waiting.lock();
        waiting.is_over = true;
        waiting.bytes += line.len();
        waiting.lines.push_back(line.into());
        self.filled.notify_one();
    }

    /// Writes the queued lines, and those that arrive within the time `wait`; returns after that
    /// time.
    ///
    /// `lost` is called with the number of lines dropped because the queue was full, as soon as
    /// lines are written again.
    pub(super) fn write(&self, to: &mut impl io::Write, wait: Duration, lost: impl Fn(u64)) {
        let until = Instant::now() + wait;
        while let Some(line) = self.next(until) {
            // There is nowhere to report a closed standard error.
            let _ = to.write_all(&line).and_then(|()| to.flush());
            let dropped = self.written(line.len());
            if dropped > 0 {
                lost(dropped);
            }
        }
    }

    /// Waits until all lines are written, within a time limit. Returns whether they are.
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
        // Return in time, even if lines keep coming.
        if Instant::now() >= until {
            return None;
        }
        waiting.is_writing = true;
        waiting.lines.pop_front()
    }

    /// Records that a line was written. Returns how many lines were dropped meanwhile.
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
