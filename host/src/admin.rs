//! What is told to those who run the host: whether it lives, whether it is ready, and its metrics. Plain HTTP, for a port that
//! only they reach: whoever does may see how much of which kinds there is, but nothing of an object.

use std::{io, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use bytes::Bytes;
use tokio::{net::TcpListener, sync::Mutex, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    cluster::Reach,
    grant::display_kind,
    lease::Guard,
    metrics::{MEDIA_TYPE, Metrics, Sample},
    queue::Queue,
    store::Stores,
    watch::Watch,
};

mod objects;
mod port;
mod reports;
#[cfg(test)]
mod tests;

pub use objects::Objects;
pub use reports::Reports;

/// What is told of a host.
#[derive(Clone)]
pub struct Admin {
    /// What is counted.
    pub metrics: Metrics,
    /// The keys.
    pub queue: Queue,
    /// What is known of the cluster's objects.
    pub stores: Stores,
    /// The watches whose first lists make it ready.
    pub watches: Watches,
    /// The calls that wait for a slot.
    pub waiting: WaitingCalls,
    /// Whether it may write.
    pub lease: Guard,
    /// Whether what it works on answers.
    pub reach: Reach,
    /// What else it waits for, or why it is not to be asked for anything any more.
    pub also: Also,
}

/// What the answers are made of.
#[derive(Clone)]
struct Told {
    admin: Admin,
    /// The metrics as they were told last.
    metrics: Arc<Mutex<Option<Last>>>,
}

/// The metrics at some time.
struct Last {
    text: Bytes,
    at: Instant,
    /// How long it took to write them down.
    took: Duration,
}

/// Tells in words why a host is not ready, besides its watches.
pub type Also = Arc<dyn Fn() -> Option<&'static str> + Send + Sync>;

/// Tells what is watched at the time: processors come and go while a host runs.
pub type Watches = Arc<dyn Fn() -> Vec<Watch> + Send + Sync>;

/// Tells how many calls of each processor wait for a slot at the time.
pub type WaitingCalls = Arc<dyn Fn() -> Vec<(Arc<str>, usize)> + Send + Sync>;

// === impl Admin ===

impl Admin {
    /// `/livez`, `/readyz` and `/metrics`.
    pub fn router(self) -> Router {
        Router::new()
            .route("/livez", get(async || "ok\n"))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics))
            .with_state(Told { admin: self, metrics: Arc::default() })
    }

    /// Answers until it is told to stop.
    ///
    /// # Errors
    ///
    /// The listener fails.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) -> io::Result<()> {
        serve(self.router(), listener, stop).await
    }

    /// The kinds of which not all objects are known yet.
    fn waits_for(&self) -> Vec<String> {
        let watches = (self.watches)();
        let waits = watches.iter().filter(|of| !self.stores.is_settled(&of.kind, &of.scope));
        waits.map(|watch| display_kind(&watch.kind)).collect()
    }

    fn sample(&self) -> Sample {
        let queues = self.queue.states();
        self.metrics
            .retain_lines(|processor| queues.iter().any(|(known, _)| **known == *processor));
        Sample {
            queues,
            waiting: (self.waiting)(),
            stores: self.stores.memory_by_kind(),
            leads: self.lease.is_held(),
        }
    }
}

/// Answers until it is told to stop.
///
/// # Errors
///
/// The listener fails.
pub async fn serve(
    router: Router,
    listener: TcpListener,
    stop: CancellationToken,
) -> io::Result<()> {
    port::serve(router, listener, stop).await
}

/// Ready once all first lists are complete: before, reads are answered as unavailable. Not ready as long as the API server does not
/// answer, or says that it cannot do its work: nothing is seen and nothing is written then.
async fn ready(State(Told { admin, .. }): State<Told>) -> Response {
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

/// One after the other, and in no more than a fifth of the time: who asks in between is told what the one before was.
async fn metrics(State(Told { admin, metrics }): State<Told>) -> Response {
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
