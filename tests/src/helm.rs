//! Helm, which `tests/helm` builds, and `deploy/install.yaml`, which is rendered from the chart of
//! the host.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use crate::{crds, go};

/// The tests named in the message that Go is missing.
const TESTS: &str = "the tests of it::chart";
/// The first lines of the file.
const HEAD: &str = "\
# The host in a cluster, in one file: `kubectl apply --server-side -f deploy/install.yaml`. README.md in this folder says how to build the
# image, how modules get to it, and in which order to uninstall. Rendered from the chart in `chart/` by `cargo chart`; a test fails if the
# two differ.
";
/// The beginning of a rendered document.
const DOCUMENT: &str = "---\n# Source: ";

/// Returns the path of Helm, which is called `helm`. Returns `None` without Go.
///
/// # Errors
///
/// Fails if it does not compile.
pub fn program() -> Result<Option<PathBuf>> {
    go::program("helm", TESTS)
}

/// Returns a command that starts Helm in this checkout. Its files are in `home`, and nothing of the
/// user's counts.
pub fn command(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let is_of_helm = name.to_str().is_some_and(|name| name.starts_with("HELM_"));
        if is_of_helm || name == "KUBECONFIG" {
            command.env_remove(name);
        }
    }
    for (name, folder) in
        [("HELM_CACHE_HOME", "cache"), ("HELM_CONFIG_HOME", "config"), ("HELM_DATA_HOME", "data")]
    {
        command.env(name, home.join(folder));
    }
    command.current_dir(crds::deploy().join(".."));
    command
}

/// Returns the path of the file that installs the host.
pub fn installation() -> PathBuf {
    crds::deploy().join("install.yaml")
}

/// Renders the file that installs the host. Returns `None` without Go.
///
/// # Errors
///
/// Fails if Helm does not compile, or refuses the chart.
pub fn rendered() -> Result<Option<String>> {
    let Some(program) = program()? else { return Ok(None) };
    let home = tempfile::tempdir().context("cannot make a folder for Helm")?;
    let mut command = command(&program, home.path());
    command.args(["template", "mortise", "deploy/chart", "--namespace", "mortise"]);
    let output = command.args(["--set", "namespace.create=true"]).output();
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cannot render deploy/chart: {}", error.trim_end());
    let text = String::from_utf8(output.stdout).context("Helm prints what is no text")?;
    Ok(Some(format!("{HEAD}{}", documents(&text).join("---\n"))))
}

/// Returns the documents of a rendered chart, each with a newline at its end, without the lines
/// that say where they come from.
fn documents(rendered: &str) -> Vec<String> {
    let documents = rendered.split(DOCUMENT).filter_map(|document| document.split_once('\n'));
    documents.map(|(_, text)| format!("{}\n", text.trim())).collect()
}

/// Writes the version of the host into the charts, and the file that installs the host.
///
/// # Errors
///
/// Fails without Go, if the chart is refused, or a file cannot be read or written.
pub fn write() -> Result<()> {
    for chart in ["chart", "chart-processor"] {
        let path = crds::deploy().join(chart).join("Chart.yaml");
        let about = fs::read_to_string(&path);
        let about = about.with_context(|| format!("cannot read {}", path.display()))?;
        let about: String = about.lines().map(|line| versioned(line) + "\n").collect();
        fs::write(&path, about).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let text = rendered()?.context("Go is needed to build Helm")?;
    let path = installation();
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns a line of a `Chart.yaml`, with the version of the host if it states one.
fn versioned(line: &str) -> String {
    match line.split_once(": ") {
        Some((key @ ("version" | "appVersion"), _)) => {
            format!("{key}: {}", env!("CARGO_PKG_VERSION"))
        }
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_taken_without_their_sources() {
        let text = "---\n# Source: a/b.yaml\n# Why.\na: 1\n\n---\n# Source: a/c.yaml\n\nb: 2\n";
        assert_eq!(documents(text), ["# Why.\na: 1\n", "b: 2\n"]);
    }
}
