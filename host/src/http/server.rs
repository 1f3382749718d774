//! Accepts connections, with a limit on open ones.
//!
//! If all slots are taken, a new connection closes the oldest idle one, or else the oldest one: so
//! clients that hold connections lose them to clients that send requests.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// The longest header of a request, in bytes.
pub(crate) const MAX_HEADER_BYTES: usize = 16 * 1024;
/// The delay after a failed accept, which is mostly due to a lack of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(500);

/// The slot of an open connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slot {
    /// True while a request is read completely and not yet answered.
    is_busy: Arc<AtomicBool>,
    /// Cancelled when another connection needs the slot.
    over: CancellationToken,
}

/// The slots of the open connections, the oldest first.
#[derive(Debug, Default)]
struct Open(Mutex<Vec<Slot>>);

/// Serves connections until `stop` is cancelled, at most `max` at once. `serve` is dropped when its
/// slot is needed, and after `grace` when the port is closed.
pub(crate) async fn serve<F: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    max: usize,
    stop: &CancellationToken,
    grace: Duration,
    serve: impl Fn(TcpStream, Slot) -> F,
) {
    let (open, mut served) = (Arc::new(Open::default()), JoinSet::new());
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            // A connection was closed, by the client or by the host.
            Some(_) = served.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let (slot, open) = (open.enter(max), Arc::clone(&open));
                let connection = serve(stream, slot.clone());
                served.spawn(async move {
                    tokio::select! {
                        () = connection => {}
                        () = slot.over.cancelled() => {}
                    }
                    open.leave(&slot);
                });
            }
            Err(error) => {
                warn!(%error, "a connection is not accepted");
                sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
    drop(listener);
    let ended = async { while served.join_next().await.is_some() {} };
    if timeout(grace, ended).await.is_err() {
        warn!(open = served.len(), "connections are closed before their requests were answered");
    }
}

// === impl Slot ===

impl Slot {
    /// Marks the connection as busy or idle.
    pub(crate) fn set_busy(&self, is_busy: bool) {
        self.is_busy.store(is_busy, Ordering::Relaxed);
    }
}

// === impl Open ===

impl Open {
    fn enter(&self, max: usize) -> Slot {
        let slot = Slot::default();
        let mut open = self.0.lock();
        if open.len() >= max {
            let is_idle = |held: &Slot| !held.is_busy.load(Ordering::Relaxed);
            let oldest = open.iter().position(is_idle).unwrap_or(0);
            open.remove(oldest).over.cancel();
        }
        open.push(slot.clone());
        slot
    }

    fn leave(&self, slot: &Slot) {
        self.0.lock().retain(|held| !Arc::ptr_eq(&held.is_busy, &slot.is_busy));
    }
}
