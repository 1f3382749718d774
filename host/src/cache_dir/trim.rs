//! Removes the least recently used files of a folder.

use std::{
    fs::File,
    io,
    time::{Duration, SystemTime},
};

use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, futimens};
use tracing::{debug, warn};

use super::CacheDir;

/// Age at which an unfinished file is taken for that of a killed host.
const UNFINISHED_FILE_AGE: Duration = Duration::from_hours(1);

/// The files of a folder that may be removed.
pub struct Trim<'a> {
    /// The maximum total size of the files, in bytes.
    pub limit: u64,
    /// The age at which a file is removed in any case; `None` for none.
    pub max_age: Option<Duration>,
    /// Returns whether a file of this name belongs to the cache. All others are left alone.
    pub is_entry: &'a dyn Fn(&str) -> bool,
    /// Returns whether a file stays, whatever its age.
    pub stays: &'a dyn Fn(&str) -> bool,
}

struct Entry {
    used: SystemTime,
    size: u64,
    name: String,
}

// === impl Trim ===

impl Trim<'_> {
    /// Removes the least recently used entries until the total is within the limit, and old and
    /// abandoned unfinished files. A process that has an entry open can go on reading it. Returns the bytes
    /// left.
    pub fn run(&self, dir: &CacheDir) -> u64 {
        let mut entries = match self.entries(dir) {
            Ok(entries) => entries,
            Err(error) => {
                let directory = dir.path().display();
                warn!(%directory, %error, "cannot list a folder of the cache");
                return 0;
            }
        };
        let now = entries.iter().map(|entry| entry.used).max();
        let mut total: u64 = entries.iter().map(|entry| entry.size).sum();
        entries.sort_by_key(|entry| entry.used);
        for Entry { used, size, name } in entries {
            let age = now.and_then(|now| now.duration_since(used).ok()).unwrap_or_default();
            let goes = if CacheDir::is_unfinished(&name) {
                age > UNFINISHED_FILE_AGE
            } else {
                total > self.limit || self.max_age.is_some_and(|max_age| age > max_age)
            };
            if !goes || (self.stays)(&name) {
                continue;
            }
            match dir.dir().remove_file(&name) {
                Ok(()) => debug!(name, "removed an old file of the cache"),
                // Another host removed it first.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    debug!(name, %error, "an old file of the cache stays");
                    continue;
                }
            }
            total -= size;
        }
        total
    }

    fn entries(&self, dir: &CacheDir) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in dir.dir().entries()? {
            let entry = entry?;
            // A cache consists of files only; an entry without metadata was removed by another host
            // meanwhile.
            let Some(metadata) = entry.metadata().ok().filter(cap_std::fs::Metadata::is_file)
            else {
                continue;
            };
            let Ok(name) = entry.file_name().into_string() else { continue };
            if !(self.is_entry)(&name) && !CacheDir::is_unfinished(&name) {
                continue;
            }
            let used = metadata.modified()?.into_std();
            entries.push(Entry { used, size: metadata.len(), name });
        }
        Ok(entries)
    }
}

/// Sets the time of an entry's last use. If that fails, the entry may be removed early.
pub fn used(file: &File) {
    let at = |nanoseconds| Timespec { tv_sec: 0, tv_nsec: nanoseconds };
    let times = Timestamps { last_access: at(UTIME_OMIT), last_modification: at(UTIME_NOW) };
    if let Err(error) = futimens(file, &times) {
        debug!(%error, "cannot set the time of the last use of a cache file");
    }
}
