//! What entries of one table have in common, so that each is kept and read once.

use std::{collections::HashSet, sync::Arc};

use super::entry::LabelKeys;
use crate::own_fields::FieldSets;

/// So many sets of label keys are worth a look for those that nobody holds any more.
const LEAST_BOUND: usize = 64;

/// Bytes that most entries take.
const ROOM: usize = 2048;

/// More bytes than most entries take.
const MOST_ROOM: usize = 16 << 10;

/// What entries of one table have in common.
#[derive(Debug)]
pub(super) struct Interned {
    label_keys: HashSet<LabelKeys>,
    /// How many sets of label keys make it worth looking for those that nobody holds any more.
    bound: usize,
    pub(super) field_sets: FieldSets,
    /// Where entries are written before it is known how long they are.
    room: Vec<u8>,
}

// === impl Interned ===

impl Default for Interned {
    fn default() -> Self {
        Self {
            label_keys: HashSet::new(),
            bound: LEAST_BOUND,
            field_sets: FieldSets::default(),
            room: Vec::new(),
        }
    }
}

impl Interned {
    /// The same label keys for all who have these.
    pub(super) fn label_keys(&mut self, keys: Vec<u64>) -> LabelKeys {
        let keys = keys.into_boxed_slice();
        if let Some(held) = self.label_keys.get(&keys) {
            return Arc::clone(held);
        }
        let keys = Arc::new(keys);
        self.label_keys.insert(Arc::clone(&keys));
        keys
    }

    /// Empty room to write an entry in. Given back, it is used again.
    pub(super) fn room(&mut self) -> Vec<u8> {
        let mut room = std::mem::take(&mut self.room);
        room.reserve(ROOM);
        room
    }

    /// Takes room back that is not needed any more.
    pub(super) fn take_back(&mut self, mut room: Vec<u8>) {
        room.clear();
        // That of a large object is not held for all the small ones.
        room.shrink_to(MOST_ROOM);
        self.room = room;
    }

    /// Forgets label keys that no entry has any more.
    pub(super) fn drop_label_keys(&mut self) {
        if self.label_keys.len() > self.bound {
            self.label_keys.retain(|keys| Arc::strong_count(keys) > 1);
            self.bound = (2 * self.label_keys.len()).max(LEAST_BOUND);
        }
    }
}
