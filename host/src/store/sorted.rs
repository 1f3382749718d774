//! A sorted set whose clones cost nothing and share all that did not change.
//!
//! The set has three levels: the set, groups of chunks, and chunks of items. A change copies one
//! chunk, one group's list and the set's list, and those only if a clone of the set still holds
//! them. No item is kept beside the chunks (as the separators of a tree would be), so no replaced
//! or removed item stays in memory. Chunks that are filled in order are full.

use std::cmp::Ordering;
use std::sync::Arc;

/// Items per chunk: the number of items that a change copies.
const CHUNK: usize = 64;
/// Chunks per group.
const GROUP: usize = 64;

type Chunk<T> = Arc<Vec<T>>;
type Group<T> = Arc<Vec<Chunk<T>>>;

/// A sorted set. Cloning is O(1).
#[derive(Debug)]
pub(super) struct Sorted<T> {
    /// Neither a group nor a chunk is empty.
    groups: Arc<Vec<Group<T>>>,
    len: usize,
}

/// The place of an item, or the place where it would be.
#[derive(Clone, Copy, Default)]
struct Place {
    group: usize,
    chunk: usize,
    item: usize,
}

// === impl Sorted ===

impl<T> Clone for Sorted<T> {
    fn clone(&self) -> Self {
        Self { groups: Arc::clone(&self.groups), len: self.len }
    }
}

impl<T> Default for Sorted<T> {
    fn default() -> Self {
        Self { groups: Arc::default(), len: 0 }
    }
}

impl<T: Clone> Sorted<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Creates a set of items that are sorted and distinct.
    pub(super) fn of(items: impl IntoIterator<Item = T>) -> Self {
        let mut groups: Vec<Vec<Chunk<T>>> = Vec::new();
        let (mut items, mut len) = (items.into_iter(), 0);
        loop {
            let chunk: Vec<T> = items.by_ref().take(CHUNK).collect();
            if chunk.is_empty() {
                break;
            }
            len += chunk.len();
            match groups.last_mut().filter(|group| group.len() < GROUP) {
                Some(group) => group.push(Arc::new(chunk)),
                None => groups.push(vec![Arc::new(chunk)]),
            }
        }
        Self { groups: Arc::new(groups.into_iter().map(Arc::new).collect()), len }
    }

    /// Returns the item for which `order` returns `Equal`. `order` compares an item with the wanted
    /// one.
    pub(super) fn get(&self, order: impl Fn(&T) -> Ordering) -> Option<&T> {
        let place = self.place(&order);
        self.at(place).filter(|item| order(item).is_eq())
    }

    /// Returns all items from the first one for which `order` does not return `Less`.
    pub(super) fn from(&self, order: impl Fn(&T) -> Ordering) -> impl Iterator<Item = &T> + Clone {
        let place = self.place(&order);
        let mut group = self.groups.get(place.group..).unwrap_or_default().iter();
        let first = group
            .next()
            .map(|group| group.get(place.chunk..).unwrap_or_default())
            .unwrap_or_default();
        let rest = group.flat_map(|group| group.iter());
        first.iter().chain(rest).flat_map(|chunk| chunk.iter()).skip(place.item)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.groups.iter().flat_map(|group| group.iter()).flat_map(|chunk| chunk.iter())
    }

    /// Inserts an item; returns the equal item that it replaced, if any.
    pub(super) fn insert(&mut self, item: T, order: impl Fn(&T) -> Ordering) -> Option<T> {
        let mut place = self.place(&order);
        if self.at(place).is_some_and(|held| order(held).is_eq()) {
            let held = self.chunk_mut(place)?.get_mut(place.item)?;
            return Some(std::mem::replace(held, item));
        }
        self.len += 1;
        // Past the last item, the last chunk takes the new one.
        let is_last = place.group == self.groups.len();
        if is_last {
            place = self.end();
        }
        let groups = Arc::make_mut(&mut self.groups);
        let Some(group) = groups.get_mut(place.group) else {
            groups.push(Arc::new(vec![Arc::new(vec![item])]));
            return None;
        };
        let group = Arc::make_mut(group);
        if let Some(chunk) = group.get_mut(place.chunk) {
            let chunk = Arc::make_mut(chunk);
            chunk.insert(place.item.min(chunk.len()), item);
            if let Some(rest) = split(chunk, CHUNK, is_last) {
                group.insert(place.chunk + 1, Arc::new(rest));
            }
        }
        if let Some(rest) = split(group, GROUP, is_last) {
            groups.insert(place.group + 1, Arc::new(rest));
        }
        None
    }

    /// Removes and returns the item for which `order` returns `Equal`.
    pub(super) fn remove(&mut self, order: impl Fn(&T) -> Ordering) -> Option<T> {
        let place = self.place(&order);
        self.at(place).filter(|item| order(item).is_eq())?;
        self.len -= 1;
        let groups = Arc::make_mut(&mut self.groups);
        let group = Arc::make_mut(groups.get_mut(place.group)?);
        let chunk = Arc::make_mut(group.get_mut(place.chunk)?);
        let item = chunk.remove(place.item);
        if chunk.is_empty() {
            group.remove(place.chunk);
        }
        if group.is_empty() {
            groups.remove(place.group);
        }
        Some(item)
    }

    /// Returns how many bytes the set's lists take, without the data that items point to.
    pub(super) fn bytes(&self) -> usize {
        let list = size_of::<Vec<T>>() + 2 * size_of::<usize>();
        let chunk =
            |chunk: &Chunk<T>| list + size_of::<usize>() + chunk.capacity() * size_of::<T>();
        self.groups.iter().map(|group| list + group.iter().map(chunk).sum::<usize>()).sum()
    }

    fn at(&self, place: Place) -> Option<&T> {
        self.groups.get(place.group)?.get(place.chunk)?.get(place.item)
    }

    fn chunk_mut(&mut self, place: Place) -> Option<&mut Vec<T>> {
        let group = Arc::make_mut(&mut self.groups).get_mut(place.group)?;
        Some(Arc::make_mut(Arc::make_mut(group).get_mut(place.chunk)?))
    }

    /// Returns the place of the first item that is not less; past the end, a group that does not
    /// exist.
    fn place(&self, order: &impl Fn(&T) -> Ordering) -> Place {
        let ends_before = |chunk: &Chunk<T>| chunk.last().is_some_and(|last| order(last).is_lt());
        // Items that come in order go to the end, without a search.
        if self.groups.last().and_then(|group| group.last()).is_none_or(ends_before) {
            return Place { group: self.groups.len(), ..Place::default() };
        }
        let group = self.groups.partition_point(|group| group.last().is_some_and(ends_before));
        let Some(chunks) = self.groups.get(group) else {
            return Place { group, ..Place::default() };
        };
        let chunk = chunks.partition_point(ends_before);
        let item =
            chunks.get(chunk).map_or(0, |items| items.partition_point(|item| order(item).is_lt()));
        Place { group, chunk, item }
    }

    /// Returns the place after the last item, in the last chunk.
    fn end(&self) -> Place {
        let group = self.groups.len().saturating_sub(1);
        let chunks = self.groups.get(group).map_or(0, |group| group.len());
        Place { group, chunk: chunks.saturating_sub(1), item: usize::MAX }
    }
}

