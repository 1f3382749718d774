//! The log of the stores' events, which the triggers of all processors read.
//!
//! The log is locked for the time of copying some pointers, never while an event is worked off.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;

use crate::{
    reads::IndexTerm,
    store::{Change, Event, Source, Stores},
};

/// The most events that are kept. A reader that misses one queues its keys again. The first list of
/// a large store fits.
const MAX_EVENTS: usize = 1 << 18;
/// The most bytes of former objects that events keep in memory. Beyond it the oldest events lose
/// their objects.
const MAX_FORMER_BYTES: usize = 128 << 20;

/// The events of the stores, in order, from the oldest that a reader needs. Clones are handles of
/// the same log.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Core>>);

/// A reader's position in the log: the events from there on are kept for it.
#[derive(Debug)]
pub(super) struct Position {
    log: Log,
    at: u64,
}

/// An event in the log.
#[derive(Debug)]
pub(super) struct Logged {
    pub(super) event: Event,
    /// The index terms of the changed object, computed once for all readers.
    terms: OnceLock<Box<[IndexTerm]>>,
}

#[derive(Debug, Default)]
struct Core {
    events: VecDeque<Arc<Logged>>,
    /// The number of the first event that is kept.
    first: u64,
    /// The number of the first event that has not lost its objects.
    whole: u64,
    /// The bytes of the former objects of the events from `whole` on.
    former_bytes: usize,
    /// The number of readers at each position.
    readers: BTreeMap<u64, usize>,
}

// === impl Log ===

impl Log {
    /// Appends the events of the stores. Returns whether there were any.
    pub fn take_from(&self, stores: &Stores) -> bool {
        let mut core = self.0.lock();
        // Under the lock, so that the events stay in the order of the stores.
        let events = stores.take_events();
        let is_news = !events.is_empty();
        if core.readers.is_empty() {
            core.first += events.len() as u64;
            return is_news;
        }
        core.append(events);
        let dropped = core.trim(MAX_EVENTS, MAX_FORMER_BYTES);
        drop(core);
        // Large objects are freed without the lock.
        drop(dropped);
        is_news
    }

    /// Returns a position after the last event.
    pub(super) fn end(&self) -> Position {
        let mut core = self.0.lock();
        let at = core.end();
        core.enter(at);
        Position { log: self.clone(), at }
    }

    /// Returns whether there are events at or after a position.
    pub fn is_past(&self, position: u64) -> bool {
        self.0.lock().end() > position
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().events.len()
    }

    /// Drops all but this many events, and all objects of former versions beyond this many bytes.
    #[cfg(test)]
    pub(super) fn trim(&self, most: usize, most_bytes: usize) {
        self.0.lock().trim(most, most_bytes);
    }
}

// === impl Position ===

impl Position {
    /// Returns the number of the event at the position.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Returns at most this many events from the position on; `None` if some are no longer kept.
    pub(super) fn read(&self, most: usize) -> Option<Vec<Arc<Logged>>> {
        let core = self.log.0.lock();
        let skipped = usize::try_from(self.at.checked_sub(core.first)?).ok()?;
        Some(core.events.iter().skip(skipped).take(most).cloned().collect())
    }

    /// Moves the position to a later event.
    pub(super) fn advance(&mut self, to: u64) {
        let mut core = self.log.0.lock();
        core.enter(to);
        let dropped = core.leave(self.at);
        drop(core);
        drop(dropped);
        self.at = to;
    }
}

impl Drop for Position {
    fn drop(&mut self) {
        let dropped = self.log.0.lock().leave(self.at);
        drop(dropped);
    }
}

// === impl Logged ===

impl Logged {
    fn new(event: Event) -> Self {
        Self { event, terms: OnceLock::new() }
    }

    /// Returns the index terms of the changed object before and after the change, and `Any`,
    /// sorted.
    pub(super) fn terms(&self) -> &[IndexTerm] {
        self.terms.get_or_init(|| {
            let Event::Object(change) = &self.event else { return Box::default() };
            let entries = change.old.iter().chain(&change.new);
            let terms = entries.flat_map(|entry| IndexTerm::all_of(entry));
            // A set, since an object mostly has the same terms before and after the change.
            terms.chain([IndexTerm::Any]).collect::<BTreeSet<_>>().into_iter().collect()
        })
    }

    fn former_bytes(&self) -> usize {
        let change = match &self.event {
            Event::Object(change) => change,
            Event::Claimed(claim) => return claim.bytes(),
            _ => return 0,
        };
        let former = change.old.as_ref().map_or(0, |old| old.bytes());
        // A write holds what was sent, too.
        let sent = change.new.as_ref().filter(|_| matches!(change.source, Source::Write { .. }));
        former + sent.map_or(0, |new| new.bytes())
    }

    /// Returns the event without its objects; see [`Change::has_lost_objects`].
    fn without_objects(&self) -> Self {
        Self::new(match &self.event {
            Event::Object(change) => Event::Object(Change {
                old: None,
                new: None,
                source: Source::Watch,
                kind: Arc::clone(&change.kind),
                ..*change
            }),
            Event::Claimed(claim) => Event::Claimed(claim.without_sent()),
            other => other.clone(),
        })
    }
}

// === impl Core ===

