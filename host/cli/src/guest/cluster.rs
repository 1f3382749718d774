//! The other clusters of a guest under `mortise dev`, from its manifest.

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
    /// Returns the clusters with their paths below the guest's folder; `None` if one has no valid
    /// name.
    pub(super) fn clusters(self, folder: &Path) -> Option<Vec<ClusterFolder>> {
        let cluster = |(name, entry): (String, Entry)| {
            let (objects, namespace) = match entry {
                Entry::Folder(objects) => (objects, None),
                Entry::Table(Table { objects, namespace }) => (objects, namespace),
            };
            ClusterFolder::new(&name, folder.join(objects), namespace.as_deref())
        };
        self.clusters.into_iter().map(cluster).collect()
    }
}
