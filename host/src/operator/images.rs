//! The artifacts that Processors name: resolved, pulled and kept, in tasks of their own, so that no
//! controller waits for a registry.
//!
//! *Guarantees.* Every returned artifact was pulled completely, by its digest. While a registry is
//! unavailable, the last artifact that a tag named is used. Artifacts that a Processor runs or may
//! restore are not removed from the disk, and those that it names only for one that runs.

mod follower;
mod pull;

pub use self::follower::Away;
pub(super) use self::follower::{Follower, Image, Wanted};

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use mortise_core::write::Clock;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::api::Processor;
use crate::{
    oci::{
        Digest, Keep, Keeps, Reference, Registries, Store, Stored,
        signature::{Policy, Signature},
    },
    wasm::namespace_of,
};

/// The maximum number of concurrent pulls of a namespace: a slow registry delays only the
/// namespaces that use it.
const MAX_CONCURRENT_PULLS: usize = 2;
/// The maximum number of tags of a namespace that are resolved concurrently. Separate from the
/// pulls: a slow pull delays no tag.
const MAX_CONCURRENT_RESOLUTIONS: usize = 8;

/// The settings for pulling artifacts.
#[derive(Clone)]
pub struct Options {
    /// The client of registries.
    pub registries: Registries,
    /// The store of pulled artifacts; `None`: none can be pulled.
    pub store: Option<Store>,
    /// The time after which a tag is resolved again.
    pub interval: Duration,
    /// The signatures that all modules need.
    pub policy: Option<Arc<Policy>>,
}

/// The state that the followers of all Processors share. Cheap to clone.
#[derive(Clone)]
pub(super) struct Images(Arc<State>);

struct State {
    options: Options,
    now: Clock,
    pulls: Permits,
    resolutions: Permits,
    kept: Mutex<Kept>,
}

/// Permits of each namespace.
struct Permits {
    of_each: usize,
    by_namespace: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// The manifests that must not be removed.
#[derive(Default)]
struct Kept {
    /// True if all Processors are known: nothing is removed before.
    is_complete: bool,
    /// The digests, by Processor and use.
    of: BTreeMap<(Arc<str>, Use), BTreeSet<Digest>>,
}

/// The reason why a manifest is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Use {
    /// A version runs, or may be restored.
    Runs,
    /// The spec names it, at this index: the module is 0, the libraries follow.
    Named(usize),
}

/// An artifact on the disk.
#[derive(Debug, Clone)]
pub(super) struct Pulled {
    /// The reference with the digest of the manifest.
    pub(super) reference: Reference,
    pub(super) manifest: Digest,
    pub(super) module: Stored,
    pub(super) signatures: Vec<Signature>,
}

// === impl Images ===

impl Images {
    pub(super) fn new(options: Options, now: Clock) -> Self {
        let (pulls, resolutions) =
            (Permits::new(MAX_CONCURRENT_PULLS), Permits::new(MAX_CONCURRENT_RESOLUTIONS));
        Self(Arc::new(State { options, now, pulls, resolutions, kept: Mutex::default() }))
    }

    /// Returns the signatures that all modules need.
    pub(super) fn policy(&self) -> Option<&Policy> {
        self.0.options.policy.as_deref()
    }

    /// Keeps the artifacts in a Processor's status, until its controller calls [`Images::keep`]; and
    /// while a host starts, those in its spec, until its follower does.
    pub(super) fn record(&self, name: &Arc<str>, processor: &Processor) {
        let mut kept = self.0.kept.lock();
        let ran = kept.of.entry((Arc::clone(name), Use::Runs));
        ran.or_insert_with(|| ran_last(processor));
        if !kept.is_complete {
            for (at, digest) in named(processor) {
                let of = kept.of.entry((Arc::clone(name), Use::Named(at)));
                of.or_default().insert(digest);
            }
        }
    }

