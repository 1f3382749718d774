//! Accepts connections, with a limit on open ones.
//!
//! If all slots are taken, a new connection closes one of the address that has most of them: the
//! oldest idle one, or else the oldest one. So clients that hold connections lose them to clients
//! that send requests, and no address takes the connections of others.

use std::{
    cmp::Reverse,
    collections::HashMap,
    net::IpAddr,
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
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    caller: IpAddr,
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
            Ok((stream, caller)) => {
                let (slot, open) = (open.enter(max, caller.ip()), Arc::clone(&open));
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
    fn new(caller: IpAddr) -> Self {
        Self { caller, is_busy: Arc::default(), over: CancellationToken::new() }
    }

    /// Returns the address of the client.
    pub(crate) fn caller(&self) -> IpAddr {
        self.caller
    }

    /// Marks the connection as busy or idle.
    pub(crate) fn set_busy(&self, is_busy: bool) {
        self.is_busy.store(is_busy, Ordering::Relaxed);
    }
}

// === impl Open ===

impl Open {
    fn enter(&self, max: usize, caller: IpAddr) -> Slot {
        let slot = Slot::new(caller);
        let mut open = self.0.lock();
        if open.len() >= max {
            let mut counts: HashMap<IpAddr, usize> = HashMap::new();
            open.iter().for_each(|held| *counts.entry(held.caller).or_default() += 1);
            let rank =
                |held: &Slot| (counts.get(&held.caller), !held.is_busy.load(Ordering::Relaxed));
            let ranks = open.iter().enumerate().map(|(at, held)| (rank(held), Reverse(at)));
            let closed = ranks.max().map_or(0, |(_, Reverse(at))| at);
            open.remove(closed).over.cancel();
        }
        open.push(slot.clone());
        slot
    }

    fn leave(&self, slot: &Slot) {
        self.0.lock().retain(|held| !Arc::ptr_eq(&held.is_busy, &slot.is_busy));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_of_the_address_with_most_of_them_is_closed_for_another() {
        let open = Open::default();
        let [one, other, third] = [1, 2, 3].map(|last| IpAddr::from([10, 0, 0, last]));
        let idle = open.enter(4, one);
        let flood: Vec<Slot> = (0..3).map(|_| open.enter(4, other)).collect();
        flood[0].set_busy(true);
        let newer = open.enter(4, third);
        let over = |of: &[Slot]| of.iter().map(|of| of.over.is_cancelled()).collect::<Vec<_>>();
        assert_eq!(over(&flood), [false, true, false], "the oldest idle one of the flood");
        flood[2].set_busy(true);
        open.enter(4, other);
        assert_eq!(over(&flood), [true, true, false], "without an idle one the oldest");
        assert_eq!(over(&[idle, newer]), [false, false]);
    }
}
