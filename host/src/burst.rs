//! Changes of files: told by the system, and taken together until a burst of them is over.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use notify::{
    Config, EventKind, RecommendedWatcher, Watcher as _,
    event::{AccessKind, AccessMode},
};
use tokio::{
    sync::mpsc::{self, UnboundedReceiver},
    time::Instant,
};

#[cfg(test)]
mod tests;

/// So long nothing more has to change until a burst is over.
const QUIET: Duration = Duration::from_millis(50);
/// So long a burst is waited for.
const LONGEST: Duration = Duration::from_secs(1);

/// Changes that come together.
pub(crate) struct Burst {
    paths: UnboundedReceiver<PathBuf>,
    changed: BTreeSet<PathBuf>,
    quiet: Instant,
    end: Instant,
}

/// What tells of changes, and where they come together. Nothing is watched yet. An empty path stands for changes that were more than
/// the system could tell of.
///
/// # Errors
///
/// The system has no means to watch files left.
pub(crate) fn watcher(config: Config) -> notify::Result<(RecommendedWatcher, Burst)> {
    let (send, paths) = mpsc::unbounded_channel();
    let tell = move |event: notify::Result<notify::Event>| {
        let Ok(event) = event else {
            // Nobody listens any more: the program ends. So below.
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
    Ok((RecommendedWatcher::new(tell, config)?, Burst::new(paths)))
}

/// Files are read, too, by those who wait for their changes.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(mode)) => mode == AccessMode::Write,
        EventKind::Access(_) => false,
        _ => true,
    }
}

// === impl Burst ===

impl Burst {
    fn new(paths: UnboundedReceiver<PathBuf>) -> Self {
        let now = Instant::now();
        Self { paths, changed: BTreeSet::new(), quiet: now, end: now }
    }

    /// What comes until nothing more has come for [`QUIET`], or for [`LONGEST`]. Waits for the first. Nothing is lost where this is
    /// dropped.
    pub(crate) async fn next(&mut self) -> BTreeSet<PathBuf> {
        loop {
            let changed = if self.changed.is_empty() {
                let Some(first) = self.paths.recv().await else {
                    // Nothing is watched.
                    return std::future::pending().await;
                };
                self.end = Instant::now() + LONGEST;
                first
            } else {
                let quiet = self.quiet.min(self.end);
                match tokio::time::timeout_at(quiet, self.paths.recv()).await {
                    Ok(Some(path)) => path,
                    Ok(None) | Err(_) => return std::mem::take(&mut self.changed),
                }
            };
            self.quiet = Instant::now() + QUIET;
            self.changed.insert(changed);
        }
    }
}
