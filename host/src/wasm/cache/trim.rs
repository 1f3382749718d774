//! Evicts the entries that were used longest ago.

use std::{
    io,
    time::{Duration, SystemTime},
};

use tracing::{debug, warn};

use crate::cache_dir::CacheDir;

/// Age of an unfinished file after which its host is taken for killed.
const FORGOTTEN: Duration = Duration::from_hours(1);

struct Entry {
    used: SystemTime,
    size: u64,
    name: String,
}

/// Removes the entries used longest ago until the total is within the limit, and abandoned
/// unfinished files; never the newest entry. A process that has an entry open keeps its content.
pub(super) fn trim(dir: &CacheDir, newest: &str, limit: u64) {
    let mut entries = match entries(dir) {
        Ok(entries) => entries,
        Err(error) => {
            warn!(%error, "the code cache cannot be looked through");
            return;
        }
    };
    let now = entries.iter().map(|entry| entry.used).max();
    let mut total: u64 = entries.iter().map(|entry| entry.size).sum();
    entries.sort_by_key(|entry| entry.used);
    for Entry { used, size, name } in entries {
        let age = now.and_then(|now| now.duration_since(used).ok()).unwrap_or_default();
        let goes = if CacheDir::is_unfinished(&name) { age > FORGOTTEN } else { total > limit };
        if !goes || name == newest {
            continue;
        }
        match dir.dir().remove_file(&name) {
            Ok(()) => debug!(name, "removed an old entry of the code cache"),
            // Another host removed it first.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                debug!(name, %error, "an old entry of the code cache stays");
                continue;
            }
        }
        total -= size;
    }
}

fn entries(dir: &CacheDir) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for entry in dir.dir().entries()? {
        let entry = entry?;
        // The cache consists of files only; an entry without metadata was removed by another host
        // meanwhile.
        let Some(metadata) = entry.metadata().ok().filter(cap_std::fs::Metadata::is_file) else {
            continue;
        };
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !super::is_entry(&name) && !CacheDir::is_unfinished(&name) {
            continue;
        }
        let used = metadata.modified()?.into_std();
        entries.push(Entry { used, size: metadata.len(), name });
    }
    Ok(entries)
}
