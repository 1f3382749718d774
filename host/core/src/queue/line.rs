//! The line of one priority: its ready keys. Namespaces take turns, and keys whose last run failed
//! come after the others.

use std::collections::BTreeMap;

use super::Key;

/// The number of keys that are given out before a waiting key whose last run failed: such a key is
/// delayed, but never starves.
const FAILING_PERIOD: u32 = 8;

/// The number of namespaces without waiting keys that may be kept.
const MAX_UNUSED_NAMESPACES: usize = 64;

/// The number of a key in the order in which keys became ready.
pub(super) type Ticket = u64;

#[derive(Debug, Default)]
pub(super) struct Line {
    fresh: Turns,
    failing: Turns,
    /// The number of keys that were given out while a key whose last run failed waited.
    before_failing: u32,
}

/// The place of a key in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) failing: bool,
    round: u64,
    ticket: Ticket,
}

/// Keys in rounds: each namespace has at most one key in a round, and a round ends before the next
/// one begins. A namespace with many keys thus delays a key of another namespace by at most one of
/// its own.
#[derive(Debug, Default)]
struct Turns {
    keys: BTreeMap<(u64, Ticket), Key>,
    /// The round of the key that was given out last.
    round: u64,
    /// The last round in which each namespace has a key. A namespace whose last round is over
    /// starts in the current round, and needs no entry.
    last: foldhash::HashMap<Box<str>, u64>,
}

// === impl Line ===

impl Line {
    pub(super) fn push(&mut self, key: Key, failing: bool, ticket: Ticket) -> Position {
        let round = self.turns(failing).push(key, ticket);
        Position { failing, round, ticket }
    }

    pub(super) fn remove(&mut self, place: Position) {
        self.turns(place.failing).remove(place.round, place.ticket);
    }

    /// Returns whether a key can be taken; `may_fail`: also one whose last run failed.
    pub(super) fn has(&self, may_fail: bool) -> bool {
        !self.fresh.keys.is_empty() || (may_fail && !self.failing.keys.is_empty())
    }

    pub(super) fn take(&mut self, may_fail: bool) -> Option<(Key, Position)> {
        let waits = may_fail && !self.failing.keys.is_empty();
        let failing =
            waits && (self.fresh.keys.is_empty() || self.before_failing >= FAILING_PERIOD);
        self.before_failing = if waits && !failing { self.before_failing + 1 } else { 0 };
        let ((round, ticket), key) = self.turns(failing).take()?;
        Some((key, Position { failing, round, ticket }))
    }

    fn turns(&mut self, failing: bool) -> &mut Turns {
        if failing { &mut self.failing } else { &mut self.fresh }
    }
}

// === impl Turns ===

impl Turns {
    fn push(&mut self, key: Key, ticket: Ticket) -> u64 {
        // Cluster-scoped objects take turns as one more namespace.
        let namespace = key.namespace().unwrap_or_default();
        let round = if let Some(last) = self.last.get_mut(namespace) {
            *last = self.round.max(*last + 1);
            *last
        } else {
            self.last.insert(namespace.into(), self.round);
            self.round
        };
        self.keys.insert((round, ticket), key);
        round
    }

    fn take(&mut self) -> Option<((u64, Ticket), Key)> {
        let (at, key) = self.keys.pop_first()?;
        let is_new = at.0 > self.round;
        self.round = at.0;
        self.forget(is_new);
        Some((at, key))
    }

    fn remove(&mut self, round: u64, ticket: Ticket) {
        self.keys.remove(&(round, ticket));
        self.forget(false);
    }

    /// Drops namespaces without waiting keys, at most once per round, so that this costs no more
    /// than adding their keys.
    fn forget(&mut self, is_new_round: bool) {
        if self.keys.is_empty() {
            // There is no order to keep without waiting keys.
            self.last.clear();
        } else if is_new_round && self.last.len() > MAX_UNUSED_NAMESPACES.max(2 * self.keys.len()) {
            let round = self.round;
            self.last.retain(|_, last| *last >= round);
        } else {
            return;
        }
        if self.last.capacity() > MAX_UNUSED_NAMESPACES.max(4 * self.last.len()) {
            self.last.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests;
