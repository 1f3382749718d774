//! The thread that watches run on.

use std::thread;

use anyhow::Context as _;
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A thread with a runtime of its own, for the watches of what processors read: see host/decisions/0034. It is told to end when this is
/// dropped.
pub(super) struct WatchThread {
    handle: Handle,
    _over: DropGuard,
}

// === impl WatchThread ===

impl WatchThread {
    /// # Errors
    ///
    /// The system makes no thread, or the thread no runtime.
    pub(super) async fn start() -> anyhow::Result<Self> {
        Self::try_start().await.context("cannot start the thread of watches")
    }

    async fn try_start() -> anyhow::Result<Self> {
        let over = CancellationToken::new();
        let (is_over, (started, start)) = (over.clone(), oneshot::channel());
        // The runtime is made there: it must not be dropped here, where no thread may be kept waiting.
        let run = move || match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => {
                if started.send(Ok(runtime.handle().clone())).is_ok() {
                    runtime.block_on(is_over.cancelled());
                }
            }
            // Who waits for it is told, if anybody does.
            Err(error) => drop(started.send(Err(error))),
        };
        thread::Builder::new().name("watches".to_owned()).spawn(run)?;
        Ok(Self { handle: start.await??, _over: over.drop_guard() })
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }
}
