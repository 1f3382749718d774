//! The cache of compiled code, kept between starts.
//!
//! An entry is named by the digest of the module and by a hash of everything that the code depends
//! on in the engine and the machine: wasmtime's version, its settings, the features of the CPU. The
//! entry ends with a digest of its name and its code. An entry that was truncated, damaged or
//! renamed is compiled again, and so is one that other users could have written. Entries are never
//! changed in place, only replaced: running components have them mapped.
//!
//! Eviction is by last use: when all entries together become too large, those that were used
//! longest ago are removed.

mod trim;

use std::{
    fs::File,
    hash::{Hash, Hasher},
    io::{self, Read, Write as _},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, futimens};
use tracing::{debug, warn};
use xxhash_rust::xxh3::Xxh3;

use super::Digest;
use crate::cache_dir::{CacheDir, is_unwritable};

/// The folder of the entries, in the cache directory of the host.
const FOLDER: &str = "code";
/// The end of an entry's file name.
const ENDING: &str = ".code";
/// Bytes of all entries together: the code of a hundred large processors.
const LIMIT: u64 = 2 << 30;
/// Bytes of the digest after the code.
const CHECKSUM: u64 = SHA256_OUTPUT_LEN as u64;
/// Bytes that are read at once.
const CHUNK: usize = 256 << 10;

/// A directory of compiled components.
#[derive(Debug)]
pub(super) struct Cache {
    dir: CacheDir,
    /// The hash of everything that all code depends on.
    settings: u64,
    limit: u64,
    /// True once a warning that code cannot be kept was logged.
    warned: AtomicBool,
}

/// The result of looking for an entry.
pub(super) enum Found {
    /// A file of code as this program wrote it.
    Code(Verified),
    /// No entry.
    Nothing,
    /// An entry that must not be used; the reason was logged.
    Refused,
}

/// A file of code as this program wrote it: read from the cache, or compiled just now.
pub(super) struct Verified {
    pub(super) file: File,
}

// === impl Cache ===

impl Cache {
    /// Opens the cache in this directory. Returns `None`, and logs that, if the folder cannot be
    /// made there.
    ///
    /// # Errors
    ///
    /// Fails if other users may write to the directory.
    pub(super) fn open(
        dir: &CacheDir,
        engine: &wasmtime::Engine,
    ) -> Result<Option<Self>, crate::cache_dir::Error> {
        match dir.subdir(FOLDER) {
            Ok(dir) => Ok(Some(Self::new(dir, engine, LIMIT))),
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

    /// Stores compiled code, and returns whether that succeeded. A failure costs a compilation at
    /// the next start and nothing else.
    pub(super) fn put(&self, module: Digest, code: impl Read) -> bool {
        let name = self.entry_name(module);
        let written = self.write(&name, code);
        match &written {
            Ok(()) => debug!(%module, "kept compiled code"),
            Err(error) if is_unwritable(error) && self.warned.swap(true, Relaxed) => {
                debug!(%module, %error, "compiled code is not kept");
            }
            Err(error) => {
                let directory = self.dir.path().display();
                warn!(%module, %directory, %error, "compiled code is not kept");
            }
        }
        trim::trim(&self.dir, &name, self.limit);
        written.is_ok()
    }

    /// Two hosts that write the same entry write equivalent code. The file is not synced to the
    /// disk: an entry that a crash of the machine left incomplete does not carry its digest.
    fn write(&self, name: &str, mut code: impl Read) -> io::Result<()> {
        let mut entry = self.dir.begin_file()?;
        let mut digest = digest_for(name);
        copy(&mut code, |chunk| {
            digest.update(chunk);
            entry.file().write_all(chunk)
        })?;
        entry.file().write_all(digest.finish().as_ref())?;
        entry.finish(name)
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
    /// Wraps the output of a compiler that this process has started, in a file that nobody else has
    /// open.
    pub(super) fn just_compiled(file: File) -> Self {
        Self { file }
    }
}

/// Sets the time of an entry's last use. If that fails, the entry may be evicted early.
fn used(file: &File) {
    let at = |nanoseconds| Timespec { tv_sec: 0, tv_nsec: nanoseconds };
    let times = Timestamps { last_access: at(UTIME_OMIT), last_modification: at(UTIME_NOW) };
    if let Err(error) = futimens(file, &times) {
        debug!(%error, "the use of an entry of the code cache is not noted");
    }
}

/// Returns whether the file ends with the digest of its name and its code.
fn is_whole(name: &str, file: &File) -> io::Result<bool> {
    let Some(code) = file.metadata()?.len().checked_sub(CHECKSUM) else { return Ok(false) };
    let mut digest = digest_for(name);
    copy(&mut file.take(code), |chunk| {
        digest.update(chunk);
        Ok(())
    })?;
    let mut checksum = Vec::new();
    file.take(CHECKSUM + 1).read_to_end(&mut checksum)?;
    Ok(checksum == digest.finish().as_ref())
}

fn digest_for(name: &str) -> Context {
    let mut digest = Context::new(&SHA256);
    digest.update(name.as_bytes());
    digest
}

/// Passes on the bytes of `from` chunk by chunk, because code can be large.
fn copy(from: &mut impl Read, mut to: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
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
