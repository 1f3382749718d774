//! Module files below one folder, which others change while the host runs. No path and no link
//! leads out of the folder.
//!
//! *Guarantee.* The bytes of a module were all in its file at one moment: a file that is being
//! written is not read.

#[cfg(test)]
mod tests;
mod watch;

use std::{
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use anyhow::Context as _;
use bytes::Bytes;
use cap_std::{
    ambient_authority,
    fs::{Dir, File, Metadata, MetadataExt as _, OpenOptions, OpenOptionsExt as _},
};
use rustix::fs::OFlags;
use tokio::sync::{Semaphore, watch as latest};

use super::fault::Fault;
use crate::{
    oci::{MAX_MODULE_BYTES, signature::MAX_FILE_BYTES},
    reason::Reason,
    wasm::Digest,
};

/// The end of the name of a module's signature, after the module's own name.
const SIGNATURE: &str = ".sig";
/// The name of the folder in specs, wherever the folder is.
pub(super) const FOLDER: &str = "/modules/";
/// The number of modules that a message lists.
const MAX_LISTED_MODULES: usize = 10;
/// The age from which a change time can be relied on: a file that changed more recently may change
/// again and keep its change time, since systems count these times in steps of up to 10 ms.
const SETTLED_AGE: Duration = Duration::from_millis(20);
/// The number of threads that read the folder at the same time. If its disk hangs, other threads
/// are left for the rest of the host: see `program`.
const MAX_READERS: usize = 2;
/// The number of attempts to read a file that is changed meanwhile.
const MAX_ATTEMPTS: usize = 10;

/// The folder of modules. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Modules(Arc<FolderState>);

#[derive(Debug)]
struct FolderState {
    dir: Dir,
    folder: PathBuf,
    /// The permits of the threads that read the folder, one for each.
    readers: Arc<Semaphore>,
    /// A number that changes when a file below the folder may have changed.
    moved: latest::Sender<u64>,
}

/// The bytes of a module's file.
#[derive(Debug, Clone)]
pub(super) struct Module {
    pub(super) bytes: Bytes,
    pub(super) digest: Digest,
    /// The stamp of the file that the bytes were read from.
    pub(super) stamp: Stamp,
}

/// The identity of a file's content: if the bytes change, the stamp changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Device and inode.
    identity: (u64, u64),
    length: u64,
    /// The modification time, which anybody can set. Seconds and nanoseconds of Unix time.
    modified: (i64, i64),
    /// The change time, which the system sets at any change. Seconds and nanoseconds of Unix time.
    changed: (i64, i64),
}

// === impl Modules ===

impl Modules {
    pub(super) fn open(folder: &Path) -> anyhow::Result<Self> {
        let dir = Dir::open_ambient_dir(folder, ambient_authority()).with_context(|| {
            format!(
                "cannot open the folder of modules `{}`: name another with --modules",
                folder.display()
            )
        })?;
        let (folder, moved) = (folder.to_owned(), latest::Sender::new(0));
        let readers = Arc::new(Semaphore::new(MAX_READERS));
        Ok(Self(Arc::new(FolderState { dir, folder, readers, moved })))
    }

    /// Returns a number that changes when a module may have changed, while [`Modules::watch`] runs.
    pub(super) fn moves(&self) -> latest::Receiver<u64> {
        self.0.moved.subscribe()
    }

    /// Reads the file of a module, by the path in a spec.
    pub(super) async fn read(&self, path: &str) -> Result<Module, Fault> {
        self.with_dir(path, |dir, name| {
            let (bytes, stamp) = read(dir, name)?;
            Ok(Module { digest: Digest::of(&bytes), bytes, stamp })
        })
        .await
    }

    /// Reads the signature beside the file of a module; `None` if there is none.
    pub(super) async fn signature(&self, path: &str) -> Result<Option<(Bytes, Stamp)>, Fault> {
        let path = format!("{path}{SIGNATURE}");
        self.with_dir(&path, |dir, name| match dir.metadata(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Ok(metadata) if metadata.len() > MAX_FILE_BYTES => {
                let message = format!(
                    "the signature `{name}` has {} bytes; up to {MAX_FILE_BYTES} are accepted",
                    metadata.len()
                );
                Err(Fault::passing(Reason::SignatureMissing, message))
            }
            _ => read(dir, name).map(Some),
        })
        .await
    }

    /// Returns the stamp of the signature beside the file of a module; `None` if there is none.
    pub(super) async fn signature_stamp(&self, path: &str) -> Option<Stamp> {
        self.stamp(&format!("{path}{SIGNATURE}")).await
    }

    /// Returns the stamp of the module's file; `None` if the file cannot be read.
    pub(super) async fn stamp(&self, path: &str) -> Option<Stamp> {
        let stamp = |dir: &Dir, name: &str| {
            let metadata = dir.metadata(name).map_err(|error| cannot(dir, name, &error))?;
            Ok(Stamp::of(&metadata))
        };
        self.with_dir(path, stamp).await.ok()
    }

