//! The options of a host, decided by its caller.

use std::sync::Arc;

use jiff::Timestamp;
use mortise_core::{error_chain, reads::record::Records, write::Clock};

use super::record_file::RecordFile;
use crate::{cache_dir::CacheDir, cluster::lease::Guard, metrics::Metrics};

/// The options of a host.
#[derive(Clone)]
pub struct Options {
    pub now: Clock,
    /// The runner of ready keys: the host, or the caller with [`Host::run`](super::Host::run).
    pub drive: Drive,
    /// The number of calls of one processor that run at once, unless its settings override it.
    pub concurrency: usize,
    /// The runs that are skipped, because nothing that they read has changed.
    pub skip: Skip,
    /// The guard of the Lease. Until it is held, the host opens watches and loads processors, but
    /// runs no keys.
    pub lease: Guard,
    /// The metrics that this host counts in.
    pub metrics: Metrics,
    /// The bounds on the watches and stores that the host keeps for one processor.
    pub bounds: Bounds,
}

/// The bounds on the watches and stores that the host keeps for one processor. Reads past a bound
/// are answered as unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The number of watches of one processor. A watch that several processors share counts for
    /// each.
    pub watches: usize,
    /// The number of MiB that the objects kept for one processor may take. Objects that are kept
    /// for several processors count for each.
    pub store_mib: usize,
}

/// The due runs that are skipped: no dependency has changed, so the result would be the same.
#[derive(Debug, Clone, Default)]
pub enum Skip {
    /// No run is skipped: the caller counts the runs.
    #[default]
    Never,
    /// Runs of keys that have already run since the host started.
    WhileRunning,
    /// Also first runs after a restart, by the record file in this directory.
    BetweenStarts(CacheDir),
}

/// The runner of ready keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drive {
    /// The host, as soon as it can.
    Host,
    /// The caller, one key at a time. Keys are ready at once: minimum intervals do not apply, so
    /// changes in quick succession are not batched.
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
    /// between starts, or if the directory cannot be used. Without a usable directory, all keys run
    /// after a restart.
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
