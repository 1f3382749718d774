//! The thread that watches run on.

use anyhow::Context as _;
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A thread with a runtime of its own, for watches alone: see host/decisions/0034. It ends when this is dropped.
pub(super) struct WatchThread {
    handle: Handle,
    _over: DropGuard,
}

// === impl WatchThread ===

impl WatchThread {
    /// # Errors
    ///
    /// The system makes no thread.
    pub(super) fn start() -> anyhow::Result<Self> {
        let over = CancellationToken::new();
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start the thread of watches")?;
        let (handle, is_over) = (runtime.handle().clone(), over.clone());
        let thread = std::thread::Builder::new().name("watches".to_owned());
        let thread = thread.spawn(move || runtime.block_on(is_over.cancelled()));
        thread.context("cannot start the thread of watches")?;
        Ok(Self { handle, _over: over.drop_guard() })
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }
}
