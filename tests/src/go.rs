//! Builds the Go programs in `tests/` on first use.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::tool;

type Built = Arc<OnceLock<Result<Option<PathBuf>, String>>>;

/// The tests named in the message that Go is missing.
const CLIENTS: &str = "the tests of it::clients::client_go";

/// Returns the program in `tests/clients`, which tries an API with client-go; `None` in the cases
/// of [`program`].
///
/// # Errors
///
/// Fails if the program does not compile.
///
/// # Panics
///
/// Panics if Go or the modules are missing, and [`tool::VARIABLE`] requires Go.
pub fn clients() -> Result<Option<PathBuf>> {
    program("clients", CLIENTS)
}

/// Returns the program of a Go module, by package and version, built in a folder of the target
/// directory; `None` in the cases of [`program`].
///
/// # Errors
///
/// Fails if the folder cannot be made.
///
/// # Panics
///
/// Panics if Go or the module is missing, and [`tool::VARIABLE`] requires Go.
pub fn installed(name: &str, package: &str, tests: &str) -> Result<Option<PathBuf>> {
    if !tool::is_there("go", tests) {
        return Ok(None);
    }
    let version = package.rsplit('@').next().unwrap_or_default();
    let folder = target()?.join("go").join(name).join(version);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let binary = package.split('@').next().and_then(|path| path.rsplit('/').next());
    let program = folder.join(binary.unwrap_or_default());
    if program.is_file() {
        return Ok(Some(program));
    }
    let output = Command::new("go").args(["install", package]).env("GOBIN", &folder).output();
    let output = output.with_context(|| format!("cannot run `go install {package}`"))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        tool::say("go", &format!("go cannot build {package}: {tests} not run\n{error}"));
        return Ok(None);
    }
    Ok(Some(program))
}

/// Returns the program in `tests/validate`, which validates objects as Istio does; `None` in the
/// cases of [`program`].
///
/// # Errors
///
/// Fails if the program does not compile.
///
/// # Panics
///
/// Panics if Go or the modules are missing, and [`tool::VARIABLE`] requires Go.
pub fn validate() -> Result<Option<PathBuf>> {
    program("validate", "the tests of it::cluster::strict::istio")
}

/// Returns the program that judges Rules as Oathkeeper does. Returns `None` without Go.
///
/// # Errors
///
/// Fails if the program does not compile.
///
/// # Panics
///
/// Panics if Go or the modules are missing, and [`tool::VARIABLE`] requires Go.
pub fn validate_oathkeeper() -> Result<Option<PathBuf>> {
    program("validate-oathkeeper", "the tests of it::cluster::strict::oathkeeper")
}

