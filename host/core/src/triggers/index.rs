//! The index of the keys that depend on one kind, by the index terms of objects.

use crate::{queue::Key, reads::IndexTerm};

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

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the keys that a change of an object with these sorted index terms may affect, each
    /// with the index term of the dependency, in order; only those after a given one. A key may
    /// come with several index terms. The cost grows with the number of these keys.
    pub(super) fn candidates<'a>(
        &'a self,
        of: &'a [IndexTerm],
        after: Option<&(IndexTerm, Key)>,
    ) -> impl Iterator<Item = (IndexTerm, &'a Key)> + use<'a> {
        let (last, before) = after.map_or((None, 0), |(last, key)| {
            let keys = self.keys.get(last).map_or(&[][..], Vec::as_slice);
            (Some(*last), keys.partition_point(|held| held <= key))
        });
        let terms = of.iter().copied().filter(move |term| Some(*term) >= last);
        terms.flat_map(move |term| {
            let keys = self.keys.get(&term).into_iter().flatten();
            let skipped = if Some(term) == last { before } else { 0 };
            keys.skip(skipped).map(move |key| (term, key))
        })
    }

    /// Returns index terms of objects together with those of all texts in the index, sorted: an
    /// object with too many texts at a path does not name those that it has.
    pub(super) fn with_all_texts(&self, of: &[IndexTerm]) -> Box<[IndexTerm]> {
        let texts = self.keys.keys().filter(|of| matches!(of, IndexTerm::Term(_)));
        let mut all: Vec<IndexTerm> = of.iter().chain(texts).copied().collect();
        all.sort_unstable();
        all.dedup();
        all.into()
    }

    /// Returns all keys. A key comes once for each index term.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.keys.values().flatten()
    }
}
