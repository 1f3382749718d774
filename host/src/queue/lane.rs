//! One processor's share of the queue: its lines, how many of its keys may run at once and how fast they start.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Key, Priority};

/// Each time this many keys were taken, the next one is of the lowest priority that waits, so that none waits for ever.
const SHARE_OF_LOW: u32 = 16;

/// A processor's limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// How many of its keys run at once; none run where it is 0.
    pub concurrency: usize,
    /// How many runs start per second; a second's worth may start at once.
    pub rate: Option<f64>,
}

/// Which entry of a line is a key's own: a key that moved leaves a stale one behind.
pub(super) type Ticket = u64;

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) processor: Arc<str>,
    pub(super) running: usize,
    limits: Limits,
    lines: [VecDeque<(Key, Ticket)>; 3],
    /// What has no share.
    idle: VecDeque<(Key, Ticket)>,
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
            running: 0,
            limits,
            lines: Default::default(),
            idle: VecDeque::new(),
            taken: 0,
            tokens,
            filled: now,
        }
    }

    pub(super) fn set_limits(&mut self, limits: Limits, now: Instant) {
        self.fill(now);
        self.limits = limits;
    }

    pub(super) fn push(&mut self, key: Key, ticket: Ticket, priority: Priority) {
        let [change, resync, background] = &mut self.lines;
        let line = match priority {
            Priority::Change => change,
            Priority::Resync => resync,
            Priority::Background => background,
            Priority::Idle => &mut self.idle,
        };
        line.push_back((key, ticket));
    }

    /// Takes the next key whose entry is not stale, if the limits allow one; `idle`: of those that have no share.
    pub(super) fn take(
        &mut self,
        now: Instant,
        idle: bool,
        is_valid: impl Fn(&Key, Ticket) -> bool,
    ) -> Offer {
        let is_full = self.running >= self.limits.concurrency;
        let lines = self.lines_mut(idle);
        for line in &mut *lines {
            while line.front().is_some_and(|(key, ticket)| !is_valid(key, *ticket)) {
                line.pop_front();
            }
        }
        if is_full || lines.iter().all(VecDeque::is_empty) {
            return Offer::Nothing;
        }
        self.fill(now);
        if let Some(rate) = self.limits.rate.filter(|_| self.tokens < 1.0) {
            return later(now, (1.0 - self.tokens) / rate);
        }
        let low_first = self.taken % SHARE_OF_LOW == SHARE_OF_LOW - 1;
        let mut lines = self.lines_mut(idle).iter_mut().filter(|line| !line.is_empty());
        let line = if low_first { lines.next_back() } else { lines.next() };
        let Some((key, _)) = line.and_then(VecDeque::pop_front) else { return Offer::Nothing };
        self.taken = self.taken.wrapping_add(1);
        self.tokens -= 1.0;
        self.running += 1;
        Offer::Key(key)
    }

    /// Those that have a share, the first one before the others; `idle`: the one that has none.
    fn lines_mut(&mut self, idle: bool) -> &mut [VecDeque<(Key, Ticket)>] {
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

/// A rate of zero, or nearly so, offers nothing at any time that can be told.
fn later(now: Instant, seconds: f64) -> Offer {
    let wait = Duration::try_from_secs_f64(seconds).ok();
    // A timer that ends a little early would only be asked again.
    wait.and_then(|wait| now.checked_add(wait + Duration::from_millis(1)))
        .map_or(Offer::Nothing, Offer::At)
}
