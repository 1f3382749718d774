//! Watches files, and debounces their changes: a burst of changes is reported as one.

#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use notify::{
    Config, EventKind, RecommendedWatcher, Watcher as _,
    event::{AccessKind, AccessMode},
};
use tokio::{
    sync::mpsc::{self, UnboundedReceiver},
    time::Instant,
};

/// The time without a change that ends a burst.
const QUIET_PERIOD: Duration = Duration::from_millis(50);
/// The maximum duration of a burst.
const MAX_BURST_DURATION: Duration = Duration::from_secs(1);

/// Debounced changes of files.
pub struct Debounced {
    paths: UnboundedReceiver<PathBuf>,
    changed: BTreeSet<PathBuf>,
    quiet: Instant,
    end: Instant,
}

/// Creates a file watcher without any files, and the debounced changes that it reports.
///
/// An empty path stands for changes of any files: the system reported an error, or its queue
/// overflowed.
///
/// # Errors
///
/// Fails if the system's limits on file watches are reached.
pub fn watcher(config: Config) -> notify::Result<(RecommendedWatcher, Debounced)> {
    let (send, paths) = mpsc::unbounded_channel();
    let send_paths = move |event: notify::Result<notify::Event>| {
        let Ok(event) = event else {
            // Sending fails only if the receiver is dropped, when the program ends. So below.
            let _ = send.send(PathBuf::new());
            return;
        };
        if event.need_rescan() {
            let _ = send.send(PathBuf::new());
        }
        if is_change(event.kind) {
            event.paths.into_iter().for_each(|path| _ = send.send(path));
        }
    };
    Ok((RecommendedWatcher::new(send_paths, config)?, Debounced::new(paths)))
}

/// Returns whether an event is a change and not a read: the watching programs read files too.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(mode)) => mode == AccessMode::Write,
        EventKind::Access(_) => false,
        _ => true,
    }
}

// === impl Debounced ===

impl Debounced {
    fn new(paths: UnboundedReceiver<PathBuf>) -> Self {
        let now = Instant::now();
        Self { paths, changed: BTreeSet::new(), quiet: now, end: now }
    }

    /// Waits for a first change, and returns all changes until none came for [`QUIET_PERIOD`], or
    /// until [`MAX_BURST_DURATION`]. Cancel safe: no change is lost.
    pub async fn next(&mut self) -> BTreeSet<PathBuf> {
        loop {
            let changed = if self.changed.is_empty() {
                let Some(first) = self.paths.recv().await else {
                    // The watcher was dropped: no more changes will come.
                    return std::future::pending().await;
                };
                self.end = Instant::now() + MAX_BURST_DURATION;
                first
            } else {
                let quiet = self.quiet.min(self.end);
                match tokio::time::timeout_at(quiet, self.paths.recv()).await {
                    Ok(Some(path)) => path,
                    Ok(None) | Err(_) => return std::mem::take(&mut self.changed),
                }
            };
            self.quiet = Instant::now() + QUIET_PERIOD;
            self.changed.insert(changed);
        }
    }
}
