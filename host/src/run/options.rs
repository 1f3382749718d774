//! How a host runs: what its caller decides.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::runtime::Handle;

use crate::{
    cache_dir::CacheDir, chain, kept::Kept, lease::Guard, metrics::Metrics, record::Records,
};

/// Tells the time, so that tests and simulations decide it.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How a host runs.
#[derive(Clone)]
pub struct Options {
    /// The time.
    pub now: Clock,
    /// Whether the host runs what is ready by itself; else [`Host::run`] is called for it.
    pub drive: Drive,
    /// How many calls of one processor run at once.
    pub concurrency: usize,
    /// Whether runs are left out of which it is known what would come of them.
    pub skip: Skip,
    /// What says whether this host may run something: until then its watches are open and its processors loaded, and that is all.
    pub lease: Guard,
    /// Where it is counted what happens.
    pub metrics: Metrics,
    /// What one processor's declarations may make the host hold.
    pub bounds: Bounds,
    /// The runtime that the watches of what processors read run on; none: the one that the host is started on. See
    /// host/decisions/0034.
    pub watches_on: Option<Handle>,
}

/// What one processor's declarations may make the host hold: past it its reads are answered as unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// How many watches it may have. One that several processors share counts for each.
    pub watches: usize,
    /// How many MiB the objects may take that are kept for it. Those that are kept for several processors count for each.
    pub store_mib: usize,
}

/// Which runs are left out that are due though nothing has changed, since what came of the last one would come of them.
#[derive(Debug, Clone, Default)]
pub enum Skip {
    /// None: the caller counts them.
    #[default]
    Never,
    /// Those of which the last one was made in this start of the host.
    WhileRunning,
    /// Also the first ones, by what former starts have kept in this directory.
    BetweenStarts(CacheDir),
}

/// Who runs what is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drive {
    /// The host, as soon as it can.
    Host,
    /// The caller, one by one, and at once: changes that follow each other closely are not taken together.
    Caller,
}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        Self {
            now: Arc::new(Timestamp::now),
            drive: Drive::Host,
            concurrency: 4,
            skip: Skip::Never,
            lease: Guard::none(),
            metrics: Metrics::new(),
            bounds: Bounds::default(),
            watches_on: None,
        }
    }
}

// === impl Bounds ===

impl Default for Bounds {
    /// More than a processor of a dozen kinds needs, in a cluster of tens of thousands of objects.
    fn default() -> Self {
        Self { watches: 256, store_mib: 256 }
    }
}

// === impl Skip ===

impl Skip {
    /// Begins with what former starts have kept. A directory that cannot be used costs the runs after a restart, nothing else.
    pub(super) fn open(&self, records: &Records) -> Option<Arc<tokio::sync::Mutex<Kept>>> {
        let Self::BetweenStarts(dir) = self else { return None };
        match Kept::open(dir.clone()) {
            Ok((kept, read)) => {
                records.begin_with(read.records);
                Some(Arc::new(tokio::sync::Mutex::new(kept)))
            }
            Err(error) => {
                let error = chain::whole(&error);
                tracing::warn!(error, "records of runs are not kept: all keys run after a restart");
                None
            }
        }
    }
}
