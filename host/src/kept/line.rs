//! The file of records, as text: a first line that says who has written it, then a line for each record. Pure.
//!
//! A line is a digest of its rest, the key, and the record, which is empty where nothing is known of the key any more; of several
//! lines of one key the last one counts. Key and record are JSON, which holds neither tabs nor line breaks. A line whose digest is
//! another is not read, and none that has no end.

use std::fmt::Write as _;

use tracing::warn;
use xxhash_rust::xxh3::xxh3_64;

use super::Read;
use crate::{
    queue::Key,
    record::{Record, Unwritten},
};

/// How the file begins: with the number of this format, and the version of mortise.
pub(super) const HEADER: &str = concat!("mortise records 2 ", env!("CARGO_PKG_VERSION"), "\n");
/// The digits of a digest.
const DIGITS: usize = 16;

/// The lines of all of these.
pub(super) fn lines(unwritten: &[Unwritten]) -> String {
    let mut lines = String::new();
    for one in unwritten {
        match one {
            Unwritten::Record(key, record) => {
                let record =
                    serde_json::to_string(&**record).expect("a record is texts and numbers");
                push(&mut lines, key, &record);
            }
            Unwritten::Former(key, record) => push(&mut lines, key, record),
            Unwritten::Nothing(key) => push(&mut lines, key, ""),
        }
    }
    lines
}

fn push(lines: &mut String, key: &Key, record: &str) {
    let key = serde_json::to_string(key).expect("a key is texts");
    let rest = format!("{key}\t{record}");
    // Writing to a text does not fail.
    let _ = writeln!(lines, "{:016x}\t{rest}", xxh3_64(rest.as_bytes()));
}

/// What a file says.
pub(super) fn read(text: &[u8]) -> Read {
    let mut read = Read::default();
    let Some(text) = text.strip_prefix(HEADER.as_bytes()) else {
        // Of another version, or not even that far whole: all of it is past.
        return read;
    };
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_suffix(b"\n").and_then(one) {
            Some((key, "")) => drop(read.records.remove(&key)),
            Some((key, record)) => drop(read.records.insert(key, record.into())),
            None => read.damaged += 1,
        }
    }
    read
}

/// The key and the record of a whole line.
fn one(line: &[u8]) -> Option<(Key, &str)> {
    let line = std::str::from_utf8(line).ok()?;
    let (digest, rest) = line.split_once('\t')?;
    let is_digest =
        digest.len() == DIGITS && digest == format!("{:016x}", xxh3_64(rest.as_bytes()));
    let (key, record) = rest.split_once('\t').filter(|_| is_digest)?;
    Some((serde_json::from_str(key).ok()?, record))
}

/// The record of a key in its written form; none where it is none, or one of another key.
pub(crate) fn record(key: &Key, text: &str) -> Option<Record> {
    match serde_json::from_str::<Record>(text) {
        Ok(record) if record.key == *key => Some(record),
        Ok(record) => {
            warn!(%key, of = %record.key, "a record of another key: it is not used");
            None
        }
        Err(error) => {
            warn!(%key, %error, "a record that is none: it is not used");
            None
        }
    }
}
