//! The queue's state and rules. Callers pass the time; no waiting and no waking.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, HashMap},
    mem,
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    Again, ByProcessor, Cause, Delayed, Done, Entry, Key, Limits, Priority, ReconcilerId, Run,
    Share, State,
    lane::{Lane, Offer},
    line::{Position, Ticket},
    notes::Notes,
};
use crate::contract::Note;

const FIRST_BACK_OFF: Duration = Duration::from_millis(5);
const MAX_BACK_OFF: Duration = Duration::from_secs(1000);

/// The longest delay of a retry that [`Core::is_settled`] waits for: a failure that is retried so
/// soon, fewer than [`MAX_QUICK_RETRIES`] times in a row, may be transient.
const MAX_QUICK_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_QUICK_RETRIES: u32 = 8;

/// The number of causes that are kept of one run; further causes are counted.
const MAX_CAUSES: usize = 8;

/// The number of timers below which stale ones are not looked for.
const MIN_SWEPT_TIMERS: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Core {
    slots: ByProcessor<Slot>,
    lanes: Vec<Lane>,
    /// The index of the lane that is asked first.
    turn: usize,
    /// The timers, by due time. A timer that does not match its key's slot is stale.
    timers: BinaryHeap<Reverse<(Instant, Key)>>,
    /// The number of timers at which stale ones are removed: each run may leave one, for years.
    sweep_at: usize,
    intervals: HashMap<(Arc<str>, ReconcilerId), Duration>,
    tickets: Ticket,
    notes: Notes,
    ready: usize,
    running: usize,
}

/// The state of one key.
#[derive(Debug, Default)]
struct Slot {
    ready: Option<(Priority, Position)>,
    delay: Option<Delay>,
    running: bool,
    /// The place of the key in its lane before it ran.
    ran_from: Option<(Priority, Position)>,
    /// True if the key was removed while it ran: the result of that run is ignored.
    dropped: bool,
    /// The priority with which the key was added while it ran.
    again: Option<Priority>,
    failures: u32,
    causes: Vec<Cause>,
    more_causes: usize,
    /// The end of the minimum interval since the last run, if it is not over.
    rests_until: Option<Instant>,
}

#[derive(Clone, Debug)]
struct Delay {
    due: Instant,
    cause: Cause,
    priority: Priority,
}

/// The answer to a request for a key.
#[derive(Debug)]
pub(super) enum Next {
    Run(Run),
    /// No key can be given out before this time.
    At(Instant),
    Nothing,
}

// === impl Core ===

impl Core {
    pub(super) fn set_limits(&mut self, processor: &Arc<str>, limits: Limits, now: Instant) {
        match self.lanes.iter_mut().find(|lane| lane.processor == *processor) {
            Some(lane) => lane.set_limits(limits, now),
            None => self.lanes.push(Lane::new(processor, limits, now)),
        }
    }

    pub(super) fn set_min_interval(
        &mut self,
        processor: &Arc<str>,
        reconciler: &ReconcilerId,
        interval: Duration,
    ) {
        self.intervals.insert((Arc::clone(processor), reconciler.clone()), interval);
    }

    pub(super) fn remove_processor(&mut self, processor: &str) {
        self.remove(processor, |_| true);
        let of_processor = self.lanes.iter_mut().filter(|lane| &*lane.processor == processor);
        of_processor.for_each(Lane::leave);
        self.lanes.retain(|lane| !lane.is_over());
        self.intervals.retain(|(of, _), _| &**of != processor);
    }

    pub(super) fn remove_reconciler(&mut self, processor: &str, reconciler: &ReconcilerId) {
        self.remove(processor, |key| key.reconciler() == reconciler);
        self.intervals.retain(|(of, id), _| &**of != processor || id != reconciler);
    }

    pub(super) fn keys_of(&self, processor: &str, reconciler: &ReconcilerId) -> Vec<Key> {
        let of = self.slots.of(processor).filter(|(_, slot)| !slot.dropped);
        let of = of.filter(|(key, _)| key.reconciler() == reconciler);
        of.map(|(key, _)| key.clone()).collect()
    }

