//! A guest's folder: its manifest (the metadata in its Cargo.toml, or a mortise.toml), and the
//! build of its component.

mod desk;
pub(crate) mod file;
mod library;
mod made;
#[cfg(test)]
mod tests;

pub use library::Library;
pub use made::Made;
pub(crate) use made::TOOLS;

use std::{
    io::BufRead as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use mortise_host::wasm::Limits;
use serde_json::Value;

use crate::args::ClusterFolder;

/// The expected shape of the libraries in a Cargo.toml.
const LIBRARIES: &str = "tables of `interface`, `path`, and as needed `build` (a program and its arguments), `watch` (paths) and `limits`";
/// The expected shape of what `mortise dev` needs.
const DESK: &str = "a table with `clusters` (by NAMESPACE/NAME/KEY of the Secret with the kubeconfig, a folder of objects, or a table of `objects` and `namespace`) and `companion` (a table of `run`: a program and its arguments)";
/// The target that guests are built for.
pub const TARGET: &str = "wasm32-wasip2";

/// The reason why a guest could not be opened or built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder holds no manifest.
    #[error(
        "`{folder}` is no guest: it holds neither a Cargo.toml nor a mortise.toml; name the folder of one, or make one with \
         `mortise new NAME`"
    )]
    NoPackage { folder: PathBuf },

    /// The folder holds two manifests.
    #[error(
        "`{folder}` holds a Cargo.toml and a mortise.toml: keep the one that says how the guest is built, a mortise.toml if \
         it is not Cargo"
    )]
    Both { folder: PathBuf },

    /// A `mortise.toml` cannot be read, or does not match the schema.
    #[error("`{path}`: {message}")]
    File { path: PathBuf, message: String },

    /// The path does not exist.
    #[error("there is no `{path}`: a guest's folder or a component's .wasm file is expected")]
    Nothing { path: PathBuf },

    /// A program that building needs did not start.
    #[error("cannot run `{program}`: install Rust with rustup (https://rustup.rs)")]
    NoProgram {
        program: &'static str,
        #[source]
        cause: std::io::Error,
    },

    /// Cargo cannot read the package.
    #[error("`cargo metadata` failed for `{folder}`: {message}")]
    Metadata { folder: PathBuf, message: String },

    /// `package.metadata.mortise` does not match the schema.
    #[error("`package.metadata.mortise.{field}` in `{folder}/Cargo.toml` must be {expected}")]
    Field { folder: PathBuf, field: &'static str, expected: &'static str },

    /// Limits in `package.metadata.mortise` are not valid.
    #[error("`package.metadata.mortise` in `{folder}/Cargo.toml`: {message}")]
    Limits { folder: PathBuf, message: String },

    /// A file that a command makes, or one of its sources, cannot be read.
    #[error("cannot find out whether `{path}` has to be built")]
    Unreadable {
        path: PathBuf,
        #[source]
        cause: std::io::Error,
    },

    /// The command that makes a file could not be started.
    #[error("cannot run `{program}`, which builds `{path}`: install it, or name another one")]
    NotRun {
        path: PathBuf,
        program: String,
        #[source]
        cause: std::io::Error,
    },

    /// The command that makes a file failed; the reason is on standard error.
    #[error("`{path}` is not built: `{command}` failed")]
    Failed { path: PathBuf, command: String },

    /// The command did not make its file.
    #[error("`{command}` has made no `{path}`")]
    OtherMade { path: PathBuf, command: String },

    /// A file does not exist, and no command makes it.
    #[error("there is no `{path}`: make it, or name its command with `build`")]
    NotMade { path: PathBuf },

    /// The target is missing and rustup could not add it.
    #[error(
        "the Rust target {TARGET} is missing and could not be added ({message}): run `rustup target add {TARGET}`"
    )]
    NoTarget { message: String },

    /// The compiler refused the guest; the reason is on standard error.
    #[error("`{package}` does not build")]
    Build { package: String },

    /// The package builds, but not to a component.
    #[error(
        "`{package}` builds no .wasm file: its Cargo.toml needs `[lib] crate-type = [\"cdylib\"]`"
    )]
    NoComponent { package: String },
}

