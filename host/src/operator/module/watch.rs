//! Watches the folder of modules for changes.

use std::{future::pending, path::Path, time::Duration};

use notify::{Config, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::time::{MissedTickBehavior, interval};

use super::Modules;
use crate::debounce::{self, Debounced};

/// The time between two checks of the files without a notification: not every system notifies of
/// changes on network file systems.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(10);

impl Modules {
    /// Notifies [`Modules::moves`] of changes below the folder, as long as it is awaited. Folders
    /// are watched, not files: a Kubernetes volume changes by a new target of one symbolic link.
    pub(in crate::operator) async fn watch(&self) {
        let folder = &self.0.folder;
        let mut watched = match watch(folder) {
            Ok(watched) => Some(watched),
            Err(error) => {
                tracing::warn!(folder = %folder.display(), %error, "changes of modules are noticed late: the folder is not watched");
                None
            }
        };
        let mut polls = interval(POLL_INTERVAL);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = polls.tick() => {}
                () = next_change(watched.as_mut()) => {}
            }
            self.0.moved.send_modify(|count| *count += 1);
        }
    }
}

fn watch(folder: &Path) -> notify::Result<(RecommendedWatcher, Debounced)> {
    // Links are not followed: a target below the folder is watched there, and targets outside do
    // not concern the host.
    let (mut watcher, changes) = debounce::watcher(Config::default().with_follow_symlinks(false))?;
    watcher.watch(folder, RecursiveMode::Recursive)?;
    Ok((watcher, changes))
}

async fn next_change(watched: Option<&mut (RecommendedWatcher, Debounced)>) {
    match watched {
        Some((_, changes)) => drop(changes.next().await),
        None => pending().await,
    }
}
