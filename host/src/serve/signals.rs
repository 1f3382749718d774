//! The signals that end the host.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receives the signals, which from now on do not end the program by themselves.
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

    /// Waits for the next signal and returns its name.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