/// A guest's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guest {
    /// The name of its package, or of its folder if it is no package.
    pub package: String,
    /// The description of its package.
    pub description: Option<String>,
    /// The folders of the CRDs that it needs: `package.metadata.mortise.crds`.
    pub crds: Vec<PathBuf>,
    /// The folder of its example objects: `package.metadata.mortise.examples`.
    pub examples: Option<PathBuf>,
    /// The folder of its cases: `package.metadata.mortise.cases`, `cases` if absent.
    pub cases: PathBuf,
    /// The limits of one call: `package.metadata.mortise.limits`.
    pub limits: Limits,
    /// The libraries that it calls: `package.metadata.mortise.libraries`.
    pub libraries: Vec<Library>,
    /// The other clusters under `mortise dev`: `package.metadata.mortise.dev.clusters`.
    pub clusters: Vec<ClusterFolder>,
    /// The program that `mortise dev` runs beside it, and its arguments; empty if there is none:
    /// `package.metadata.mortise.dev.companion.run`.
    pub companion: Vec<String>,
    folder: PathBuf,
    build: Build,
}

/// The way in which a component is built.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Build {
    /// Cargo builds the target of this name.
    Cargo { library: String },
    /// A command builds it.
    Command(Made),
}

/// The source of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A guest's folder, from which the component is built.
    Guest(Box<Guest>),
    /// The component's file.
    File(PathBuf),
}

// === impl Source ===

impl Source {
    /// Opens the guest in a folder, or a component's file.
    ///
    /// # Errors
    ///
    /// Fails if the path does not exist, or if it is a folder without a guest.
    pub fn open(path: &Path) -> Result<Self, Error> {
        if path.is_dir() {
            return Ok(Self::Guest(Box::new(Guest::open(path)?)));
        }
        if !path.exists() {
            return Err(Error::Nothing { path: path.to_owned() });
        }
        Ok(Self::File(path.to_owned()))
    }

    /// Returns the guest; `None` if the source is a file.
    pub fn guest(&self) -> Option<&Guest> {
        match self {
            Self::Guest(guest) => Some(guest),
            Self::File(_) => None,
        }
    }

    /// Returns the folders of the CRDs that the source needs, as far as known.
    pub fn crds(&self) -> &[PathBuf] {
        self.guest().map_or(&[], |guest| &guest.crds)
    }

    /// Returns the component's file; a guest is built first.
    ///
    /// # Errors
    ///
    /// Fails if the guest does not build.
    pub fn component(&self) -> Result<PathBuf, Error> {
        match self {
            Self::Guest(guest) => guest.build(),
            Self::File(file) => Ok(file.clone()),
        }
    }
}

// === impl Guest ===

