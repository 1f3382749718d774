//! The thread on which watches run.

use std::thread;

use anyhow::Context as _;
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A thread with a runtime of its own, for the watches of the kinds that processors read: see
/// host/decisions/0034. Dropping the value ends the thread.
pub(super) struct WatchThread {
    handle: Handle,
    _over: DropGuard,
}

// === impl WatchThread ===

impl WatchThread {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot create a thread, or the thread cannot create a runtime.
    pub(super) async fn start() -> anyhow::Result<Self> {
        Self::try_start().await.context("cannot start the thread of watches")
    }

    async fn try_start() -> anyhow::Result<Self> {
        let over = CancellationToken::new();
        let (is_over, (started, start)) = (over.clone(), oneshot::channel());
        // The runtime is created on that thread, so that it is also dropped there: dropping it
        // blocks, and this thread must not wait.
        let run = move || match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => {
                if started.send(Ok(runtime.handle().clone())).is_ok() {
                    runtime.block_on(is_over.cancelled());
                }
            }
            // A closed channel means that no task waits for the result.
            Err(error) => drop(started.send(Err(error))),
        };
        thread::Builder::new().name("watches".to_owned()).spawn(run)?;
        Ok(Self { handle: start.await??, _over: over.drop_guard() })
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }
}
