//! A file that a command makes from other files: the component of a guest or of a library.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::SystemTime,
};

use walkdir::WalkDir;

use super::Error;

/// Folders in which a language's tools keep installed or compiled files.
pub(crate) const TOOLS: [&str; 2] = ["node_modules", "__pycache__"];

/// A file that a command makes from other files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    pub path: PathBuf,
    /// The command that makes the file: a program and its arguments; empty if there is none.
    pub build: Vec<String>,
    /// The source files and folders. If there are none, the command decides whether there is work
    /// to do.
    pub watch: Vec<PathBuf>,
}

// === impl Made ===

impl Made {
    /// Makes the file, with the command's output on standard error, unless it is newer than its
    /// sources.
    pub(super) fn make(&self, folder: &Path) -> Result<(), Error> {
        if let Some(mut command) = self.command(folder)? {
            // The command's output is not a result of ours.
            let status = command.stdout(io::stderr()).status();
            if !status.map_err(|cause| self.not_run(cause))?.success() {
                return Err(self.failed());
            }
        }
        self.check()
    }

    /// Returns the command that makes the file, to be run in the guest's folder; `None` without a
    /// command, or if the file is newer than its sources.
    ///
    /// # Errors
    ///
    /// Fails if a file or folder of `watch` cannot be read.
    pub(crate) fn command(&self, folder: &Path) -> Result<Option<Command>, Error> {
        let Some((program, arguments)) = self.build.split_first() else { return Ok(None) };
        let unreadable = |cause| Error::Unreadable { path: self.path.clone(), cause };
        if !self.is_old().map_err(unreadable)? {
            return Ok(None);
        }
        // A path is relative to the guest's folder, like all others in its manifest.
        let program = if program.contains('/') { folder.join(program) } else { program.into() };
        let mut command = Command::new(program);
        command.args(arguments).current_dir(folder).stdin(Stdio::null());
        Ok(Some(command))
    }

    /// Fails if the command has not created the file.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.path.is_file() {
            return Ok(());
        }
        let path = self.path.clone();
        Err(if self.build.is_empty() {
            Error::NotMade { path }
        } else {
            Error::OtherMade { path, command: self.build.join(" ") }
        })
    }

    /// Returns whether the file may be out of date.
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
        Error::NotRun { path: self.path.clone(), program, cause }
    }

    pub(crate) fn failed(&self) -> Error {
        Error::Failed { path: self.path.clone(), command: self.build.join(" ") }
    }
}

/// Returns whether a file, or one below a folder, was changed after this time. Hidden folders,
/// build output (`.build`, `target`) and the folders of tools are skipped.
fn is_newer(path: &Path, made: SystemTime) -> io::Result<bool> {
    let is_source = |entry: &walkdir::DirEntry| {
        let name = entry.file_name().to_string_lossy();
        let is_made = name.starts_with('.') || name == "target" || TOOLS.contains(&&*name);
        entry.depth() == 0 || !is_made
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

    fn made(folder: &Path) -> Made {
        Made {
            path: folder.join("made.wasm"),
            build: vec!["true".into()],
            watch: vec![folder.join("sources")],
        }
    }

    #[test]
    fn a_file_is_made_when_its_sources_are_newer() {
        let folder = tempfile::tempdir().unwrap();
        let sources = folder.path().join("sources");
        let file = made(folder.path());
        let is_built = || file.command(folder.path()).unwrap().is_some();
        fs::create_dir_all(sources.join(".build")).unwrap();
        fs::create_dir_all(sources.join("node_modules")).unwrap();
        fs::write(sources.join("a.go"), "").unwrap();
        assert!(is_built(), "there is no file yet");
        fs::write(&file.path, "").unwrap();
        let now = fs::metadata(&file.path).unwrap().modified().unwrap();
        let set = |path: &Path, time: SystemTime| {
            fs::File::open(path).unwrap().set_modified(time).unwrap();
        };
        let earlier = now - Duration::from_secs(9);
        for path in [sources.join("a.go"), sources.clone()] {
            set(&path, earlier);
        }
        assert!(!is_built(), "it is newer");
        for made in [".build/of-the-build", "node_modules/of-a-tool"] {
            fs::write(sources.join(made), "").unwrap();
            set(&sources.join(made), now + Duration::from_secs(9));
        }
        set(&sources, earlier);
        assert!(!is_built(), "what builds and tools make is no source");
        set(&sources.join("a.go"), now + Duration::from_secs(9));
        assert!(is_built());
        let always = Made { watch: Vec::new(), ..file.clone() };
        assert!(always.command(folder.path()).unwrap().is_some());
        let given = Made { build: Vec::new(), ..file.clone() };
        assert!(given.command(folder.path()).unwrap().is_none());
    }

    #[test]
    fn a_build_that_makes_no_file_fails_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let by = |build: &[&str]| {
            let build = build.iter().map(|part| (*part).to_owned()).collect();
            let made = Made { build, ..made(folder.path()) };
            made.make(folder.path()).unwrap_err().to_string()
        };
        assert!(by(&["/nowhere", "a"]).starts_with("cannot run `/nowhere`, which builds `"));
        assert!(by(&["false"]).ends_with("made.wasm` is not built: `false` failed"));
        let other = by(&["true"]);
        assert!(other.contains("`true` has made no `") && other.ends_with("made.wasm`"), "{other}");
        assert!(by(&[]).contains("there is no `"));
    }
}
