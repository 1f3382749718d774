//! Guests as components.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::{Context as _, Result, anyhow};
use mortise_host::{desk, files, guest::Guest, run::Loaded};

type Built = Arc<OnceLock<Result<PathBuf, String>>>;

/// The component of the guest in a folder of this repository (`guests/api-rule`, `tests/guests/idle`), built the first time
/// that a test of this process asks; the others wait for it. Cargo decides whether there is anything to do.
///
/// # Errors
///
/// What keeps it from being built, the same for all who ask.
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

fn build(folder: &str) -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("tests/ has no parent")?;
    let guest = Guest::open(&root.join(folder))?;
    guest.build().with_context(|| format!("cannot build the guest in `{folder}`"))
}

/// The guest in a folder of this repository as a processor that has described itself, under a configuration (JSON). Its code
/// comes from a cache in the target directory after the first time.
///
/// # Errors
///
/// What keeps it from being built or loaded.
pub async fn loaded(folder: &str, config: &str) -> Result<Loaded> {
    let name = folder.to_owned();
    let module = tokio::task::spawn_blocking(move || guest(&name))
        .await
        .context("the build broke off")??;
    let cache = module.parent().context("a module in no folder")?.join("mortise-cache");
    desk::load(&module, config.to_owned(), Some(&cache)).await
}

/// The CRDs that the guest in a folder of this repository needs.
///
/// # Errors
///
/// A guest or a folder that cannot be read.
pub fn definitions(folder: &str) -> Result<Vec<serde_json::Value>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("tests/ has no parent")?;
    let folders = Guest::open(&root.join(folder))?.crds;
    let loaded: Result<Vec<_>, _> = folders.iter().map(|folder| files::load(folder)).collect();
    Ok(loaded?.concat())
}

/// A component that does the same and is another: one more section says of which build it is.
///
/// # Panics
///
/// A name of a build of more than a few words.
#[must_use]
pub fn rebuilt(module: &[u8], build: &str) -> Vec<u8> {
    let name = b"build";
    let length = |bytes: &[u8]| u8::try_from(bytes.len()).ok().filter(|length| *length < 0x80);
    let section = length(name).map(|length| [&[length][..], name, build.as_bytes()].concat());
    let section = section.unwrap_or_default();
    let head = [0, length(&section).expect("a short name")];
    [module, &head, &section].concat()
}
