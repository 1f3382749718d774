//! The size of the requests by which kube-apiserver writes custom resources into etcd, and etcd's
//! limits. Built-in kinds are written as protobuf: their sizes are not known here.

use serde_json::Value;

use super::json_text;
use crate::{Failure, field_error::go_json};

/// The limit of etcd's client, in bytes.
const MAX_SENT_BYTES: usize = 2 * 1024 * 1024;
/// The limit of etcd, in bytes, for a request with its header.
const MAX_REQUEST_BYTES: usize = 1536 * 1024;
/// The size of the header that etcd adds to a request.
const HEADER_BYTES: usize = 18;
/// A size up to which no object is too large: escapes make a text at most six times longer.
const SAFE_BYTES: usize = MAX_REQUEST_BYTES / 8;

/// Fails if etcd would refuse a stored object with this key; `before` is the revision of the object
/// that it replaces, if any.
pub(crate) fn check(stored: &Value, key: &str, before: Option<u64>) -> Result<(), Failure> {
    if json_text(stored).len() <= SAFE_BYTES {
        return Ok(());
    }
    let mut stored = stored.clone();
    if let Some(metadata) = stored.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
    // The JSON text ends with a line break.
    let sent = request_bytes(key.len(), go_json(&stored).len() + 1, before);
    if sent > MAX_SENT_BYTES {
        return Err(Failure::unclassified(format!(
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max ({sent} vs. {MAX_SENT_BYTES})"
        )));
    }
    if sent + HEADER_BYTES > MAX_REQUEST_BYTES {
        return Err(Failure::unclassified("etcdserver: request is too large"));
    }
    Ok(())
}

/// Returns the size of the transaction, in protobuf: if the revision is `before`, put the value,
/// else get the present one.
fn request_bytes(key: usize, value: usize, before: Option<u64>) -> usize {
    let compare = 2 + field(key) + 1 + varint(before.unwrap_or(0));
    let put = field(field(key) + field(value));
    let get = before.map_or(0, |_| field(field(field(key))));
    field(compare) + field(put) + get
}

/// Returns the size of a field with a content of some bytes: tag, length and content.
fn field(length: usize) -> usize {
    1 + varint(length as u64) + length
}

fn varint(number: u64) -> usize {
    let bits = u64::BITS - number.leading_zeros();
    bits.div_ceil(7).max(1) as usize
}
