//! Pulled artifacts in the cache directory: manifests and modules by digest, the signatures of
//! manifests, and the namespaces that may use them.
//!
//! *Guarantees.* A returned file has the digest in its name. Protected manifests (`kept`) and their
//! modules are never evicted, however full the folder is. Concurrent writes do not take each
//! other's space.
//!
//! *Access.* A registry authenticates each pull; a folder does not. So the store records to which
//! namespace a repository has served a manifest: other namespaces ask the registry first.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read as _, Seek as _, Write as _},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use ring::digest::{Context, SHA256};
use tracing::warn;

use super::{
    Digest, Error, Reference,
    artifact::{self, Descriptor},
    repository::Sink,
};
use crate::cache_dir::{self, CacheDir, Trim, Unfinished, is_unwritable, used};

/// The folder's name in the cache directory.
const FOLDER: &str = "modules";
/// The largest small file, in bytes.
const MAX_SMALL_BYTES: u64 = 8 << 20;
/// The chunk size for reading and writing files.
const CHUNK_BYTES: usize = 256 << 10;
const BLOB: &str = "sha256-";
const SIGNATURES: &str = "signatures-";
const ACCESS: &str = "access-";

/// A folder of pulled artifacts. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    dir: CacheDir,
    limit: u64,
    reserved: Arc<Reserved>,
}

/// The space reserved for blobs, less the bytes already written.
#[derive(Debug, Default)]
struct Reserved {
    bytes: AtomicU64,
    /// Held during a reservation, so that no space is reserved twice.
    turn: Mutex<()>,
}

/// Space reserved for one blob. Dropping it releases the unused rest.
#[derive(Debug)]
pub struct Room {
    reserved: Arc<Reserved>,
    /// The bytes that are not written yet.
    bytes: u64,
}

/// A module in a file that is never modified.
#[derive(Debug, Clone)]
pub struct Stored {
    pub file: Arc<File>,
    /// The digest of its bytes.
    pub digest: Digest,
    /// The number of its bytes.
    pub length: u64,
}

/// A blob that is being written.
pub struct Writer {
    store: Store,
    room: Option<Room>,
    /// The file; `None` while another thread writes a part, and after a write failed.
    file: Option<Unfinished>,
    waiting: BytesMut,
    written: u64,
}

// === impl Store ===

