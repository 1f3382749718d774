//! Watches files, and debounces their changes: changes that come together are taken as one burst.

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

/// The time without a change after which a burst is over.
const QUIET_PERIOD: Duration = Duration::from_millis(50);
/// The longest time that the end of a burst is waited for.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Debounced changes of files.
pub struct Debounced {
    paths: UnboundedReceiver<PathBuf>,
    changed: BTreeSet<PathBuf>,
    quiet: Instant,
    end: Instant,
}

/// Creates a watcher of files, which watches nothing yet, and the bursts of its changes.
///
/// An empty path stands for changes of any files: the system reported an error, or had more changes
/// than it could report.
///
/// # Errors
///
/// Fails if the system has no means left to watch files.
pub fn watcher(config: Config) -> notify::Result<(RecommendedWatcher, Debounced)> {
    let (send, paths) = mpsc::unbounded_channel();
    let send_paths = move |event: notify::Result<notify::Event>| {
        let Ok(event) = event else {
            // Sending fails only when the program ends and the receiver is gone. So below.
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

/// Returns whether an event is a change: the programs that wait for changes of a file read it, too.
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

    /// Waits for a first change, and returns all changes until none has come for [`QUIET_PERIOD`],
    /// or for [`MAX_WAIT`] at most. No change is lost if the future is dropped.
    pub async fn next(&mut self) -> BTreeSet<PathBuf> {
        loop {
            let changed = if self.changed.is_empty() {
                let Some(first) = self.paths.recv().await else {
                    // The watcher is gone: there will be no more changes.
                    return std::future::pending().await;
                };
                self.end = Instant::now() + MAX_WAIT;
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
