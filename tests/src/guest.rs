//! Guests as components.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::{Context as _, Result, anyhow};
use mortise_host::guest::Guest;

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
