//! The kubeconfig for kubectl and the API.

#[cfg(test)]
mod tests;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use kube::config;

use crate::{
    files,
    remotes::{self, NAME},
};

/// A kubeconfig file. In a temporary folder of its own, it is removed when dropped.
#[derive(Debug)]
pub(super) struct Kubeconfig {
    path: PathBuf,
    _folder: Option<tempfile::TempDir>,
}

impl Kubeconfig {
    /// Writes the file at `path`, or in a new folder if there is no `path`.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written, or exists and is not one of ours.
    pub(super) fn write(
        path: Option<&Path>,
        address: SocketAddr,
        namespace: &str,
    ) -> anyhow::Result<Self> {
        let own_folder =
            || tempfile::Builder::new().prefix("mortise-").tempdir().context("no temporary folder");
        let folder = if path.is_none() { Some(own_folder()?) } else { None };
        let own = folder.as_ref().map(|folder| folder.path().join("kubeconfig"));
        let path = path.map(Path::to_owned).or(own).context("no place for the kubeconfig")?;
        check(&path)?;
        let text = remotes::kubeconfig(&format!("http://{address}"), namespace);
        files::write_private(&path, &crate::print::yaml(&text)).with_context(|| {
            format!(
                "cannot write the kubeconfig `{}`: name another with --kubeconfig",
                path.display()
            )
        })?;
        Ok(Self { path, _folder: folder })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Fails unless the file may be written: it must be missing, empty, or hold only the content of an
/// earlier `dev`, because lost credentials of clusters cannot be restored.
fn check(path: &Path) -> anyhow::Result<()> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) if text.trim().is_empty() => return Ok(()),
        Ok(text) => text,
        // A file that cannot be written either fails when it is written.
        Err(error) if error.kind() != std::io::ErrorKind::InvalidData => return Ok(()),
        Err(_) => String::new(),
    };
    let taken = |what: String| {
        anyhow::anyhow!(
            "`{}` {what} and is left as it is: name another file with --kubeconfig",
            path.display()
        )
    };
    let present =
        config::Kubeconfig::from_yaml(&text).map_err(|_| taken("is no kubeconfig".to_owned()))?;
    let contexts: Vec<&str> = present.contexts.iter().map(|context| &*context.name).collect();
    let clusters = present.clusters.iter().map(|cluster| &*cluster.name);
    let users = present.auth_infos.iter().map(|user| &*user.name);
    let others: Vec<&str> = contexts
        .iter()
        .copied()
        .chain(clusters)
        .chain(users)
        .filter(|name| *name != NAME)
        .collect();
    match others.first() {
        None if contexts == [NAME] => Ok(()),
        None => Err(taken("is no kubeconfig of ours".to_owned())),
        Some(other) => Err(taken(format!("holds another cluster (`{other}`)"))),
    }
}
