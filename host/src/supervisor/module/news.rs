//! Watches the folder of modules for changes.

use std::{future::pending, path::Path, time::Duration};

use notify::{Config, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::time::{MissedTickBehavior, interval};

use super::Modules;
use crate::burst::{self, Burst};

/// The time between two checks of the files without a notification: not every system notifies of
/// changes on network file systems.
pub(super) const LOOK: Duration = Duration::from_secs(10);

impl Modules {
    /// Notifies [`Modules::moves`] of changes below the folder, as long as it is awaited. Folders
    /// are watched, not files: a Kubernetes volume changes by a new target of one symbolic link.
    pub(in crate::supervisor) async fn watch(&self) {
        let folder = &self.0.folder;
        let mut told = match told(folder) {
            Ok(told) => Some(told),
            Err(error) => {
                tracing::warn!(folder = %folder.display(), %error, "changes of modules are noticed late: the folder is not watched");
                None
            }
        };
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = looks.tick() => {}
                () = burst(told.as_mut()) => {}
            }
            self.0.moved.send_modify(|count| *count += 1);
        }
    }
}

fn told(folder: &Path) -> notify::Result<(RecommendedWatcher, Burst)> {
    // Links are not followed: a target below the folder is watched there, and targets outside do
    // not concern the host.
    let (mut watcher, burst) = burst::watcher(Config::default().with_follow_symlinks(false))?;
    watcher.watch(folder, RecursiveMode::Recursive)?;
    Ok((watcher, burst))
}

async fn burst(told: Option<&mut (RecommendedWatcher, Burst)>) {
    match told {
        Some((_, burst)) => drop(burst.next().await),
        None => pending().await,
    }
}
