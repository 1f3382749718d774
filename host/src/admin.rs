//! What is told to those who run the host: whether it lives, whether it is ready, and its metrics. Plain HTTP, for a port that
//! only they reach: whoever does may see how much of which kinds there is, but nothing of an object.

use std::{io, sync::Arc};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::net::TcpListener;
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
            .with_state(self)
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
        Sample {
            queues: self.queue.states(),
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
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await
}

/// Ready once all first lists are complete: before, reads are answered as unavailable. Not ready as long as the API server does not
/// answer, or says that it cannot do its work: nothing is seen and nothing is written then.
async fn ready(State(admin): State<Admin>) -> Response {
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

async fn metrics(State(admin): State<Admin>) -> Response {
    match admin.metrics.text(&admin.sample()) {
        Ok(text) => ([(CONTENT_TYPE, MEDIA_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}
