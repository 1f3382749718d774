//! Modules as files below one folder, which nothing leads out of.

use std::{
    io::{self, Read as _},
    path::Path,
    sync::Arc,
};

use anyhow::Context as _;
use bytes::Bytes;
use cap_std::{ambient_authority, fs::Dir};

use super::fault::Fault;

/// Larger modules are not read. Go's guests have 10 to 20 MiB; to compile one takes some ten times its size of memory.
pub(super) const LARGEST: u64 = 64 << 20;
/// How specs call the folder, wherever it really is.
const FOLDER: &str = "/modules/";
/// How many names a message lists.
const LISTED: usize = 10;

/// The folder of modules. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Modules(Arc<Dir>);

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
        Ok(Self(Arc::new(dir)))
    }

    /// Reads a module: its file, by the path in a spec.
    pub(super) async fn read(&self, path: &str) -> Result<Bytes, Fault> {
        let (dir, name) =
            (Arc::clone(&self.0), path.strip_prefix(FOLDER).unwrap_or(path).to_owned());
        let read = tokio::task::spawn_blocking(move || read(&dir, &name)).await;
        read.unwrap_or_else(|error| {
            Err(Fault::passing(
                "ModuleUnreadable",
                format!("reading `{path}` was broken off: {error}"),
            ))
        })
    }
}

fn read(dir: &Dir, name: &str) -> Result<Bytes, Fault> {
    let metadata = dir.metadata(name).map_err(|error| cannot(dir, name, &error))?;
    if !metadata.is_file() {
        let message = format!("`{name}` in the folder of modules is not a file");
        return Err(Fault::passing("ModuleUnreadable", message));
    }
    let file = dir.open(name).map_err(|error| cannot(dir, name, &error))?;
    let mut bytes =
        Vec::with_capacity(usize::try_from(metadata.len().min(LARGEST)).unwrap_or_default());
    // It may grow while it is read.
    let read = file.take(LARGEST + 1).read_to_end(&mut bytes);
    read.map_err(|error| cannot(dir, name, &error))?;
    if bytes.len() as u64 > LARGEST {
        let message = format!(
            "the module `{name}` has {} MiB or more; modules of up to {} MiB are accepted",
            metadata.len() >> 20,
            LARGEST >> 20
        );
        return Err(Fault::passing("ModuleTooLarge", message));
    }
    Ok(bytes.into())
}

fn cannot(dir: &Dir, name: &str, error: &io::Error) -> Fault {
    if error.kind() == io::ErrorKind::NotFound {
        let message =
            format!("there is no module `{name}` in the folder of modules; {}", held(dir));
        return Fault::passing("ModuleNotFound", message);
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

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    /// A folder of modules, and a secret beside it.
    fn folder() -> (tempfile::TempDir, Modules) {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("secret"), "s").unwrap();
        let modules = folder.path().join("modules");
        fs::create_dir_all(modules.join("team")).unwrap();
        fs::write(modules.join("a.wasm"), "a").unwrap();
        fs::write(modules.join("team/b.wasm"), "b").unwrap();
        let modules = Modules::open(&modules).unwrap();
        (folder, modules)
    }

    #[tokio::test]
    async fn a_module_is_read_by_its_path_below_the_folder() {
        let (folder, modules) = folder();
        symlink("a.wasm", folder.path().join("modules/current.wasm")).unwrap();
        let cases = [
            ("a.wasm", "a"),
            ("/modules/a.wasm", "a"),
            ("team/b.wasm", "b"),
            ("/modules/team/b.wasm", "b"),
            // As kubelet lays out a volume.
            ("current.wasm", "a"),
        ];
        for (path, expected) in cases {
            assert_eq!(modules.read(path).await.unwrap(), expected, "{path}");
        }
    }

    #[tokio::test]
    async fn nothing_leads_out_of_the_folder() {
        let (folder, modules) = folder();
        let inside = folder.path().join("modules");
        symlink("../secret", inside.join("relative.wasm")).unwrap();
        symlink(folder.path().join("secret"), inside.join("absolute.wasm")).unwrap();
        symlink("..", inside.join("up")).unwrap();
        let outside = folder.path().join("secret");
        let paths =
            ["../secret", "relative.wasm", "absolute.wasm", "up/secret", outside.to_str().unwrap()];
        for path in paths {
            let fault = modules.read(path).await.expect_err(path);
            assert_eq!(fault.reason, "ModuleUnreadable", "{path}: {}", fault.message);
        }
    }

    #[tokio::test]
    async fn a_module_that_cannot_be_read_is_named_and_what_there_is() {
        let (folder, modules) = folder();
        let large = fs::File::create(folder.path().join("modules/large.wasm")).unwrap();
        large.set_len(LARGEST + (1 << 20)).unwrap();
        let cases = [
            (
                "b.wasm",
                "ModuleNotFound",
                "no module `b.wasm` in the folder of modules; it holds: a.wasm, large.wasm",
            ),
            ("team", "ModuleUnreadable", "`team` in the folder of modules is not a file"),
            (
                "large.wasm",
                "ModuleTooLarge",
                "`large.wasm` has 65 MiB or more; modules of up to 64 MiB are accepted",
            ),
        ];
        for (path, reason, message) in cases {
            let fault = modules.read(path).await.expect_err(path);
            assert_eq!(fault.reason, reason, "{path}");
            assert!(fault.message.contains(message), "{path}: {}", fault.message);
        }
    }

    #[test]
    fn a_folder_that_is_not_there_is_named_with_its_flag() {
        let message = format!("{:#}", Modules::open(Path::new("/nowhere/at/all")).unwrap_err());
        assert!(message.contains("`/nowhere/at/all`: name another with --modules"), "{message}");
    }
}
