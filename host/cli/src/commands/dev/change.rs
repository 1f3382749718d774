//! Changes of source files, and the guests that a change affects.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use mortise_host::debounce::{self, Debounced};
use notify::{Config, RecommendedWatcher, RecursiveMode, Watcher as _};
use serde_json::Value;

use crate::guest::{self, Guest};

/// The files beside a workspace's Cargo.toml that change how its packages are built.
const OF_WORKSPACE: [&str; 3] = ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml"];

/// The sources of a guest: its own package, the packages that it depends on by path, the files that
/// its manifest watches, and its CRDs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sources {
    /// The folders of packages, watched files and CRDs.
    folders: BTreeSet<PathBuf>,
    /// Single files.
    files: BTreeSet<PathBuf>,
    /// The folders of workspaces, in which only the files of `OF_WORKSPACE` count.
    workspaces: BTreeSet<PathBuf>,
    /// The folders to which Cargo writes.
    targets: BTreeSet<PathBuf>,
}

/// Watches the sources of all guests.
pub(super) struct Changes {
    watcher: RecommendedWatcher,
    watched: BTreeSet<PathBuf>,
    debounced: Debounced,
}

// === impl Sources ===

impl Sources {
    /// Returns the sources of a guest, according to its current manifest.
    ///
    /// # Errors
    ///
    /// Fails if Cargo cannot read a Cargo.toml.
    pub(super) fn of(guest: &Guest) -> Result<Self, guest::Error> {
        let watched = guest.crds.iter().chain(guest.made().flat_map(|made| &made.watch));
        let watched = watched.filter_map(|path| path.canonicalize().ok());
        let (folders, files): (Vec<_>, Vec<_>) = watched.partition(|path| path.is_dir());
        let mut sources = Self { files: files.into_iter().collect(), ..Self::default() };
        let mut open = Vec::new();
        match guest.component() {
            None => open.push(guest.folder().to_owned()),
            Some(_) => sources.files.extend(guest.folder().join(guest::file::NAME).canonicalize()),
        }
        while let Some(folder) = open.pop() {
            let Ok(folder) = folder.canonicalize() else { continue };
            if sources.folders.contains(&folder) {
                continue;
            }
            sources.add(&guest::metadata(&folder)?, folder, &mut open);
        }
        sources.folders.extend(folders);
        Ok(sources)
    }

    /// Adds the package in `folder`; the folders of its dependencies are added to `open`.
    fn add(&mut self, metadata: &Value, folder: PathBuf, open: &mut Vec<PathBuf>) {
        let path =
            |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(PathBuf::from);
        let canonical = |path: PathBuf| path.canonicalize().unwrap_or(path);
        self.targets.extend(path(metadata, "target_directory").map(canonical));
        self.workspaces.extend(path(metadata, "workspace_root").map(canonical));
        let list = |value: &Value, key: &str| {
            value.get(key).and_then(Value::as_array).cloned().unwrap_or_default()
        };
        let manifest = folder.join("Cargo.toml");
        let is_here = |package: &Value| {
            path(package, "manifest_path").map(canonical) == Some(manifest.clone())
        };
        for package in list(metadata, "packages").iter().filter(|package| is_here(package)) {
            let needed = list(package, "dependencies");
            let is_built =
                |dependency: &&Value| dependency.get("kind").is_none_or(|kind| kind != "dev");
            open.extend(
                needed.iter().filter(is_built).filter_map(|dependency| path(dependency, "path")),
            );
        }
        self.folders.insert(folder);
    }

    /// Returns whether a change of this file can change the build.
    pub(super) fn affects(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let of_workspace = OF_WORKSPACE.contains(&name)
            && path.parent().is_some_and(|parent| self.workspaces.contains(parent));
        if self.files.contains(path) {
            return true;
        }
        let mut around = self.folders.iter().filter(|folder| path.starts_with(folder));
        of_workspace || around.any(|folder| self.is_source(folder, path) && !is_backup(name))
    }

    fn is_source(&self, folder: &Path, path: &Path) -> bool {
        let below = path.strip_prefix(folder).unwrap_or(path);
        let is_made = |name: &str| name.starts_with('.') || guest::TOOLS.contains(&name);
        let mut parts = below.components().map(|part| part.as_os_str().to_string_lossy());
        !parts.any(|part| is_made(&part))
            && !self.targets.iter().any(|target| path.starts_with(target))
    }

    /// Returns the folders to watch, and whether recursively. The subfolders of a folder are
    /// watched one by one, because the folder to which Cargo writes may be among them.
    fn plan(&self) -> BTreeSet<(PathBuf, bool)> {
        let around = self.files.iter().filter_map(|file| file.parent().map(Path::to_owned));
        let flat = self.folders.iter().chain(&self.workspaces).cloned().chain(around);
        let flat = flat.map(|folder| (folder, false));
        let deep = self.folders.iter().flat_map(|folder| {
            let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
            entries
                .map(|entry| entry.path())
                .filter(|path| path.is_dir() && self.is_source(folder, path))
        });
        flat.chain(deep.map(|folder| (folder, true))).collect()
    }
}

/// Returns whether a file name is that of a temporary file which an editor makes beside a saved
/// file.
fn is_backup(name: &str) -> bool {
    let ending = Path::new(name).extension().unwrap_or_default();
    name.ends_with('~') || ending == "swp" || ending == "tmp" || name == "4913"
}

// === impl Changes ===

impl Changes {
    /// Creates a watcher that watches no folder yet.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot watch more files.
    pub(super) fn new() -> notify::Result<Self> {
        let (watcher, debounced) = debounce::watcher(Config::default())?;
        Ok(Self { watcher, watched: BTreeSet::new(), debounced })
    }

    /// Watches these sources too. Watches of folders that no longer exist end by themselves.
    ///
    /// # Errors
    ///
    /// Fails if a folder cannot be watched.
    pub(super) fn watch(&mut self, sources: &Sources) -> notify::Result<()> {
        for (folder, deep) in sources.plan() {
            let mode = if deep { RecursiveMode::Recursive } else { RecursiveMode::NonRecursive };
            if self.watched.insert(folder.clone()) {
                self.watcher.watch(&folder, mode)?;
            }
        }
        Ok(())
    }

    /// Waits for the next burst of changes to end, and returns its files. Cancel safe: no change is
    /// lost.
    pub(super) async fn next(&mut self) -> BTreeSet<PathBuf> {
        self.debounced.next().await
    }
}