    /// Marks all Processors as known: from now on, other manifests may be removed.
    pub(super) fn all_recorded(&self) {
        self.0.kept.lock().is_complete = true;
    }

    /// Keeps these manifests for this use, and no others.
    pub(super) fn keep(&self, name: &Arc<str>, use_: Use, manifests: BTreeSet<Digest>) {
        self.0.kept.lock().of.insert((Arc::clone(name), use_), manifests);
    }

    /// Releases all manifests of a Processor that is gone, and removes what is stored for it only.
    pub(super) async fn forget(&self, name: &str) {
        let manifests = {
            let mut kept = self.0.kept.lock();
            let gone = kept.of.extract_if(.., |(of, _), _| **of == *name);
            gone.flat_map(|(_, manifests)| manifests).collect()
        };
        self.release(name, manifests).await;
    }

    /// Removes what is stored for manifests that a Processor no longer keeps, unless another
    /// Processor keeps it.
    async fn release(&self, name: &str, manifests: BTreeSet<Digest>) {
        let keeps = self.keeps();
        if let Some(store) = self.0.options.store.as_ref().filter(|_| keeps.is_complete) {
            store.release(namespace_of(name), manifests, keeps).await;
        }
    }

    fn forget_use(&self, name: &Arc<str>, is_over: impl Fn(Use) -> bool) {
        self.0.kept.lock().of.retain(|(of, use_), _| of != name || !is_over(*use_));
    }

    /// Returns the manifests that are kept.
    fn keeps(&self) -> Keeps {
        let kept = self.0.kept.lock();
        let manifests = kept.of.iter().flat_map(|((name, use_), manifests)| {
            manifests.iter().map(|manifest| Keep {
                namespace: namespace_of(name).to_owned(),
                manifest: *manifest,
                runs: *use_ == Use::Runs,
            })
        });
        Keeps { is_complete: kept.is_complete, manifests: manifests.collect() }
    }

    /// Waits for a permit to pull an artifact for a namespace.
    async fn permit_to_pull(&self, namespace: &str) -> OwnedSemaphorePermit {
        self.0.pulls.acquire(namespace).await
    }

    /// Waits for a permit to resolve a tag for a namespace.
    async fn permit_to_resolve(&self, namespace: &str) -> OwnedSemaphorePermit {
        self.0.resolutions.acquire(namespace).await
    }
}

// === impl Permits ===

impl Permits {
    fn new(of_each: usize) -> Self {
        Self { of_each, by_namespace: Mutex::default() }
    }

    async fn acquire(&self, namespace: &str) -> OwnedSemaphorePermit {
        let permits = {
            let mut all = self.by_namespace.lock();
            all.retain(|_, permits| Arc::strong_count(permits) > 1);
            let permits = all.entry(namespace.to_owned());
            Arc::clone(permits.or_insert_with(|| Arc::new(Semaphore::new(self.of_each))))
        };
        permits.acquire_owned().await.expect("the permits are never closed")
    }
}

/// Returns the digests that a spec names, by their index.
fn named(processor: &Processor) -> impl Iterator<Item = (usize, Digest)> {
    let spec = &processor.spec;
    let libraries = spec.libraries.iter().map(|library| &library.module);
    let modules = std::iter::once(&spec.module).chain(libraries).enumerate();
    modules.filter_map(|(at, module)| Some((at, digest_in(module.image.as_ref()?)?)))
}

/// Returns the digests of the artifacts that ran last, by the status.
fn ran_last(processor: &Processor) -> BTreeSet<Digest> {
    let status = processor.status.as_ref();
    let module = status.and_then(|status| status.module.as_ref()?.image.as_ref());
    let libraries = status.into_iter().flat_map(|status| &status.libraries);
    let images = module.into_iter().chain(libraries.filter_map(|library| library.image.as_ref()));
    images.filter_map(|image| digest_in(image)).collect()
}

fn digest_in(image: &str) -> Option<Digest> {
    image.parse::<Reference>().ok()?.digest()
}