    fn remove(&mut self, processor: &str, which: impl Fn(&Key) -> bool) {
        self.notes.forget_all(|key| **key.processor() == *processor && which(key));
        self.slots.retain(processor, |key, slot| {
            if !which(key) {
                return true;
            }
            if let Some((priority, place)) = slot.ready {
                self.ready -= 1;
                if let Some(lane) = lane_of(&mut self.lanes, key) {
                    lane.remove(priority, place);
                }
            }
            let Slot { running, ran_from, .. } = *slot;
            *slot = Slot { running, ran_from, dropped: running, ..Slot::default() };
            running
        });
    }

    pub(super) fn add(&mut self, key: &Key, cause: Cause, priority: Priority, now: Instant) {
        let slot = self.slots.get_or_default(key);
        if slot.running {
            slot.record(cause);
            slot.again = Some(slot.again.map_or(priority, |held| held.min(priority)));
            return;
        }
        if let Some(rest) = slot.rests_until.filter(|rest| *rest > now && slot.ready.is_none()) {
            slot.record(cause);
            return self.delay(key, Delay { due: rest, cause: Cause::Coalesced, priority });
        }
        slot.record(cause);
        self.make_ready(key, priority, now);
    }

    /// Queues a key to run now, and forgets its earlier failures.
    pub(super) fn renew(&mut self, key: &Key, cause: Cause, priority: Priority, now: Instant) {
        if let Some(slot) = self.slots.get_mut(key) {
            slot.failures = 0;
        }
        self.add(key, cause, priority, now);
    }

    pub(super) fn add_at(&mut self, key: &Key, due: Instant, cause: Cause, priority: Priority) {
        self.slots.get_or_default(key);
        self.delay(key, Delay { due, cause, priority });
    }

