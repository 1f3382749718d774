//! Runs of Go, in the root of the Go module.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// The package that is built.
const COMPONENT: &str = "./component";

/// The program that it is compared with.
const NATIVE: &str = "./native";

/// A module as Go has it on disk.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) folder: PathBuf,
    /// True if it is a folder that replaces a published version.
    pub(crate) is_folder: bool,
}

/// Returns Go's version.
pub(crate) fn version() -> Result<String> {
    run(&mut go(["version"]))
}

/// Returns a required module, and gets it if it is not there yet.
pub(crate) fn module(requirements: &Path, module: &str) -> Result<Module> {
    let mut get = go(["mod", "download"]);
    get.arg(modfile(requirements)?).arg(module);
    run(&mut get)?;
    let mut list = go(["list", "-m", "-json"]);
    list.arg(modfile(requirements)?).arg(module);
    let found: Value = serde_json::from_str(&run(&mut list)?)
        .with_context(|| format!("cannot read what Go says of {module}"))?;
    let folder = found.get("Dir").and_then(Value::as_str);
    let folder = folder.with_context(|| format!("Go has no folder of {module}"))?;
    let replacement = found.get("Replace");
    Ok(Module {
        folder: folder.into(),
        is_folder: replacement.is_some_and(|module| module.get("Version").is_none()),
    })
}

/// Returns a file of requirements in which folders replace modules.
pub(crate) fn replaced<'a>(
    requirements: &Path,
    replacements: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<String> {
    let mut edit = go(["mod", "edit", "-print"]);
    for (module, folder) in replacements {
        edit.arg(format!("-replace={module}={folder}"));
    }
    run(edit.arg(requirements))
}

/// Lists the packages of the component: gets all modules.
pub(crate) fn list(arguments: &[String]) -> Result<()> {
    run(wasm(&mut go(["list", "-deps"])).args(arguments).arg(COMPONENT)).map(drop)
}

/// Builds the component's module, as a library: it has exports, and no start.
pub(crate) fn build(arguments: &[String], release: &str, output: &Path) -> Result<()> {
    let mut build = go(["build", "-buildmode=c-shared"]);
    wasm(&mut build).args(arguments).args(flags(release));
    run(build.arg("-o").arg(output).arg(COMPONENT)).map(drop)
}

/// Builds the native program.
pub(crate) fn build_native(requirements: &Path, release: &str, output: &Path) -> Result<()> {
    let mut build = go(["build", "-mod=readonly"]);
    build.arg(modfile(requirements)?).args(flags(release));
    run(build.arg("-o").arg(output).arg(NATIVE)).map(drop)
}

/// Returns the flags of a build: a release, and no debug information, path or commit, so that the
/// same inputs give the same bytes.
fn flags(release: &str) -> [String; 4] {
    let variables = format!("-s -w -X mortise/istio-client/renderer.release={release}");
    ["-trimpath".to_owned(), "-buildvcs=false".to_owned(), "-ldflags".to_owned(), variables]
}

fn go<const N: usize>(arguments: [&str; N]) -> Command {
    let mut go = Command::new("go");
    go.args(arguments).current_dir(crate::root()).env("GOWORK", "off");
    go
}

fn wasm(command: &mut Command) -> &mut Command {
    command.env("GOOS", "wasip1").env("GOARCH", "wasm")
}

fn modfile(requirements: &Path) -> Result<String> {
    let path = requirements.to_str().context("the path of the requirements is no UTF-8")?;
    Ok(format!("-modfile={path}"))
}

/// Runs a command and returns its standard output.
fn run(command: &mut Command) -> Result<String> {
    let line = format!("`go {}`", command_line(command));
    let output = command.output().with_context(|| format!("cannot run {line}"))?;
    if !output.status.success() {
        bail!("{line} fails:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).with_context(|| format!("{line} prints no UTF-8"))
}

fn command_line(command: &Command) -> String {
    let arguments: Vec<_> = command.get_args().map(|argument| argument.to_string_lossy()).collect();
    arguments.join(" ")
}
