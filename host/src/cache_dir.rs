//! The directory of what would cost time to make again: compiled code, records of runs.
//!
//! What lies in it is believed, code even run, so nobody else may write there: a directory is taken only if it is owned by the user
//! that this program runs as and if no other may write to it. It is reached through a handle, so that no name leads out of it, and
//! a file in it only if it is a file, ours, and not reached through a link. See host/decisions/0028-what-lies-in-the-cache.md.
//!
//! To keep nothing costs time, nothing else: a directory that cannot be written to is no fault. One that is not safe is.

use std::{
    fs::{DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use cap_std::{ambient_authority, fs::Dir};
use rustix::fs::{AtFlags, Mode, OFlags};

/// Nobody but the owner may do anything.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
/// Group and all others may write.
const OTHERS_WRITE: u32 = 0o022;
/// What files are called until they are whole.
const UNFINISHED: &str = "unfinished-";

/// Why a directory is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It belongs to another user, who could put anything into it.
    #[error(
        "the cache directory `{}` is owned by user {owner}, not by user {us}, whom this program runs as: name one of your own with \
         --cache, `{}` for instance", path.display(), path.join("mortise").display()
    )]
    OtherOwner {
        /// Which one.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who we are.
        us: u32,
    },

    /// Others could put anything into it.
    #[error(
        "others may write to the cache directory `{}` (mode {mode:04o}), and what lies in it is run: take that away with `chmod go-w`, \
         or name another with --cache", path.display()
    )]
    OthersWrite {
        /// Which one.
        path: PathBuf,
        /// Who may do what.
        mode: u32,
    },

    /// It is no directory, or cannot be opened.
    #[error("cannot open the cache directory `{}`: name another with --cache", path.display())]
    Unusable {
        /// Which one.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },

    /// It is not there, and there is no place or no right to make it.
    #[error("cannot make the cache directory `{}`", path.display())]
    NotMade {
        /// Which one.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// A directory that only this user may write to. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CacheDir {
    dir: Arc<Dir>,
    path: PathBuf,
}

/// A file that is being written, beside its place: nobody sees half of it. Removed when it is dropped unfinished.
#[derive(Debug)]
pub struct Unfinished<'a> {
    file: File,
    name: String,
    dir: &'a Dir,
}

/// Whether this says that nothing can be written there, as on a full or a read-only file system: a reason to go on without.
pub fn is_unwritable(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::PermissionDenied
    )
}

// === impl Error ===

impl Error {
    /// Whether it is only that nothing can be kept: who has no use for a fault goes on without the directory.
    pub fn is_unwritable(&self) -> bool {
        matches!(self, Self::NotMade { .. })
    }
}

// === impl CacheDir ===

