//! Reads the bodies of requests. What a request holds is one account, which is charged before
//! anything is kept: the bytes of its body, [`ENTRY`] more for each entry of what will be parsed,
//! and its answer.

use std::{net::IpAddr, time::Instant};

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Incoming};
use mortise_core::contract::bounds::{ENTRY, Entries};
use tokio::time::timeout_at;

use super::{Refused, listener::MAX_CONNECTIONS};
use crate::share::{self, MAX_UNCOUNTED, Sum};

/// A bound on the account of a body.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    bytes: usize,
    /// The depth of the metadata's fields of an object; what is deeper is not parsed.
    parsed_depth: usize,
}

/// A list of some ten thousand objects comes as one review. Half of what a caller may hold, as a
/// buffer that grows is there twice.
pub(super) const CONVERSION: Bound = Bound { bytes: 56 << 20, parsed_depth: 5 };
/// Each of the two objects has at most 3 MiB.
pub(super) const ADMISSION: Bound = Bound { bytes: 8 << 20, parsed_depth: 4 };
/// The maximum of all accounts together, in bytes.
pub(crate) const MAX_HELD_BYTES: usize = 256 << 20;
/// The part of it that is shared. The rest is for the first bytes of each request, which are not
/// counted.
const SHARED_BYTES: u64 = MAX_HELD_BYTES as u64 - MAX_CONNECTIONS as u64 * MAX_UNCOUNTED;
pub(super) const TOO_MUCH_HELD: &str = "reviews of more than 256 MiB are being answered, of which \
    one caller and one namespace leave some to others";

/// The sums of the accounts of all requests: by the address of the caller, and by the namespace of the
/// processor.
#[derive(Debug)]
pub(super) struct Held {
    by_caller: Sum,
    by_namespace: Sum,
}

/// The account of one request, released on drop.
#[derive(Debug)]
pub(super) struct Holding {
    of_caller: share::Held,
    of_namespace: share::Held,
    bytes: usize,
}

// === impl Held ===

impl Default for Held {
    fn default() -> Self {
        Self { by_caller: Sum::new(SHARED_BYTES), by_namespace: Sum::new(SHARED_BYTES) }
    }
}

impl Held {
    /// Opens the account of a request of a caller for a processor of a namespace.
    pub(super) fn open(&self, caller: IpAddr, namespace: &str) -> Holding {
        Holding {
            of_caller: share::Held::of(Some(self.by_caller.part_of(&caller.to_string()))),
            of_namespace: share::Held::of(Some(self.by_namespace.part_of(namespace))),
            bytes: 0,
        }
    }
}

// === impl Holding ===

impl Holding {
    /// Reads a body.
    pub(super) async fn read(
        &mut self,
        mut body: Incoming,
        Bound { bytes: most, parsed_depth }: Bound,
        ends: Instant,
    ) -> Result<Bytes, Refused> {
        let expected = body.size_hint().exact().unwrap_or(most as u64);
        let expected = usize::try_from(expected).ok().filter(|expected| *expected <= most);
        let expected = expected.ok_or_else(|| too_large(most))?;
        let (mut bytes, mut counted, mut entries) =
            (Vec::new(), Entries::to_depth(parsed_depth), 0);
        loop {
            let Ok(frame) = timeout_at(ends.into(), body.frame()).await else {
                let message = "the body did not come in time".to_owned();
                return Err(Refused::new(StatusCode::REQUEST_TIMEOUT, message));
            };
            let Some(frame) = frame else { return Ok(bytes.into()) };
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
            self.set(both + ENTRY * entries)?;
            bytes.reserve_exact(capacity - bytes.len());
            self.set(capacity + ENTRY * entries)?;
            bytes.extend_from_slice(&data);
        }
    }

    /// Charges bytes, such as those of an answer.
    pub(super) fn charge(&mut self, bytes: usize) -> Result<(), Refused> {
        self.set(self.bytes + bytes)
    }

    /// Fails, and changes nothing, if all accounts together would be too large, or those of the
    /// caller or the namespace.
    fn set(&mut self, bytes: usize) -> Result<(), Refused> {
        let refused = || Refused::unavailable(TOO_MUCH_HELD.to_owned());
        if !self.of_caller.set(bytes) {
            return Err(refused());
        }
        if !self.of_namespace.set(bytes) {
            self.of_caller.set(self.bytes);
            return Err(refused());
        }
        self.bytes = bytes;
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_review_alone_is_within_the_shares() {
        let held = Held::default();
        let mut one = held.open("10.0.0.1".parse().unwrap(), "a");
        one.set(2 * CONVERSION.bytes).unwrap();
    }

    #[test]
    fn a_caller_and_a_namespace_leave_some_to_others() {
        const MIB: usize = 1 << 20;
        let held = Held::default();
        let open = |caller: &str, namespace| held.open(caller.parse().unwrap(), namespace);
        let most = |of: &mut Holding| (1..256).take_while(|_| of.charge(MIB).is_ok()).count();
        let mut first = open("10.0.0.1", "a");
        assert_eq!(most(&mut first), 112, "half of all");
        let cases = [("10.0.0.1", "b", 0), ("10.0.0.2", "a", 0), ("10.0.0.2", "b", 56)];
        for (caller, namespace, expected) in cases {
            assert_eq!(most(&mut open(caller, namespace)), expected, "{caller} {namespace}");
        }
        assert!(open("10.0.0.1", "a").charge(64 << 10).is_ok(), "small ones always come in");
        drop(first);
        assert_eq!(most(&mut open("10.0.0.1", "b")), 112, "it is given back");
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
