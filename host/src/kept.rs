//! Run records on disk, in the cache directory, so that the next start can skip keys whose result
//! is known.
//!
//! The records are in one file, to which frames are appended. The file is written anew, beside its
//! place, when it has become twice as long as it would have to be. A frame that is not whole is
//! ignored: see [`frame`]. So a host can be killed at any moment, and a lost or damaged record
//! costs a run of its key, nothing else. A file that another version of mortise or of this format
//! has written is not read. Of two hosts with one directory, the second one keeps no records.

mod frame;
#[cfg(test)]
mod tests;

use std::{
    fs::{File, TryLockError},
    io::{self, Read as _, Write as _},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use cap_std::fs::OpenOptions;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info, warn};

use crate::{
    cache_dir::CacheDir,
    queue::Key,
    record::{Records, Unwritten},
};
use frame::HEADER;

pub(crate) use frame::record;

const LOG: &str = "log";
const LOCK: &str = "lock";
/// The longest file that is read, in bytes: a longer one would take too long. 100,000 keys take a
/// third of it.
const LONGEST: u64 = 1 << 30;
/// The bytes by which a file may exceed twice its least length.
const SLACK: u64 = 1 << 20;
/// The number of frames that are written before other tasks have their turn: about a millisecond's
/// work.
const AT_ONCE: usize = 64;
/// The time within which changes are gathered to be written together.
const GATHER: Duration = Duration::from_millis(50);
/// The time after which a failed write is tried again.
const AGAIN: Duration = Duration::from_mins(1);
/// The time after which records of a former start are dropped if their keys were not looked at:
/// every key that exists has been looked at by then, so the others are of objects or processors
/// that are gone.
const LOOKED_AT: Duration = Duration::from_hours(1);

/// The reason why records are not kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another host keeps its records in the directory.
    #[error("another host keeps its records in `{0}`")]
    InUse(String),

    /// The lock file cannot be created or locked.
    #[error("cannot use `{path}`")]
    Unusable {
        /// The path of the directory.
        path: String,
        /// The error of the system.
        source: io::Error,
    },
}

/// The record file, while this host writes to it.
#[derive(Debug)]
pub(crate) struct Kept {
    dir: CacheDir,
    /// The lock on the directory; `None` after [`Kept::close`], when nothing is written any more.
    lock: Option<Lock>,
    /// The open file; `None` if the file has to be written anew.
    file: Option<File>,
    bytes: u64,
    /// The length in bytes above which the file is written anew.
    bound: u64,
    is_told: bool,
}

/// The lock that reserves the directory for one host.
///
/// Dropping it unlocks the file explicitly rather than only closing it: a child process that is
/// just being spawned has the same file open until it executes its own program.
#[derive(Debug)]
struct Lock(File);

/// The content of the record file.
#[derive(Debug, Default)]
pub(crate) struct Read {
    /// The records by key, in the form that [`record`] reads: slices of the file's bytes, none of
    /// them a copy.
    pub(crate) records: foldhash::HashMap<Key, Bytes>,
    /// The number of frames that were not whole.
    pub(crate) damaged: usize,
}

/// The fewest bytes of a frame.
#[cfg(any(test, fuzzing))]
pub(crate) const LEAST_FRAME: usize = 16;

/// Returns a file of one frame with this content.
#[cfg(any(test, fuzzing))]
pub(crate) fn framed(rest: &[u8]) -> Vec<u8> {
    let mut file = HEADER.as_bytes().to_vec();
    frame::frame(&mut file, rest);
    file
}

/// Returns the content of a record's frame.
#[cfg(test)]
pub(crate) fn rest_of_frame(key: &Key, record: &crate::record::Record) -> Vec<u8> {
    [frame::bytes(key), frame::bytes(record)].concat()
}

/// Reads a file and each record in it. Returns the number of valid records and of damaged frames.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_bytes(file: &Bytes) -> (usize, usize) {
    let Read { records, damaged } = frame::read(file);
    let records = records.iter().filter(|(key, bytes)| record(key, bytes).is_some());
    (records.count(), damaged)
}

// === impl Kept ===

