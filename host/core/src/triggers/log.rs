//! The log of the events that arrived during runs.

use std::collections::{BTreeMap, VecDeque};

use crate::store::Event;

/// The most events that are kept during a run; the key of a run that misses one is queued again.
const MAX_EVENTS: usize = 50_000;

/// The events since the oldest run began.
#[derive(Debug, Default)]
pub(super) struct Log {
    events: VecDeque<Event>,
    /// The number of the first event that is kept.
    first: u64,
    /// The number of runs that began at each position.
    runs: BTreeMap<u64, usize>,
}

// === impl Log ===

impl Log {
    /// Begins a run. Returns its position: the run needs all events from there on.
    pub(super) fn begin(&mut self) -> u64 {
        let position = self.first + self.events.len() as u64;
        *self.runs.entry(position).or_default() += 1;
        position
    }

    /// Ends a run that began at this position. Drops the events that no other run needs.
    pub(super) fn end(&mut self, position: u64) {
        if let Some(count) = self.runs.get_mut(&position) {
            *count -= 1;
            if *count == 0 {
                self.runs.remove(&position);
            }
        }
        let needed = self.runs.keys().next().copied();
        match needed {
            None => {
                self.first += self.events.len() as u64;
                self.events.clear();
            }
            Some(needed) => {
                while self.first < needed && self.events.pop_front().is_some() {
                    self.first += 1;
                }
            }
        }
    }

    pub(super) fn push(&mut self, event: &Event) {
        if self.runs.is_empty() {
            self.first += 1;
            return;
        }
        if self.events.len() >= MAX_EVENTS && self.events.pop_front().is_some() {
            self.first += 1;
        }
        self.events.push_back(event.clone());
    }

    /// Returns the events since a run began; `None` if some of them are no longer kept.
    pub(super) fn since(&self, position: u64) -> Option<impl Iterator<Item = &Event>> {
        let skipped = usize::try_from(position.checked_sub(self.first)?).ok()?;
        Some(self.events.iter().skip(skipped))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }
}