impl CacheDir {
    /// Opens a directory, which is made for the owner alone if it is not there, with those above it.
    ///
    /// # Errors
    ///
    /// One that somebody else owns or may write to, that is none or that cannot be opened; and, as an error that is
    /// [unwritable](Error::is_unwritable), one that is not there and cannot be made.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let made = DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path);
        made.map_err(|source| cannot_make(path, source))?;
        match Dir::open_ambient_dir(path, ambient_authority()) {
            Ok(dir) => Self::check(dir, path.to_owned()),
            Err(source) => Err(closed(path, source)),
        }
    }

    /// Opens a directory in this one, which is made if it is not there. A link is none.
    ///
    /// # Errors
    ///
    /// As [`CacheDir::open`].
    pub fn subdir(&self, name: &str) -> Result<Self, Error> {
        let path = self.path.join(name);
        let made = rustix::fs::mkdirat(&*self.dir, name, Mode::from_raw_mode(DIRECTORY_MODE));
        match made.map_err(io::Error::from) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(cannot_make(&path, error));
            }
            _ => {}
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&*self.dir, name, flags, Mode::empty()) {
            Ok(dir) => Self::check(Dir::from_std_file(dir.into()), path),
            Err(source) => Err(Error::Unusable { path, source: source.into() }),
        }
    }

    fn check(dir: Dir, path: PathBuf) -> Result<Self, Error> {
        let file = dir.into_std_file();
        let metadata = match file.metadata() {
            Ok(metadata) => metadata,
            Err(source) => return Err(Error::Unusable { path, source }),
        };
        let (owner, us) = (metadata.uid(), our_id());
        if owner != us {
            return Err(Error::OtherOwner { path, owner, us });
        }
        if metadata.mode() & OTHERS_WRITE != 0 {
            return Err(Error::OthersWrite { path, mode: metadata.mode() & 0o7777 });
        }
        Ok(Self { dir: Arc::new(Dir::from_std_file(file)), path })
    }

    /// Its path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its handle.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Opens a file to read it.
    ///
    /// # Errors
    ///
    /// What the system says; and what is not a file, is a link, is owned by somebody else, or may be written by others.
    pub fn open_file(&self, name: &str) -> io::Result<File> {
        // Without NONBLOCK, to open a pipe that somebody put there would wait for its other end.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&*self.dir, name, flags, Mode::empty())?);
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is not a file"));
        }
        let (owner, us) = (metadata.uid(), our_id());
        if owner != us {
            let message = format!("it is owned by user {owner}, not by user {us}");
            return Err(io::Error::other(message));
        }
        if metadata.mode() & OTHERS_WRITE != 0 {
            let message = format!("others may write to it (mode {:04o})", metadata.mode() & 0o7777);
            return Err(io::Error::other(message));
        }
        Ok(file)
    }

    /// Begins a file. Nobody sees it before it is [finished](Unfinished::finish).
    ///
    /// # Errors
    ///
    /// What the system says: see [`is_unwritable`].
    pub fn begin_file(&self) -> io::Result<Unfinished<'_>> {
        // Of its own also where two hosts in containers, whose processes have the same id, share the directory.
        let name = format!("{UNFINISHED}{:016x}", rand::random::<u64>());
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&*self.dir, &name, flags, FILE_MODE)?;
        Ok(Unfinished { file: file.into(), name, dir: &self.dir })
    }

    /// Whether a file of this name is one that [`CacheDir::begin_file`] made, and that was not finished (yet).
    pub fn is_unfinished(name: &str) -> bool {
        name.starts_with(UNFINISHED)
    }
}

// === impl Unfinished ===

impl Unfinished<'_> {
    /// What is written to.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Puts it into its place, instead of what is there: who has opened that goes on reading it.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn finish(self, name: &str) -> io::Result<()> {
        // Dropping it afterwards finds nothing to remove.
        Ok(rustix::fs::renameat(self.dir, &self.name, self.dir, name)?)
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        // What cannot be removed is left: who looks after the directory removes it later.
        let _ = rustix::fs::unlinkat(self.dir, &self.name, AtFlags::empty());
    }
}

/// The user that this program acts as.
fn our_id() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn cannot_make(path: &Path, source: io::Error) -> Error {
    let path = path.to_owned();
    if is_unwritable(&source) {
        Error::NotMade { path, source }
    } else {
        Error::Unusable { path, source }
    }
}

