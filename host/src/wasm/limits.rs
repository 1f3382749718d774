//! The limits of one call.

use std::time::Duration;

/// The limits of one call, the same for every call of a processor; wit/world.wit states the
/// defaults for authors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all linear memories of the instance together.
    pub memory: usize,
    /// The wall-clock time limit of a call.
    pub deadline: Duration,
    /// Bytes of all texts of an outcome together.
    pub outcome: usize,
    /// Number of gets and of list pages.
    pub reads: u32,
    /// Bytes of the arguments and answers of all reads.
    pub read_bytes: usize,
    /// Log lines that are kept.
    pub log_lines: u32,
    /// Bytes of log lines that are kept.
    pub log_bytes: usize,
}

const MIB: usize = 1 << 20;

// === impl Limits ===

impl Limits {
    /// Returns the number of bytes of the result that may be copied before its size is checked.
    /// Larger than the limit on an outcome, so that the error can name the object that exceeds it.
    /// Bounded because a list can refer to the same bytes many times, and a guest continues once
    /// they are copied.
    pub(super) fn outcome_copy(&self) -> usize {
        2 * self.outcome
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // The default of the Processor resource (design, section 3).
            memory: 64 * MIB,
            deadline: Duration::from_secs(5),
            // Five of the largest objects that etcd takes (1.5 MiB), and many more of the usual
            // size.
            outcome: 8 * MIB,
            reads: 10_000,
            read_bytes: 64 * MIB,
            log_lines: 200,
            log_bytes: MIB / 4,
        }
    }
}
