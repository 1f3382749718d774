//! Tombstones of deleted objects, so that a late event cannot restore them.

use std::collections::HashMap;

use super::place::NamespacedName;

/// The capacity of a generation: more objects than are deleted while a write or a list page is in
/// flight.
const GENERATION_SIZE: usize = 10_000;

/// The tombstones of the latest deletions, in two generations: when one is full, the older one is
/// dropped.
#[derive(Debug, Default)]
pub(super) struct Tombstones {
    recent: HashMap<NamespacedName, Stone>,
    former: HashMap<NamespacedName, Stone>,
}

#[derive(Clone, Debug)]
struct Stone {
    /// The newest version that is rejected, with all earlier ones.
    revision: u64,
    /// The uid of the deleted object: every version with this uid is rejected.
    uid: Option<Box<str>>,
}

// === impl Tombstones ===

impl Tombstones {
    pub(super) fn add(&mut self, place: NamespacedName, revision: u64, uid: Option<Box<str>>) {
        let held = self.get(&place).cloned();
        let revision = held.as_ref().map_or(0, |held| held.revision).max(revision);
        let uid = uid.or_else(|| held.and_then(|held| held.uid));
        if self.recent.len() == GENERATION_SIZE {
            self.former = std::mem::take(&mut self.recent);
        }
        self.recent.insert(place, Stone { revision, uid });
    }

    /// Adds the tombstones of a former table, as older ones, which are dropped first.
    pub(super) fn inherit(&mut self, others: &Self) {
        let own = std::mem::take(self);
        let oldest_first = [&others.former, &others.recent, &own.former, &own.recent];
        for (place, stone) in oldest_first.into_iter().flatten() {
            self.add(place.clone(), stone.revision, stone.uid.clone());
        }
    }

    /// Returns whether a tombstone rejects this version of an object.
    pub(super) fn bar(&self, place: &NamespacedName, revision: u64, uid: Option<&str>) -> bool {
        self.get(place).is_some_and(|stone| {
            let is_past = revision != 0 && revision <= stone.revision;
            is_past || uid.is_some() && stone.uid.as_deref() == uid
        })
    }

    fn get(&self, place: &NamespacedName) -> Option<&Stone> {
        self.recent.get(place).or_else(|| self.former.get(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inherited_tombstones_are_dropped_before_own_ones() {
        let place = |number: usize| NamespacedName::new("a", &number.to_string());
        let (mut former, mut own) = (Tombstones::default(), Tombstones::default());
        for number in 0..2 * GENERATION_SIZE {
            former.add(place(number), 5, None);
        }
        own.add(NamespacedName::new("a", "own"), 6, None);
        own.inherit(&former);
        assert!(own.bar(&NamespacedName::new("a", "own"), 6, None), "the newest is kept");
        assert!(
            own.bar(&place(2 * GENERATION_SIZE - 1), 5, None),
            "so is one of the former's last"
        );
    }

    #[test]
    fn the_oldest_tombstones_are_dropped() {
        let mut stones = Tombstones::default();
        let place = |number: usize| NamespacedName::new("a", &number.to_string());
        for number in 0..=2 * GENERATION_SIZE {
            stones.add(place(number), 5, None);
        }
        assert_eq!(stones.recent.len() + stones.former.len(), GENERATION_SIZE + 1);
        assert!(!stones.bar(&place(0), 5, None) && stones.bar(&place(GENERATION_SIZE), 5, None));
    }
}
