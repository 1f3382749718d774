//! What one call may use.

use std::time::Duration;

/// The limits of one call. They hold for every call of a processor; wit/world.wit names the defaults to authors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of linear memory, all memories of the instance together.
    pub memory: usize,
    /// How long a call may take, in time that passes.
    pub deadline: Duration,
    /// Bytes of all texts of an outcome together.
    pub outcome: usize,
    /// Number of gets and of pages of lists.
    pub reads: u32,
    /// Bytes that reads return.
    pub read_bytes: usize,
    /// Lines of log that are kept.
    pub log_lines: u32,
    /// Bytes of log that are kept.
    pub log_bytes: usize,
}

const MIB: usize = 1 << 20;

// === impl Limits ===

impl Limits {
    /// Bytes that may be copied of what a call returns, before it is looked at: more than an outcome may have, so that one that is too
    /// large can still be told by the object that makes it so. A list can name the same bytes many times, and a guest runs on once
    /// they are copied.
    pub(super) fn outcome_copy(&self) -> usize {
        2 * self.outcome
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // What the Processor resource grants when it says nothing (design, section 3).
            memory: 64 * MIB,
            deadline: Duration::from_secs(5),
            // Five of the largest objects that etcd takes (1.5 MiB), and many more of the usual size.
            outcome: 8 * MIB,
            reads: 10_000,
            read_bytes: 64 * MIB,
            log_lines: 200,
            log_bytes: MIB / 4,
        }
    }
}
