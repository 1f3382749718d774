//! The lines of events: written once, and shared by all watches.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::Mutex;

/// The size of the cached lines, in bytes. A watch that is further behind writes its lines itself.
const MAX_CACHED_LINES_BYTES: usize = 4 * 1024 * 1024;

/// The revision of an event, its type, and the version in which the object is shown.
type Key = (u64, &'static str, String);

/// The cache of the last lines.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    lines: BTreeMap<Key, Bytes>,
    size: usize,
}

// === impl Lines ===

impl Lines {
    /// Returns the line of an event; `object` writes the object if the line is not cached.
    pub(super) fn of(
        &self,
        (revision, kind, api_version): (u64, &'static str, String),
        object: impl FnOnce(&mut Vec<u8>),
    ) -> Bytes {
        let key = (revision, kind, api_version);
        if let Some(line) = self.0.lock().lines.get(&key) {
            return line.clone();
        }
        let line = line(kind, object);
        self.0.lock().keep(key, line.clone());
        line
    }
}

// === impl Kept ===

impl Kept {
    fn keep(&mut self, key: Key, line: Bytes) {
        self.size += line.len();
        if let Some(same) = self.lines.insert(key, line) {
            self.size -= same.len();
        }
        while self.size > MAX_CACHED_LINES_BYTES
            && let Some((_, oldest)) = self.lines.pop_first()
        {
            self.size -= oldest.len();
        }
    }
}

/// Returns an event as a line of JSON.
pub(super) fn line(kind: &str, object: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut line = Vec::new();
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(kind.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    object(&mut line);
    line.extend_from_slice(b"}\n");
    Bytes::from(line)
}

#[cfg(test)]
mod tests {
    use super::{Lines, MAX_CACHED_LINES_BYTES};

    #[test]
    fn a_line_is_written_once_for_all_watches_of_a_version() {
        let lines = Lines::default();
        let of = |revision, version: &str, text: &'static [u8]| {
            lines.of((revision, "ADDED", version.to_owned()), |line| line.extend_from_slice(text))
        };
        let first = of(1, "v1", b"{}");
        assert_eq!(first, "{\"type\":\"ADDED\",\"object\":{}}\n");
        assert_eq!(of(1, "v1", b"not asked for"), first);
        assert_ne!(of(1, "v2", b"another"), first);
    }

    #[test]
    fn old_lines_are_forgotten() {
        static LARGE: [u8; MAX_CACHED_LINES_BYTES / 3] = [b'1'; MAX_CACHED_LINES_BYTES / 3];
        let lines = Lines::default();
        for revision in 1..=4 {
            lines.of((revision, "ADDED", "v1".to_owned()), |line| line.extend_from_slice(&LARGE));
        }
        let kept = lines.0.lock();
        let revisions: Vec<u64> = kept.lines.keys().map(|(revision, ..)| *revision).collect();
        assert_eq!(revisions, [3, 4]);
        assert_eq!(kept.size, kept.lines.values().map(bytes::Bytes::len).sum::<usize>());
    }
}
