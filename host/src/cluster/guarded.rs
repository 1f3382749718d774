//! The watches of the host, all of which are opened here: with a bound on what the API server
//! sends, and on how soon a watch that ends is started again.

use std::{
    fmt::Debug,
    sync::{Arc, atomic::AtomicU32},
    time::Duration,
};

use axum::body::Body as Answered;
use futures::{StreamExt as _, stream::BoxStream};
use http::{Request, Response};
use kube::{
    Api, Client, Resource,
    client::Body,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Config, Event},
    },
};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};
use tower::BoxError;

use super::{
    bounded::{Lines, page, page_size},
    health::Health,
};

/// The number of requests that start a watch without a delay: a server without streaming lists
/// needs three, and each change of the fields that the store keeps starts another watch.
const WATCH_BURST: u32 = 8;
/// The delay before the next request that starts a watch, doubled with each.
const FIRST_WATCH_DELAY: Duration = Duration::from_millis(250);
/// The longest delay before a request that starts a watch.
const MAX_WATCH_DELAY: Duration = Duration::from_secs(30);
/// The duration after which a watch counts as healthy.
const HEALTHY_WATCH_AGE: Duration = Duration::from_mins(1);

/// The time after which a list that goes on page by page is begun again. API servers keep the state
/// that a next page belongs to for about five minutes.
const MAX_LIST_AGE: Duration = Duration::from_mins(15);

/// A client for one watch, which bounds the answers of the API server, and backs off before it
/// restarts a short-lived watch.
#[derive(Clone)]
pub(crate) struct Guarded(Client);

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

/// The error of a list whose pages do not end.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the list has not ended within {} min", MAX_LIST_AGE.as_secs() / 60)]
struct Endless;

/// The state of one watch.
#[derive(Debug)]
struct State {
    pace: Pace,
    /// The number of objects of the next page.
    size: AtomicU32,
    parsed_depth: usize,
    /// Told of the watch, if it is in another cluster.
    health: Option<Arc<Health>>,
}

/// Returns the API server's refusal of a list or watch, if the error is a refusal.
pub(crate) fn refusal(error: &watcher::Error) -> Option<&kube::core::Status> {
    let (watcher::Error::InitialListFailed(cause) | watcher::Error::WatchStartFailed(cause)) =
        error
    else {
        return None;
    };
    let kube::Error::Api(status) = cause else { return None };
    Some(status)
}

// === impl Guarded ===

impl Guarded {
    /// Creates the client of a watch whose objects are parsed to this depth: the fields of an
    /// object have depth 1, and what is deeper is skipped or stays text.
    pub(crate) fn new(client: &Client, parsed_depth: usize) -> Self {
        Self::telling(client, parsed_depth, None)
    }

    /// Creates the client of a watch whose health is kept.
    pub(super) fn telling(
        client: &Client,
        parsed_depth: usize,
        health: Option<Arc<Health>>,
    ) -> Self {
        let namespace = client.default_namespace().to_owned();
        let size = AtomicU32::new(u32::MAX);
        let state = Arc::new(State { pace: Pace::default(), size, parsed_depth, health });
        let client = client.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, state) = (client.clone(), Arc::clone(&state));
            async move { state.send(&client, request).await }
        });
        Self(Client::new(service, namespace))
    }

    /// Opens the watch. Every failure is an event, after which the watch goes on.
    #[expect(clippy::disallowed_methods, reason = "the one place of watches")]
    pub(crate) fn watch<K>(
        &self,
        api: impl FnOnce(Client) -> Api<K>,
        config: Config,
    ) -> BoxStream<'static, watcher::Result<Event<K>>>
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        watcher::watcher(api(self.0.clone()), config).default_backoff().boxed()
    }

    pub(super) fn client(&self) -> &Client {
        &self.0
    }
}

// === impl State ===

impl State {
    async fn send(
        &self,
        client: &Client,
        request: Request<Body>,
    ) -> Result<Response<Answered>, BoxError> {
        let uri = request.uri().clone();
        // Further pages of a list belong to its first request.
        if !uri.query().unwrap_or_default().contains("continue=") {
            sleep(self.pace.begin(Instant::now())).await;
        } else if self.pace.age() > MAX_LIST_AGE {
            return Err(Endless.into());
        }
        if let Some(most) = page_size(&uri) {
            let answer = page(client, request, (most, &self.size), self.parsed_depth).await?;
            return Ok(answer.map(Answered::from));
        }
        let (head, body) = client.send(request).await?.into_parts();
        let body = if head.status.is_success() {
            let open = self.health.as_ref().map(Health::open);
            let lines = Lines::bounded(&uri, self.parsed_depth, (&head, body));
            Answered::from_stream(lines.into_data_stream().map(move |chunk| {
                let _held = &open;
                chunk
            }))
        } else {
            super::bounded::answer(&head, body).await?.into()
        };
        Ok(Response::from_parts(head, body))
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

    /// Returns the time since the last start.
    fn age(&self) -> Duration {
        self.0.lock().last.map(|last| last.elapsed()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    /// Serves a page each second, none of which is the last one.
    async fn next_page(request: Request<Body>) -> Result<Response<String>, Infallible> {
        sleep(Duration::from_secs(1)).await;
        assert!(request.uri().query().unwrap().contains("limit="));
        let page = r#"{"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "9", "continue": "next"}, "items": []}"#;
        Ok(Response::new(page.to_owned()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_whose_pages_do_not_end_is_given_up() {
        let client = Client::new(tower::service_fn(next_page), "default");
        let begun = Instant::now();
        let mut events =
            Guarded::new(&client, usize::MAX).watch(Api::<ConfigMap>::all, Config::default());
        let error = loop {
            match events.next().await.unwrap() {
                Ok(event) => assert!(matches!(event, Event::Init)),
                Err(error) => break mortise_core::error_chain::whole(&error),
            }
        };
        assert!(error.contains("the list has not ended within 15 min"), "{error}");
        assert!(begun.elapsed() < MAX_LIST_AGE * 2);
    }

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
