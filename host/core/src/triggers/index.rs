//! The index of the keys that depend on one kind, by the index terms of objects.

use std::collections::BTreeSet;

use crate::{queue::Key, reads::IndexTerm, store::Change};

/// The keys that depend on one kind, by the index terms of their dependencies.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Sorted keys by index term, in a map with a fast hash: the parts of an index term that users
    /// choose are seeded hashes already. Most index terms have one key; some have all.
    keys: foldhash::HashMap<IndexTerm, Vec<Key>>,
}

// === impl Index ===

impl Index {
    pub(super) fn insert(&mut self, index_term: IndexTerm, key: &Key) {
        let keys = self.keys.entry(index_term).or_insert_with(|| Vec::with_capacity(1));
        if let Err(at) = keys.binary_search(key) {
            keys.insert(at, key.clone());
        }
    }

    pub(super) fn remove(&mut self, index_term: IndexTerm, key: &Key) {
        let Some(keys) = self.keys.get_mut(&index_term) else { return };
        if let Ok(at) = keys.binary_search(key) {
            keys.remove(at);
        }
        if keys.is_empty() {
            self.keys.remove(&index_term);
        }
    }

    /// Returns the keys that a change may affect, each with the index term of the dependency. A
    /// key may come with several index terms. The cost grows with the number of these keys.
    pub(super) fn candidates(&self, change: &Change) -> impl Iterator<Item = (IndexTerm, &Key)> {
        let entries = change.old.iter().chain(&change.new);
        let index_terms =
            entries.flat_map(|entry| IndexTerm::all_of(entry)).chain([IndexTerm::Any]);
        // A set, since an object mostly has the same index terms before and after the change.
        let index_terms: BTreeSet<IndexTerm> = index_terms.collect();
        let keys = move |index_term| {
            let keys = self.keys.get(&index_term).into_iter().flatten();
            keys.map(move |key| (index_term, key))
        };
        index_terms.into_iter().flat_map(keys)
    }

    /// Returns all keys. A key comes once for each index term.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.keys.values().flatten()
    }
}