    /// Runs `work` on a thread where it may block.
    async fn with_dir<T: Send + 'static>(
        &self,
        path: &str,
        work: impl FnOnce(&Dir, &str) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let state = Arc::clone(&self.0);
        let name = path.strip_prefix(FOLDER).unwrap_or(path).to_owned();
        let place = Arc::clone(&state.readers).acquire_owned().await;
        let place = place.expect("the places are never closed");
        // A thread that hangs keeps its permit, though nobody waits for it any more.
        let worked = tokio::task::spawn_blocking(move || {
            let _place = place;
            work(&state.dir, &name)
        });
        worked.await.unwrap_or_else(|error| {
            let message = format!("reading `{path}` was broken off: {error}");
            Err(Fault::passing(Reason::ModuleUnreadable, message))
        })
    }
}

/// Reads a file that is not changed meanwhile. A file that is renamed into its place is another
/// file.
fn read(dir: &Dir, name: &str) -> Result<(Bytes, Stamp), Fault> {
    for round in 0..MAX_ATTEMPTS {
        if round > 0 {
            thread::sleep(SETTLED_AGE);
        }
        let (mut file, before) = open(dir, name)?;
        if !has_settled(&before) {
            continue;
        }
        let bytes = read_whole(&mut file, &before).map_err(|error| cannot(dir, name, &error))?;
        if bytes.len() as u64 > MAX_MODULE_BYTES {
            return Err(too_large(name, before.len()));
        }
        let after = file.metadata().map_err(|error| cannot(dir, name, &error))?;
        let stamp = Stamp::of(&after);
        if stamp == Stamp::of(&before) && bytes.len() as u64 == stamp.length {
            return Ok((bytes.into(), stamp));
        }
    }
    let message = format!(
        "the module `{name}` is being written: it is read when that is over; write another file, and rename it"
    );
    Err(Fault::passing(Reason::ModuleChanging, message))
}

/// Opens a regular file. Anything else of that name is opened without waiting, and refused by its
/// type afterwards: if the type were checked first, the file could be replaced in between.
fn open(dir: &Dir, name: &str) -> Result<(File, Metadata), Fault> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let opened = dir.open_with(name, &options);
    let opened = opened.and_then(|file| file.metadata().map(|metadata| (file, metadata)));
    let (file, metadata) = opened.map_err(|error| cannot(dir, name, &error))?;
    if !metadata.is_file() {
        let message = format!("`{name}` in the folder of modules is not a file");
        return Err(Fault::passing(Reason::ModuleUnreadable, message));
    }
    Ok((file, metadata))
}

fn read_whole(file: &mut File, metadata: &Metadata) -> io::Result<Vec<u8>> {
    let length = usize::try_from(metadata.len().min(MAX_MODULE_BYTES)).unwrap_or_default();
    let mut bytes = Vec::with_capacity(length);
    // The file may grow while it is read.
    file.take(MAX_MODULE_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns whether each change from now on gives the file a new change time.
fn has_settled(metadata: &Metadata) -> bool {
    #[expect(clippy::disallowed_methods, reason = "it is compared with what the system writes")]
    let now = std::time::SystemTime::now();
    let now = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let seconds = u64::try_from(metadata.ctime()).unwrap_or_default();
    let nanoseconds = u32::try_from(metadata.ctime_nsec()).unwrap_or_default();
    // A clock that is far off, such as that of a file server, proves nothing.
    now.abs_diff(Duration::new(seconds, nanoseconds)) >= SETTLED_AGE
}

fn too_large(name: &str, length: u64) -> Fault {
    let message = format!(
        "the module `{name}` has {} MiB or more; modules of up to {} MiB are accepted",
        length >> 20,
        MAX_MODULE_BYTES >> 20
    );
    Fault::passing(Reason::ModuleTooLarge, message)
}

fn cannot(dir: &Dir, name: &str, error: &io::Error) -> Fault {
    if error.kind() == io::ErrorKind::NotFound {
        let message =
            format!("there is no module `{name}` in the folder of modules; {}", held(dir));
        return Fault::passing(Reason::ModuleNotFound, message);
    }
    // A refusal by the system has an error number; one by `cap_std` has none.
    if error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none() {
        let message = format!(
            "the module `{name}` leads out of the folder of modules: a path and a link may lead to what is below it"
        );
        return Fault::passing(Reason::ModuleUnreadable, message);
    }
    Fault::passing(Reason::ModuleUnreadable, format!("cannot read the module `{name}`: {error}"))
}

/// Lists the modules in the folder, for error messages.
fn held(dir: &Dir) -> String {
    let entries = dir.entries().into_iter().flatten().filter_map(Result::ok);
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| is_module(name)).collect();
    names.sort();
    let more = names.len().saturating_sub(MAX_LISTED_MODULES);
    names.truncate(MAX_LISTED_MODULES);
    match (names.is_empty(), more) {
        (true, _) => "it holds none".to_owned(),
        (false, 0) => format!("it holds: {}", names.join(", ")),
        (false, more) => format!("it holds: {}, and {more} more", names.join(", ")),
    }
}

fn is_module(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "wasm")
}

// === impl Stamp ===

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            identity: (metadata.dev(), metadata.ino()),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}