/// Splits a list that has grown longer than `most`: in the middle, or, if it grows at its end,
/// before its last item, so that lists filled in order are full.
fn split<T>(list: &mut Vec<T>, most: usize, grows_at_end: bool) -> Option<Vec<T>> {
    let keep = if grows_at_end { most } else { most / 2 };
    (list.len() > most).then(|| {
        let rest = list.split_off(keep);
        list.shrink_to_fit();
        rest
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn it_holds_what_a_tree_set_holds(steps in prop::collection::vec((0..3_u8, 0..2000_u32), 1..3000)) {
            let (mut sorted, mut model) = (Sorted::default(), BTreeSet::new());
            let mut copies = Vec::new();
            for (at, (what, item)) in steps.into_iter().enumerate() {
                if what == 0 {
                    let removed = sorted.remove(|held: &u32| held.cmp(&item));
                    prop_assert_eq!(removed.is_some(), model.remove(&item));
                } else {
                    let replaced = sorted.insert(item, |held| held.cmp(&item));
                    prop_assert_eq!(replaced.is_none(), model.insert(item));
                }
                if at % 500 == 0 {
                    copies.push((sorted.clone(), model.clone()));
                }
                prop_assert_eq!(sorted.get(|held| held.cmp(&item)).is_some(), model.contains(&item));
            }
            copies.push((sorted, model));
            for (sorted, model) in copies {
                prop_assert_eq!(sorted.len(), model.len());
                prop_assert!(sorted.iter().eq(model.iter()));
                prop_assert!(sorted.from(|held| held.cmp(&700)).eq(model.range(700..)));
            }
        }
    }

    #[test]
    fn what_is_made_in_one_go_is_what_comes_of_one_item_after_the_other() {
        for len in [0, 1, 63, 64, 65, 4096, 4097, 10_000_u32] {
            let (made, mut filled) = (Sorted::of(0..len), Sorted::default());
            for item in 0..len {
                filled.insert(item, |held| held.cmp(&item));
            }
            assert!(made.iter().eq(filled.iter()));
            assert_eq!(made.len(), filled.len());
            assert!(made.bytes() <= filled.bytes(), "{len} items");
        }
    }

    #[test]
    fn what_is_filled_in_order_is_full() {
        let mut sorted = Sorted::default();
        for item in 0..100_000_u32 {
            sorted.insert(item, |held| held.cmp(&item));
        }
        assert!(sorted.iter().copied().eq(0..100_000));
        assert!(sorted.bytes() < 100_000 * 6, "{}", sorted.bytes());
    }
}
