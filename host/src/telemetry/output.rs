//! The lines on their way to standard error.
//!
//! One thread writes them; a thread that logs hands over a line and goes on. If standard error is
//! blocked, as a pipe is that nobody reads, lines are kept up to a bound and then dropped and
//! counted: no other thread ever waits for the reader of the log.

use std::{
    collections::VecDeque,
    io,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

/// The maximum number of lines that wait.
const MAX_WAITING_LINES: usize = 8192;
/// The maximum number of bytes that wait: as much as a host logs in a minute of trouble.
const MAX_WAITING_BYTES: usize = 4 << 20;

/// Lines that wait for the thread that writes them.
#[derive(Debug, Default)]
pub(super) struct Lines {
    waiting: Mutex<Waiting>,
    /// Notified when a line waits.
    filled: Condvar,
    /// Notified when no line waits any more.
    drained: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: VecDeque<Box<[u8]>>,
    bytes: usize,
    /// The number of lines dropped for want of room since the last report.
    lost: u64,
    /// True while a line is being written.
    is_writing: bool,
    /// True once the last line was handed over: lines that other threads log after it are not
    /// written.
    is_over: bool,
}

// === impl Lines ===

impl Lines {
    /// Hands over a line; returns false if there is no room for it, or after the last line.
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

    /// Hands over the last line of the program, for which there is always room.
    pub(super) fn push_last(&self, line: &[u8]) {
        let mut waiting = self.waiting.lock();
        waiting.is_over = true;
        waiting.bytes += line.len();
        waiting.lines.push_back(line.into());
        self.filled.notify_one();
    }

    /// Writes the lines that wait, and those that come within the time `wait`; returns when that
    /// time is over.
    ///
    /// `lost` is called with the number of lines that were dropped for want of room, as soon as
    /// lines are written again.
    pub(super) fn write(&self, to: &mut impl io::Write, wait: Duration, lost: impl Fn(u64)) {
        let until = Instant::now() + wait;
        while let Some(line) = self.next(until) {
            // If standard error is gone, there is nowhere to report it.
            let _ = to.write_all(&line).and_then(|()| to.flush());
            let dropped = self.written(line.len());
            if dropped > 0 {
                lost(dropped);
            }
        }
    }

    /// Waits until all lines are written, for a time. Returns whether all are written.
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
        // Return in time, also if lines keep coming.
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
