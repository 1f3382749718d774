//! Counts the memory that the dependencies of a processor's keys take, and bounds it.
//!
//! The arguments of one run's reads are bounded, but they are kept for each key, and a tenant may
//! have many keys. The dependencies of an ordinary run are not counted.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::queue::Key;

/// The bytes of one key that are not counted: those of a run of fifty reads and writes.
const UNCOUNTED_KEY_BYTES: usize = 16 << 10;
/// The most bytes of all keys of one processor, beyond those that are not counted.
pub(super) const MAX_DEPENDENCY_BYTES: usize = 64 << 20;

/// The counted dependencies of each key of one version of a processor.
#[derive(Debug, Default)]
pub(super) struct Dependencies(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    total: usize,
    /// The counted bytes of each key that has any; `None` if the dependencies of the last run are
    /// not kept.
    by_key: HashMap<Key, Option<usize>>,
}

// === impl Dependencies ===

impl Dependencies {
    /// Counts the bytes of a run's dependencies in place of those of the key's previous run.
    ///
    /// Returns false if they are too many: then the dependencies of the run must not be kept.
    pub(super) fn keep(&self, key: &Key, bytes: usize) -> bool {
        let mut counted = self.0.lock();
        counted.forget(key);
        let more = bytes.saturating_sub(UNCOUNTED_KEY_BYTES);
        if more == 0 {
            return true;
        }
        let fits = counted.total + more <= MAX_DEPENDENCY_BYTES;
        if fits {
            counted.total += more;
        }
        counted.by_key.insert(key.clone(), fits.then_some(more));
        fits
    }

    /// Forgets a key, whose dependencies are no longer kept.
    pub(super) fn forget(&self, key: &Key) {
        self.0.lock().forget(key);
    }

    /// Returns the number of keys whose dependencies are not kept because they would be too many.
    pub(super) fn refused(&self) -> usize {
        self.0.lock().by_key.values().filter(|kept| kept.is_none()).count()
    }
}

// === impl Counted ===

impl Counted {
    fn forget(&mut self, key: &Key) {
        if let Some(Some(bytes)) = self.by_key.remove(key) {
            self.total -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new(&"a/p".into(), &"rules".into(), None, name)
    }

    #[test]
    fn the_total_dependencies_of_all_keys_are_bounded() {
        let (dependencies, half) =
            (Dependencies::default(), UNCOUNTED_KEY_BYTES + MAX_DEPENDENCY_BYTES / 2);
        for number in 0..10_000 {
            assert!(
                dependencies.keep(&key(&number.to_string()), UNCOUNTED_KEY_BYTES),
                "usual runs"
            );
        }
        assert!(dependencies.keep(&key("a"), half) && dependencies.keep(&key("b"), half));
        assert!(!dependencies.keep(&key("c"), UNCOUNTED_KEY_BYTES + 1));
        assert!(dependencies.keep(&key("a"), half), "in place of its own former ones");
        assert_eq!(dependencies.refused(), 1);
        dependencies.forget(&key("b"));
        assert!(dependencies.keep(&key("c"), half));
        assert_eq!(dependencies.refused(), 0);
        for name in ["a", "c"] {
            dependencies.forget(&key(name));
        }
        assert_eq!(dependencies.0.lock().total, 0);
    }
}
