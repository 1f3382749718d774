//! Escapes and truncates untrusted texts for a line of the log.

use std::fmt;

use mortise_core::contract::bounds::text::{escape, is_unsafe};

/// The maximum length of one value in a line, in bytes as written: the same as a guest's longest
/// message.
const MAX_VALUE_BYTES: usize = 16 * 1024;
/// The maximum length of all values of a line together.
pub(super) const MAX_LINE_BYTES: usize = 32 * 1024;

/// The bytes left in a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room(usize);

/// Writes a value, escaped and truncated to the room left.
pub(super) struct Bounded<'a, W> {
    to: W,
    line: &'a mut Room,
    value: usize,
    form: Form,
    is_cut: bool,
}

/// The treatment of unsafe characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Unsafe characters are escaped here.
    Text,
    /// Unsafe characters are escaped later by the JSON writer; their escaped length is counted
    /// here.
    Json,
}

// === impl Room ===

impl Room {
    pub(super) fn of_line() -> Self {
        Self(MAX_LINE_BYTES)
    }
}

// === impl Bounded ===

impl<'a, W: fmt::Write> Bounded<'a, W> {
    pub(super) fn new(to: W, line: &'a mut Room, form: Form) -> Self {
        Self { to, line, value: MAX_VALUE_BYTES, form, is_cut: false }
    }

    fn put(&mut self, character: char) -> fmt::Result {
        let size = self.size(character);
        if size > self.value.min(self.line.0) {
            self.is_cut = true;
            return self.to.write_char('…');
        }
        self.value -= size;
        self.line.0 -= size;
        if self.form == Form::Text && is_unsafe(character) {
            return escape(character).try_for_each(|escaped| self.to.write_char(escaped));
        }
        self.to.write_char(character)
    }

    fn size(&self, character: char) -> usize {
        match (self.form, character) {
            (Form::Text, of) if is_unsafe(of) => escape(of).count(),
            // `\u001b`, or two of them
            (Form::Json, of) if is_unsafe(of) => 6 * of.len_utf16(),
            (Form::Json, '"' | '\\') => 2,
            (_, of) => of.len_utf8(),
        }
    }
}

impl<W: fmt::Write> fmt::Write for Bounded<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            if self.is_cut {
                break;
            }
            self.put(character)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn values_and_lines_are_cut() {
        let (mut to, mut room) = (String::new(), Room::of_line());
        for _ in 0..4 {
            Bounded::new(&mut to, &mut room, Form::Text).write_str(&"é".repeat(1 << 20)).unwrap();
        }
        let expected = format!("{0}…{0}………", "é".repeat(MAX_VALUE_BYTES / 2));
        assert!(to == expected, "{}", to.len());
        let (mut to, mut room) = (String::new(), Room::of_line());
        Bounded::new(&mut to, &mut room, Form::Json).write_str(&"\u{1b}".repeat(1 << 20)).unwrap();
        assert!(serde_json::to_string(&to).unwrap().len() < MAX_VALUE_BYTES + 8);
    }
}
