//! What a guest has beside it under `mortise dev`, from its manifest: other clusters, and a
//! companion.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::args::ClusterFolder;

/// The table `dev` of a manifest.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Desk {
    clusters: BTreeMap<String, Entry>,
    companion: Companion,
}

/// The program that runs beside the guest.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Companion {
    run: Vec<String>,
}

/// A cluster in a manifest.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Entry {
    Folder(PathBuf),
    Table(Table),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    objects: PathBuf,
    namespace: Option<String>,
}

// === impl Desk ===

impl Desk {
    /// Returns the clusters with their paths below the guest's folder, and the command of the
    /// companion, which is empty if there is none. Returns `None` if a cluster has no valid name.
    pub(super) fn open(self, folder: &Path) -> Option<(Vec<ClusterFolder>, Vec<String>)> {
        let cluster = |(name, entry): (String, Entry)| {
            let (objects, namespace) = match entry {
                Entry::Folder(objects) => (objects, None),
                Entry::Table(Table { objects, namespace }) => (objects, namespace),
            };
            ClusterFolder::new(&name, folder.join(objects), namespace.as_deref())
        };
        let clusters = self.clusters.into_iter().map(cluster).collect::<Option<_>>()?;
        Some((clusters, self.companion.run))
    }
}