/// Why a directory that is there cannot be opened; most likely since it is not ours.
fn closed(path: &Path, source: io::Error) -> Error {
    let (path, us) = (path.to_owned(), our_id());
    match std::fs::metadata(&path).map(|metadata| metadata.uid()) {
        Ok(owner) if owner != us => Error::OtherOwner { path, owner, us },
        _ => Error::Unusable { path, source },
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        io::{Read as _, Write as _},
        os::unix::fs::{PermissionsExt as _, chown, symlink},
    };

    use super::*;

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/cache");
        (folder, path)
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn write(cache: &CacheDir, name: &str, text: &str) {
        let mut file = cache.begin_file().unwrap();
        file.file().write_all(text.as_bytes()).unwrap();
        file.finish(name).unwrap();
    }

    fn names(cache: &CacheDir) -> Vec<String> {
        let entries = cache.dir().entries().unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn what_is_not_there_is_made_for_us_alone() {
        let (_folder, path) = folder();
        let cache = CacheDir::open(&path).unwrap();
        let records = cache.subdir("records").unwrap();
        assert_eq!(records.path(), path.join("records"));
        for made in [path.parent().unwrap(), &path, records.path()] {
            assert_eq!(mode(made), 0o700, "{}", made.display());
        }
        CacheDir::open(&path).unwrap().subdir("records").unwrap();
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        let (_folder, path) = folder();
        let cache = CacheDir::open(&path).unwrap();
        let inner = cache.subdir("code").unwrap();
        for mode in [0o770, 0o702, 0o1777] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = CacheDir::open(&path).unwrap_err();
            assert!(!error.is_unwritable());
            let text = error.to_string();
            assert!(
                text.contains(&format!("(mode {mode:04o})")) && text.contains("chmod go-w"),
                "{text}"
            );
            fs::set_permissions(inner.path(), Permissions::from_mode(mode)).unwrap();
            assert!(matches!(cache.subdir("code"), Err(Error::OthersWrite { .. })), "{mode:o}");
        }
    }

    #[test]
    fn a_directory_of_somebody_else_is_refused() {
        let (_folder, path) = folder();
        // Who is not root cannot give a directory away, but does not own root's either.
        let theirs = if our_id() == 0 {
            CacheDir::open(&path).unwrap();
            chown(&path, Some(12_345), None).unwrap();
            path
        } else {
            PathBuf::from("/usr")
        };
        let error = CacheDir::open(&theirs).unwrap_err();
        assert!(!error.is_unwritable());
        let text = error.to_string();
        let expected = format!("not by user {}, whom this program runs as", our_id());
        assert!(matches!(error, Error::OtherOwner { .. }) && text.contains(&expected), "{text}");
    }

    #[test]
    fn what_is_no_directory_is_refused() {
        let (folder, path) = folder();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        for at in [file.clone(), file.join("below")] {
            let error = CacheDir::open(&at).unwrap_err();
            let text = error.to_string();
            assert!(!error.is_unwritable() && text.contains("name another with --cache"), "{text}");
        }
        let cache = CacheDir::open(&path).unwrap();
        symlink(folder.path(), path.join("link")).unwrap();
        fs::write(path.join("file"), "").unwrap();
        for name in ["link", "file"] {
            assert!(matches!(cache.subdir(name), Err(Error::Unusable { .. })), "{name}");
        }
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_no_fault() {
        // Nobody can make one there, root included.
        let error = cannot_make(Path::new("/c"), rustix::io::Errno::ROFS.into());
        assert!(error.is_unwritable(), "{error}");
        for errno in [rustix::io::Errno::NOSPC, rustix::io::Errno::DQUOT, rustix::io::Errno::ACCESS]
        {
            assert!(is_unwritable(&errno.into()), "{errno}");
        }
        assert!(!is_unwritable(&rustix::io::Errno::NOTDIR.into()));
    }

    #[test]
    fn a_file_is_seen_when_it_is_whole() {
        let (_folder, path) = folder();
        let cache = CacheDir::open(&path).unwrap();
        write(&cache, "a", "before");
        let mut before = cache.open_file("a").unwrap();
        drop(cache.begin_file().unwrap());
        write(&cache, "a", "after");
        assert_eq!(names(&cache), ["a"]);
        assert_eq!(mode(&path.join("a")), 0o600);
        let mut text = String::new();
        before.read_to_string(&mut text).unwrap();
        assert_eq!(text, "before");
        text.clear();
        cache.open_file("a").unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "after");
    }

    #[test]
    fn only_our_own_files_are_opened() {
        let (folder, path) = folder();
        let cache = CacheDir::open(&path).unwrap();
        write(&cache, "ours", "");
        fs::write(folder.path().join("outside"), "").unwrap();
        symlink("ours", path.join("link")).unwrap();
        symlink(folder.path().join("outside"), path.join("out")).unwrap();
        fs::create_dir(path.join("folder")).unwrap();
        rustix::fs::mknodat(cache.dir(), "pipe", rustix::fs::FileType::Fifo, FILE_MODE, 0).unwrap();
        write(&cache, "writable", "");
        fs::set_permissions(path.join("writable"), Permissions::from_mode(0o620)).unwrap();
        let mut refused = vec!["link", "out", "folder", "pipe", "writable", "absent"];
        if our_id() == 0 {
            write(&cache, "theirs", "");
            chown(path.join("theirs"), Some(12_345), None).unwrap();
            refused.push("theirs");
        }
        for name in refused {
            assert!(cache.open_file(name).is_err(), "{name}");
        }
        cache.open_file("ours").unwrap();
    }
}
