//! The options of a host, decided by its caller.

use std::sync::Arc;

use jiff::Timestamp;
use mortise_core::write::Clock;

use crate::{
    cluster::{clusters, lease::Guard},
    metrics::Metrics,
    outbound,
};

/// The options of a host.
#[derive(Clone)]
pub struct Options {
    pub now: Clock,
    /// The runner of ready keys: the host, or the caller with a [`Driver`](super::Driver).
    pub drive: Drive,
    /// The number of calls of one processor that run at once, unless its settings override it.
    pub concurrency: usize,
    /// True if a due key is skipped when nothing that its last run read has changed since. A key's
    /// first run after a start of the host is never skipped.
    pub skips: bool,
    /// The guard of the Lease. Until it is held, the host opens watches and loads processors, but
    /// runs no keys.
    pub lease: Guard,
    /// The metrics that this host counts in.
    pub metrics: Metrics,
    /// The bounds on the watches and stores that the host keeps for one processor.
    pub bounds: Bounds,
    /// The namespace to which the host's own rights are limited; `None`: they are not.
    pub namespace: Option<String>,
    /// The other clusters that processors may use.
    pub clusters: clusters::Options,
    /// The systems outside of the cluster that processors may call.
    pub outbound: outbound::Options,
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
            skips: false,
            lease: Guard::none(),
            metrics: Metrics::new(),
            bounds: Bounds::default(),
            namespace: None,
            clusters: clusters::Options::default(),
            outbound: outbound::Options::default(),
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