impl Store {
    /// Opens the folder in a cache directory, limited to `limit` bytes. Returns `None`, and logs a
    /// warning, if the folder cannot be created.
    ///
    /// # Errors
    ///
    /// Fails if other users may write to the folder.
    pub fn open(dir: &CacheDir, limit: u64) -> Result<Option<Self>, cache_dir::Error> {
        match dir.subdir(FOLDER) {
            Ok(dir) => Ok(Some(Self { dir, limit, reserved: Arc::default() })),
            Err(error) if error.is_unwritable() => {
                let error = mortise_core::error_chain::whole(&error);
                warn!(error, "modules from registries are not kept");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns a module if its file exists and has this digest. Reads the whole file.
    pub async fn module(&self, of: &Descriptor) -> Option<Stored> {
        let (store, digest, length) = (self.clone(), of.digest, of.size);
        let open = move || {
            let file = store.whole(digest)?;
            let is_whole = file.metadata().is_ok_and(|metadata| metadata.len() == length);
            is_whole.then(|| Stored { file: Arc::new(file), digest, length })
        };
        elsewhere(open).await.flatten()
    }

    /// Returns a manifest if its file exists and has this digest.
    pub fn manifest(&self, digest: Digest) -> Option<Vec<u8>> {
        let bytes = self.small(&blob_name(digest))?;
        (Digest::of(&bytes) == digest).then_some(bytes)
    }

    /// Stores a manifest.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub fn put_manifest(&self, bytes: &[u8]) -> Result<(), Error> {
        self.put(&blob_name(Digest::of(bytes)), bytes)
    }

    /// Returns the stored signatures of a manifest. They are untrusted until they are verified.
    pub fn signatures(&self, of: Digest) -> Option<Vec<u8>> {
        self.small(&signatures_name(of))
    }

    /// Stores the signatures of a manifest.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub fn put_signatures(&self, of: Digest, bytes: &[u8]) -> Result<(), Error> {
        self.put(&signatures_name(of), bytes)
    }

    /// Returns whether a repository has served a manifest to this namespace.
    pub fn has_access(&self, namespace: &str, of: &Reference, digest: Digest) -> bool {
        self.recorded(&access_name(namespace, of, "")).contains(&digest)
    }

    /// Returns the digest to which a tag last resolved, for this namespace.
    pub fn last_of_tag(&self, namespace: &str, of: &Reference) -> Option<Digest> {
        self.recorded(&access_name(namespace, of, of.tag()?)).first().copied()
    }

    /// Records that a repository has served a manifest to this namespace, under its tag if the
    /// reference has no digest.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be written.
    pub fn record_access(
        &self,
        namespace: &str,
        of: &Reference,
        digest: Digest,
    ) -> Result<(), Error> {
        self.record(&access_name(namespace, of, ""), digest)?;
        match of.tag().filter(|_| of.digest().is_none()) {
            Some(tag) => self.record(&access_name(namespace, of, tag), digest),
            None => Ok(()),
        }
    }

    /// Moves a digest to the front of the list in a file.
    fn record(&self, name: &str, digest: Digest) -> Result<(), Error> {
        /// The maximum number of digests in a list: the newest ones stay.
        const MAX_CACHED_DIGESTS: usize = 64;
        let mut recorded = self.recorded(name);
        if recorded.first() == Some(&digest) {
            return Ok(());
        }
        recorded.retain(|other| *other != digest);
        recorded.insert(0, digest);
        let lines: Vec<String> =
            recorded.iter().take(MAX_CACHED_DIGESTS).map(Digest::to_string).collect();
        self.put(name, lines.join("\n").as_bytes())
    }

    fn recorded(&self, name: &str) -> Vec<Digest> {
        let text = String::from_utf8(self.small(name).unwrap_or_default()).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Begins to write a blob, within reserved space if any is given.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be created.
    pub async fn begin(&self, room: Option<Room>) -> Result<Writer, Error> {
        let store = self.clone();
        let begin = move || {
            let file = store.dir.begin_file().map_err(|error| store.failed(error))?;
            Ok(Writer { store, room, file: Some(file), waiting: BytesMut::new(), written: 0 })
        };
        elsewhere(begin).await.unwrap_or_else(|| Err(broken_off()))
    }

    /// Reserves space, evicting the least recently used files as needed. `kept` are digests of
    /// manifests that are not evicted, nor are their modules and signatures.
    ///
    /// # Errors
    ///
    /// Fails if the kept files leave too little space.
    pub async fn make_room(&self, bytes: u64, kept: BTreeSet<Digest>) -> Result<Room, Error> {
        let store = self.clone();
        let reserved = elsewhere(move || store.reserve(bytes, &kept)).await;
        reserved.unwrap_or_else(|| Err(broken_off()))
    }

    fn reserve(&self, bytes: u64, kept: &BTreeSet<Digest>) -> Result<Room, Error> {
        let _turn = self.reserved.turn.lock();
        let reserved = self.reserved.bytes.load(Relaxed);
        let wanted = reserved.saturating_add(bytes);
        let left = self.trim(self.limit.saturating_sub(wanted), kept);
        if left.saturating_add(wanted) <= self.limit {
            self.reserved.bytes.fetch_add(bytes, Relaxed);
            return Ok(Room { reserved: Arc::clone(&self.reserved), bytes });
        }
        let left = left.saturating_add(reserved);
        let what = format!(
            "the folder of modules has room for {} MiB, and what Processors name, run or may go back to takes {} (--max-modules-mib)",
            self.limit >> 20,
            left.div_ceil(1 << 20)
        );
        Err(Error::Disk { what, source: io::ErrorKind::QuotaExceeded.into() })
    }

    /// Evicts files down to `limit` bytes. Returns the bytes left.
    fn trim(&self, limit: u64, kept: &BTreeSet<Digest>) -> u64 {
        let mut names = BTreeSet::new();
        for digest in kept {
            names.extend([blob_name(*digest), signatures_name(*digest)]);
            let parts = self.manifest(*digest).and_then(|bytes| artifact::parse(&bytes).ok());
            names.extend(parts.map(|parts| blob_name(parts.layer.digest)));
        }
        let stays = |name: &str| names.contains(name);
        // Records of access are not evicted: they take a few bytes each.
        let is_entry = |name: &str| name.starts_with(BLOB) || name.starts_with(SIGNATURES);
        Trim { limit, is_entry: &is_entry, stays: &stays }.run(&self.dir)
    }

    /// Opens a blob's file if its bytes have this digest.
    fn whole(&self, digest: Digest) -> Option<File> {
        let mut file = self.open_file(&blob_name(digest))?;
        let mut context = Context::new(&SHA256);
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => context.update(buffer.get(..read)?),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    warn!(%digest, %error, "a module in the cache cannot be read");
                    return None;
                }
            }
        }
        if Digest::finish(context) != digest {
            warn!(%digest, "a module in the cache was changed, it is pulled again");
            return None;
        }
        file.rewind().ok()?;
        used(&file);
        Some(file)
    }

    fn small(&self, name: &str) -> Option<Vec<u8>> {
        let file = self.open_file(name)?;
        let mut bytes = Vec::new();
        // An unreadable file counts as missing: it is pulled again.
        (&file).take(MAX_SMALL_BYTES).read_to_end(&mut bytes).ok()?;
        used(&file);
        Some(bytes)
    }

    fn open_file(&self, name: &str) -> Option<File> {
        match self.dir.open_file(name) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                warn!(name, %error, "a file of the cache is refused");
                None
            }
        }
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let written = self.dir.begin_file().and_then(|mut file| {
            file.file().write_all(bytes)?;
            file.finish(name)
        });
        written.map_err(|error| self.failed(error))
    }

    fn failed(&self, source: io::Error) -> Error {
        let path = self.dir.path().display();
        let hint = if is_unwritable(&source) { " (--cache)" } else { "" };
        Error::Disk { what: format!("cannot write to `{path}`{hint}"), source }
    }
}

