//! The cache directory: compiled code and modules from registries, which take time to recreate.
//!
//! The host trusts the files in it, and even executes the code, so no other user may write there: a
//! directory is used only if it is owned by the user that this program runs as and if no other user
//! may write to it. The directory is reached through a handle, so that no name leads out of it. A
//! file in it is opened only if it is a regular file, is owned by this user, and is not a link. See
//! host/decisions/0028-what-lies-in-the-cache.md.
//!
//! Without a cache the host only starts more slowly: a directory that is not writable is no error.
//! A directory that is not safe is one.

mod trim;

pub use trim::{Trim, used};

use std::{
    fs::{DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use cap_std::{ambient_authority, fs::Dir};
use mortise_core::error_chain;
use rustix::fs::{AtFlags, Mode, OFlags};

/// The mode of a new directory: access for the owner only.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
/// The mode bits that let the group and all others write.
const OTHERS_WRITE: u32 = 0o022;
/// The prefix of the names of unfinished files.
const UNFINISHED: &str = "unfinished-";

/// The reason why a directory is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The directory belongs to another user, who could put any file into it.
    #[error(
        "the cache directory `{}` is owned by user {owner}, not by user {us}, whom this program runs as: name one of your own with \
         --cache, `{}` for instance", path.display(), path.join("mortise").display()
    )]
    OtherOwner {
        /// The directory.
        path: PathBuf,
        /// The id of the user that owns it.
        owner: u32,
        /// The id of the user that this program runs as.
        us: u32,
    },

    /// Others may write to the directory, and could put any file into it.
    #[error(
        "others may write to the cache directory `{}` (mode {mode:04o}), and what lies in it is run: take that away with `chmod go-w`, \
         or name another with --cache", path.display()
    )]
    OthersWrite {
        /// The directory.
        path: PathBuf,
        /// The permission bits of the directory.
        mode: u32,
    },

    /// The path is not a directory, or cannot be opened.
    #[error("cannot open the cache directory `{}`: name another with --cache", path.display())]
    Unusable { path: PathBuf, source: io::Error },

    /// The directory does not exist, and cannot be created for want of space or permission.
    #[error("cannot make the cache directory `{}`", path.display())]
    NotMade { path: PathBuf, source: io::Error },
}

/// A directory that only this user may write to. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CacheDir {
    dir: Arc<Dir>,
    path: PathBuf,
}

/// A file that is written under a temporary name, so that no reader sees it incomplete. Removed if
/// dropped unfinished.
#[derive(Debug)]
pub struct Unfinished {
    file: File,
    name: String,
    dir: Arc<Dir>,
}

/// Returns whether an error says that the place is not writable, such as a full or a read-only file
/// system: a reason to go on without the directory.
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
    /// Returns whether the directory is only unwritable: a caller may go on without it.
    pub fn is_unwritable(&self) -> bool {
        matches!(self, Self::NotMade { .. })
    }
}

/// Opens the cache directory, if one is given. Returns `None`, and logs a warning, if it does not
/// exist and cannot be created.
///
/// # Errors
///
/// Fails for a directory of another user or writable by others, because code in it is executed.
pub fn open(path: Option<&Path>) -> anyhow::Result<Option<CacheDir>> {
    match path.map(CacheDir::open).transpose() {
        Ok(cache) => Ok(cache),
        Err(error) if error.is_unwritable() => {
            tracing::warn!(
                error = error_chain::whole(&error),
                "the cache is not used: its folder cannot be created"
            );
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

// === impl CacheDir ===

impl CacheDir {
    /// Opens a directory. If it does not exist, it is made for the owner alone, with its parents.
    ///
    /// # Errors
    ///
    /// Fails if another user owns the directory or may write to it, if the path is no directory, or
    /// if it cannot be opened; and, with an error that is [unwritable](Error::is_unwritable), if
    /// the directory cannot be created for want of space or permission.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let made = DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path);
        made.map_err(|source| cannot_make(path, source))?;
        match Dir::open_ambient_dir(path, ambient_authority()) {
            Ok(dir) => Self::check(dir, path.to_owned()),
            Err(source) => Err(closed(path, source)),
        }
    }

    /// Opens a subdirectory, which is created if it does not exist. Links are not followed.
    ///
    /// # Errors
    ///
    /// The errors of [`CacheDir::open`].
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

    /// Returns the path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the handle.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Opens a file to read it.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot open the file, and if it is not a regular file, is a link, is
    /// owned by another user, or may be written to by others.
    pub fn open_file(&self, name: &str) -> io::Result<File> {
        // Without NONBLOCK, opening a named pipe would wait for its other end.
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

    /// Begins a file. No reader sees it before it is [finished](Unfinished::finish).
    ///
    /// # Errors
    ///
    /// The errors of the system: see [`is_unwritable`].
    pub fn begin_file(&self) -> io::Result<Unfinished> {
        // A random name is unique even if two hosts in containers, whose processes have the same
        // id, share the directory.
        let name = format!("{UNFINISHED}{:016x}", rand::random::<u64>());
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&*self.dir, &name, flags, FILE_MODE)?;
        Ok(Unfinished { file: file.into(), name, dir: Arc::clone(&self.dir) })
    }

    /// Returns whether a file of this name was made by [`CacheDir::begin_file`] and is not finished
    /// (yet).
    pub fn is_unfinished(name: &str) -> bool {
        name.starts_with(UNFINISHED)
    }
}

// === impl Unfinished ===

impl Unfinished {
    /// Returns the file to write to.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Renames the file to its final name, replacing an existing file. A process that has opened
    /// the old file can go on reading it.
    ///
    /// # Errors
    ///
    /// The errors of the system.
    pub fn finish(self, name: &str) -> io::Result<()> {
        // Dropping it afterwards finds no file to remove.
        Ok(rustix::fs::renameat(&*self.dir, &self.name, &*self.dir, name)?)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // A file that cannot be removed is left to the cleanup of the directory.
        let _ = rustix::fs::unlinkat(&*self.dir, &self.name, AtFlags::empty());
    }
}

/// Returns the effective user id of this process.
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

/// Returns the error of an existing directory that cannot be opened, most likely another user's.
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
    fn missing_directories_are_created_with_mode_0700() {
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
        // Only root can give a directory away; other users test with one of root's.
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
    fn a_path_that_is_not_a_plain_directory_is_refused() {
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
        // No user can create a directory there, root included.
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