/// Returns the folders of the modules that `go.mod` in a folder of `tests/` requires, by their
/// paths. Returns `None` without Go. A module that cannot be had is absent, and is reported.
///
/// # Errors
///
/// Fails if Go's answer cannot be read.
///
/// # Panics
///
/// Panics if Go or a module is missing, and [`tool::VARIABLE`] requires Go.
pub fn modules(folder: &str, tests: &str) -> Result<Option<BTreeMap<String, PathBuf>>> {
    if !tool::is_there("go", tests) {
        return Ok(None);
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut command = Command::new("go");
    let output = command.args(["mod", "download", "-json"]).current_dir(sources).output();
    let output = output.context("cannot run `go mod download`")?;
    let mut modules = BTreeMap::new();
    // Go prints an entry for each module, also for those that it cannot get.
    for module in serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>() {
        let module = module.context("`go mod download` prints no JSON")?;
        let text = |key| module.get(key).and_then(Value::as_str).unwrap_or_default();
        if text("Error").is_empty() {
            modules.insert(text("Path").to_owned(), PathBuf::from(text("Dir")));
        } else {
            let (path, why) = (text("Path"), text("Error"));
            tool::say("go", &format!("go cannot get {path}: part of {tests} not run\n{why}"));
        }
    }
    Ok(Some(modules))
}

/// Builds the program in a folder of `tests/`, once for each state of its sources, in a folder of
/// its own in the target directory. Returns `None` if Go is not on the PATH or cannot get the
/// modules, and reports that as [`tool::is_there`] does.
pub(crate) fn program(folder: &str, tests: &str) -> Result<Option<PathBuf>> {
    static PROGRAMS: Mutex<Option<HashMap<String, Built>>> = Mutex::new(None);
    let built = {
        let mut programs = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(programs.get_or_insert_default().entry(folder.to_owned()).or_default())
    };
    let result = built.get_or_init(|| find(folder, tests).map_err(|error| format!("{error:#}")));
    result.clone().map_err(|error| anyhow!(error))
}

/// Returns the folder in which cargo puts programs, the parent of the tests' folder.
pub(crate) fn target() -> Result<PathBuf> {
    let test = std::env::current_exe().context("the test has no path")?;
    let folder = test.ancestors().nth(2).context("the test is in no target directory")?;
    Ok(folder.to_owned())
}

fn find(folder: &str, tests: &str) -> Result<Option<PathBuf>> {
    if !tool::is_there("go", tests) {
        return Ok(None);
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let programs = target()?.join("go").join(folder);
    fs::create_dir_all(&programs).with_context(|| format!("cannot make {}", programs.display()))?;
    // Of several test processes one builds, and the others use its result.
    let lock = programs.join("lock");
    let lock =
        fs::File::create(&lock).with_context(|| format!("cannot make {}", lock.display()))?;
    lock.lock().context("cannot wait for another build")?;
    let built = programs.join(digest(&sources)?);
    let program = built.join(folder);
    if program.is_file() {
        return Ok(Some(program));
    }
    let modules = go(&sources, &["list", "-mod=readonly", "-deps", "."])?;
    if let Err(error) = modules {
        tool::say(
            "go",
            &format!("go cannot get the modules of tests/{folder}: {tests} not run\n{error}"),
        );
        return Ok(None);
    }
    remove_others(&programs, &built)?;
    build(&sources, &program)?;
    Ok(Some(program))
}

/// Builds the program. Without the tables for debuggers, linking takes half the time.
fn build(sources: &Path, program: &Path) -> Result<()> {
    // An interrupted build leaves no file with the program's name.
    let unfinished = program.with_extension("unfinished");
    let path = unfinished.to_str().context("the target directory is no UTF-8")?;
    go(sources, &["build", "-mod=readonly", "-buildvcs=false", "-ldflags=-s -w", "-o", path, "."])?
        .map_err(|error| anyhow!("cannot build {}:\n{error}", sources.display()))?;
    fs::rename(&unfinished, program).with_context(|| format!("cannot make {}", program.display()))
}

/// Runs Go; the inner error is the standard error of a failed run.
fn go(sources: &Path, arguments: &[&str]) -> Result<Result<(), String>> {
    let output = Command::new("go").args(arguments).current_dir(sources).output();
    let output = output.with_context(|| format!("cannot run `go {}`", arguments.join(" ")))?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(if output.status.success() { Ok(()) } else { Err(text) })
}

/// Removes programs that were built from former sources.
fn remove_others(programs: &Path, built: &Path) -> Result<()> {
    for entry in fs::read_dir(programs)? {
        let path = entry?.path();
        if path.is_dir() && path != built {
            fs::remove_dir_all(&path)
                .with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

/// Computes a digest of everything that the program is built from: the sources, which name their
/// modules by digests, and Go's version.
fn digest(sources: &Path) -> Result<String> {
    let mut files: Vec<PathBuf> = fs::read_dir(sources)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()
        .with_context(|| format!("cannot read {}", sources.display()))?;
    files.sort();
    let mut digest = Sha256::new();
    for file in &files {
        let content = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let name = file.file_name().unwrap_or_default().as_encoded_bytes();
        digest.update(name);
        digest.update([0]);
        digest.update(content.len().to_be_bytes());
        digest.update(content);
    }
    let version = Command::new("go").arg("version").output().context("cannot run `go version`")?;
    ensure!(version.status.success(), "`go version` fails");
    digest.update(version.stdout);
    Ok(format!("{:x}", digest.finalize()))
}
