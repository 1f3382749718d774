//! Limits for an API server: the size of its answers, and how soon a watch that ends is started
//! again.

use std::{sync::Arc, time::Duration};

use axum::body::Body as Answered;
use futures::StreamExt as _;
use http::Request;
use kube::{Client, client::Body};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tower::BoxError;

/// The largest object, or event of a watch, in bytes. etcd accepts at most 1.5 MiB, which is larger
/// as JSON.
const MAX_OBJECT_BYTES: usize = 8 << 20;
/// The largest page of a list, in bytes.
const MAX_PAGE_BYTES: usize = 64 << 20;
/// The largest answer that is a refusal, in bytes.
const MAX_REFUSAL_BYTES: usize = 1 << 20;

/// The number of requests that start a watch without a delay: a server without streaming lists
/// needs three, and each change of the fields that the store keeps starts another watch.
const WATCH_BURST: u32 = 8;
/// The delay before the next request that starts a watch, doubled with each.
const FIRST_WATCH_DELAY: Duration = Duration::from_millis(250);
/// The longest delay before a request that starts a watch.
const MAX_WATCH_DELAY: Duration = Duration::from_secs(30);
/// The duration after which a watch counts as healthy.
const HEALTHY_WATCH_AGE: Duration = Duration::from_mins(1);

/// The limit on the size of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct SizeLimit {
    bytes: usize,
    /// True if the limit is for each line, as for the events of a watch, and not for the whole
    /// answer.
    of_line: bool,
}

/// The error of an answer that is larger than its limit.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the API server sends more than {mib} MiB at once")]
pub(crate) struct TooMuch {
    mib: usize,
}

/// The rate at which a watch is restarted. kube's watcher does not wait if a stream ends without an
/// error, even if it ends at once.
#[derive(Debug, Default)]
struct Pace(Mutex<Begun>);

#[derive(Debug, Default)]
struct Begun {
    last: Option<Instant>,
    /// The number of short-lived watches in a row.
    times: u32,
}

/// Returns a client for one watch, which limits the size of answers, and backs off before it
/// restarts a short-lived watch.
pub(crate) fn guarded(client: &Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let (client, pace) = (client.clone(), Arc::new(Pace::default()));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, pace) = (client.clone(), Arc::clone(&pace));
        async move {
            let query = request.uri().query().unwrap_or_default().to_owned();
            // Further pages of a list belong to its first request.
            if !query.contains("continue=") {
                sleep(pace.begin(Instant::now())).await;
            }
            let limit = if query.contains("watch=true") {
                SizeLimit::EVENT
            } else {
                SizeLimit::MAX_PAGE_BYTES
            };
            let answer = client.send(request).await?;
            let limit =
                if answer.status().is_success() { limit } else { SizeLimit::MAX_REFUSAL_BYTES };
            Ok::<_, BoxError>(answer.map(|body| limit.of(body)))
        }
    });
    Client::new(service, namespace)
}

// === impl SizeLimit ===

impl SizeLimit {
    const EVENT: Self = Self { bytes: MAX_OBJECT_BYTES, of_line: true };
    const MAX_PAGE_BYTES: Self = Self { bytes: MAX_PAGE_BYTES, of_line: false };
    const MAX_REFUSAL_BYTES: Self = Self { bytes: MAX_REFUSAL_BYTES, of_line: false };

    /// Returns the limit of the answer to a request other than a watch.
    pub(super) fn of_answer(status: http::StatusCode, path: &str) -> Self {
        if !status.is_success() {
            Self::MAX_REFUSAL_BYTES
        } else if path.contains("limit=") {
            Self::MAX_PAGE_BYTES
        } else {
            Self { bytes: MAX_OBJECT_BYTES, of_line: false }
        }
    }

    /// Returns a body that fails if it exceeds the limit.
    pub(super) fn of(self, body: Body) -> Answered {
        let mut held = 0_usize;
        let chunks = Answered::new(body).into_data_stream().map(move |chunk| {
            let chunk = chunk.map_err(BoxError::from)?;
            let end = self.of_line.then(|| chunk.iter().rposition(|byte| *byte == b'\n')).flatten();
            held = end.map_or(held + chunk.len(), |end| chunk.len() - end - 1);
            if held > self.bytes {
                return Err(TooMuch { mib: self.bytes >> 20 }.into());
            }
            Ok::<_, BoxError>(chunk)
        });
        Answered::from_stream(chunks)
    }
}

// === impl TooMuch ===

impl TooMuch {
    pub(crate) fn is_cause_of(error: &(dyn std::error::Error + 'static)) -> bool {
        anyhow::Chain::new(error).any(<dyn std::error::Error>::is::<Self>)
    }
}

// === impl Pace ===

impl Pace {
    /// Records the start of a watch. Returns the delay before it.
    fn begin(&self, now: Instant) -> Duration {
        let mut begun = self.0.lock();
        if begun.last.is_none_or(|last| now.saturating_duration_since(last) >= HEALTHY_WATCH_AGE) {
            begun.times = 0;
        }
        begun.times = begun.times.saturating_add(1);
        let doubled =
            begun.times.checked_sub(WATCH_BURST + 1).map(|times| 2_u32.saturating_pow(times));
        let wait = doubled.map_or(Duration::ZERO, |times| {
            FIRST_WATCH_DELAY.saturating_mul(times).min(MAX_WATCH_DELAY)
        });
        begun.last = Some(now + wait);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_that_does_not_last_begins_ever_later() {
        let (pace, mut now) = (Pace::default(), Instant::now());
        let mut begin = |after: u64| {
            now += Duration::from_secs(after);
            let wait = pace.begin(now);
            now += wait;
            wait.as_millis()
        };
        let waits: Vec<u128> = (0..20).map(|_| begin(0)).collect();
        assert_eq!(waits[7..11], [0, 250, 500, 1000]);
        assert_eq!(waits[19], 30_000);
        assert_eq!(begin(59), 30_000);
        assert_eq!(begin(60), 0, "the one before has lasted");
    }
}
