//! The Go program in tests/clients, built on first use.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use anyhow::{Context as _, Result, anyhow, ensure};

use crate::tool;

const TESTS: &str = "the tests of it::clients::client_go";

/// The program, where Go is on the PATH and can get the modules; if not, that is said as [`tool::is_there`] says it.
///
/// # Errors
///
/// A program that does not compile.
///
/// # Panics
///
/// Go or the modules are missing, and `MORTISE_TOOLS` is `required`.
pub fn clients() -> Result<Option<PathBuf>> {
    static BUILT: OnceLock<Result<Option<PathBuf>, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| build().map_err(|error| format!("{error:#}")));
    built.clone().map_err(|error| anyhow!(error))
}

fn build() -> Result<Option<PathBuf>> {
    if !tool::is_there("go", TESTS) {
        return Ok(None);
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
    let go = |arguments: &[&str]| {
        let output = Command::new("go").args(arguments).current_dir(&folder).output();
        output.with_context(|| format!("cannot run `go {}`", arguments.join(" ")))
    };
    let modules = go(&["mod", "download"])?;
    if !modules.status.success() {
        tool::say(&format!("go cannot get the modules of tests/clients: {TESTS} not run"));
        return Ok(None);
    }
    let program = target()?.join("clients");
    let path = program.to_str().context("the target directory is no UTF-8")?;
    let built = go(&["build", "-mod=readonly", "-buildvcs=false", "-o", path, "."])?;
    let text = String::from_utf8_lossy(&built.stderr);
    ensure!(built.status.success(), "cannot build tests/clients:\n{text}");
    Ok(Some(program))
}

/// Where cargo puts programs: the folder above that of the tests.
fn target() -> Result<PathBuf> {
    let test = std::env::current_exe().context("the test has no path")?;
    let folder = test.ancestors().nth(2).context("the test is in no target directory")?;
    Ok(folder.to_owned())
}
