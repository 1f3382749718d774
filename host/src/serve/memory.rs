//! The memory limit of calls: the container's limit, less the memory for all else in it.

use std::fs;

use rustix::process::{Resource, getrlimit};

use crate::{args::RunArgs, webhooks::MAX_HELD_BYTES};

/// The number of modules that are compiled at the same time, each in a process that may take
/// `--compile-memory-mib`.
const MAX_COMPILERS: u64 = 2;
/// The bytes for the host itself: its program, its stores of the cluster's objects, 16 warm slots
/// for calls of 2 MiB, requests in progress, and 64 MiB of cached answers of libraries.
const HOST_BYTES: u64 = 320 * MIB;
/// The minimum for calls, even if less is left: two compilers seldom take all their memory at once.
const MIN_CALL_MEMORY: u64 = 256 * MIB;
/// The bytes for calls if the host has no memory limit.
const UNLIMITED_CALL_BYTES: u64 = 1024 * MIB;
/// A limit above any machine's memory: version 1 of cgroups writes such a number for "no limit".
const NO_LIMIT_BYTES: u64 = 1 << 50;
const MIB: u64 = 1 << 20;

/// The files with a container's limit, in version 2 and in version 1 of cgroups. Both show the
/// container's own limit, because a container sees no other.
const FILES: [&str; 2] =
    ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];

/// The limits on the memory of this process.
#[derive(Debug, Clone, Copy, Default)]
struct Limits {
    /// The limit on this process and its children together.
    container: Option<u64>,
    /// The limit on this process alone: `RLIMIT_DATA`.
    process: Option<u64>,
}

/// Returns the bytes for the linear memories of all calls.
pub(super) fn of_calls(args: &RunArgs) -> usize {
    let asked = args.call_memory_mib.map(|mebibytes| u64::from(mebibytes) * MIB);
    let compilers = MAX_COMPILERS * u64::from(args.compile_memory_mib) * MIB;
    let webhooks = args.webhooks.map_or(0, |_| MAX_HELD_BYTES as u64);
    let bytes = asked.unwrap_or_else(|| Limits::read().left(compilers, HOST_BYTES + webhooks));
    tracing::info!(mebibytes = bytes / MIB, "memory for calls");
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

// === impl Limits ===

impl Limits {
    fn read() -> Self {
        // A missing or unreadable file sets no limit.
        let texts = FILES.iter().filter_map(|path| fs::read_to_string(path).ok());
        Self {
            container: texts.filter_map(|text| limit(&text)).min(),
            process: getrlimit(Resource::Data).current,
        }
    }

    /// Returns what is left for calls beside the compilers and the `host`.
    fn left(self, compilers: u64, host: u64) -> u64 {
        let in_container = self.container.map(|all| all.saturating_sub(compilers));
        let least = [in_container, self.process].into_iter().flatten().min();
        least.map_or(UNLIMITED_CALL_BYTES, |all| all.saturating_sub(host).max(MIN_CALL_MEMORY))
    }
}

/// Parses a limit as cgroups write it; `None` if there is no limit.
fn limit(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|bytes| *bytes < NO_LIMIT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_get_the_memory_left_within_the_container_and_process_limits() {
        let gib = 1024 * MIB;
        let cases = [
            ("none", Limits::default(), 2048, 1024),
            ("a container", Limits { container: Some(4 * gib), process: None }, 2048, 1728),
            ("a small one", Limits { container: Some(2 * gib), process: None }, 1536, 256),
            ("a tiny one", Limits { container: Some(gib / 2), process: None }, 2048, 256),
            ("a process", Limits { container: None, process: Some(2 * gib) }, 2048, 1728),
            ("both", Limits { container: Some(8 * gib), process: Some(gib) }, 2048, 704),
        ];
        for (case, limits, compilers, expected) in cases {
            let left = limits.left(compilers * MIB, HOST_BYTES);
            assert_eq!(left, expected * MIB, "{case}");
        }
        let container = Limits { container: Some(4 * gib), process: None };
        let with_webhooks = HOST_BYTES + MAX_HELD_BYTES as u64;
        assert_eq!(container.left(2048 * MIB, with_webhooks), 1472 * MIB);
    }

    #[test]
    fn cgroup_limits_parse_and_unlimited_values_yield_none() {
        let cases = [
            ("max\n", None),
            ("2147483648\n", Some(2 << 30)),
            ("9223372036854771712\n", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(limit(text), expected, "{text:?}");
        }
    }
}