impl Core {
    /// Returns the number of the next event.
    fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    fn append(&mut self, events: Vec<Event>) {
        if self.events.is_empty() {
            self.whole = self.first;
        }
        for event in events {
            let logged = Logged::new(event);
            self.former_bytes += logged.former_bytes();
            self.events.push_back(Arc::new(logged));
        }
    }

    fn enter(&mut self, at: u64) {
        *self.readers.entry(at).or_default() += 1;
    }

    /// Removes a reader. Returns the events that no other reader needs.
    fn leave(&mut self, at: u64) -> Vec<Arc<Logged>> {
        if let Some(count) = self.readers.get_mut(&at) {
            *count -= 1;
            if *count == 0 {
                self.readers.remove(&at);
            }
        }
        let needed = self.readers.keys().next().map_or(self.end(), |needed| *needed);
        self.drop_before(needed)
    }

    fn drop_before(&mut self, needed: u64) -> Vec<Arc<Logged>> {
        let count = needed.min(self.end()).saturating_sub(self.first);
        let dropped: Vec<_> =
            self.events.drain(..usize::try_from(count).unwrap_or_default()).collect();
        let thin = usize::try_from(self.whole.saturating_sub(self.first)).unwrap_or_default();
        let former = dropped.iter().skip(thin).map(|logged| logged.former_bytes());
        self.former_bytes -= former.sum::<usize>();
        self.first += count;
        self.whole = self.whole.max(self.first);
        dropped
    }

    /// Keeps the bounds. Returns the events that are dropped or were replaced.
    fn trim(&mut self, most: usize, most_bytes: usize) -> Vec<Arc<Logged>> {
        let mut dropped = self.drop_before(self.end().saturating_sub(most as u64));
        while self.former_bytes > most_bytes {
            let at = usize::try_from(self.whole - self.first).unwrap_or_default();
            let Some(logged) = self.events.get_mut(at) else { break };
            self.former_bytes -= logged.former_bytes();
            let thin = Arc::new(logged.without_objects());
            dropped.push(std::mem::replace(logged, thin));
            self.whole += 1;
        }
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fixture::{key, kind, list, object, with},
        path::Fields,
        store::{Scope, Wanted},
    };

    /// Returns stores with changes of this many objects, each with a former version.
    fn changed(count: u64) -> Stores {
        let (stores, scope) = (Stores::new(), Scope::default());
        let (fields, matching) = (Fields::whole(), BTreeSet::new());
        stores.open(&kind("Thing"), &scope, &Wanted { fields, matching, written: false });
        for revision in [1, 2] {
            let objects: Vec<_> =
                (0..count).map(|number| object("Thing", &number.to_string(), revision)).collect();
            stores.take_events();
            list(&stores, "Thing", &scope, &objects);
        }
        stores
    }

    fn is_whole(logged: &Arc<Logged>) -> bool {
        matches!(&logged.event, Event::Object(change) if !change.has_lost_objects())
    }

    #[test]
    fn events_are_kept_while_a_reader_needs_them_and_within_the_bounds() {
        let log = Log::default();
        assert!(log.take_from(&changed(3)));
        assert_eq!(log.len(), 0, "nobody needs them");
        let (mut first, second) = (log.end(), log.end());
        log.take_from(&changed(3));
        let count = log.len();
        let events = first.read(usize::MAX).unwrap();
        assert_eq!(events.iter().filter(|event| is_whole(event)).count(), 3);
        first.advance(first.at() + 2);
        assert_eq!(log.len(), count, "the other one needs them");
        drop(second);
        assert_eq!(log.len(), count - 2);
        let bytes = events.iter().map(|event| event.former_bytes()).max().unwrap();
        let third = log.end();
        log.trim(usize::MAX, 0);
        assert_eq!(log.0.lock().former_bytes, 0);
        assert!(first.read(usize::MAX).unwrap().iter().all(|event| !is_whole(event)));
        log.take_from(&changed(2));
        assert!(third.read(1).unwrap().iter().all(is_whole), "later ones");
        log.trim(usize::MAX, bytes);
        assert!(third.read(1).unwrap().iter().all(|event| !is_whole(event)), "the oldest first");
        assert!(third.read(2).unwrap().iter().any(is_whole));
        log.trim(1, usize::MAX);
        assert!(first.read(1).is_none() && third.read(1).is_none());
        drop((first, third));
        assert_eq!((log.len(), log.0.lock().former_bytes), (0, 0));
    }

    #[test]
    fn objects_that_were_sent_count_until_they_are_dropped() {
        let (log, stores) = (Log::default(), changed(1));
        log.take_from(&stores);
        let reader = log.end();
        let sent = with(object("Thing", "0", 2), "data", "x".repeat(10_000).into());
        // The watch has shown the write before.
        stores.wrote(&kind("Thing"), &object("Thing", "0", 2), &key("a"), &Arc::new(sent));
        log.take_from(&stores);
        assert!(log.0.lock().former_bytes > 10_000);
        log.trim(usize::MAX, 0);
        assert_eq!(log.0.lock().former_bytes, 0);
        let claims: Vec<_> = reader.read(usize::MAX).unwrap();
        assert!(claims.iter().all(|logged| logged.former_bytes() == 0) && !claims.is_empty());
    }
}