    /// Gives out a key: round robin over processors, then by priority, then round robin over
    /// namespaces.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        self.fire(now);
        let mut earliest = self.timers.peek().map(|Reverse((due, _))| *due);
        for step in 0..self.lanes.len() {
            let at = (self.turn + step) % self.lanes.len();
            let Some(lane) = self.lanes.get_mut(at) else { continue };
            match lane.take(now) {
                Offer::Key(key) => {
                    self.turn = at + 1;
                    return Next::Run(self.start(key));
                }
                Offer::At(time) => {
                    earliest = Some(earliest.map_or(time, |held: Instant| held.min(time)));
                }
                Offer::Nothing => {}
            }
        }
        earliest.map_or(Next::Nothing, Next::At)
    }

    /// Returns the keys that could be given out if the limits allow, sorted.
    pub(super) fn ready_keys(&self) -> Vec<Key> {
        let ready = self.slots.iter().filter(|(_, slot)| slot.ready.is_some());
        let mut keys: Vec<Key> = ready.map(|(key, _)| key.clone()).collect();
        keys.sort();
        keys
    }

    /// Gives out one key out of turn, regardless of limits, if it is ready.
    pub(super) fn take(&mut self, key: &Key) -> Option<Run> {
        let (priority, place) = self.slots.get(key)?.ready?;
        if let Some(lane) = lane_of(&mut self.lanes, key) {
            lane.remove(priority, place);
            lane.started(place.failing);
        }
        Some(self.start(key.clone()))
    }

    fn start(&mut self, key: Key) -> Run {
        let slot = self.slots.get_or_default(&key);
        let ready = slot.ready.take();
        slot.delay = None;
        slot.running = true;
        slot.ran_from = ready;
        self.ready -= 1;
        self.running += 1;
        let causes = mem::take(&mut slot.causes);
        Run { key, causes, more_causes: mem::take(&mut slot.more_causes), attempt: slot.failures }
    }

    /// Adds to a run the causes since its key was given out, if all of them are changes in the
    /// stores: then the key is not given out again for them.
    pub(super) fn join(&mut self, run: &mut Run) {
        let Some(slot) = self.slots.get_mut(&run.key).filter(|slot| slot.running) else { return };
        let are_changes = !slot.causes.is_empty() && slot.causes.iter().all(Cause::is_in_stores);
        if slot.more_causes > 0 || !are_changes {
            return;
        }
        slot.again = None;
        let room = MAX_CAUSES.saturating_sub(run.causes.len());
        let mut more = mem::take(&mut slot.causes);
        more.retain(|cause| !run.causes.contains(cause));
        run.more_causes += more.len().saturating_sub(room);
        run.causes.extend(more.into_iter().take(room));
    }

    /// Ends a run. Does nothing if the key does not run.
    pub(super) fn done(&mut self, key: &Key, done: Done, now: Instant) {
        let Some(slot) = self.slots.get_mut(key).filter(|slot| slot.running) else { return };
        slot.running = false;
        self.running -= 1;
        let ran_from = slot.ran_from.take();
        if let Some(lane) = lane_of(&mut self.lanes, key) {
            lane.ended(ran_from.is_some_and(|(_, place)| place.failing));
        }
        let interval = self.intervals.get(&(Arc::clone(key.processor()), key.reconciler().clone()));
        let rests_until =
            interval.and_then(|interval| now.checked_add(*interval)).filter(|rest| *rest > now);
        slot.rests_until = rests_until;
        let again = slot.again.take();
        let requeue = if mem::take(&mut slot.dropped) { None } else { slot.end(done) };
        if let Some(rest) = rests_until {
            self.set_timer(rest, key);
        }
        if let Some((after, cause, priority)) = requeue {
            // A due time out of the range of `Instant` never comes.
            if let Some(due) = now.checked_add(after) {
                self.delay(key, Delay { due, cause, priority });
            }
        }
        match (again, self.slots.get(key).and_then(|slot| slot.rests_until)) {
            (Some(priority), Some(rest)) => {
                self.delay(key, Delay { due: rest, cause: Cause::Coalesced, priority });
            }
            (Some(priority), None) => self.make_ready(key, priority, now),
            (None, _) => {}
        }
        if self.slots.get(key).is_some_and(Slot::is_blank) {
            self.slots.remove(key);
        }
        self.lanes.retain(|lane| !lane.is_over());
    }

    pub(super) fn note(&self, key: &Key, module: &str) -> Option<Note> {
        self.notes.get(key, module)
    }

    pub(super) fn has_notes(&self) -> bool {
        !self.notes.is_empty()
    }

    pub(super) fn forget_notes(&mut self) {
        self.notes.forget_all(|_| true);
    }

    pub(super) fn set_note(&mut self, key: &Key, module: &Arc<str>, note: Option<Note>) {
        if self.slots.get(key).is_some_and(|slot| slot.running && !slot.dropped) {
            self.notes.set(key, module, note);
        }
    }

    pub(super) fn delayed(&mut self, now: Instant) -> Vec<Delayed> {
        self.fire(now);
        let mut delayed: Vec<Delayed> = self
            .slots
            .iter()
            .filter(|(_, slot)| slot.ready.is_none() && !slot.running)
            .filter_map(|(key, slot)| Some((key.clone(), slot.delay.clone()?)))
            .map(|(key, delay)| Delayed { key, due_in: delay.due - now, cause: delay.cause })
            .collect();
        delayed.sort_by(|a, b| (a.due_in, &a.key).cmp(&(b.due_in, &b.key)));
        delayed
    }

    pub(super) fn state(&self) -> State {
        let is_delayed = |(_, slot): &(&Key, &Slot)| slot.is_delayed();
        let delayed =
            if self.timers.is_empty() { 0 } else { self.slots.iter().filter(is_delayed).count() };
        State { ready: self.ready, running: self.running, delayed }
    }

    pub(super) fn states(&self) -> Vec<(Arc<str>, State)> {
        let of_lanes = self.lanes.iter().map(|lane| &lane.processor);
        let processors: BTreeSet<&Arc<str>> = of_lanes.chain(self.slots.processors()).collect();
        let state = |processor: &Arc<str>| (Arc::clone(processor), self.share_of(processor).state);
        processors.into_iter().map(state).collect()
    }

    pub(super) fn share_of(&self, processor: &str) -> Share {
        let mut share = Share::default();
        for (_, slot) in self.slots.of(processor) {
            let (is_delayed, failed) = (slot.is_delayed(), slot.failures > 0);
            share.state.ready += usize::from(slot.ready.is_some());
            share.state.running += usize::from(slot.running);
            share.state.delayed += usize::from(is_delayed);
            share.backing_off += usize::from(is_delayed && failed);
            share.failing += usize::from(failed);
        }
        share
    }

    pub(super) fn entries(&self, now: Instant, is_chosen: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let entry = |(key, slot): (&Key, &Slot)| Entry {
            key: key.clone(),
            ready: slot.ready.is_some(),
            running: slot.running,
            due_in: slot.delay.as_ref().map(|delay| delay.due.duration_since(now)),
            failures: slot.failures,
            causes: slot.causes.clone(),
        };
        let mut entries: Vec<Entry> = self.slots.iter().map(entry).filter(is_chosen).collect();
        entries.sort_by(|one, other| one.key.cmp(&other.key));
        entries
    }

    pub(super) fn has_ready(&self) -> bool {
        self.ready > 0
    }

    pub(super) fn is_idle(&self) -> bool {
        self.ready == 0 && self.running == 0
    }

    /// Returns whether the queue is idle, no change waits for a minimum interval, and no quick
    /// retry is pending.
    pub(super) fn is_settled(&self, now: Instant) -> bool {
        let is_soon = |slot: &Slot| {
            slot.delay.as_ref().is_some_and(|delay| {
                let may_mend = (1..MAX_QUICK_RETRIES).contains(&slot.failures)
                    && delay.due.duration_since(now) <= MAX_QUICK_RETRY_DELAY;
                delay.cause == Cause::Coalesced || may_mend
            })
        };
        self.is_idle() && !self.slots.iter().any(|(_, slot)| is_soon(slot))
    }

    pub(super) fn contains(&self, key: &Key) -> bool {
        let held = |slot: &Slot| slot.ready.is_some() || slot.running || slot.delay.is_some();
        self.slots.get(key).is_some_and(held)
    }

    /// Makes the keys ready that are due.
    pub(super) fn fire(&mut self, now: Instant) {
        while let Some(Reverse((due, key))) =
            self.timers.peek().filter(|Reverse((due, _))| *due <= now).cloned()
        {
            self.timers.pop();
            let Some(slot) = self.slots.get_mut(&key) else { continue };
            slot.rests_until.take_if(|rest| *rest <= now);
            let Some(delay) = slot.delay.take_if(|delay| delay.due == due) else {
                if slot.is_blank() {
                    self.slots.remove(&key);
                }
                continue;
            };
            if delay.cause != Cause::Coalesced {
                slot.record(delay.cause);
            }
            if slot.running {
                slot.again =
                    Some(slot.again.map_or(delay.priority, |held| held.min(delay.priority)));
            } else {
                self.make_ready(&key, delay.priority, now);
            }
        }
    }

    fn make_ready(&mut self, key: &Key, priority: Priority, now: Instant) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        let failing = slot.failures > 0;
        let priority = slot.ready.map_or(priority, |(held, _)| held.min(priority));
        if slot.ready.is_some_and(|(held, place)| held == priority && place.failing == failing) {
            return;
        }
        self.tickets += 1;
        let known = self.lanes.iter().position(|lane| lane.processor == *key.processor());
        if known.is_none() {
            let mut lane = Lane::new(key.processor(), Limits::default(), now);
            // The processor was never set, or is removed: the lane is dropped with its last key.
            lane.leave();
            self.lanes.push(lane);
        }
        let at = known.unwrap_or(self.lanes.len() - 1);
        let Some(lane) = self.lanes.get_mut(at) else { return };
        match slot.ready {
            Some((held, place)) => lane.remove(held, place),
            None => self.ready += 1,
        }
        slot.ready = Some((priority, lane.push(key.clone(), priority, failing, self.tickets)));
    }

    fn delay(&mut self, key: &Key, delay: Delay) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        if slot.delay.as_ref().is_none_or(|held| delay.due < held.due) {
            let due = delay.due;
            slot.delay = Some(delay);
            self.set_timer(due, key);
        }
    }

    fn set_timer(&mut self, due: Instant, key: &Key) {
        if self.timers.len() >= self.sweep_at.max(MIN_SWEPT_TIMERS) {
            let is_set = |Reverse((due, key)): &Reverse<(Instant, Key)>| {
                self.slots.get(key).is_some_and(|slot| slot.waits_for(*due))
            };
            self.timers.retain(is_set);
            self.sweep_at = 2 * self.timers.len();
        }
        self.timers.push(Reverse((due, key.clone())));
    }
}

