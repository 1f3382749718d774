//! The options of a host, decided by its caller.

use std::sync::Arc;

use jiff::Timestamp;
use mortise_core::{error_chain, reads::record::Records, write::Clock};

use super::record_file::RecordFile;
use crate::{cache_dir::CacheDir, cluster::lease::Guard, metrics::Metrics};

/// The options of a host.
#[derive(Clone)]
pub struct Options {
    /// The clock.
    pub now: Clock,
    /// The party that runs keys that are ready: the host, or the caller with
    /// [`Host::run`](super::Host::run).
    pub drive: Drive,
    /// The number of calls of one processor that run at once, unless its settings have another
    /// number.
    pub concurrency: usize,
    /// The runs that are skipped, because nothing that they read has changed.
    pub skip: Skip,
    /// The guard that says whether this host may run keys. Until it may, its watches are open and
    /// its processors loaded, and no key runs.
    pub lease: Guard,
    /// The metrics that this host counts in.
    pub metrics: Metrics,
    /// The bounds on what one processor's declarations make the host hold.
    pub bounds: Bounds,
}

/// The bounds on what one processor's declarations make the host hold. Reads past a bound are
/// answered as unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The number of watches of one processor. A watch that several processors share counts for
    /// each.
    pub watches: usize,
    /// The number of MiB that the objects kept for one processor may take. Objects that are kept
    /// for several processors count for each.
    pub store_mib: usize,
}

/// The due runs that are skipped: nothing has changed, so the last run's result would come again.
#[derive(Debug, Clone, Default)]
pub enum Skip {
    /// No run is skipped: the caller counts the runs.
    #[default]
    Never,
    /// Runs of keys whose last run was made in this start of the host.
    WhileRunning,
    /// Also the first run of each key, by the record file of former starts in this directory.
    BetweenStarts(CacheDir),
}

/// The party that runs keys that are ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drive {
    /// The host, as soon as it can.
    Host,
    /// The caller, one key at a time and at once: changes that follow each other closely are not
    /// taken together.
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
        }
    }
}

// === impl Bounds ===

impl Default for Bounds {
    /// Returns bounds that a processor of a dozen kinds does not reach, in a cluster of tens of
    /// thousands of objects.
    fn default() -> Self {
        Self { watches: 256, store_mib: 256 }
    }
}

// === impl Skip ===

impl Skip {
    /// Opens the record file and loads the records of former starts; `None` if no records are kept
    /// between starts, or if the directory cannot be used. A directory that cannot be used costs
    /// the runs after a restart, and nothing else.
    pub(super) fn open(&self, records: &Records) -> Option<Arc<tokio::sync::Mutex<RecordFile>>> {
        let Self::BetweenStarts(dir) = self else { return None };
        match RecordFile::open(dir.clone()) {
            Ok((file, former)) => {
                records.begin_with(former);
                Some(Arc::new(tokio::sync::Mutex::new(file)))
            }
            Err(error) => {
                let error = error_chain::whole(&error);
                tracing::warn!(error, "no record file is written: all keys run after a restart");
                None
            }
        }
    }
}
