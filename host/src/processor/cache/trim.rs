//! Takes away what was not used for longest.

use std::{
    io,
    time::{Duration, SystemTime},
};

use tracing::{debug, warn};

use crate::cache_dir::CacheDir;

/// A file that was begun and not finished for so long never will be: its host was killed.
const FORGOTTEN: Duration = Duration::from_hours(1);

struct Entry {
    used: SystemTime,
    size: u64,
    name: String,
}

/// Removes entries until all together take no more than the limit, and what was left unfinished; but not the newest one. Whoever has an
/// entry open keeps it, as files are.
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
            // Another host was faster.
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
        // What is no file is none of ours; what is gone meanwhile was taken by another host.
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
