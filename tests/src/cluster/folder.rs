//! The folders of control planes, in the target directory.

use std::{
    fs,
    path::{Path, PathBuf},
    process,
    sync::{
        Once,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, test_kill_process};

use super::run;
use crate::go;

/// The files of one control plane. The folder's name is the id of the process that started it and a
/// number. On drop, the control plane ends and the folder is removed.
pub(super) struct Folder {
    program: PathBuf,
    path: PathBuf,
}

// === impl Folder ===

impl Folder {
    /// Chooses a folder that does not exist yet. The first call removes the folders of processes
    /// that have ended.
    pub(super) fn new(program: &Path) -> Result<Self> {
        static SWEPT: Once = Once::new();
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let folders = go::target()?.join("cluster");
        fs::create_dir_all(&folders)
            .with_context(|| format!("cannot make {}", folders.display()))?;
        let mut swept = Ok(());
        SWEPT.call_once(|| swept = sweep(program, &folders));
        swept?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = folders.join(format!("{}-{number}", process::id()));
        Ok(Self { program: program.to_owned(), path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn text(&self) -> Result<&str> {
        self.path.to_str().context("the target directory is no UTF-8")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.program, &self.path) {
            // A failing test has a more important message.
            assert!(std::thread::panicking(), "{error:#}");
        }
    }
}

fn sweep(program: &Path, folders: &Path) -> Result<()> {
    for entry in fs::read_dir(folders)? {
        let path = entry?.path();
        if !is_used(&path) {
            remove(program, &path)?;
        }
    }
    Ok(())
}

/// Returns whether the process in the folder's name is alive.
fn is_used(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let process = name.split('-').next().and_then(|id| Pid::from_raw(id.parse().ok()?));
    process.is_some_and(|process| test_kill_process(process).is_ok())
}

fn remove(program: &Path, path: &Path) -> Result<()> {
    let is_there = || path.join("cluster.json").exists();
    if is_there() {
        let folder = path.to_str().context("the target directory is no UTF-8")?;
        if let Err(error) = run(program, ["down", folder])
            && is_there()
        {
            return Err(error);
        }
        // Otherwise another process that began at the same time has removed it.
    }
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}
