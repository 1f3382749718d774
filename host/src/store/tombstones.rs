//! Deleted objects, remembered long enough that a late event cannot bring them back.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// The age at which tombstones expire: no answer to a write and no page of a list comes later than
/// this.
const AGE: Duration = Duration::from_mins(10);
/// The most tombstones; if more objects are deleted within `AGE`, the oldest tombstones go first.
const MOST: usize = 20_000;

/// An object's namespace and name.
type Place = (Box<str>, Box<str>);

/// The tombstones of deleted objects.
#[derive(Debug, Default)]
pub(super) struct Tombstones {
    stones: HashMap<Place, Stone>,
    /// The places in the order of their deletion; a place whose time differs from its stone's is
    /// stale.
    order: VecDeque<(Instant, Place)>,
}

#[derive(Debug)]
struct Stone {
    /// The last version that must not come back; nor must any earlier one.
    revision: u64,
    /// The uid of the deleted object, which does not come back in any version.
    uid: Option<Box<str>>,
    made: Instant,
}

// === impl Tombstones ===

impl Tombstones {
    pub(super) fn add(&mut self, place: Place, revision: u64, uid: Option<Box<str>>, now: Instant) {
        let held = self.stones.remove(&place);
        let revision = held.as_ref().map_or(0, |held| held.revision).max(revision);
        let uid = uid.or_else(|| held.and_then(|held| held.uid));
        self.stones.insert(place.clone(), Stone { revision, uid, made: now });
        self.order.push_back((now, place));
        let is_over = |made: &Instant, count| now.duration_since(*made) > AGE || count > MOST;
        while self.order.front().is_some_and(|(made, _)| is_over(made, self.order.len())) {
            if let Some((made, place)) = self.order.pop_front()
                && self.stones.get(&place).is_some_and(|stone| stone.made == made)
            {
                self.stones.remove(&place);
            }
        }
    }

    /// Takes over the tombstones of `others` for the places that `of` accepts.
    pub(super) fn inherit(&mut self, others: &Self, of: impl Fn(&str, &str) -> bool) {
        for (made, place) in &others.order {
            let stone = others.stones.get(place).filter(|stone| stone.made == *made);
            if let Some(stone) = stone.filter(|_| of(&place.0, &place.1)) {
                self.add(place.clone(), stone.revision, stone.uid.clone(), *made);
            }
        }
    }

    /// Returns whether this version of an object must not come back.
    pub(super) fn bar(
        &self,
        namespace: &str,
        name: &str,
        revision: u64,
        uid: Option<&str>,
    ) -> bool {
        if self.stones.is_empty() {
            return false;
        }
        let stone = self.stones.get(&(namespace.into(), name.into()));
        stone.is_some_and(|stone| {
            let is_past = revision != 0 && revision <= stone.revision;
            is_past || uid.is_some() && stone.uid.as_deref() == uid
        })
    }

    pub(super) fn remove(&mut self, namespace: &str, name: &str) {
        if !self.stones.is_empty() {
            self.stones.remove(&(namespace.into(), name.into()));
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.stones.len()
    }
}
