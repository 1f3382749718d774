//! The record file as bytes: a header line that names format and version, then a frame for each
//! record. No I/O.
//!
//! A frame is a mark, the length of its content, a digest of its content, and its content: the key,
//! then the record, which is empty if nothing is known of the key any more. Both are encoded with
//! postcard; of several frames of one key the last one counts. A frame with the wrong digest is not
//! read, nor one without an end; reading continues at the next mark.

use bytes::Bytes;
use serde::Serialize;
use tracing::warn;
use xxhash_rust::xxh3::xxh3_64;

use super::Read;
use crate::{
    queue::Key,
    record::{Record, Unwritten},
};

/// The first line of the file: the number of this format, and the version of mortise. An encoded
/// record has no field names, so any change of the type [`Record`] needs another format number.
pub(super) const HEADER: &str = concat!("mortise records 3 ", env!("CARGO_PKG_VERSION"), "\n");
/// The first bytes of a frame, with which no text begins.
const MARK: [u8; 4] = [0xf5, b'r', b'e', b'c'];

/// Encodes the frames of these records.
pub(super) fn frames(unwritten: &[Unwritten]) -> Vec<u8> {
    let mut frames = Vec::new();
    for one in unwritten {
        match one {
            Unwritten::Record(key, record) => push(&mut frames, key, &bytes(&**record)),
            Unwritten::Former(key, record) => push(&mut frames, key, record),
            Unwritten::Nothing(key) => push(&mut frames, key, &[]),
        }
    }
    frames
}

fn push(frames: &mut Vec<u8>, key: &Key, record: &[u8]) {
    frame(frames, &[&bytes(key), record].concat());
}

/// Appends a frame with this content.
pub(super) fn frame(frames: &mut Vec<u8>, rest: &[u8]) {
    let length =
        u32::try_from(rest.len()).expect("a record has some kilobytes, not four gigabytes");
    frames.extend(MARK);
    frames.extend(length.to_le_bytes());
    frames.extend(xxh3_64(rest).to_le_bytes());
    frames.extend(rest);
}

/// Encodes a key or record.
pub(super) fn bytes(of: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(of).expect("keys and records are texts and numbers")
}

/// Reads the records of a file.
pub(super) fn read(file: &Bytes) -> Read {
    let mut read = Read::default();
    let Some(mut rest) = file.strip_prefix(HEADER.as_bytes()) else {
        // The file is of another version, or not even its header is whole: its records are not
        // used.
        return read;
    };
    while !rest.is_empty() {
        if let Some((key, record, next)) = one(rest) {
            if record.is_empty() {
                read.records.remove(&key);
            } else {
                read.records.insert(key, file.slice_ref(record));
            }
            rest = next;
        } else {
            read.damaged += 1;
            let next = rest.windows(MARK.len()).skip(1).position(|bytes| *bytes == MARK);
            rest = next.and_then(|next| rest.get(next + 1..)).unwrap_or_default();
        }
    }
    read
}

/// Returns the key and record of the whole frame at the start, and the bytes after it.
fn one(from: &[u8]) -> Option<(Key, &[u8], &[u8])> {
    let from = from.strip_prefix(&MARK)?;
    let (length, from) = from.split_first_chunk()?;
    let (digest, from) = from.split_first_chunk()?;
    let (rest, next) = from.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    if xxh3_64(rest) != u64::from_le_bytes(*digest) {
        return None;
    }
    let (key, record) = postcard::take_from_bytes(rest).ok()?;
    Some((key, record, next))
}

/// Decodes the record of a key; `None` if the bytes are not a record, or are that of another key.
pub(crate) fn record(key: &Key, bytes: &[u8]) -> Option<Record> {
    match postcard::take_from_bytes::<Record>(bytes) {
        Ok((record, [])) if record.key == *key => Some(record),
        Ok((record, _)) if record.key != *key => {
            warn!(%key, of = %record.key, "a record of another key: it is not used");
            None
        }
        Ok(_) => {
            warn!(%key, "a record that is longer than its end: it is not used");
            None
        }
        Err(error) => {
            warn!(%key, %error, "a record that is none: it is not used");
            None
        }
    }
}
