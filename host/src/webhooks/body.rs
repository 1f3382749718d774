//! Reads the bodies of requests, within limits on their size.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Incoming};
use tokio::time::timeout_at;

use super::Refused;

/// The maximum size of a body, in bytes: a list of some ten thousand objects comes as one review.
pub(super) const MAX_BODY_BYTES: usize = 128 << 20;
/// The maximum size of all held bodies together, in bytes.
const MAX_HELD_BYTES: usize = 256 << 20;

/// The bytes that are held for requests.
#[derive(Debug, Default)]
pub(super) struct Held(Arc<AtomicUsize>);

/// A number of held bytes, released on drop.
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
        ends: Instant,
    ) -> Result<(Bytes, Holding), Refused> {
        let expected = body.size_hint().exact().unwrap_or_default();
        if expected > MAX_BODY_BYTES as u64 {
            return Err(too_large());
        }
        let mut holding = Holding { held: Arc::clone(&self.0), bytes: 0 };
        let mut bytes = BytesMut::new();
        loop {
            let Ok(frame) = timeout_at(ends.into(), body.frame()).await else {
                let message = "the body did not come in time".to_owned();
                return Err(Refused::new(StatusCode::REQUEST_TIMEOUT, message));
            };
            let Some(frame) = frame else { return Ok((bytes.freeze(), holding)) };
            let broken = |error| Refused::bad(format!("the body cannot be read: {error}"));
            let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
            if bytes.len() + data.len() > MAX_BODY_BYTES {
                return Err(too_large());
            }
            holding.add(data.len())?;
            bytes.extend_from_slice(&data);
        }
    }
}

fn too_large() -> Refused {
    let message = format!("a review has at most {MAX_BODY_BYTES} bytes");
    Refused::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}

// === impl Holding ===

impl Holding {
    fn add(&mut self, bytes: usize) -> Result<(), Refused> {
        self.bytes += bytes;
        let held = self.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if held <= MAX_HELD_BYTES {
            return Ok(());
        }
        let message = format!("reviews of more than {MAX_HELD_BYTES} bytes are being answered");
        Err(Refused::unavailable(message))
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
