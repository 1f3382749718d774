//! A map by key, grouped by processor to find the values of one processor without a scan.

use std::sync::Arc;

use foldhash::HashMap;

use super::Key;

/// The value of each key, by processor.
///
/// The maps have a fast hash with a seed, since users choose the names.
#[derive(Debug)]
pub struct ByProcessor<T>(HashMap<Arc<str>, HashMap<Key, T>>);

// === impl ByProcessor ===

impl<T> Default for ByProcessor<T> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<T: Default> ByProcessor<T> {
    pub fn get_or_default(&mut self, key: &Key) -> &mut T {
        let of_processor = self.0.entry(Arc::clone(key.processor())).or_default();
        of_processor.entry(key.clone()).or_default()
    }
}

impl<T> ByProcessor<T> {
    pub fn get(&self, key: &Key) -> Option<&T> {
        self.0.get(key.processor())?.get(key)
    }

    pub fn get_mut(&mut self, key: &Key) -> Option<&mut T> {
        self.0.get_mut(key.processor())?.get_mut(key)
    }

    pub fn insert(&mut self, key: Key, value: T) {
        self.0.entry(Arc::clone(key.processor())).or_default().insert(key, value);
    }

    pub fn remove(&mut self, key: &Key) {
        if let Some(of_processor) = self.0.get_mut(key.processor()) {
            of_processor.remove(key);
        }
        self.drop_if_empty(key.processor());
    }

    /// Keeps the values of a processor for which `keeps` returns true.
    pub fn retain(&mut self, processor: &str, keeps: impl FnMut(&Key, &mut T) -> bool) {
        if let Some(of_processor) = self.0.get_mut(processor) {
            of_processor.retain(keeps);
        }
        self.drop_if_empty(processor);
    }

    /// Returns all values, in any order.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &T)> {
        self.0.values().flatten()
    }

    /// Returns the values of a processor, in any order.
    pub fn of(&self, processor: &str) -> impl Iterator<Item = (&Key, &T)> {
        self.0.get(processor).into_iter().flatten()
    }

    /// Returns the processors of all values.
    pub fn processors(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.keys()
    }

    fn drop_if_empty(&mut self, processor: &str) {
        if self.0.get(processor).is_some_and(HashMap::is_empty) {
            self.0.remove(processor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(processor: &str, name: &str) -> Key {
        Key::new(&processor.into(), &"r".into(), None, name)
    }

    fn of<'a>(values: &ByProcessor<&'a str>, processor: &str) -> Vec<(Key, &'a str)> {
        let mut of: Vec<_> =
            values.of(processor).map(|(key, value)| (key.clone(), *value)).collect();
        of.sort();
        of
    }

    #[test]
    fn the_values_of_a_processor_are_found_without_those_of_others() {
        let mut values = ByProcessor::default();
        for (processor, name) in [("p", "a"), ("p", "b"), ("q", "a")] {
            *values.get_or_default(&key(processor, name)) = name;
        }
        assert_eq!(of(&values, "p"), [(key("p", "a"), "a"), (key("p", "b"), "b")]);
        assert_eq!(of(&values, "q"), [(key("q", "a"), "a")]);
        assert_eq!(of(&values, "none"), []);
        assert_eq!(values.iter().count(), 3);
        values.insert(key("q", "a"), "other");
        assert_eq!(values.get(&key("q", "a")), Some(&"other"));
        assert_eq!(values.get_mut(&key("q", "b")), None);
        values.retain("p", |key, _| key.name() == "b");
        values.remove(&key("q", "a"));
        assert_eq!((of(&values, "p").len(), of(&values, "q").len()), (1, 0));
        values.retain("p", |_, _| false);
        assert_eq!(values.processors().count(), 0, "nothing is left of a processor without keys");
    }
}
