//! The layout of an entry's data: see [`Entry`](super::Entry).

use super::Named;
use crate::{json::Json, path::Part};

/// Indexes into `starts` and `lengths`, by which an entry finds values in its data without parsing.
pub(super) const NAMESPACE: usize = 0;
pub(super) const NAME: usize = 1;
pub(super) const UID: usize = 2;
/// A JSON list of texts.
pub(super) const FINALIZERS: usize = 3;

/// Writes an entry's data.
#[derive(Default)]
pub(super) struct Layout {
    /// Terms and texts, then the JSON.
    pub(super) data: Vec<u8>,
    pub(super) json_at: usize,
    pub(super) status_end: u32,
    pub(super) counted_end: u32,
    pub(super) starts: [u32; 4],
    pub(super) lengths: [u32; 4],
}

// === impl Layout ===

impl Layout {
    /// Writes the terms of an object into an empty buffer, then namespace, name and uid where the
    /// JSON will hold them only in an escaped form.
    pub(super) fn new<'a, J: Json<'a>>(
        mut data: Vec<u8>,
        terms: &[u64],
        named: &Named<'a, J>,
    ) -> Self {
        data.extend(terms.iter().flat_map(|term| term.to_ne_bytes()));
        let mut layout = Self::default();
        for (which, text) in [(NAMESPACE, named.namespace), (NAME, named.name), (UID, named.uid)] {
            if text.contains(['"', '\\']) || text.contains(char::is_control) {
                layout.mark(which, data.len(), text.len());
                data.extend_from_slice(text.as_bytes());
            }
        }
        layout.json_at = data.len();
        layout.data = data;
        layout
    }

    fn mark(&mut self, which: usize, start: usize, length: usize) {
        if let (Some(held_start), Some(held)) =
            (self.starts.get_mut(which), self.lengths.get_mut(which))
        {
            *held_start = u32::try_from(start).unwrap_or(u32::MAX);
            *held = u32::try_from(length).unwrap_or(u32::MAX);
        }
    }

    /// Returns the length of the JSON so far.
    fn written(&self) -> Option<u32> {
        u32::try_from(self.data.len() - self.json_at).ok()
    }

    /// Writes the JSON; `None` if the object is too large.
    pub(super) fn write<'a>(&mut self, object: &Part<'_, impl Json<'a>>) -> Option<()> {
        self.data.push(b'{');
        let find = |wanted: &str| {
            object.entries().iter().find(|(key, _)| *key == wanted).map(|(_, part)| part)
        };
        if let Some(status) = find("status") {
            self.entry("status", status)?;
            self.data.push(b',');
        }
        self.status_end = self.written()?;
        for (key, part) in
            object.entries().iter().filter(|(key, _)| !matches!(*key, "status" | "metadata"))
        {
            self.entry(key, part)?;
            self.data.push(b',');
        }
        self.data.extend_from_slice(b"\"metadata\":{");
        self.metadata(find("metadata").map_or(&[], Part::entries))?;
        self.data.extend_from_slice(b"}}");
        self.written().map(|_| ())
    }

    fn metadata<'a, J: Json<'a>>(&mut self, entries: &[(&str, Part<'_, J>)]) -> Option<()> {
        let round = |key: &str| match key {
            "generation" => 1,
            "resourceVersion" => 2,
            _ => 0,
        };
        let mut is_first = true;
        for now in 0..=2 {
            for (key, part) in entries.iter().filter(|(key, _)| round(key) == now) {
                if !std::mem::take(&mut is_first) {
                    self.data.push(b',');
                }
                let start = self.data.len() + key.len() + "\"\":".len();
                self.entry(key, part)?;
                self.mark_place(key, part, start);
            }
            if now == 0 {
                self.counted_end = self.written()?;
            }
        }
        Some(())
    }

    fn entry<'a>(&mut self, key: &str, part: &Part<'_, impl Json<'a>>) -> Option<()> {
        serde_json::to_writer(&mut self.data, key).ok()?;
        self.data.push(b':');
        serde_json::to_writer(&mut self.data, part).ok()
    }

    /// Remembers where a name, namespace or uid was just written, or the list of finalizers that
    /// begins at `start`.
    fn mark_place<'a>(&mut self, key: &str, part: &Part<'_, impl Json<'a>>, start: usize) {
        let which = match key {
            "namespace" => NAMESPACE,
            "name" => NAME,
            "uid" => UID,
            "finalizers" => return self.mark(FINALIZERS, start, self.data.len() - start),
            _ => return,
        };
        if let Part::Whole(value) = part
            && let Some(text) = value.text()
            && self.lengths.get(which) == Some(&0)
        {
            self.mark(which, self.data.len().saturating_sub(text.len() + 1), text.len());
        }
    }
}
