//! The output of a guest during one call: lines of the contract's log, and of its standard output
//! and error.

use mortise_core::{
    contract::{
        Level,
        bounds::{LOG_FIELD_NAME, LOG_FIELDS, LOG_MESSAGE, LOG_VALUE, text::cut},
    },
    reconcile::{Line, Source},
};

/// Bytes at the end of standard error that are kept besides the log, for a panic's message.
const TAIL_BYTES: usize = 16 * 1024;

/// The lines of one call, bounded in number and bytes.
#[derive(Debug)]
pub(super) struct Log {
    lines: Vec<Line>,
    dropped: u32,
    lines_left: u32,
    bytes_left: usize,
    output: Vec<u8>,
    error: Vec<u8>,
    tail: Vec<u8>,
}

// === impl Log ===

impl Log {
    pub(super) fn new(lines: u32, bytes: usize) -> Self {
        Self {
            lines: Vec::new(),
            dropped: 0,
            lines_left: lines,
            bytes_left: bytes,
            output: Vec::new(),
            error: Vec::new(),
            tail: Vec::new(),
        }
    }

    /// Adds a line of the contract's log.
    pub(super) fn write(&mut self, level: Level, message: String, fields: Vec<(String, String)>) {
        self.push(Line { level, message, fields, source: Source::Log });
    }

    /// Adds bytes of standard output or error; each line end completes a line.
    pub(super) fn stream(&mut self, source: Source, bytes: &[u8]) {
        if source == Source::Error {
            self.keep_tail(bytes);
        }
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let partial = self.partial(source);
            partial.extend_from_slice(piece.strip_suffix(b"\n").unwrap_or(piece));
            if piece.ends_with(b"\n") || partial.len() >= LOG_MESSAGE {
                self.end_line(source);
            }
        }
    }

    /// Returns the kept lines, and the number of dropped ones.
    pub(super) fn finish(&mut self) -> (Vec<Line>, u32) {
        self.end_line(Source::Output);
        self.end_line(Source::Error);
        (std::mem::take(&mut self.lines), self.dropped)
    }

    /// Returns the end of the guest's standard error.
    pub(super) fn tail(&self) -> String {
        String::from_utf8_lossy(&self.tail).into_owned()
    }

    /// Returns the last line of level error in the contract's log.
    pub(super) fn last_error(&self) -> Option<&Line> {
        let is_error = |line: &&Line| line.source == Source::Log && line.level == Level::Error;
        self.lines.iter().rfind(is_error)
    }

    fn partial(&mut self, source: Source) -> &mut Vec<u8> {
        if source == Source::Error { &mut self.error } else { &mut self.output }
    }

    fn end_line(&mut self, source: Source) {
        let bytes = std::mem::take(self.partial(source));
        if bytes.is_empty() {
            return;
        }
        let level = if source == Source::Error { Level::Warn } else { Level::Info };
        let message = String::from_utf8_lossy(&bytes).into_owned();
        self.push(Line { level, message, fields: Vec::new(), source });
    }

    fn keep_tail(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        if self.tail.len() > 2 * TAIL_BYTES {
            self.tail.drain(..self.tail.len() - TAIL_BYTES);
        }
    }

    fn push(&mut self, mut line: Line) {
        cut(&mut line.message, LOG_MESSAGE);
        if line.fields.len() > LOG_FIELDS {
            line.fields.truncate(LOG_FIELDS);
            line.fields.shrink_to_fit();
        }
        for (name, value) in &mut line.fields {
            cut(name, LOG_FIELD_NAME);
            cut(value, LOG_VALUE);
        }
        let fields: usize = line.fields.iter().map(|(name, value)| name.len() + value.len()).sum();
        let size = line.message.len() + fields;
        if self.lines_left == 0 || size > self.bytes_left {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        self.lines_left -= 1;
        self.bytes_left -= size;
        self.lines.push(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(log: &mut Log) -> Vec<String> {
        log.finish().0.into_iter().map(|line| line.message).collect()
    }

    #[test]
    fn standard_output_is_cut_into_lines() {
        let mut log = Log::new(10, 1000);
        log.stream(Source::Output, b"one\ntw");
        log.stream(Source::Error, b"err");
        log.stream(Source::Output, b"o\n\nlast");
        assert_eq!(messages(&mut log), ["one", "two", "last", "err"]);
    }

    #[test]
    fn lines_over_the_bounds_are_counted() {
        let mut log = Log::new(2, 8);
        log.write(Level::Info, "1234".into(), Vec::new());
        log.write(Level::Info, "12345".into(), Vec::new());
        log.write(Level::Info, "12".into(), vec![("a".into(), "b".into())]);
        log.write(Level::Info, String::new(), Vec::new());
        let (lines, dropped) = log.finish();
        assert_eq!((lines.len(), dropped), (2, 2));
    }

    #[test]
    fn a_line_without_end_takes_no_memory_without_end() {
        let mut log = Log::new(3, 1 << 20);
        for _ in 0..10_000 {
            log.stream(Source::Error, &[b'x'; 100]);
        }
        assert!(log.error.len() <= LOG_MESSAGE + 100);
        assert!(log.tail().len() <= 2 * TAIL_BYTES);
        let (lines, dropped) = log.finish();
        assert_eq!(lines.len(), 3);
        assert!(dropped > 100);
    }

    #[test]
    fn a_line_keeps_no_more_memory_than_it_shows() {
        let mut log = Log::new(3, 4 << 20);
        let fields = vec![(String::new(), "v".repeat(1 << 20)); 1000];
        log.write(Level::Info, "m".repeat(15 << 20), fields);
        let (lines, _) = log.finish();
        let line = &lines[0];
        let texts = line.fields.iter().flat_map(|(name, value)| [name, value]);
        let kept: usize = texts.chain([&line.message]).map(String::capacity).sum();
        assert!(kept <= LOG_FIELDS * (LOG_VALUE + 3) + LOG_MESSAGE + 3, "{kept}");
        assert!(line.fields.capacity() <= LOG_FIELDS, "{}", line.fields.capacity());
    }
}
