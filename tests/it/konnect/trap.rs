//! A trap between a host, the fake and the API server, which sends the host a signal in the middle
//! of a creation.

use std::{future::pending, pin::Pin, sync::Arc};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use http::Method;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::{Notify, watch};

/// Where a host gets the signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    /// Entities have been created, and the last one is not answered.
    Created,
    /// After that, the write of a status has come, and is not carried out.
    Write,
    /// After that, the write of a status is carried out, and not answered.
    Written,
    /// Requests to create have come and are not carried out until [`Trap::release`].
    Asked,
}

/// The trap. It does nothing until it is set, and nothing more after it has gone off.
pub(super) struct Trap {
    set: Mutex<Option<Set>>,
    gone_off: Notify,
    released: watch::Sender<bool>,
}

struct Set {
    point: Point,
    /// The number of creations that are still to come.
    left: usize,
    host: u32,
    signal: Signal,
}

/// Sends a signal to a process that the test has started.
pub(super) fn signal(process: u32, signal: Signal) {
    let id = i32::try_from(process).ok().and_then(Pid::from_raw).unwrap();
    kill_process(id, signal).unwrap();
}

// === impl Trap ===

impl Default for Trap {
    fn default() -> Self {
        let (released, _) = watch::channel(false);
        Self { set: Mutex::default(), gone_off: Notify::new(), released }
    }
}

impl Trap {
    /// Has the signal sent to the host at a point of its creations, after so many of them.
    pub(super) fn set(&self, point: Point, creations: usize, host: u32, signal: Signal) {
        *self.set.lock() = Some(Set { point, left: creations, host, signal });
    }

    /// Waits until the signal is sent.
    pub(super) async fn gone_off(&self) {
        self.gone_off.notified().await;
    }

    /// Lets the fake carry out what it held back.
    pub(super) fn release(&self) {
        self.released.send_replace(true);
    }

    /// Is told each request that the fake has carried out.
    pub(super) fn see(&self, method: &str, status: Option<u16>) {
        // Without a status, the answer is lost.
        let is_creation = matches!((method, status), ("POST" | "PUT", None | Some(200 | 201)));
        let mut place = self.set.lock();
        let Some(set) = place.as_mut().filter(|set| is_creation && set.point != Point::Asked)
        else {
            return;
        };
        set.left = set.left.saturating_sub(1);
        if set.left == 0 && set.point == Point::Created {
            self.go_off(&mut place);
        }
    }

    /// Is asked before the fake carries out a request.
    pub(super) fn hold(&self, method: &str) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let mut place = self.set.lock();
        let Some(set) = place.as_mut().filter(|set| set.point == Point::Asked && method == "POST")
        else {
            return Box::pin(async {});
        };
        set.left = set.left.saturating_sub(1);
        if set.left == 0 {
            self.go_off(&mut place);
        }
        let mut released = self.released.subscribe();
        Box::pin(async move {
            // The rest of a test that ends before does not matter.
            let _ = released.wait_for(|is_released| *is_released).await;
        })
    }

    /// Is reached by the write of a status; returns whether the signal is sent now.
    fn reach(&self, point: Point) -> bool {
        let mut place = self.set.lock();
        let is_here = place.as_ref().is_some_and(|set| set.point == point && set.left == 0);
        if is_here {
            self.go_off(&mut place);
        }
        is_here
    }

    fn go_off(&self, place: &mut Option<Set>) {
        if let Some(set) = place.take() {
            signal(set.host, set.signal);
            self.gone_off.notify_one();
        }
    }
}

/// Passes the requests of hosts on to the API server. Those of a host that got the signal have no
/// answer.
pub(super) async fn tap(State(trap): State<Arc<Trap>>, request: Request, next: Next) -> Response {
    let is_status = request.method() == Method::PATCH && request.uri().path().ends_with("/status");
    if is_status && trap.reach(Point::Write) {
        return pending().await;
    }
    let answer = next.run(request).await;
    if is_status && trap.reach(Point::Written) {
        return pending().await;
    }
    answer
}
