//! Pulled artifacts in the cache directory: manifests and modules by digest, the signatures of
//! manifests, and the namespaces that may use them.
//!
//! *Guarantees.* A returned file has the digest in its name. The space is shared by `room`, and
//! `access` tells who may read a file.

mod access;
mod room;

pub use self::room::{Incoming, Keep, Keeps, Room};

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, Write as _},
    sync::Arc,
};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use ring::digest::{Context, SHA256};
use tracing::warn;

use self::room::Reserved;
use super::{Digest, Error, artifact::Descriptor, repository::Sink};
use crate::cache_dir::{self, CacheDir, Unfinished, is_unwritable, used};

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
    /// Held while access records are changed.
    records: Arc<Mutex<()>>,
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
            Ok(dir) => {
                let (reserved, records) = (Arc::default(), Arc::default());
                Ok(Some(Self { dir, limit, reserved, records }))
            }
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

    /// Returns the stored signatures of a manifest. They are untrusted until they are verified.
    pub fn signatures(&self, of: Digest) -> Option<Vec<u8>> {
        self.small(&signatures_name(of))
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

    fn remove(&self, name: &str) {
        match self.dir.dir().remove_file(name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                warn!(name, %error, "a file of the cache cannot be removed");
            }
            _ => {}
        }
    }

    fn failed(&self, source: io::Error) -> Error {
        let path = self.dir.path().display();
        let hint = if is_unwritable(&source) { " (--cache)" } else { "" };
        Error::Disk { what: format!("cannot write to `{path}`{hint}"), source }
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

/// Returns the name of the file with the access records of a namespace.
fn access_name(namespace: &str) -> String {
    format!("{ACCESS}{}", Digest::of(namespace.as_bytes()).hex())
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
