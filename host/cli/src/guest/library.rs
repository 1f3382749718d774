//! The libraries of a guest: what `package.metadata.mortise.libraries` in its Cargo.toml says, and
//! how one is built by a command of its own.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::SystemTime,
};

use serde::Deserialize;
use walkdir::WalkDir;

use super::Error;
use mortise_host::{operator::limits_of_call, wasm::Limits};

/// A component that answers an interface which a guest imports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// The interface, such as `example:shouting/shout@1.0.0`.
    pub interface: String,
    /// The component's file.
    pub path: PathBuf,
    /// The command that makes the file, if it is made here: a program and its arguments.
    pub build: Vec<String>,
    /// The files and folders that the file is made of. If there are none, the command decides
    /// whether there is anything to do.
    pub watch: Vec<PathBuf>,
    /// The limits of one call.
    pub limits: Limits,
}

/// Limits of a call in a Cargo.toml, in the words of the Processor resource.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Given {
    memory: Option<String>,
    deadline: Option<String>,
}

/// A library in a Cargo.toml.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    interface: String,
    path: PathBuf,
    #[serde(default)]
    build: Vec<String>,
    #[serde(default)]
    watch: Vec<PathBuf>,
    #[serde(default)]
    limits: Given,
}

// === impl Given ===

impl Given {
    /// Returns the limits, those of the host where nothing is said; `field` is their place.
    pub(super) fn limits(&self, field: &str) -> Result<Limits, String> {
        limits_of_call(field, self.memory.as_deref(), self.deadline.as_deref())
    }
}

// === impl Entry ===

impl Entry {
    /// Returns the library with its paths below the guest's folder.
    pub(super) fn library(self, folder: &Path) -> Result<Library, String> {
        let limits = self.limits.limits(&format!("libraries[{}]", self.interface))?;
        Ok(Library {
            path: folder.join(self.path),
            watch: self.watch.iter().map(|path| folder.join(path)).collect(),
            interface: self.interface,
            build: self.build,
            limits,
        })
    }
}

// === impl Library ===

impl Library {
    /// Returns the command that makes the file, to be run in the guest's folder; `None` if there is
    /// none, or if the file is newer than all that it is made of.
    ///
    /// # Errors
    ///
    /// Fails if a file or folder of `watch` cannot be read.
    pub(crate) fn command(&self, folder: &Path) -> Result<Option<Command>, Error> {
        let Some((program, arguments)) = self.build.split_first() else { return Ok(None) };
        let unreadable = |cause| Error::LibraryUnreadable { library: self.path.clone(), cause };
        if !self.is_old().map_err(unreadable)? {
            return Ok(None);
        }
        // A path is one from the guest's folder, as all others of the Cargo.toml are.
        let program = if program.contains('/') { folder.join(program) } else { program.into() };
        let mut command = Command::new(program);
        command.args(arguments).current_dir(folder).stdin(Stdio::null());
        Ok(Some(command))
    }

    /// Returns whether the file may not be what the command makes now.
    fn is_old(&self) -> io::Result<bool> {
        let made = match fs::metadata(&self.path) {
            Ok(metadata) => metadata.modified()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            Err(error) => return Err(error),
        };
        if self.watch.is_empty() {
            return Ok(true);
        }
        for path in &self.watch {
            if is_newer(path, made)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(crate) fn not_run(&self, cause: io::Error) -> Error {
        let program = self.build.first().cloned().unwrap_or_default();
        Error::LibraryNotRun { library: self.path.clone(), program, cause }
    }

    pub(crate) fn failed(&self) -> Error {
        let command = self.build.join(" ");
        Error::LibraryBuild { library: self.path.clone(), command }
    }
}

/// Returns whether a file, or one below a folder, was changed after this time. What a build makes
/// and hides (`.build`, `target`) is left out.
fn is_newer(path: &Path, made: SystemTime) -> io::Result<bool> {
    let is_source = |entry: &walkdir::DirEntry| {
        let name = entry.file_name().to_string_lossy();
        entry.depth() == 0 || !(name.starts_with('.') || name == "target")
    };
    for entry in WalkDir::new(path).into_iter().filter_entry(is_source) {
        if entry?.metadata()?.modified()? > made {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn library(folder: &Path) -> Library {
        Library {
            interface: "a:b/c".into(),
            path: folder.join("made.wasm"),
            build: vec!["true".into()],
            watch: vec![folder.join("sources")],
            limits: Limits::default(),
        }
    }

    #[test]
    fn a_library_is_built_when_its_sources_are_newer() {
        let folder = tempfile::tempdir().unwrap();
        let sources = folder.path().join("sources");
        let library = library(folder.path());
        let is_built = || library.command(folder.path()).unwrap().is_some();
        fs::create_dir_all(sources.join(".build")).unwrap();
        fs::write(sources.join("a.go"), "").unwrap();
        assert!(is_built(), "there is no file yet");
        fs::write(&library.path, "").unwrap();
        let now = fs::metadata(&library.path).unwrap().modified().unwrap();
        let set = |path: &Path, time: SystemTime| {
            fs::File::open(path).unwrap().set_modified(time).unwrap();
        };
        let earlier = now - Duration::from_secs(9);
        for path in [sources.join("a.go"), sources.clone()] {
            set(&path, earlier);
        }
        assert!(!is_built(), "it is newer");
        fs::write(sources.join(".build/of-the-build"), "").unwrap();
        set(&sources, earlier);
        assert!(!is_built(), "hidden folders are no sources");
        set(&sources.join("a.go"), now + Duration::from_secs(9));
        assert!(is_built());
        let always = Library { watch: Vec::new(), ..library.clone() };
        assert!(always.command(folder.path()).unwrap().is_some());
        let given = Library { build: Vec::new(), ..library.clone() };
        assert!(given.command(folder.path()).unwrap().is_none());
    }
}
