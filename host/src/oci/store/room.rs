//! The space of the folder, reserved before an artifact is written.
//!
//! *Guarantees.* Concurrent writes do not take each other's space. What a namespace adds leaves as
//! much for others as it has itself ([`share`]). What runs takes the space of what only a spec
//! names, and is never removed for it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use super::{
    ACCESS, BLOB, SIGNATURES, Store, access::MAX_RECORD_AGE, access_name, blob_name,
    signatures_name,
};
use crate::{
    cache_dir::Trim,
    oci::{
        Digest, Error,
        artifact::{self, Descriptor},
    },
    share,
};

/// The manifests that Processors keep.
#[derive(Debug, Clone, Default)]
pub struct Keeps {
    /// True if all Processors are known: nothing is removed before.
    pub is_complete: bool,
    pub manifests: Vec<Keep>,
}

/// A manifest that a Processor keeps.
#[derive(Debug, Clone)]
pub struct Keep {
    /// The namespace of the Processor.
    pub namespace: String,
    pub manifest: Digest,
    /// True if it runs, ran last or may be restored; false if only a spec names it.
    pub runs: bool,
}

/// An artifact that is to be stored.
#[derive(Debug)]
pub struct Incoming {
    pub manifest: Vec<u8>,
    /// The signatures to store, if any are required.
    pub signatures: Option<Vec<u8>>,
    pub layer: Descriptor,
}

/// The space reserved for artifacts.
#[derive(Debug, Default)]
pub(super) struct Reserved {
    /// The bytes that are not written yet.
    unwritten: AtomicU64,
    /// The bytes of the artifacts of each namespace that are being stored.
    by_namespace: Mutex<HashMap<String, u64>>,
    /// Held during a reservation, so that no space is reserved twice.
    turn: Mutex<()>,
    /// The layers of the manifests that Processors keep, so that each manifest is read once.
    layers: Mutex<HashMap<Digest, Digest>>,
}

/// Space reserved for one artifact. Dropping it releases the unused rest.
#[derive(Debug)]
pub struct Room {
    reserved: Arc<Reserved>,
    namespace: String,
    bytes: u64,
    unwritten: u64,
}

/// Names and sizes of files.
pub(super) type Files = BTreeMap<String, u64>;

/// The files on the disk of the manifests that Processors keep.
struct Kept<'a> {
    keeps: &'a Keeps,
    files: BTreeMap<Digest, Files>,
}

// === impl Keeps ===

impl Keeps {
    /// Returns the manifests that a namespace runs, ran last or may restore.
    pub fn running(&self, namespace: &str) -> BTreeSet<Digest> {
        let of = self.manifests.iter().filter(|keep| keep.runs && keep.namespace == namespace);
        of.map(|keep| keep.manifest).collect()
    }
}

// === impl Kept ===

impl Kept<'_> {
    fn files(&self, counts: impl Fn(&Keep) -> bool) -> Files {
        let counted = self.keeps.manifests.iter().filter(|keep| counts(keep));
        let files = counted.filter_map(|keep| self.files.get(&keep.manifest));
        files.flatten().map(|(name, size)| (name.clone(), *size)).collect()
    }
}

// === impl Store ===

impl Store {
    /// Reserves space for an artifact, and stores its manifest and its signatures. Removes the
    /// least recently used files as needed, but none that are kept.
    ///
    /// # Errors
    ///
    /// Fails if the share of the namespace, or the folder, has too little space for it, and if a
    /// file cannot be written.
    pub async fn admit(
        &self,
        namespace: &str,
        incoming: Incoming,
        keeps: Keeps,
    ) -> Result<Room, Error> {
        let (store, namespace) = (self.clone(), namespace.to_owned());
        let admit = move || {
            let manifest = Digest::of(&incoming.manifest);
            let room = store.reserve(namespace, manifest, &incoming, &keeps)?;
            // Before the layer, which is kept for its manifest.
            store.put(&blob_name(manifest), &incoming.manifest)?;
            if let Some(signatures) = &incoming.signatures {
                store.put(&signatures_name(manifest), signatures)?;
            }
            Ok(room)
        };
        super::elsewhere(admit).await.unwrap_or_else(|| Err(super::broken_off()))
    }

    fn reserve(
        &self,
        namespace: String,
        manifest: Digest,
        incoming: &Incoming,
        keeps: &Keeps,
    ) -> Result<Room, Error> {
        let _turn = self.reserved.turn.lock();
        let signatures = incoming.signatures.as_ref().map_or(0, Vec::len);
        let new = Files::from([
            (blob_name(manifest), incoming.manifest.len() as u64),
            (signatures_name(manifest), signatures as u64),
            (blob_name(incoming.layer.digest), incoming.layer.size),
        ]);
        let runs = keeps.running(&namespace).contains(&manifest);
        let counts = |keep: &Keep| keep.runs || !runs;
        let kept = self.kept(keeps);
        let mut own = kept.files(|keep| counts(keep) && keep.namespace == namespace);
        let mut all = kept.files(counts);
        own.extend(new.clone());
        all.extend(new.clone());
        let (reserved_own, reserved) = self.reserved.of(&namespace);
        let own = own.values().sum::<u64>() + reserved_own;
        let of_all = all.values().sum::<u64>() + reserved;
        let wanted = new.iter().filter(|(name, _)| self.size(name).is_none());
        let bytes: u64 = wanted.map(|(_, size)| size).sum();
        // What ran had its share when it was admitted.
        let is_due = runs || share::is_within(own, of_all, self.limit);
        if is_due && self.free(bytes, &kept, &all) {
            return Ok(self.reserved.room(namespace, bytes));
        }
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        let what = format!(
            "the folder of modules has room for {} MiB (--max-modules-mib), of which the Processors of `{namespace}` would take {}, and those of others take {}: a namespace gets half of what the others leave",
            self.limit >> 20,
            mib(own),
            mib(of_all.saturating_sub(own)),
        );
        Err(Error::Disk { what, source: io::ErrorKind::QuotaExceeded.into() })
    }

