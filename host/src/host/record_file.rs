//! The record file: run records on disk, in the cache directory, so that the next start can skip
//! keys whose result is known.
//!
//! The file consists of a header line with the format number and the version of mortise, a digest
//! of the rest, and the records, each encoded with postcard. It is written to a temporary file and
//! renamed, so a host that is killed loses only the records of its last seconds. A file that is
//! damaged, or written by another version of mortise, is ignored as a whole. A lost record costs
//! only a run of its key, so there is no fsync. Of two hosts with one directory, the second one
//! writes no records.

#[cfg(test)]
mod tests;

use std::{
    fs::{File, TryLockError},
    io::{self, Read as _, Write as _},
    os::unix::fs::FileExt as _,
    sync::Arc,
    time::Duration,
};

use cap_std::fs::OpenOptions;
use foldhash::HashMap;
use mortise_core::{
    queue::Key,
    reads::record::{Record, Records, Shared},
};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info, warn};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::cache_dir::CacheDir;

/// The first line of the file: the number of this format, and the version of mortise. An encoded
/// record has no field names, so any change of the type [`Record`] needs another format number.
const HEADER: &str = concat!("mortise records 4 ", env!("CARGO_PKG_VERSION"), "\n");
/// The name of the file.
const FILE: &str = "runs";
const LOCK: &str = "lock";
/// The longest file that is read, in bytes: a longer one would take too long. 100,000 keys take a
/// third of it.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// The number of records that are written before yielding to other tasks: about 1 ms of work.
const RECORDS_PER_TURN: usize = 64;
/// The delay between a change and the write, which includes all changes made meanwhile.
///
/// Bounds the runs to repeat after a kill, and the bytes written: for 5,000 keys that change all
/// the time, 17 MB every 30 s.
const WRITE_DELAY: Duration = Duration::from_secs(30);
/// The time after which records of a former start are dropped if their keys were not verified:
/// every key that exists has been verified by then, so the others are of objects or processors that
/// are gone.
const UNVERIFIED_RECORD_AGE: Duration = Duration::from_hours(1);

/// The reason why no records are written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// Another host uses the directory.
    #[error("another host keeps its records in `{0}`")]
    InUse(String),

    /// The lock file cannot be created or locked.
    #[error("cannot use `{path}`")]
    Unusable {
        /// The path of the directory.
        path: String,
        source: io::Error,
    },
}

/// The record file, while this host writes to it.
#[derive(Debug)]
pub(crate) struct RecordFile {
    dir: CacheDir,
    /// The lock on the directory; `None` after [`RecordFile::close`], when nothing is written any
    /// more.
    lock: Option<Lock>,
    /// True if the last write failed, and that was logged.
    failed: bool,
}

/// The lock that reserves the directory for one host.
///
/// Dropping it unlocks the file explicitly rather than only closing it: a child process inherits
/// the open file from fork to exec.
#[derive(Debug)]
struct Lock(File);

pub(crate) type ByKey = HashMap<Key, Arc<Record>>;

// === impl RecordFile ===

impl RecordFile {
    /// Opens the directory and reads the records of former starts.
    ///
    /// # Errors
    ///
    /// Fails if another host uses the directory, or if nothing can be written there. A file that
    /// cannot be read is logged and treated as missing.
    pub(crate) fn open(dir: CacheDir) -> Result<(Self, ByKey), Error> {
        let lock = lock(&dir)?;
        sweep(&dir);
        let path = dir.path().display();
        let records = match dir.open_file(FILE).and_then(read) {
            Ok(records) => records,
            Err(error) if error.kind() == io::ErrorKind::NotFound => ByKey::default(),
            Err(error) => {
                warn!(%path, %error, "record file ignored: every key runs once more");
                ByKey::default()
            }
        };
        info!(%path, records = records.len(), "record file read");
        Ok((Self { dir, lock: Some(lock), failed: false }, records))
    }

    /// Writes the file if a record has changed, and unlocks the directory for the next host.
    pub(crate) async fn close(&mut self, records: &Records) {
        self.write(records).await;
        self.lock = None;
    }

