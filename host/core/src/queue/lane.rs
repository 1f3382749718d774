//! The lane of a processor: its share of the queue. Holds its lines, and limits how many of its
//! keys run at once and how fast they start.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    Key, Priority,
    line::{Line, Position, Ticket},
};

/// The period, in taken keys, at which a lower priority gets its share, if a key waits there. Lower
/// priorities take turns, so that no key starves.
const LOW_PRIORITY_PERIOD: u32 = 16;

/// The number of concurrent runs that is reserved for keys whose last run did not fail, if more
/// than one key may run: slow failing keys would block the others.
const RESERVED_FOR_SUCCEEDING: usize = 1;

/// The limits of a processor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The number of keys that run at once; with 0, no key runs.
    pub concurrency: usize,
    /// The number of runs that start per second, if limited; a second's worth may start at once.
    pub rate: Option<f64>,
}

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) processor: Arc<str>,
    /// True if the processor is removed: the lane stays until no key of it waits or runs.
    gone: bool,
    running: usize,
    /// The number of running keys whose last run failed.
    running_failing: usize,
    limits: Limits,
    /// The line of each priority, the highest first.
    lines: [Line; 3],
    taken: u32,
    /// The number of runs that `rate` allows to start now.
    tokens: f64,
    filled: Instant,
}

/// The answer of a lane to a request for a key.
pub(super) enum Offer {
    Key(Key),
    /// The time at which the rate allows the next run.
    At(Instant),
    Nothing,
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self { concurrency: 4, rate: None }
    }
}

// === impl Lane ===

impl Lane {
    pub(super) fn new(processor: &Arc<str>, limits: Limits, now: Instant) -> Self {
        let tokens = limits.rate.unwrap_or(0.0).max(1.0);
        Self {
            processor: Arc::clone(processor),
            gone: false,
            running: 0,
            running_failing: 0,
            limits,
            lines: Default::default(),
            taken: 0,
            tokens,
            filled: now,
        }
    }

    pub(super) fn set_limits(&mut self, limits: Limits, now: Instant) {
        self.fill(now);
        self.limits = limits;
        self.gone = false;
    }

    /// Marks the processor as removed.
    pub(super) fn leave(&mut self) {
        self.gone = true;
    }

    /// Returns whether the lane is not needed any more.
    pub(super) fn is_over(&self) -> bool {
        let waits = || self.lines.iter().any(|line| line.has(true));
        self.gone && !self.is_running() && !waits()
    }

    /// Puts a key into its line.
    pub(super) fn push(
        &mut self,
        key: Key,
        priority: Priority,
        failing: bool,
        ticket: Ticket,
    ) -> Position {
        self.line(priority).push(key, failing, ticket)
    }

    /// Takes a key out of its line.
    pub(super) fn remove(&mut self, priority: Priority, place: Position) {
        self.line(priority).remove(place);
    }

    fn line(&mut self, priority: Priority) -> &mut Line {
        let [change, resync, background] = &mut self.lines;
        match priority {
            Priority::Change => change,
            Priority::Resync => resync,
            Priority::Background => background,
        }
    }

    /// Takes the next key, if the limits allow one.
    pub(super) fn take(&mut self, now: Instant) -> Offer {
        let may_fail = self.running_failing
            < self.limits.concurrency.saturating_sub(RESERVED_FOR_SUCCEEDING).max(1);
        let is_full = self.running >= self.limits.concurrency;
        if is_full || !self.lines.iter().any(|line| line.has(may_fail)) {
            return Offer::Nothing;
        }
        self.fill(now);
        if let Some(rate) = self.limits.rate.filter(|_| self.tokens < 1.0) {
            return later(now, (1.0 - self.tokens) / rate);
        }
        let turn = self.taken;
        let at = turn_of(turn, self.lines.iter().filter(|line| line.has(may_fail)).count());
        let line = self.lines.iter_mut().filter(|line| line.has(may_fail)).nth(at);
        let Some((key, place)) = line.and_then(|line| line.take(may_fail)) else {
            return Offer::Nothing;
        };
        self.taken = turn.wrapping_add(1);
        self.tokens -= 1.0;
        self.started(place.failing);
        Offer::Key(key)
    }

    /// Counts a key of the lane that begins to run.
    pub(super) fn started(&mut self, failing: bool) {
        self.running += 1;
        self.running_failing += usize::from(failing);
    }

    /// Counts a key of the lane that has ended its run.
    pub(super) fn ended(&mut self, failing: bool) {
        self.running -= 1;
        self.running_failing -= usize::from(failing);
    }

    pub(super) fn is_running(&self) -> bool {
        self.running > 0
    }

    fn fill(&mut self, now: Instant) {
        if let Some(rate) = self.limits.rate {
            let gained = now.saturating_duration_since(self.filled).as_secs_f64() * rate;
            self.tokens = (self.tokens + gained).min(rate.max(1.0));
        } else {
            self.tokens = 1.0;
        }
        self.filled = now;
    }
}

/// Returns the index of the next line, among `lines` lines with keys, the highest priority first.
fn turn_of(taken: u32, lines: usize) -> usize {
    let (share, turn) = (taken / LOW_PRIORITY_PERIOD, taken % LOW_PRIORITY_PERIOD);
    if turn < LOW_PRIORITY_PERIOD - 1 || lines < 2 {
        return 0;
    }
    let lower = lines - 1;
    // The lowest priority first.
    lower - usize::try_from(share).unwrap_or_default() % lower
}

/// Offers the time after so many seconds; nothing if the time cannot be represented, with a rate of
/// zero or nearly zero.
fn later(now: Instant, seconds: f64) -> Offer {
    let wait = Duration::try_from_secs_f64(seconds).ok();
    // A timer that ends a little early would only lead to another request.
    wait.and_then(|wait| now.checked_add(wait + Duration::from_millis(1)))
        .map_or(Offer::Nothing, Offer::At)
}
