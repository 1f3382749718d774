//! Builds and loads guests.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use anyhow::{Context as _, Result, anyhow};
use mortise::{
    args::ModuleArgs,
    files,
    guest::Guest,
    local::{self, Parts},
};
use mortise_host::host::Loaded;

type Built = Arc<OnceLock<Result<PathBuf, String>>>;

/// Builds the guest in a folder of this repository (`guests/api-rule`, `tests/guests/idle`) and
/// returns its component. The first call in a process builds, concurrent calls wait for it. Cargo
/// decides whether there is anything to do.
///
/// # Errors
///
/// Fails if the guest cannot be built; the error is the same for all callers.
pub fn guest(folder: &str) -> Result<PathBuf> {
    static GUESTS: Mutex<Option<HashMap<String, Built>>> = Mutex::new(None);
    let built = {
        let mut guests = GUESTS.lock().unwrap_or_else(PoisonError::into_inner);
        let guests = guests.get_or_insert_default();
        Arc::clone(guests.entry(folder.to_owned()).or_default())
    };
    let result = built.get_or_init(|| build(folder).map_err(|error| format!("{error:#}")));
    result.clone().map_err(|error| anyhow!(error))
}

/// Returns the directory of the compiled code of guests that all tests share.
///
/// # Panics
///
/// Panics if the target directory cannot be found.
#[must_use]
pub fn code_cache() -> PathBuf {
    let target = crate::go::target().expect("a test is in the target directory");
    let target = target.parent().expect("the folder of a profile is in the target directory");
    target.join("mortise-cache")
}

/// Builds the guest in a folder of this repository, and returns its component with its libraries
/// and limits.
///
/// # Errors
///
/// Fails if the guest or a library cannot be built.
pub fn parts(folder: &str) -> Result<Parts> {
    let module = guest(folder)?;
    Parts::of_guest(Some(&open(folder)?), module, &ModuleArgs::default())
}

fn open(folder: &str) -> Result<Guest> {
    Ok(Guest::open(&root()?.join(folder))?)
}

/// Returns the folder of this repository.
fn root() -> Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("tests/ has no parent")
}

fn build(folder: &str) -> Result<PathBuf> {
    let guest = open(folder)?;
    guest.build().with_context(|| format!("cannot build the guest in `{folder}`"))
}

/// Loads the guest in a folder of this repository with its libraries, and describes it under a
/// configuration (JSON). After the first time, its code comes from a cache in the target directory.
///
/// # Errors
///
/// Fails if the guest cannot be built or loaded.
pub async fn loaded(folder: &str, config: &str) -> Result<Loaded> {
    let name = folder.to_owned();
    let parts = tokio::task::spawn_blocking(move || parts(&name))
        .await
        .context("the build broke off")??;
    local::load(parts, config.to_owned(), Some(&code_cache())).await
}

/// Returns the CRDs that the guest in a folder of this repository needs.
///
/// # Errors
///
/// Fails if the guest or a folder of CRDs cannot be read.
pub fn definitions(folder: &str) -> Result<Vec<serde_json::Value>> {
    let folders = open(folder)?.crds;
    let loaded: Result<Vec<_>, _> = folders.iter().map(|folder| files::load(folder)).collect();
    Ok(loaded?.concat())
}

/// Returns the objects in a file, or in the files of a folder, of this repository.
///
/// # Errors
///
/// Fails if a file cannot be read, or holds something else.
pub fn objects_in(path: &str) -> Result<Vec<serde_json::Value>> {
    Ok(files::load(&root()?.join(path))?)
}

/// Returns a component with the same behaviour and another digest: a custom section holds the name
/// of the build.
///
/// # Panics
///
/// Panics if the name of the build has more than a few words.
#[must_use]
pub fn rebuilt(module: &[u8], build: &str) -> Vec<u8> {
    let name = b"build";
    let length = |bytes: &[u8]| u8::try_from(bytes.len()).ok().filter(|length| *length < 0x80);
    let section = length(name).map(|length| [&[length][..], name, build.as_bytes()].concat());
    let section = section.unwrap_or_default();
    let head = [0, length(&section).expect("a short name")];
    [module, &head, &section].concat()
}