    /// Writes the file if a record has changed. A failure is logged, once for several in a row; the
    /// next call tries again.
    pub(crate) async fn write(&mut self, records: &Records) {
        if self.lock.is_none() {
            return;
        }
        let Some((changes, all)) = records.unwritten() else { return };
        if let Err(error) = self.try_write(&all).await {
            if !self.failed {
                let path = self.dir.path().display();
                warn!(%path, %error, "record file not written: keys that run now run again after a restart");
            }
            self.failed = true;
        } else {
            debug!(records = all.len(), "record file written");
            records.written(changes);
            self.failed = false;
        }
    }

    async fn try_write(&self, records: &[Arc<Record>]) -> io::Result<()> {
        let mut new = self.dir.begin_file()?;
        let mut digest = Xxh3::new();
        new.file().write_all(HEADER.as_bytes())?;
        new.file().write_all(&digest.digest().to_le_bytes())?;
        for some in records.chunks(RECORDS_PER_TURN) {
            let lasting = some.iter().filter(|record| record.outlives_its_start());
            let bytes = lasting.map(|record| encode(record)).collect::<Vec<_>>().concat();
            digest.update(&bytes);
            new.file().write_all(&bytes)?;
            tokio::task::yield_now().await;
        }
        new.file().write_all_at(&digest.digest().to_le_bytes(), HEADER.len() as u64)?;
        new.finish(FILE)
    }
}

/// Writes changed records to disk for as long as the host runs.
pub(crate) async fn run(file: Arc<tokio::sync::Mutex<RecordFile>>, records: Arc<Records>) {
    let verified = Instant::now() + UNVERIFIED_RECORD_AGE;
    let mut has_former = true;
    loop {
        tokio::select! {
            () = records.changed() => {
                sleep(WRITE_DELAY).await;
                file.lock().await.write(&records).await;
            }
            () = sleep_until(verified), if has_former => {
                has_former = false;
                records.forget_former();
            }
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
            warn!(%error, "lock of the record file not released");
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

fn read(mut file: File) -> io::Result<ByKey> {
    let length = file.metadata()?.len();
    if length > MAX_FILE_BYTES {
        return Err(io::Error::other(format!(
            "it is {length} bytes long, {MAX_FILE_BYTES} are read"
        )));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
    file.read_to_end(&mut bytes)?;
    decode(&bytes).map_err(io::Error::other)
}

/// Encodes a record as the file holds it.
pub(crate) fn encode(record: &Record) -> Vec<u8> {
    postcard::to_allocvec(record).expect("a record is texts and numbers")
}

/// Decodes a file. The error says why the file is ignored.
fn decode(file: &[u8]) -> Result<ByKey, &'static str> {
    let rest = file.strip_prefix(HEADER.as_bytes());
    let rest = rest.ok_or("another version of mortise has written it")?;
    let (digest, mut rest) = rest.split_first_chunk().ok_or("it is damaged")?;
    if xxh3_64(rest) != u64::from_le_bytes(*digest) {
        return Err("it is damaged");
    }
    let (mut records, mut shared) = (ByKey::default(), Shared::default());
    while !rest.is_empty() {
        let (mut record, next) =
            postcard::take_from_bytes::<Record>(rest).map_err(|_| "it holds no records")?;
        record.share(&mut shared);
        records.insert(record.key.clone(), Arc::new(record));
        rest = next;
    }
    Ok(records)
}

/// Returns a file with these bytes in the place of the encoded records.
#[cfg(any(test, fuzzing))]
pub(crate) fn file_of(rest: &[u8]) -> Vec<u8> {
    [HEADER.as_bytes(), &xxh3_64(rest).to_le_bytes(), rest].concat()
}

/// Returns the number of records in a file; `None` if the file is ignored.
#[cfg(any(test, fuzzing))]
pub(crate) fn count(file: &[u8]) -> Option<usize> {
    decode(file).ok().map(|records| records.len())
}
