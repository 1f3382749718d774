//! Reads the bodies of requests. What a request holds is one account, which is charged before
//! anything is kept: the bytes of its body, [`ENTRY`] more for each entry of what will be parsed,
//! and its answer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Incoming};
use mortise_core::contract::bounds::{ENTRY, Entries};
use tokio::time::timeout_at;

use super::Refused;

/// A bound on the account of a body.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    bytes: usize,
    /// The depth of the metadata's fields of an object; what is deeper is not parsed.
    parsed_depth: usize,
}

/// A list of some ten thousand objects comes as one review.
pub(super) const CONVERSION: Bound = Bound { bytes: 128 << 20, parsed_depth: 5 };
/// Each of the two objects has at most 3 MiB.
pub(super) const ADMISSION: Bound = Bound { bytes: 8 << 20, parsed_depth: 4 };
/// The maximum of all accounts together, in bytes.
pub(crate) const MAX_HELD_BYTES: usize = 256 << 20;
pub(super) const TOO_MUCH_HELD: &str = "reviews of more than 256 MiB are being answered";

/// The sum of the accounts of all requests.
#[derive(Debug, Default)]
pub(super) struct Held(Arc<AtomicUsize>);

/// The account of one request, released on drop.
#[derive(Debug)]
pub(super) struct Holding {
    held: Arc<AtomicUsize>,
    bytes: usize,
}

// === impl Held ===

impl Held {
    /// Reads a body.
    pub(super) async fn read(
        &self,
        mut body: Incoming,
        Bound { bytes: most, parsed_depth }: Bound,
        ends: Instant,
    ) -> Result<(Bytes, Holding), Refused> {
        let expected = body.size_hint().exact().unwrap_or(most as u64);
        let expected = usize::try_from(expected).ok().filter(|expected| *expected <= most);
        let expected = expected.ok_or_else(|| too_large(most))?;
        let mut holding = Holding { held: Arc::clone(&self.0), bytes: 0 };
        let (mut bytes, mut counted, mut entries) =
            (Vec::new(), Entries::to_depth(parsed_depth), 0);
        loop {
            let Ok(frame) = timeout_at(ends.into(), body.frame()).await else {
                let message = "the body did not come in time".to_owned();
                return Err(Refused::new(StatusCode::REQUEST_TIMEOUT, message));
            };
            let Some(frame) = frame else { return Ok((bytes.into(), holding)) };
            let broken = |error| Refused::bad(format!("the body cannot be read: {error}"));
            let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
            entries += counted.count(&data);
            let length = bytes.len() + data.len();
            if length + ENTRY * entries > most {
                return Err(too_large(most));
            }
            let (former, capacity) = (bytes.capacity(), grown(bytes.capacity(), length, expected));
            // While a buffer grows, it may be there twice.
            let both = if capacity > former { former + capacity } else { capacity };
            holding.set(both + ENTRY * entries)?;
            bytes.reserve_exact(capacity - bytes.len());
            holding.set(capacity + ENTRY * entries)?;
            bytes.extend_from_slice(&data);
        }
    }
}

/// Returns the capacity of a buffer for this length: twice the former one, or what is expected.
fn grown(capacity: usize, length: usize, expected: usize) -> usize {
    if length <= capacity { capacity } else { (2 * capacity).min(expected).max(length) }
}

fn too_large(most: usize) -> Refused {
    let message =
        format!("a review has at most {most} bytes here, where each entry counts {ENTRY} more");
    Refused::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}

// === impl Holding ===

impl Holding {
    /// Charges bytes, such as those of an answer. Returns false, and charges nothing, if all
    /// accounts together would be too large.
    pub(super) fn charge(&mut self, bytes: usize) -> bool {
        let held = self.held.fetch_add(bytes, Ordering::Relaxed);
        if held.saturating_add(bytes) > MAX_HELD_BYTES {
            self.held.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        self.bytes += bytes;
        true
    }

    fn set(&mut self, bytes: usize) -> Result<(), Refused> {
        let less = self.bytes.saturating_sub(bytes);
        self.held.fetch_sub(less, Ordering::Relaxed);
        self.bytes -= less;
        if self.charge(bytes - self.bytes) {
            return Ok(());
        }
        Err(Refused::unavailable(TOO_MUCH_HELD.to_owned()))
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_bounded_together_and_released() {
        let held = Held::default();
        let account = || Holding { held: Arc::clone(&held.0), bytes: 0 };
        let (mut one, mut other) = (account(), account());
        assert!(one.charge(MAX_HELD_BYTES - 10) && other.charge(10) && !other.charge(1));
        drop(one);
        other.set(20).unwrap();
        other.set(10).unwrap();
        assert!(other.charge(MAX_HELD_BYTES - 10) && !other.charge(1));
        drop(other);
        assert_eq!(held.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_buffer_grows_to_what_is_expected_and_not_beyond() {
        assert_eq!(grown(0, 10, 100), 10);
        assert_eq!(grown(10, 15, 100), 20);
        assert_eq!(grown(64, 70, 100), 100);
        assert_eq!(grown(100, 100, 100), 100);
        assert_eq!(grown(100, 150, 1 << 20), 200, "no length was announced");
    }
}
