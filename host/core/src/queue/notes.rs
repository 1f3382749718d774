//! The notes of the keys: in memory only, some dropped when they are too many.

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
    /// By namespace of the Processor. Of too many, the oldest one of the namespace with most is
    /// dropped.
    of: HashMap<Box<str>, OfNamespace>,
    next_age: u64,
    bytes: usize,
    most_bytes: usize,
}

/// The notes of the keys of one namespace's processors.
#[derive(Debug, Default)]
struct OfNamespace {
    /// The keys by the age of their notes.
    ages: BTreeMap<u64, Key>,
    bytes: usize,
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
        let (held, of) = (HashMap::new(), HashMap::new());
        Self { held, of, next_age: 0, bytes: 0, most_bytes }
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
        let bytes = note.bytes() + NOTE_BYTES;
        self.bytes += bytes;
        let of = self.of.entry(key.tenant().into()).or_default();
        of.bytes += bytes;
        of.ages.insert(age, key.clone());
        self.held.insert(key.clone(), Held { age, module, note });
        while self.bytes > self.most_bytes {
            let most = self.of.values().max_by_key(|of| of.bytes);
            let oldest = most.and_then(|of| of.ages.first_key_value());
            let Some(oldest) = oldest.map(|(_, key)| key.clone()) else { break };
            self.forget(&oldest);
        }
    }

    pub(super) fn forget(&mut self, key: &Key) {
        let Some(held) = self.held.remove(key) else { return };
        let bytes = held.note.bytes() + NOTE_BYTES;
        self.bytes -= bytes;
        let Some(of) = self.of.get_mut(key.tenant()) else { return };
        of.ages.remove(&held.age);
        of.bytes -= bytes;
        if of.ages.is_empty() {
            self.of.remove(key.tenant());
        }
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
        assert_eq!((notes.bytes, notes.of.len(), notes.held.len()), (0, 0, 0));
    }

    #[test]
    fn a_namespace_with_many_notes_drops_none_of_others() {
        let mut notes = Notes::of_at_most(8 * (1 + NOTE_BYTES));
        let key = |of: &str, name: usize| {
            Key::new(&format!("{of}/p").into(), &"r".into(), None, &name.to_string())
        };
        let module: Arc<str> = "m".into();
        for name in 0..3 {
            notes.set(&key("good", name), &module, Some("x".into()));
        }
        for name in 0..100 {
            notes.set(&key("evil", name), &module, Some("x".into()));
        }
        let held = |of: &str| -> Vec<usize> {
            (0..100).filter(|name| notes.get(&key(of, *name), "m").is_some()).collect()
        };
        assert_eq!((held("good"), held("evil")), (vec![0, 1, 2], vec![95, 96, 97, 98, 99]));
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
