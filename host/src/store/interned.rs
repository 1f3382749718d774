//! Parts that the entries of one table share, so that each part is stored and parsed once.

use std::{collections::HashSet, sync::Arc};

use super::entry::LabelKeys;
use crate::own_fields::FieldSets;

/// The smallest number of label key sets above which unused sets are searched for.
const LEAST_BOUND: usize = 64;

/// The initial size of the buffer, in bytes: most entries fit.
const ROOM: usize = 2048;

/// The largest buffer that is kept for reuse, in bytes: more than most entries take.
const MOST_ROOM: usize = 16 << 10;

/// Parts that the entries of one table share.
#[derive(Debug)]
pub(super) struct Interned {
    label_keys: HashSet<LabelKeys>,
    /// The number of label key sets above which unused sets are searched for.
    bound: usize,
    pub(super) field_sets: FieldSets,
    /// The buffer in which entries are written while their length is not yet known.
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
    /// Returns the shared copy of a set of label keys.
    pub(super) fn label_keys(&mut self, keys: Vec<u64>) -> LabelKeys {
        let keys = keys.into_boxed_slice();
        if let Some(held) = self.label_keys.get(&keys) {
            return Arc::clone(held);
        }
        let keys = Arc::new(keys);
        self.label_keys.insert(Arc::clone(&keys));
        keys
    }

    /// Returns an empty buffer to write an entry in, to be given back with [`Interned::take_back`].
    pub(super) fn room(&mut self) -> Vec<u8> {
        let mut room = std::mem::take(&mut self.room);
        room.reserve(ROOM);
        room
    }

    /// Takes a buffer back for reuse.
    pub(super) fn take_back(&mut self, mut room: Vec<u8>) {
        room.clear();
        // The buffer of a large object is not kept for the small ones.
        room.shrink_to(MOST_ROOM);
        self.room = room;
    }

    /// Drops label key sets that no entry uses any more.
    pub(super) fn drop_label_keys(&mut self) {
        if self.label_keys.len() > self.bound {
            self.label_keys.retain(|keys| Arc::strong_count(keys) > 1);
            self.bound = (2 * self.label_keys.len()).max(LEAST_BOUND);
        }
    }
}