impl Guest {
    /// Reads the Cargo.toml or the mortise.toml in `folder`.
    ///
    /// # Errors
    ///
    /// Fails if there is neither or both, or if Cargo or mortise cannot parse it.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let holds = |name| folder.join(name).is_file();
        match (holds("Cargo.toml"), holds(file::NAME)) {
            (true, false) => Self::from_metadata(folder, &metadata(folder)?),
            (false, true) => file::open(folder),
            (true, true) => Err(Error::Both { folder: folder.to_owned() }),
            (false, false) => Err(Error::NoPackage { folder: folder.to_owned() }),
        }
    }

    fn from_metadata(folder: &Path, metadata: &Value) -> Result<Self, Error> {
        let failed = |message: &str| Error::Metadata {
            folder: folder.to_owned(),
            message: message.to_owned(),
        };
        let folder = std::path::absolute(folder).map_err(|error| failed(&error.to_string()))?;
        let is_here = |package: &&Value| {
            let manifest = package.get("manifest_path").and_then(Value::as_str).map(Path::new);
            manifest.is_some_and(|manifest| same_file(manifest, &folder.join("Cargo.toml")))
        };
        let packages = metadata.get("packages").and_then(Value::as_array);
        let package = packages
            .and_then(|packages| packages.iter().find(is_here))
            .ok_or_else(|| failed("no package"))?;
        let own = package.pointer("/metadata/mortise").unwrap_or(&Value::Null);
        let wrong = |field, expected| Error::Field { folder: folder.clone(), field, expected };
        let crds = match own.get("crds") {
            None => Vec::new(),
            Some(value) => serde_json::from_value::<Vec<PathBuf>>(value.clone())
                .map_err(|_| wrong("crds", "a list of folders, relative to the Cargo.toml"))?,
        };
        let folder_of = |field| {
            let folder = own.get(field).map(|value| value.as_str().ok_or(()));
            folder.transpose().map_err(|()| wrong(field, "a folder, relative to the Cargo.toml"))
        };
        let examples = folder_of("examples")?;
        let cases = folder_of("cases")?.unwrap_or("cases");
        let invalid = |message| Error::Limits { folder: folder.clone(), message };
        let limits = match own.get("limits") {
            None => Limits::default(),
            Some(value) => serde_json::from_value::<library::Given>(value.clone())
                .map_err(|_| wrong("limits", "a table of `memory` and `deadline`"))?
                .limits("limits")
                .map_err(invalid)?,
        };
        let libraries = match own.get("libraries") {
            None => Vec::new(),
            Some(value) => serde_json::from_value::<Vec<library::Entry>>(value.clone())
                .map_err(|_| wrong("libraries", LIBRARIES))?
                .into_iter()
                .map(|entry| entry.library(&folder).map_err(invalid))
                .collect::<Result<_, _>>()?,
        };
        let (clusters, companion) = match own.get("dev") {
            None => Default::default(),
            Some(value) => serde_json::from_value::<desk::Desk>(value.clone())
                .ok()
                .and_then(|desk| desk.open(&folder))
                .ok_or_else(|| wrong("dev", DESK))?,
        };
        let name = package
            .get("name")
            .and_then(Value::as_str)
            .ok_or_else(|| failed("no name"))?
            .to_owned();
        let description = package.get("description").and_then(Value::as_str);
        let library =
            library(package).ok_or_else(|| Error::NoComponent { package: name.clone() })?;
        Ok(Self {
            package: name,
            description: description.map(ToOwned::to_owned),
            build: Build::Cargo { library },
            crds: crds.iter().map(|path| folder.join(path)).collect(),
            examples: examples.map(|path| folder.join(path)),
            cases: folder.join(cases),
            limits,
            libraries,
            clusters,
            companion,
            folder,
        })
    }

    /// Builds the libraries and the component, and returns the component's .wasm file.
    ///
    /// Adds Cargo's target through rustup if it is missing. The compiler's messages go to standard
    /// error.
    ///
    /// # Errors
    ///
    /// Fails if a tool for building is missing, or if the guest does not build.
    pub fn build(&self) -> Result<PathBuf, Error> {
        self.add_target()?;
        for made in self.made() {
            made.make(&self.folder)?;
        }
        match &self.build {
            Build::Cargo { .. } => self.build_package(),
            Build::Command(component) => Ok(component.path.clone()),
        }
    }

    fn build_package(&self) -> Result<PathBuf, Error> {
        let mut build = self
            .cargo("json-render-diagnostics")
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|cause| Error::NoProgram { program: "cargo", cause })?;
        let mut component = None;
        if let Some(stdout) = build.stdout.take() {
            for line in std::io::BufReader::new(stdout).lines().map_while(Result::ok) {
                component = self.component_in(&line).or(component);
            }
        }
        let status = build.wait().map_err(|cause| Error::NoProgram { program: "cargo", cause })?;
        if !status.success() {
            return Err(Error::Build { package: self.package.clone() });
        }
        component.ok_or_else(|| Error::NoComponent { package: self.package.clone() })
    }

    /// Returns the files that commands make, in the order in which they are made: the libraries,
    /// and the component if Cargo does not build it.
    pub(crate) fn made(&self) -> impl Iterator<Item = &Made> {
        let libraries = self.libraries.iter().map(|library| &library.component);
        libraries.chain(self.component())
    }

    /// Returns the component if a command makes it; `None` if Cargo builds it.
    pub(crate) fn component(&self) -> Option<&Made> {
        match &self.build {
            Build::Cargo { .. } => None,
            Build::Command(component) => Some(component),
        }
    }

    /// Returns the command that builds the package, with messages of this format on standard
    /// output.
    pub(crate) fn cargo(&self, messages: &str) -> Command {
        let mut cargo = Command::new("cargo");
        cargo
            .args(["build", "--release", "--target", TARGET, "--message-format", messages])
            .current_dir(&self.folder)
            .stdin(Stdio::null());
        cargo
    }

    /// Returns the .wasm file that a line of Cargo's messages says was built, if any.
    pub(crate) fn component_in(&self, line: &str) -> Option<PathBuf> {
        match &self.build {
            Build::Cargo { library } => component_of(line, library),
            Build::Command(_) => None,
        }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Adds the target to the toolchain that the guest uses, if Cargo builds it and the target is
    /// missing.
    pub(crate) fn add_target(&self) -> Result<(), Error> {
        match &self.build {
            Build::Cargo { .. } => add_target(&self.folder),
            Build::Command(_) => Ok(()),
        }
    }
}