fn lane_of<'a>(lanes: &'a mut [Lane], key: &Key) -> Option<&'a mut Lane> {
    lanes.iter_mut().find(|lane| lane.processor == *key.processor())
}

// === impl Slot ===

impl Slot {
    fn record(&mut self, cause: Cause) {
        if self.causes.contains(&cause) {
            return;
        }
        if self.causes.len() < MAX_CAUSES {
            self.causes.push(cause);
        } else {
            self.more_causes += 1;
        }
    }

    /// Counts the end of a run. Returns the delay, the cause and the priority of the next run, if
    /// any.
    fn end(&mut self, done: Done) -> Option<(Duration, Cause, Priority)> {
        let again = match done {
            Done::Success { requeue } => {
                self.failures = 0;
                return requeue.map(|(after, cause)| {
                    let priority =
                        if cause == Cause::Resync { Priority::Resync } else { Priority::Change };
                    (after, cause, priority)
                });
            }
            Done::Failure(again) => again,
            Done::Cancelled => return Some((Duration::ZERO, Cause::Cancelled, Priority::Change)),
        };
        self.failures = self.failures.saturating_add(1);
        let after = match again {
            Again::BackOff => Some(back_off(self.failures)),
            Again::NotBefore(least) => Some(back_off(self.failures).max(least.min(MAX_BACK_OFF))),
            Again::After(after) => Some(after),
            Again::OnChange => None,
        };
        after.map(|after| (after, Cause::Retry, Priority::Change))
    }

