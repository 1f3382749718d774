//! Records of the artifacts that repositories have served to namespaces.
//!
//! A registry authenticates each pull; a folder does not. So the folder is read for a namespace
//! only if one of the repositories that it names has served the bytes to it, within a month or as
//! long as it runs them. A repository has served a layer only if it sent the bytes: a registry of
//! the tenant's own answers a HEAD about any digest.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Store, access_name, blob_name, room::Keeps};
use crate::oci::{Digest, Error, Reference};

/// The age at which a record counts no longer, unless the namespace runs the artifact.
pub(super) const MAX_RECORD_AGE: Duration = Duration::from_hours(30 * 24);
/// The maximum number of records of a namespace.
const MAX_RECORDS: usize = 1024;

/// An artifact that a repository has served to a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The registry and the repository.
    repository: String,
    /// The tag that named the artifact, if a tag was resolved.
    tag: Option<String>,
    pub(super) manifest: Digest,
    layer: Digest,
    /// The time at which the repository has served it, in seconds since 1970.
    served: i64,
}

// === impl Store ===

impl Store {
    /// Returns whether a repository has served a manifest or a layer to this namespace.
    pub async fn has_access(
        &self,
        (namespace, of): (&str, &Reference),
        digest: Digest,
        (keeps, now): (&Keeps, Timestamp),
    ) -> bool {
        let running = keeps.running(namespace);
        let (all, repository) = (self.records(namespace).await, of.name());
        all.iter().any(|record| {
            record.repository == repository
                && (record.manifest == digest || record.layer == digest)
                && record.counts(&running, now)
        })
    }

    /// Returns the digest to which a tag last resolved, for this namespace.
    pub async fn last_of_tag(&self, namespace: &str, of: &Reference) -> Option<Digest> {
        let (all, repository, tag) = (self.records(namespace).await, of.name(), of.tag()?);
        let is_it = |record: &&Record| {
            record.repository == repository && record.tag.as_deref() == Some(tag)
        };
        all.iter().find(is_it).map(|record| record.manifest)
    }

    /// Records that a repository has served an artifact to this namespace, under its tag if the
    /// reference has no digest. `is_served`: now; else the artifact was on the disk.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub async fn record_access(
        &self,
        (namespace, of): (&str, &Reference),
        (manifest, layer): (Digest, Digest),
        is_served: bool,
        (keeps, now): (Keeps, Timestamp),
    ) -> Result<(), Error> {
        let (store, namespace) = (self.clone(), namespace.to_owned());
        let tag = of.tag().filter(|_| of.digest().is_none()).map(str::to_owned);
        let (repository, served) = (of.name(), now.as_second());
        let mut new = Record { repository, tag, manifest, layer, served };
        let record = move || {
            let _turn = store.records.lock();
            let mut all = store.read_records(&namespace);
            let is_same = |of: &Record| of.repository == new.repository && of.manifest == manifest;
            let known = all.iter().filter(|of| is_same(of)).map(|of| of.served).max();
            if let Some(known) = known.filter(|_| !is_served) {
                new.served = known;
            }
            all.retain(|of| !is_same(of) || of.tag != new.tag);
            all.insert(0, new);
            store.write_records(&namespace, all, &keeps, Some(now))
        };
        super::elsewhere(record).await.unwrap_or_else(|| Err(super::broken_off()))
    }

    /// Removes the records of artifacts that a namespace does not keep.
    pub(super) fn forget_access(&self, namespace: &str, keeps: &Keeps) -> Result<(), Error> {
        let _turn = self.records.lock();
        let kept = keeps.manifests.iter().filter(|keep| keep.namespace == namespace);
        let kept: BTreeSet<Digest> = kept.map(|keep| keep.manifest).collect();
        let mut all = self.read_records(namespace);
        let before = all.len();
        all.retain(|record| kept.contains(&record.manifest));
        if all.len() == before { Ok(()) } else { self.write_records(namespace, all, keeps, None) }
    }

    /// Writes the records of a namespace that still count, and whose manifests are on the disk.
    fn write_records(
        &self,
        namespace: &str,
        mut all: Vec<Record>,
        keeps: &Keeps,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        let running = keeps.running(namespace);
        let dir = self.dir.dir();
        all.retain(|of| now.is_none_or(|now| of.counts(&running, now)));
        all.retain(|of| dir.symlink_metadata(blob_name(of.manifest)).is_ok());
        // The oldest one goes first, and one of a running artifact only if there is no other.
        while all.len() > MAX_RECORDS {
            let oldest = all.iter().rposition(|of| !running.contains(&of.manifest));
            all.remove(oldest.unwrap_or(MAX_RECORDS));
        }
        if all.is_empty() {
            self.remove(&access_name(namespace));
            return Ok(());
        }
        let text = serde_json::to_vec(&all).unwrap_or_default();
        self.put(&access_name(namespace), &text)
    }

    async fn records(&self, namespace: &str) -> Vec<Record> {
        let (store, namespace) = (self.clone(), namespace.to_owned());
        super::elsewhere(move || store.read_records(&namespace)).await.unwrap_or_default()
    }

    /// Returns the records of a namespace, the newest first. None if the file is damaged: the
    /// registries are asked again.
    pub(super) fn read_records(&self, namespace: &str) -> Vec<Record> {
        let text = self.small(&access_name(namespace)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }
}

// === impl Record ===

impl Record {
    /// Returns whether the record counts. `running`: the manifests that the namespace runs.
    fn counts(&self, running: &BTreeSet<Digest>, now: Timestamp) -> bool {
        let age = now.as_second().saturating_sub(self.served).unsigned_abs();
        age < MAX_RECORD_AGE.as_secs() || running.contains(&self.manifest)
    }
}
