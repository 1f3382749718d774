//! One processor's share of the queue: its lines, how many of its keys may run at once and how fast they start.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::line::{Line, Place, Ticket};
use super::{Key, Priority};

/// Each time this many keys were taken, the next one is of a lower priority, of each that waits in turn, so that none waits for ever.
const SHARE_OF_LOW: u32 = 16;

/// How many of the keys that run may not be keys whose last run failed, where more than one may run: what fails may take long each
/// time, and others would wait for it.
const NOT_FAILING: usize = 1;

/// A processor's limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// How many of its keys run at once; none run where it is 0.
    pub concurrency: usize,
    /// How many runs start per second; a second's worth may start at once.
    pub rate: Option<f64>,
}

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) processor: Arc<str>,
    /// Its processor is removed: it stays until its last run has ended.
    gone: bool,
    running: usize,
    /// Of those that run, the ones whose last run failed.
    running_failing: usize,
    limits: Limits,
    /// Those that have a share, by priority.
    lines: [Line; 3],
    /// What has no share.
    idle: Line,
    taken: u32,
    /// Runs that may start now, of `rate`.
    tokens: f64,
    filled: Instant,
}

/// What a lane says when asked for a key.
pub(super) enum Offer {
    Key(Key),
    /// Its rate allows the next run then.
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
            idle: Line::default(),
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

    /// Notes that its processor is removed.
    pub(super) fn leave(&mut self) {
        self.gone = true;
    }

    /// Whether nobody needs it any more.
    pub(super) fn is_over(&self) -> bool {
        let waits = || self.lines.iter().chain([&self.idle]).any(|line| line.has(true));
        self.gone && !self.is_running() && !waits()
    }

    /// Puts a key into its line.
    pub(super) fn push(
        &mut self,
        key: Key,
        priority: Priority,
        failing: bool,
        ticket: Ticket,
    ) -> Place {
        self.line(priority).push(key, failing, ticket)
    }

    /// Takes a key out of its line.
    pub(super) fn remove(&mut self, priority: Priority, place: Place) {
        self.line(priority).remove(place);
    }

    fn line(&mut self, priority: Priority) -> &mut Line {
        let [change, resync, background] = &mut self.lines;
        match priority {
            Priority::Change => change,
            Priority::Resync => resync,
            Priority::Background => background,
            Priority::Idle => &mut self.idle,
        }
    }

    /// Takes the next key, if the limits allow one; `idle`: of those that have no share.
    pub(super) fn take(&mut self, now: Instant, idle: bool) -> Offer {
        let may_fail =
            self.running_failing < self.limits.concurrency.saturating_sub(NOT_FAILING).max(1);
        let is_full = self.running >= self.limits.concurrency;
        if is_full || !self.lines_mut(idle).iter().any(|line| line.has(may_fail)) {
            return Offer::Nothing;
        }
        self.fill(now);
        if let Some(rate) = self.limits.rate.filter(|_| self.tokens < 1.0) {
            return later(now, (1.0 - self.tokens) / rate);
        }
        let turn = self.taken;
        let lines = self.lines_mut(idle);
        let at = turn_of(turn, lines.iter().filter(|line| line.has(may_fail)).count());
        let line = lines.iter_mut().filter(|line| line.has(may_fail)).nth(at);
        let Some((key, place)) = line.and_then(|line| line.take(may_fail)) else {
            return Offer::Nothing;
        };
        self.taken = turn.wrapping_add(1);
        self.tokens -= 1.0;
        self.started(place.failing);
        Offer::Key(key)
    }

    /// A key of it runs.
    pub(super) fn started(&mut self, failing: bool) {
        self.running += 1;
        self.running_failing += usize::from(failing);
    }

    /// A key of it runs no more.
    pub(super) fn ended(&mut self, failing: bool) {
        self.running -= 1;
        self.running_failing -= usize::from(failing);
    }

    pub(super) fn is_running(&self) -> bool {
        self.running > 0
    }

    /// Those that have a share, the first one before the others; `idle`: the one that has none.
    fn lines_mut(&mut self, idle: bool) -> &mut [Line] {
        if idle { std::slice::from_mut(&mut self.idle) } else { &mut self.lines }
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

/// The line that is next, of this many that have keys, the first one before the others.
fn turn_of(taken: u32, lines: usize) -> usize {
    let (share, turn) = (taken / SHARE_OF_LOW, taken % SHARE_OF_LOW);
    if turn < SHARE_OF_LOW - 1 || lines < 2 {
        return 0;
    }
    let lower = lines - 1;
    // The lowest one first.
    lower - usize::try_from(share).unwrap_or_default() % lower
}

/// A rate of zero, or nearly so, offers nothing at any time that can be told.
fn later(now: Instant, seconds: f64) -> Offer {
    let wait = Duration::try_from_secs_f64(seconds).ok();
    // A timer that ends a little early would only be asked again.
    wait.and_then(|wait| now.checked_add(wait + Duration::from_millis(1)))
        .map_or(Offer::Nothing, Offer::At)
}