    /// Returns whether the key waits for its time.
    fn is_delayed(&self) -> bool {
        self.delay.is_some() && self.ready.is_none() && !self.running
    }

    /// Returns whether a timer that is due at this time is not stale.
    fn waits_for(&self, due: Instant) -> bool {
        self.rests_until == Some(due) || self.delay.as_ref().is_some_and(|delay| delay.due == due)
    }

    /// Returns whether the slot holds no state, and so can be dropped.
    fn is_blank(&self) -> bool {
        let waits = self.ready.is_some() || self.delay.is_some() || self.running;
        !waits && self.failures == 0 && self.rests_until.is_none()
    }
}

/// Returns the delay after this many failures in a row.
fn back_off(failures: u32) -> Duration {
    let doubled = 2_u32.checked_pow(failures.saturating_sub(1));
    doubled
        .and_then(|times| FIRST_BACK_OFF.checked_mul(times))
        .unwrap_or(MAX_BACK_OFF)
        .min(MAX_BACK_OFF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::key;

    #[test]
    fn runs_that_each_ask_for_a_distant_one_leave_few_timers() {
        let (mut core, now) = (Core::default(), Instant::now());
        for at in 0..10_000_u32 {
            core.add(&key("a"), Cause::Start, Priority::Change, now);
            assert!(matches!(core.next(now), Next::Run(_)));
            let after = Duration::from_hours(8760) + Duration::from_secs(1) * at;
            core.done(&key("a"), Done::Success { requeue: Some((after, Cause::Requeue)) }, now);
        }
        assert!(core.timers.len() <= MIN_SWEPT_TIMERS, "{}", core.timers.len());
        let due = core.delayed(now)[0].due_in;
        assert_eq!(due, Duration::from_hours(8760) + Duration::from_secs(9_999), "the last one");
    }
}
