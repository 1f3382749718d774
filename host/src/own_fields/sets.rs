//! Sets of fields that were left as text. Objects of one kind that one manager writes have mostly
//! the same set, so each set is parsed once.

use std::{collections::HashMap, sync::Arc};

use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use super::{digest, digest_in};
use crate::{json::Json, path::Part};

/// The most sets that are remembered: more than the managers of a kind's objects have in common.
const REMEMBERED: usize = 64;
/// The most bytes of a text that is remembered. A longer one is that of an object with much in it,
/// which no other object has. Parsed, a set takes several times as many bytes.
const LONGEST: usize = 16 << 10;
/// The most bytes of the buffer that are kept: more than are written of most objects.
const MOST_ROOM: usize = 16 << 10;

/// The sets of fields that were read last.
#[derive(Debug, Default)]
pub(crate) struct FieldSets {
    sets: HashMap<u64, Arc<FieldSet>>,
    /// The buffer in which fields are written to compute their digest; empty in between.
    room: Vec<u8>,
}

/// A set of fields (`FieldsV1`).
#[derive(Debug)]
pub(super) struct FieldSet {
    text: Box<str>,
    pub(super) fields: Value,
    pub(super) digest: u128,
}

// === impl FieldSets ===

impl FieldSets {
    /// Parses a text, or returns its set if it was parsed before.
    pub(super) fn read(&mut self, text: &str) -> Arc<FieldSet> {
        let key = xxh3_64(text.as_bytes());
        if let Some(held) = self.sets.get(&key).filter(|held| *held.text == *text) {
            return Arc::clone(held);
        }
        let set = Arc::new(FieldSet::new(text));
        if text.len() <= LONGEST {
            if self.sets.len() >= REMEMBERED {
                self.sets.clear();
            }
            self.sets.insert(key, Arc::clone(&set));
        }
        set
    }

    /// Computes the digest of a part of an object.
    pub(super) fn digest_of<'a>(&mut self, part: &Part<'_, impl Json<'a>>) -> u128 {
        let digest = digest_in(&mut self.room, part);
        self.room.clear();
        // The memory that a large object has taken is not held for all the small ones.
        self.room.shrink_to(MOST_ROOM);
        digest
    }
}

#[cfg(test)]
impl FieldSets {
    pub(crate) fn len(&self) -> usize {
        self.sets.len()
    }
}

// === impl FieldSet ===

impl FieldSet {
    fn new(text: &str) -> Self {
        // A text that is not JSON is no set of fields: nothing is owned by it.
        let fields = serde_json::from_str(text).unwrap_or_default();
        Self { text: text.into(), digest: digest(&fields), fields }
    }
}