/// Returns Cargo's metadata of the package in `folder` and of those in its workspace.
pub(crate) fn metadata(folder: &Path) -> Result<Value, Error> {
    let output = Command::new("cargo")
        .args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"])
        .arg(folder.join("Cargo.toml"))
        .output()
        .map_err(|cause| Error::NoProgram { program: "cargo", cause })?;
    let failed = |message: String| Error::Metadata { folder: folder.to_owned(), message };
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))
}

/// Returns the name of a package's target that is built as a dynamic library: a component, for the
/// guests' target.
fn library(package: &Value) -> Option<String> {
    let is_component = |target: &&Value| {
        let kinds = target.get("crate_types").and_then(Value::as_array).into_iter().flatten();
        kinds.into_iter().any(|kind| kind == "cdylib")
    };
    let target = package.get("targets")?.as_array()?.iter().find(is_component)?;
    Some(target.get("name")?.as_str()?.to_owned())
}

/// Returns the .wasm file that a line of Cargo's messages says was built for the target `library`,
/// if any.
fn component_of(line: &str, library: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(line).ok()?;
    let named = message.pointer("/target/name")?.as_str()? == library;
    let files = message.get("filenames").filter(|_| named)?.as_array()?;
    let mut files = files.iter().filter_map(Value::as_str).map(PathBuf::from);
    files.find(|file| file.extension().is_some_and(|ending| ending == "wasm"))
}

fn same_file(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

/// Adds the target to the toolchain that `folder` uses, if it is missing.
fn add_target(folder: &Path) -> Result<(), Error> {
    let libraries = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", TARGET])
        .current_dir(folder)
        .output()
        .map_err(|cause| Error::NoProgram { program: "rustc", cause })?;
    if Path::new(String::from_utf8_lossy(&libraries.stdout).trim()).is_dir() {
        return Ok(());
    }
    let added = Command::new("rustup")
        .args(["target", "add", TARGET])
        .current_dir(folder)
        .output()
        .map_err(|cause| Error::NoTarget { message: format!("rustup does not run: {cause}") })?;
    if added.status.success() {
        return Ok(());
    }
    let message =
        String::from_utf8_lossy(&added.stderr).lines().last().unwrap_or("rustup failed").to_owned();
    Err(Error::NoTarget { message })
}
