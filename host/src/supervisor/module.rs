//! Modules as files below one folder, which nothing leads out of, and which others change while the host runs.
//!
//! *Guarantee.* What is read of a module was all in its file at one moment: one that is being written is not read.

mod news;
#[cfg(test)]
mod tests;

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
use crate::processor::Digest;

/// Larger modules are not read. Go's guests have 10 to 20 MiB; to compile one takes some ten times its size of memory.
pub(super) const LARGEST: u64 = 64 << 20;
/// How specs call the folder, wherever it really is.
const FOLDER: &str = "/modules/";
/// How many names a message lists.
const LISTED: usize = 10;
/// A file that was changed less than this ago may be changed again without another time on it: systems count these in steps of up
/// to 10 ms.
const SETTLED: Duration = Duration::from_millis(20);
/// How many threads look into the folder at the same time. Where its disk hangs, others are left for all else: see `cli`.
const READERS: usize = 2;
/// How often a file is read that is changed meanwhile.
const ROUNDS: usize = 10;

/// The folder of modules. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Modules(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    dir: Dir,
    /// Where it was opened.
    folder: PathBuf,
    /// One permit for each thread that looks into it.
    readers: Arc<Semaphore>,
    /// Moves when something below the folder may be another.
    moved: latest::Sender<u64>,
}

/// A module that was read.
#[derive(Debug, Clone)]
pub(super) struct Module {
    pub(super) bytes: Bytes,
    pub(super) digest: Digest,
    /// What it was read from.
    pub(super) stamp: Stamp,
}

/// A file as it stands. Of one whose bytes have changed it is another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Device and inode.
    identity: (u64, u64),
    length: u64,
    /// When its bytes were changed, as anybody can set it.
    modified: (i64, i64),
    /// When anything of it was changed, as the system has it. Seconds and nanoseconds of Unix time.
    changed: (i64, i64),
}

// === impl Modules ===

impl Modules {
    /// Opens the folder.
    pub(super) fn open(folder: &Path) -> anyhow::Result<Self> {
        let dir = Dir::open_ambient_dir(folder, ambient_authority()).with_context(|| {
            format!(
                "cannot open the folder of modules `{}`: name another with --modules",
                folder.display()
            )
        })?;
        let (folder, moved) = (folder.to_owned(), latest::Sender::new(0));
        let readers = Arc::new(Semaphore::new(READERS));
        Ok(Self(Arc::new(Shared { dir, folder, readers, moved })))
    }

    /// Moves when a module may be another, while [`Modules::watch`] runs.
    pub(super) fn moves(&self) -> latest::Receiver<u64> {
        self.0.moved.subscribe()
    }

    /// Reads a module: its file, by the path in a spec.
    pub(super) async fn read(&self, path: &str) -> Result<Module, Fault> {
        self.with_dir(path, |dir, name| {
            let (bytes, stamp) = read(dir, name)?;
            Ok(Module { digest: Digest::of(&bytes), bytes, stamp })
        })
        .await
    }

    /// The module's file as it stands; none if it cannot be read.
    pub(super) async fn stamp(&self, path: &str) -> Option<Stamp> {
        let stamp = |dir: &Dir, name: &str| {
            let metadata = dir.metadata(name).map_err(|error| cannot(dir, name, &error))?;
            Ok(Stamp::of(&metadata))
        };
        self.with_dir(path, stamp).await.ok()
    }

    /// Does what may block.
    async fn with_dir<T: Send + 'static>(
        &self,
        path: &str,
        work: impl FnOnce(&Dir, &str) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let shared = Arc::clone(&self.0);
        let name = path.strip_prefix(FOLDER).unwrap_or(path).to_owned();
        let place = Arc::clone(&shared.readers).acquire_owned().await;
        let place = place.expect("the places are never closed");
        // A thread that hangs holds its place, though nobody waits for it any more.
        let worked = tokio::task::spawn_blocking(move || {
            let _place = place;
            work(&shared.dir, &name)
        });
        worked.await.unwrap_or_else(|error| {
            let message = format!("reading `{path}` was broken off: {error}");
            Err(Fault::passing("ModuleUnreadable", message))
        })
    }
}

/// Reads a file that nobody has changed meanwhile. One that takes another's place under the same name is another file.
fn read(dir: &Dir, name: &str) -> Result<(Bytes, Stamp), Fault> {
    for round in 0..ROUNDS {
        if round > 0 {
            thread::sleep(SETTLED);
        }
        let (mut file, before) = open(dir, name)?;
        if !has_settled(&before) {
            continue;
        }
        let bytes = read_whole(&mut file, &before).map_err(|error| cannot(dir, name, &error))?;
        if bytes.len() as u64 > LARGEST {
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
    Err(Fault::passing("ModuleChanging", message))
}

/// Opens a file. What else may be there under its name is opened without waiting for anybody, and then seen for what it is: looked at
/// before, it could be another by now.
fn open(dir: &Dir, name: &str) -> Result<(File, Metadata), Fault> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let opened = dir.open_with(name, &options);
    let opened = opened.and_then(|file| file.metadata().map(|metadata| (file, metadata)));
    let (file, metadata) = opened.map_err(|error| cannot(dir, name, &error))?;
    if !metadata.is_file() {
        let message = format!("`{name}` in the folder of modules is not a file");
        return Err(Fault::passing("ModuleUnreadable", message));
    }
    Ok((file, metadata))
}

fn read_whole(file: &mut File, metadata: &Metadata) -> io::Result<Vec<u8>> {
    let length = usize::try_from(metadata.len().min(LARGEST)).unwrap_or_default();
    let mut bytes = Vec::with_capacity(length);
    // It may grow while it is read.
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether each change from now on gives the file another time.
fn has_settled(metadata: &Metadata) -> bool {
    #[expect(clippy::disallowed_methods, reason = "it is compared with what the system writes")]
    let now = std::time::SystemTime::now();
    let now = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let seconds = u64::try_from(metadata.ctime()).unwrap_or_default();
    let nanoseconds = u32::try_from(metadata.ctime_nsec()).unwrap_or_default();
    // A clock that is far off, as that of a file server can be, tells nothing.
    now.abs_diff(Duration::new(seconds, nanoseconds)) >= SETTLED
}

fn too_large(name: &str, length: u64) -> Fault {
    let message = format!(
        "the module `{name}` has {} MiB or more; modules of up to {} MiB are accepted",
        length >> 20,
        LARGEST >> 20
    );
    Fault::passing("ModuleTooLarge", message)
}

fn cannot(dir: &Dir, name: &str, error: &io::Error) -> Fault {
    if error.kind() == io::ErrorKind::NotFound {
        let message =
            format!("there is no module `{name}` in the folder of modules; {}", held(dir));
        return Fault::passing("ModuleNotFound", message);
    }
    // What the system itself refuses has a number.
    if error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none() {
        let message = format!(
            "the module `{name}` leads out of the folder of modules: a path and a link may lead to what is below it"
        );
        return Fault::passing("ModuleUnreadable", message);
    }
    Fault::passing("ModuleUnreadable", format!("cannot read the module `{name}`: {error}"))
}

/// What the folder holds, for the one who looks for a name.
fn held(dir: &Dir) -> String {
    let entries = dir.entries().into_iter().flatten().filter_map(Result::ok);
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| is_module(name)).collect();
    names.sort();
    let more = names.len().saturating_sub(LISTED);
    names.truncate(LISTED);
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
