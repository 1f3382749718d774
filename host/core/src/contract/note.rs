//! Notes: texts that processors keep for their next calls.

use std::{fmt, sync::Arc};

/// A text that a processor leaves for its next call for an object. It may hold what the processor
/// has read, so nothing prints it: `Debug` shows its length only.
#[derive(Clone, PartialEq, Eq)]
pub struct Note(Arc<str>);

// === impl Note ===

impl Note {
    /// Returns the length of the text in bytes.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }
}

impl From<String> for Note {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<&str> for Note {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<Note> for String {
    fn from(note: Note) -> Self {
        Self::from(&*note.0)
    }
}

impl fmt::Debug for Note {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "note of {} bytes", self.bytes())
    }
}
