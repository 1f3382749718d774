//! The notes of the keys: in memory only, the oldest dropped when they are too many.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::Key;
use crate::contract::{Note, bounds};

/// The bytes that a note counts beside its text: its key is held twice.
const NOTE_BYTES: usize = 512;

/// The notes of all keys.
#[derive(Debug)]
pub(super) struct Notes {
    held: HashMap<Key, Held>,
    /// The keys by the age of their notes.
    ages: BTreeMap<u64, Key>,
    next_age: u64,
    bytes: usize,
    most_bytes: usize,
}

/// The note of a key.
#[derive(Debug)]
struct Held {
    age: u64,
    /// The module that left the note. Another one may not understand it.
    module: Arc<str>,
    note: Note,
}

// === impl Notes ===

impl Default for Notes {
    fn default() -> Self {
        Self::of_at_most(bounds::NOTES)
    }
}

impl Notes {
    fn of_at_most(most_bytes: usize) -> Self {
        let (held, ages) = (HashMap::new(), BTreeMap::new());
        Self { held, ages, next_age: 0, bytes: 0, most_bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns the note that this module left for a key.
    pub(super) fn get(&self, key: &Key, module: &str) -> Option<Note> {
        let held = self.held.get(key).filter(|held| *held.module == *module)?;
        Some(held.note.clone())
    }

    /// Keeps a note in place of the key's former one; `None` drops that.
    pub(super) fn set(&mut self, key: &Key, module: &Arc<str>, note: Option<Note>) {
        self.forget(key);
        let Some(note) = note else { return };
        let (age, module) = (self.next_age, Arc::clone(module));
        self.next_age += 1;
        self.bytes += note.bytes() + NOTE_BYTES;
        self.ages.insert(age, key.clone());
        self.held.insert(key.clone(), Held { age, module, note });
        while self.bytes > self.most_bytes {
            let Some((_, oldest)) = self.ages.first_key_value() else { break };
            let oldest = oldest.clone();
            self.forget(&oldest);
        }
    }

    pub(super) fn forget(&mut self, key: &Key) {
        let Some(held) = self.held.remove(key) else { return };
        self.ages.remove(&held.age);
        self.bytes -= held.note.bytes() + NOTE_BYTES;
    }

    /// Drops the notes of these keys.
    pub(super) fn forget_all(&mut self, which: impl Fn(&Key) -> bool) {
        let keys: Vec<Key> = self.held.keys().filter(|key| which(key)).cloned().collect();
        for key in &keys {
            self.forget(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::key;

    #[test]
    fn the_oldest_notes_are_dropped() {
        let note = || Some(Note::from("x".repeat(bounds::NOTE)));
        let mut notes = Notes::of_at_most(2 * (bounds::NOTE + NOTE_BYTES));
        let module: Arc<str> = "m".into();
        let held = |notes: &Notes| ["a", "b", "c"].map(|name| notes.get(&key(name), "m").is_some());
        notes.set(&key("a"), &module, note());
        notes.set(&key("b"), &module, note());
        notes.set(&key("a"), &module, note());
        notes.set(&key("c"), &module, note());
        assert_eq!(held(&notes), [true, false, true]);
        notes.set(&key("a"), &module, None);
        assert_eq!(held(&notes), [false, false, true]);
        notes.forget_all(|_| true);
        assert_eq!((notes.bytes, notes.ages.len(), notes.held.len()), (0, 0, 0));
    }

    #[test]
    fn a_note_is_for_the_module_that_left_it() {
        let mut notes = Notes::default();
        notes.set(&key("a"), &"m".into(), Some("secret-of-m".into()));
        assert_eq!(notes.get(&key("a"), "n"), None);
        assert_eq!(notes.get(&key("a"), "m").map(String::from).as_deref(), Some("secret-of-m"));
        assert!(!format!("{notes:?}").contains("secret-of-m"));
    }
}
