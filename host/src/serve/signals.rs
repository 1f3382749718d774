//! The signals that a host is ended with.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// From now on they come here, and not to the operating system's own end of the program.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn open() -> anyhow::Result<Self> {
        let open = |kind| signal(kind).context("no signals");
        Ok(Self {
            terminate: open(SignalKind::terminate())?,
            interrupt: open(SignalKind::interrupt())?,
        })
    }

    /// The name of the next one.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