// === impl Room ===

impl Room {
    /// Releases space for bytes that are written: they now count as the file's.
    fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.reserved.bytes.fetch_sub(bytes, Relaxed);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

// === impl Writer ===

impl Writer {
    /// Completes the blob; the caller has checked its digest.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub async fn finish(mut self, digest: Digest) -> Result<Stored, Error> {
        self.flush().await?;
        let length = self.written;
        let end = move || {
            let Some(mut unfinished) = self.file.take() else { return Err(broken_off()) };
            let file = unfinished.file().try_clone();
            let ended = file.and_then(|file| unfinished.finish(&blob_name(digest)).map(|()| file));
            let file = Arc::new(ended.map_err(|error| self.store.failed(error))?);
            Ok(Stored { file, digest, length })
        };
        elsewhere(end).await.unwrap_or_else(|| Err(broken_off()))
    }

    /// Writes the buffered bytes, on a thread that may block.
    async fn flush(&mut self) -> Result<(), Error> {
        let (Some(mut file), part) = (self.file.take(), self.waiting.split()) else {
            return Err(broken_off());
        };
        let length = part.len() as u64;
        self.written += length;
        let write = move || file.file().write_all(&part).map(|()| file);
        let written = elsewhere(write).await.unwrap_or_else(|| Err(io::Error::other("broken off")));
        self.file = Some(written.map_err(|error| self.store.failed(error))?);
        self.room.iter_mut().for_each(|room| room.shrink(length));
        Ok(())
    }
}

impl Sink for Writer {
    async fn take(&mut self, part: Bytes) -> Result<(), Error> {
        self.waiting.extend_from_slice(&part);
        if self.waiting.len() >= CHUNK_BYTES { self.flush().await } else { Ok(()) }
    }
}

fn blob_name(digest: Digest) -> String {
    format!("{BLOB}{}", digest.hex())
}

fn signatures_name(digest: Digest) -> String {
    format!("{SIGNATURES}{}", digest.hex())
}

/// Returns the file name of the access record of a repository (or of its tag) and a namespace.
fn access_name(namespace: &str, of: &Reference, tag: &str) -> String {
    let text = [namespace, &of.name(), tag].join("\n");
    format!("{ACCESS}{}", Digest::of(text.as_bytes()).hex())
}

/// Runs work on a thread that may block; `None` if it panicked.
async fn elsewhere<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

fn broken_off() -> Error {
    let what = "writing to the cache was broken off".to_owned();
    Error::Disk { what, source: io::ErrorKind::Interrupted.into() }
}

#[cfg(test)]
mod tests;
