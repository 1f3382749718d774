//! The cache of compiled code, kept between starts.
//!
//! An entry is named by the digest of the module and by a hash of all that its code depends on:
//! wasmtime's version, its settings, the features of the CPU. The entry ends with a digest of its
//! name and its code. An entry that was truncated, damaged or renamed is compiled again, and so is
//! one that other users could have written. Entries are never changed in place, only replaced:
//! running components have them mapped.
//!
//! Eviction is by last use: when all entries together become too large, the least recently used
//! ones are removed.

use std::{
    fs::File,
    hash::{Hash, Hasher},
    io::{self, Read, Seek as _, Write as _},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use tracing::{debug, warn};
use xxhash_rust::xxh3::Xxh3;

use super::Digest;
use crate::cache_dir::{CacheDir, Trim, Unfinished, is_unwritable, used};

/// The folder of the entries, in the cache directory of the host.
const FOLDER: &str = "code";
/// The end of an entry's file name.
const ENDING: &str = ".code";
/// Maximum bytes of all entries together: the code of a hundred large processors.
const MAX_TOTAL_BYTES: u64 = 2 << 30;
/// Bytes of the digest after the code.
const CHECKSUM_BYTES: u64 = SHA256_OUTPUT_LEN as u64;
/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// A directory of compiled components.
#[derive(Debug)]
pub(super) struct Cache {
    dir: CacheDir,
    /// The hash of all settings that compiled code depends on.
    settings: u64,
    limit: u64,
    /// True once a warning about an unwritable cache was logged.
    warned: AtomicBool,
}

/// The result of looking up an entry.
pub(super) enum Found {
    /// A file of code written by this program.
    Code(Verified),
    /// No entry.
    Nothing,
    /// An entry that must not be used; the reason was logged.
    Refused,
}

/// A file of code written by this program: read from the cache, or compiled just now.
pub(super) struct Verified {
    pub(super) file: File,
}

// === impl Cache ===

impl Cache {
    /// Opens the cache in this directory. Returns `None`, and logs a warning, if its folder cannot
    /// be created.
    ///
    /// # Errors
    ///
    /// Fails if other users may write to the directory.
    pub(super) fn open(
        dir: &CacheDir,
        engine: &wasmtime::Engine,
    ) -> Result<Option<Self>, crate::cache_dir::Error> {
        match dir.subdir(FOLDER) {
            Ok(dir) => Ok(Some(Self::new(dir, engine, MAX_TOTAL_BYTES))),
            Err(error) if error.is_unwritable() => {
                warn!(
                    error = mortise_core::error_chain::whole(&error),
                    "compiled code is not kept"
                );
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn new(dir: CacheDir, engine: &wasmtime::Engine, limit: u64) -> Self {
        let mut hasher = Xxh3::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        Self { dir, settings: hasher.finish(), limit, warned: AtomicBool::new(false) }
    }

    /// Returns the compiled code of a module, if the entry exists, is owned by this user and is
    /// complete.
    pub(super) fn get(&self, module: Digest) -> Found {
        let name = self.entry_name(module);
        let file = match self.dir.open_file(&name) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Found::Nothing,
            Err(error) => {
                warn!(%module, %error, "an entry of the code cache is refused, compiling again");
                return Found::Refused;
            }
        };
        match is_whole(&name, &file) {
            Ok(true) => {
                used(&file);
                Found::Code(Verified { file })
            }
            Ok(false) => {
                warn!(%module, "damaged entry of the code cache, compiling again");
                Found::Refused
            }
            Err(error) => {
                warn!(%module, %error, "cannot read the code cache");
                Found::Refused
            }
        }
    }

    /// Begins an entry for a compiler to write; `None` if the cache is not writable.
    pub(super) fn begin(&self) -> Option<Unfinished> {
        self.dir.begin_file().map_err(|error| self.not_kept(&error)).ok()
    }

    /// Stores compiled code, and returns whether that succeeded. A failure costs a compilation at
    /// the next start and nothing else.
    pub(super) fn put(&self, module: Digest, mut code: impl Read) -> bool {
        let written = self.dir.begin_file().and_then(|mut entry| {
            copy(&mut code, |chunk| entry.file().write_all(chunk))?;
            self.seal(module, &mut entry)?;
            entry.finish(&self.entry_name(module))
        });
        self.kept(module, &written);
        written.is_ok()
    }

    /// Completes an entry that a compiler has written. Returns its file, which has no name if that
    /// failed.
    pub(super) fn finish(&self, module: Digest, mut entry: Unfinished) -> io::Result<File> {
        let sealed = self.seal(module, &mut entry);
        let file = entry.file().try_clone()?;
        let written = sealed.and_then(|()| entry.finish(&self.entry_name(module)));
        self.kept(module, &written);
        Ok(file)
    }

    /// Appends the digest of an entry's name and code. The file is not synced to the disk: an entry
    /// that a crash of the machine left incomplete does not carry its digest. Two hosts that write
    /// the same entry write equivalent code.
    fn seal(&self, module: Digest, entry: &mut Unfinished) -> io::Result<()> {
        let mut digest = digest_for(&self.entry_name(module));
        entry.file().rewind()?;
        copy(entry.file(), |chunk| {
            digest.update(chunk);
            Ok(())
        })?;
        entry.file().write_all(digest.finish().as_ref())
    }

    fn kept(&self, module: Digest, written: &io::Result<()>) {
        match written {
            Ok(()) => debug!(%module, "kept compiled code"),
            Err(error) => self.not_kept(error),
        }
        let newest = self.entry_name(module);
        let stays = |name: &str| name == newest;
        Trim { limit: self.limit, max_age: None, is_entry: &is_entry, stays: &stays }
            .run(&self.dir);
    }

    /// Logs that code is not cached; warns once if the cache is unwritable.
    pub(super) fn not_kept(&self, error: &io::Error) {
        if is_unwritable(error) && self.warned.swap(true, Relaxed) {
            debug!(%error, "compiled code is not kept");
            return;
        }
        let directory = self.dir.path().display();
        warn!(%directory, %error, "compiled code is not kept");
    }

    fn entry_name(&self, module: Digest) -> String {
        format!("{}-{:016x}{ENDING}", module.to_string().replace(':', "-"), self.settings)
    }
}

fn is_entry(name: &str) -> bool {
    name.ends_with(ENDING)
}

// === impl Verified ===

impl Verified {
    /// Wraps the output of a compiler that this process has started, in a file that no other
    /// process has open.
    pub(super) fn just_compiled(file: File) -> Self {
        Self { file }
    }
}

/// Returns whether the file ends with the digest of its name and its code.
fn is_whole(name: &str, file: &File) -> io::Result<bool> {
    let Some(code) = file.metadata()?.len().checked_sub(CHECKSUM_BYTES) else { return Ok(false) };
    let mut digest = digest_for(name);
    copy(&mut file.take(code), |chunk| {
        digest.update(chunk);
        Ok(())
    })?;
    let mut checksum = Vec::new();
    file.take(CHECKSUM_BYTES + 1).read_to_end(&mut checksum)?;
    Ok(checksum == digest.finish().as_ref())
}

fn digest_for(name: &str) -> Context {
    let mut digest = Context::new(&SHA256);
    digest.update(name.as_bytes());
    digest
}

/// Copies `from` in chunks, because code can be large.
fn copy(from: &mut impl Read, mut to: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        to(buffer.get(..read).unwrap_or_default())?;
    }
}

#[cfg(test)]
mod tests;
