//! Turns for calls that compute for long, so that many calls of one processor together get no more
//! CPU time than a few of another.
//!
//! A call that ends before its first tick (see `engine/ticker.rs`) needs no turn. A longer call
//! needs a turn for each further millisecond; there are as many turns as threads that run calls.
//! While calls of other processors begin or wait, a processor leaves one thread to them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use super::shares::{Bounds, Granted, Id, Shares, Ticket};

/// The time after a call begins during which its processor counts as competing for the CPU.
const CPU_DEMAND_PERIOD: Duration = Duration::from_secs(1);

/// The turns of all processors.
pub(super) struct Turns {
    shares: Shares,
    threads: usize,
    begun: Begun,
}

/// The processor of the last call, and its time, in milliseconds since the start. Read without a
/// lock: slightly stale values do no harm.
struct Begun {
    start: Instant,
    last: AtomicU64,
    at: AtomicU64,
    /// The time of the last call that followed a call of another processor.
    changed_at: AtomicU64,
}

/// The turn of one call.
pub(super) struct Turn {
    turns: Arc<Turns>,
    of: Id,
    ticket: Option<Ticket>,
}

// === impl Turns ===

impl Turns {
    /// Creates the turns for this number of threads that run calls.
    pub(super) fn new(threads: usize) -> Self {
        let threads = threads.max(1);
        let bounds = Bounds { total: threads, reserve: 0, share: threads };
        let (last, at, changed_at) = Default::default();
        let begun = Begun { start: Instant::now(), last, at, changed_at };
        Self { shares: Shares::new(bounds), threads, begun }
    }

    /// Registers a call that begins now, without a turn.
    pub(super) fn begin(self: &Arc<Self>, of: Id, now: Instant) -> Turn {
        self.begun.record(of, now);
        Turn { turns: Arc::clone(self), of, ticket: None }
    }

    /// Returns the number of turns that one processor may hold.
    fn share(&self, of: Id, others_wait: bool) -> usize {
        let is_wanted = others_wait || self.begun.by_others(of, Instant::now());
        if is_wanted { self.threads.saturating_sub(1).max(1) } else { self.threads }
    }
}

// === impl Begun ===

impl Begun {
    fn record(&self, of: Id, now: Instant) {
        let now = self.millis(now);
        self.at.store(now, Relaxed);
        if self.last.load(Relaxed) != of {
            self.last.store(of, Relaxed);
            self.changed_at.store(now, Relaxed);
        }
    }

    /// Returns whether a call of another processor began within [`CPU_DEMAND_PERIOD`].
    fn by_others(&self, of: Id, now: Instant) -> bool {
        let at = if self.last.load(Relaxed) == of { &self.changed_at } else { &self.at };
        let (at, now) = (at.load(Relaxed), self.millis(now));
        // Zero: no call began yet.
        at > 0 && u128::from(now.saturating_sub(at)) < CPU_DEMAND_PERIOD.as_millis()
    }

    fn millis(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.start).as_millis();
        u64::try_from(since).unwrap_or(u64::MAX).saturating_add(1)
    }
}

// === impl Turn ===

impl Turn {
    /// Requests a turn, or keeps the current one. Returns a receiver to wait on, unless the call
    /// may continue at once.
    pub(super) fn next(&mut self) -> Option<Granted> {
        let (turns, of) = (&self.turns, self.of);
        let share = |others_wait| turns.share(of, others_wait);
        let (ticket, granted) = turns.shares.renew(of, self.ticket, share);
        self.ticket = Some(ticket);
        granted
    }

    /// Releases the turn, while the call waits for anything but the CPU.
    pub(super) fn give_back(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.turns.shares.give_back(ticket);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Lets other tasks run, and waits for the turn that a call has requested, until the call's deadline
/// at most.
pub(super) async fn wait(granted: Option<Granted>, deadline: Instant) {
    tokio::task::yield_now().await;
    if let Some(granted) = granted {
        let left = deadline.saturating_duration_since(Instant::now());
        drop(tokio::time::timeout(left, granted).await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_leaves_a_thread_to_others_that_begin_calls() {
        let turns = Arc::new(Turns::new(2));
        let start = turns.begun.start;
        let at = |millis| start + Duration::from_millis(millis);
        turns.begun.record(1, at(5));
        assert!(turns.begun.by_others(2, at(900)), "another sees that one began");
        // Before the first call there was no other processor, but that call counts as a change of
        // processors.
        assert!(!turns.begun.by_others(1, at(1100)), "its own call is no reason");
        turns.begun.record(2, at(2000));
        assert!(turns.begun.by_others(1, at(2999)));
        assert!(!turns.begun.by_others(1, at(3000)));
        turns.begun.record(1, at(3000));
        turns.begun.record(1, at(4500));
        assert!(turns.begun.by_others(2, at(4600)));
        assert!(!turns.begun.by_others(1, at(4600)), "the other one was long ago");
    }

    #[test]
    fn a_turn_is_free_again_after_its_call() {
        let turns = Arc::new(Turns::new(1));
        let mut first = turns.begin(1, Instant::now());
        assert!(first.next().is_none());
        let mut other = turns.begin(2, Instant::now());
        let mut waits = other.next().unwrap();
        assert!(waits.try_recv().is_err());
        first.give_back();
        assert!(waits.try_recv().is_ok());
        drop(other);
        assert!(turns.begin(3, Instant::now()).next().is_none());
    }
}