    /// Removes the least recently used files that do not stay, until this many bytes are free.
    /// Returns false if too little is.
    fn free(&self, bytes: u64, kept: &Kept<'_>, stay: &Files) -> bool {
        let (keeps, kept) = (kept.keeps, kept.files(|_| true));
        let wanted = self.reserved.unwritten.load(Relaxed).saturating_add(bytes);
        let limit = self.limit.saturating_sub(wanted);
        let mut left = self.trim(limit, &|name: &str| {
            !keeps.is_complete || kept.contains_key(name) || stay.contains_key(name)
        });
        if left > limit && keeps.is_complete {
            left = self.trim(limit, &|name: &str| stay.contains_key(name));
        }
        self.drop_old_records(keeps);
        left <= limit
    }

    /// Removes files down to `limit` bytes. Returns the bytes left.
    fn trim(&self, limit: u64, stays: &dyn Fn(&str) -> bool) -> u64 {
        let is_entry = |name: &str| name.starts_with(BLOB) || name.starts_with(SIGNATURES);
        Trim { limit, max_age: None, is_entry: &is_entry, stays }.run(&self.dir)
    }

    /// Removes the records of namespaces without a Processor that were not used for a month.
    fn drop_old_records(&self, keeps: &Keeps) {
        let stay: BTreeSet<String> =
            keeps.manifests.iter().map(|keep| access_name(&keep.namespace)).collect();
        if keeps.is_complete {
            let is_entry = |name: &str| name.starts_with(ACCESS);
            let stays = |name: &str| stay.contains(name);
            let (limit, max_age) = (u64::MAX, Some(MAX_RECORD_AGE));
            Trim { limit, max_age, is_entry: &is_entry, stays: &stays }.run(&self.dir);
        }
    }

    /// Removes what is stored for manifests that a namespace does not keep any longer, these and all
    /// that were served to it before, unless another one keeps it.
    pub async fn release(&self, namespace: &str, manifests: BTreeSet<Digest>, keeps: Keeps) {
        let (store, namespace) = (self.clone(), namespace.to_owned());
        let release = move || {
            let _turn = store.reserved.turn.lock();
            let kept = store.kept(&keeps).files(|_| true);
            let served = store.read_records(&namespace).into_iter().map(|record| record.manifest);
            let gone = manifests.into_iter().chain(served);
            let gone = gone.flat_map(|of| store.files_of(of).into_keys());
            for name in gone.filter(|name| !kept.contains_key(name)) {
                store.remove(&name);
            }
            store.forget_access(&namespace, &keeps)
        };
        if let Some(Err(error)) = super::elsewhere(release).await {
            let error = mortise_core::error_chain::whole(&error);
            tracing::warn!(error, "modules that were stored for a removed Processor stay");
        }
    }

    fn kept<'a>(&self, keeps: &'a Keeps) -> Kept<'a> {
        let manifests: BTreeSet<Digest> =
            keeps.manifests.iter().map(|keep| keep.manifest).collect();
        self.reserved.layers.lock().retain(|manifest, _| manifests.contains(manifest));
        let files = manifests.into_iter().map(|manifest| (manifest, self.files_of(manifest)));
        Kept { keeps, files: files.collect() }
    }

    /// Returns the files of an artifact that are on the disk.
    pub(super) fn files_of(&self, manifest: Digest) -> Files {
        let layer = self.layer_of(manifest).map(blob_name);
        let names = [blob_name(manifest), signatures_name(manifest)].into_iter().chain(layer);
        names.filter_map(|name| self.size(&name).map(|size| (name, size))).collect()
    }

    /// Returns the layer of a manifest on the disk.
    fn layer_of(&self, manifest: Digest) -> Option<Digest> {
        if let Some(known) = self.reserved.layers.lock().get(&manifest) {
            return Some(*known);
        }
        let parts = artifact::parse(&self.manifest(manifest)?).ok()?;
        self.reserved.layers.lock().insert(manifest, parts.layer.digest);
        Some(parts.layer.digest)
    }

    fn size(&self, name: &str) -> Option<u64> {
        self.dir.dir().symlink_metadata(name).ok().map(|metadata| metadata.len())
    }
}

// === impl Reserved ===

impl Reserved {
    /// Returns the bytes that are reserved for a namespace, and for all.
    pub(super) fn of(&self, namespace: &str) -> (u64, u64) {
        let all = self.by_namespace.lock();
        (all.get(namespace).copied().unwrap_or_default(), all.values().sum())
    }

    fn room(self: &Arc<Self>, namespace: String, bytes: u64) -> Room {
        self.unwritten.fetch_add(bytes, Relaxed);
        *self.by_namespace.lock().entry(namespace.clone()).or_default() += bytes;
        Room { reserved: Arc::clone(self), namespace, bytes, unwritten: bytes }
    }
}

// === impl Room ===

impl Room {
    /// Releases space for bytes that are written: they now count as the file's.
    pub(super) fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.unwritten);
        self.unwritten -= bytes;
        self.reserved.unwritten.fetch_sub(bytes, Relaxed);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.shrink(self.unwritten);
        let mut all = self.reserved.by_namespace.lock();
        let left = all.get(&self.namespace).map_or(0, |bytes| bytes.saturating_sub(self.bytes));
        if left == 0 {
            all.remove(&self.namespace);
        } else {
            all.insert(self.namespace.clone(), left);
        }
    }
}