impl Kept {
    /// Opens the directory and reads the record file.
    ///
    /// # Errors
    ///
    /// Fails if another host uses the directory, or if nothing can be written there. A file that
    /// cannot be read is logged and treated as missing.
    pub(crate) fn open(dir: CacheDir) -> Result<(Self, Read), Error> {
        let lock = lock(&dir)?;
        sweep(&dir);
        let read = match dir.open_file(LOG).and_then(read) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Read::default(),
            Err(error) => {
                warn!(path = %dir.path().display(), %error, "the records of former runs are not read");
                Read::default()
            }
        };
        if read.damaged > 0 {
            let path = dir.path().display();
            warn!(%path, damaged = read.damaged, "damaged records of former runs: their keys run once more");
        }
        info!(path = %dir.path().display(), records = read.records.len(), "records of runs are kept");
        let kept = Self { dir, lock: Some(lock), file: None, bytes: 0, bound: 0, is_told: false };
        Ok((kept, read))
    }

    /// Writes the changed records, and unlocks the directory for the next host.
    pub(crate) async fn close(&mut self, records: &Records) {
        // A failure was logged by `write`.
        self.write(records).await;
        (self.file, self.lock) = (None, None);
    }

    /// Writes the changed records. Returns whether that succeeded; a failure is logged once, and
    /// the next call tries again.
    pub(crate) async fn write(&mut self, records: &Records) -> bool {
        if self.lock.is_none() {
            return true;
        }
        let written = if self.file.is_some() && self.bytes <= self.bound {
            self.append(records).await
        } else {
            self.write_anew(records).await
        };
        match written {
            Ok(()) => {
                self.is_told = false;
                true
            }
            Err(error) => {
                // The file may be in any state now, so the next try begins with a new one.
                self.file = None;
                if !std::mem::replace(&mut self.is_told, true) {
                    let path = self.dir.path().display();
                    warn!(%path, %error, "records of runs cannot be written: what runs now runs once more after a restart");
                }
                false
            }
        }
    }

    async fn append(&mut self, records: &Records) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        loop {
            let unwritten = records.take_unwritten(AT_ONCE);
            if unwritten.is_empty() {
                return Ok(());
            }
            let frames = frame::frames(&unwritten);
            if let Err(error) = file.write_all(&frames) {
                records.written_in_vain(unwritten.iter().map(Unwritten::key).cloned());
                return Err(error);
            }
            self.bytes += frames.len() as u64;
            tokio::task::yield_now().await;
        }
    }

    /// Replaces the file with one that holds only current records.
    async fn write_anew(&mut self, records: &Records) -> io::Result<()> {
        self.file = None;
        let all = records.take_all();
        match self.try_write_anew(&all).await {
            Ok((file, bytes)) => {
                debug!(records = all.len(), bytes, "the records of runs are written anew");
                (self.file, self.bytes) = (Some(file), bytes);
                self.bound = 2 * bytes + SLACK;
                // Records may have changed meanwhile.
                self.append(records).await
            }
            Err(error) => {
                records.written_in_vain(all.iter().map(Unwritten::key).cloned());
                Err(error)
            }
        }
    }

    async fn try_write_anew(&self, all: &[Unwritten]) -> io::Result<(File, u64)> {
        let mut new = self.dir.begin_file()?;
        new.file().write_all(HEADER.as_bytes())?;
        let mut bytes = HEADER.len() as u64;
        for some in all.chunks(AT_ONCE) {
            let frames = frame::frames(some);
            new.file().write_all(&frames)?;
            bytes += frames.len() as u64;
            tokio::task::yield_now().await;
        }
        // The handle stays valid when `finish` renames the file.
        let file = new.file().try_clone()?;
        new.finish(LOG)?;
        Ok((file, bytes))
    }
}

/// Writes changed records to disk for as long as the host runs.
pub(crate) async fn run(kept: Arc<tokio::sync::Mutex<Kept>>, records: Arc<Records>) {
    let looked_at = Instant::now() + LOOKED_AT;
    let mut looks = true;
    loop {
        tokio::select! {
            () = records.changed() => sleep(GATHER).await,
            () = sleep_until(looked_at), if looks => {
                looks = false;
                records.forget_former();
                continue;
            }
        }
        if !kept.lock().await.write(&records).await {
            sleep(AGAIN).await;
        }
    }
}

/// Locks the directory against other hosts.
fn lock(dir: &CacheDir) -> Result<Lock, Error> {
    let path = || dir.path().display().to_string();
    let unusable = |source| Error::Unusable { path: path(), source };
    let mut options = OpenOptions::new();
    options.create(true).write(true);
    let lock = dir.dir().open_with(LOCK, &options).map_err(unusable)?.into_std();
    match lock.try_lock() {
        Ok(()) => Ok(Lock(lock)),
        Err(TryLockError::WouldBlock) => Err(Error::InUse(path())),
        Err(TryLockError::Error(error)) => Err(unusable(error)),
    }
}

// === impl Lock ===

impl Drop for Lock {
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            // The lock is then released when all processes that have the file open have closed it.
            warn!(%error, "the lock of the records is not let go of");
        }
    }
}

/// Removes unfinished files of a host that was killed while it wrote.
fn sweep(dir: &CacheDir) {
    let Ok(entries) = dir.dir().entries() else { return };
    for name in entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
        if CacheDir::is_unfinished(&name)
            && let Err(error) = dir.dir().remove_file(&name)
        {
            warn!(path = %dir.path().display(), name, %error, "an unfinished file is not removed");
        }
    }
}

fn read(mut file: File) -> io::Result<Read> {
    let length = file.metadata()?.len();
    if length > LONGEST {
        return Err(io::Error::other(format!("it is {length} bytes long, {LONGEST} are read")));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
    file.read_to_end(&mut bytes)?;
    Ok(frame::read(&bytes.into()))
}
