//! The admin endpoints: liveness, readiness and metrics. Plain HTTP, for a port that only
//! administrators reach: a client sees the number of objects of each kind, but no object.

mod objects;
mod port;
mod reports;
#[cfg(test)]
mod tests;

pub use objects::Objects;
pub use reports::Reports;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Request, State},
    http::{StatusCode, header::CONTENT_TYPE},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::get,
};
use bytes::Bytes;
use mortise_core::{contract::display_kind, queue::Queue, store::Stores};
use tokio::{net::TcpListener, sync::Mutex, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    cluster::{Reach, lease::Guard, watch::Watch},
    host::{Host, Source, is_converted},
    http::caller,
    metrics::{MEDIA_TYPE, Metrics, Sample},
};

/// The parts of a host that the endpoints report on.
#[derive(Clone)]
pub struct Admin {
    pub metrics: Metrics,
    pub queue: Queue,
    /// The stores of the cluster's objects.
    pub stores: Stores,
    /// The watches whose first lists must be complete before the host is ready; they change as
    /// processors are added and removed.
    pub watches: Source<Vec<Watch>>,
    /// The kinds that this host converts, each as group and kind. Readiness does not wait for their
    /// lists: the API server may be unable to call the host before it is ready.
    pub converted: Source<Vec<(String, String)>>,
    /// The number of calls of each processor that wait for a slot.
    pub waiting: Source<Vec<(Arc<str>, usize)>>,
    /// The other clusters that are open, and whether each is connected.
    pub clusters: Source<Vec<(Arc<str>, bool)>>,
    /// The guard of the Lease: held if the host may write.
    pub lease: Guard,
    /// The check whether the API server answers.
    pub reach: Reach,
    /// Returns a further reason why the host is not ready, such as its shutdown, if any.
    pub also: Also,
}

/// The state of the router.
#[derive(Clone)]
struct Served {
    admin: Admin,
    /// The last answer to `/metrics`.
    metrics: Arc<Mutex<Option<Last>>>,
}

/// The metrics as text, and the time when it was written.
struct Last {
    text: Bytes,
    at: Instant,
    /// The time that it took to write the text.
    took: Duration,
}

/// Returns a reason why a host is not ready, besides its watches, if any.
pub type Also = Arc<dyn Fn() -> Option<&'static str> + Send + Sync>;

// === impl Admin ===

impl Admin {
    /// Returns the admin endpoints of a host. The host is ready once the first lists of all open
    /// watches are complete.
    pub fn of(host: &Host) -> Self {
        Self {
            metrics: host.options().metrics.clone(),
            queue: host.queue().clone(),
            stores: host.stores().clone(),
            watches: host.watch_source(),
            converted: host.converted_source(),
            waiting: host.waiting_source(),
            clusters: host.cluster_source(),
            lease: host.options().lease.clone(),
            reach: Reach::new(host.cluster().client()),
            also: Arc::new(|| None),
        }
    }

    /// Returns the router for `/livez`, `/readyz` and `/metrics`.
    pub fn router(self) -> Router {
        Router::new()
            .route("/livez", get(async || "ok\n"))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics))
            .with_state(Served { admin: self, metrics: Arc::default() })
    }

    /// Serves requests that no web page sent, until `stop` is cancelled.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        serve(without_pages(self.router(), Arc::default()), listener, stop).await;
    }

    /// Returns the kinds whose first lists are not complete.
    fn waits_for(&self) -> Vec<String> {
        let (watches, converted) = ((self.watches)(), (self.converted)());
        let waits = watches.iter().filter(|of| !self.stores.is_settled(&of.kind, &of.scope));
        let waits = waits.filter(|of| !is_converted(&of.kind, &converted));
        // Other clusters may be away.
        let waits = waits.filter(|of| of.kind.cluster.is_empty());
        waits.map(|watch| display_kind(&watch.kind)).collect()
    }

    fn sample(&self) -> Sample {
        Sample {
            queues: self.queue.states(),
            waiting: (self.waiting)(),
            stores: self.stores.memory_by_kind(),
            clusters: (self.clusters)(),
            leads: self.lease.is_held(),
        }
    }
}

/// Refuses requests that a web page may have sent; see [`caller::check`] for `names`.
pub fn without_pages(router: Router, names: Arc<[String]>) -> Router {
    router.layer(from_fn(move |request: Request, next: Next| {
        let names = Arc::clone(&names);
        async move {
            let (parts, body) = request.into_parts();
            match caller::check(&parts, &names) {
                Ok(()) => next.run(Request::from_parts(parts, body)).await,
                Err(refusal) => (StatusCode::FORBIDDEN, refusal + "\n").into_response(),
            }
        }
    }))
}

/// Serves requests until `stop` is cancelled.
pub async fn serve(router: Router, listener: TcpListener, stop: CancellationToken) {
    port::serve(router, listener, stop).await;
}

/// Answers whether the host is ready: all first lists are complete (before that, reads are answered
/// as unavailable), and the API server is reachable and ready (otherwise the host sees no changes
/// and cannot write).
async fn ready(State(Served { admin, .. }): State<Served>) -> Response {
    if let Some(why) = (admin.also)() {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response();
    }
    let waits = admin.waits_for();
    let text = if waits.is_empty() {
        let Err(why) = admin.reach.check().await else { return "ok\n".into_response() };
        format!("the API server is not ready: {why}\n")
    } else {
        format!("the first list has not arrived: {}\n", waits.join(", "))
    };
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

/// Answers with the metrics. Writing the text takes at most a fifth of the time: a request that
/// comes too early gets the last text.
async fn metrics(State(Served { admin, metrics }): State<Served>) -> Response {
    let mut last = metrics.lock().await;
    if let Some(last) = last.as_ref().filter(|last| last.at.elapsed() < last.took * 4) {
        return openmetrics(last.text.clone());
    }
    let start = Instant::now();
    match admin.metrics.text(&admin.sample()) {
        Ok(text) => {
            let text = Bytes::from(text);
            *last = Some(Last { text: text.clone(), at: Instant::now(), took: start.elapsed() });
            openmetrics(text)
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

fn openmetrics(text: Bytes) -> Response {
    ([(CONTENT_TYPE, MEDIA_TYPE)], text).into_response()
}
