//! The figures of a benchmark, and their printed form.

use std::{fmt::Write as _, time::Duration};

use mortise_core::contract::ObjectRef;
use mortise_host::wasm::{Called, Digest};
use serde::Serialize;

use super::{address, failure_of};
use crate::print::{BOLD, DIM};

/// The figures of all modules.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Table {
    /// The figures of each module, in the given order.
    pub modules: Vec<Figures>,
}

/// The figures of a module.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    /// The module's file.
    pub module: String,
    /// The module's digest.
    pub digest: String,
    /// The durations of the calls, with one thread and with all.
    pub paces: Vec<Pace>,
    /// The reads and the memory of each object's call.
    pub keys: Vec<Key>,
}

/// The durations of calls with a number of threads.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pace {
    /// The number of threads that called at the same time.
    pub threads: usize,
    pub calls: usize,
    /// The median duration: half of the calls took less.
    pub median_microseconds: f64,
    /// The 99th percentile of the durations: one call in a hundred took longer.
    pub p99_microseconds: f64,
    /// Calls per second, for threads that do nothing else.
    pub calls_per_second: f64,
}

/// A reconciled object.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Key {
    /// The object as `--only` takes it: `KIND/NAMESPACE/NAME`.
    pub object: String,
    /// The number of reads: gets, and pages of lists.
    pub reads: u32,
    /// The number of bytes that the reads returned.
    pub read_bytes: usize,
    /// The largest size of the instance, its linear memory included, in bytes.
    pub memory_bytes: usize,
    /// The error of the call, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

// === impl Key ===

impl Key {
    pub(super) fn new(of: &ObjectRef, called: &Called) -> Self {
        Self {
            object: address(of),
            reads: called.reads,
            read_bytes: called.read_bytes,
            memory_bytes: called.memory,
            failure: failure_of(called),
        }
    }
}

// === impl Pace ===

impl Pace {
    pub(super) fn new(threads: usize, mut took: Vec<Duration>) -> Self {
        took.sort_unstable();
        let at = |percent| ranked(&took, percent).unwrap_or_default().as_secs_f64() * 1e6;
        Self {
            threads,
            calls: took.len(),
            median_microseconds: at(50),
            p99_microseconds: at(99),
            calls_per_second: rate(threads, &took),
        }
    }
}

/// Returns a percentile by nearest rank: the least value that is not below this share of the
/// values.
fn ranked<T: Copy>(sorted: &[T], percent: usize) -> Option<T> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

fn rate(threads: usize, took: &[Duration]) -> f64 {
    let calls = u32::try_from(took.len() * threads).unwrap_or(u32::MAX);
    f64::from(calls) / took.iter().sum::<Duration>().as_secs_f64().max(f64::EPSILON)
}

// === impl Figures ===

impl Figures {
    pub(super) fn new(module: &str, digest: Digest) -> Self {
        let (module, digest) = (module.to_owned(), digest.to_string());
        Self { module, digest, paces: Vec::new(), keys: Vec::new() }
    }

    /// Returns the median and the maximum over all objects.
    fn spread<T: Copy + Ord + Default>(&self, of: impl Fn(&Key) -> T) -> (T, T) {
        let mut values: Vec<T> = self.keys.iter().map(of).collect();
        values.sort_unstable();
        (ranked(&values, 50).unwrap_or_default(), values.last().copied().unwrap_or_default())
    }

    fn print(&self, text: &mut String) {
        let _ = writeln!(text, "{BOLD}{}{BOLD:#}  {DIM}{}{DIM:#}", self.module, self.digest);
        for pace in &self.paces {
            let threads = if pace.threads == 1 { "thread " } else { "threads" };
            let _ = writeln!(
                text,
                "  a call, {} {threads}    median {:>9.1} µs    p99 {:>9.1} µs    {:>8.0} calls/s  {DIM}({} calls){DIM:#}",
                pace.threads,
                pace.median_microseconds,
                pace.p99_microseconds,
                pace.calls_per_second,
                pace.calls
            );
        }
        let (reads, most_reads) = self.spread(|key| key.reads);
        let (bytes, most_bytes) = self.spread(|key| key.read_bytes);
        let (_, memory) = self.spread(|key| key.memory_bytes);
        let _ =
            writeln!(text, "  reads of a call       median {reads:>9}       most {most_reads:>9}");
        let _ =
            writeln!(text, "  bytes that they bring median {bytes:>9}       most {most_bytes:>9}");
        let _ = writeln!(
            text,
            "  memory                                   most {:>9} KiB",
            memory / 1024
        );
    }
}

// === impl Table ===

impl Table {
    /// Formats the figures for a terminal.
    pub fn for_people(&self) -> String {
        let mut text = String::new();
        for figures in &self.modules {
            figures.print(&mut text);
        }
        if let [one, other] = self.modules.as_slice() {
            for (one, other) in one.paces.iter().zip(&other.paces) {
                let ratio = other.median_microseconds / one.median_microseconds.max(f64::EPSILON);
                let p99 = other.p99_microseconds / one.p99_microseconds.max(f64::EPSILON);
                let threads = if one.threads == 1 { "thread" } else { "threads" };
                let _ = writeln!(
                    text,
                    "{BOLD}the second takes {ratio:.2} × the first{BOLD:#}, {} {threads} (p99: {p99:.2} ×)",
                    one.threads
                );
            }
        }
        let objects = self.modules.first().map_or(0, |figures| figures.keys.len());
        let _ = writeln!(
            text,
            "{DIM}{objects} reconciled, with a fresh instance each time; outcomes are not written: each call sees the objects as they were loaded{DIM:#}"
        );
        text
    }

    /// Returns the failures, each with its object and module.
    pub fn failures(&self) -> impl Iterator<Item = String> {
        self.modules.iter().flat_map(|figures| {
            figures.keys.iter().filter_map(|key| {
                let failure = key.failure.as_ref()?;
                Some(format!("{} of `{}`: {failure}", key.object, figures.module))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(module: &str, slower: u64) -> Figures {
        let took = (1..=200).map(|number| Duration::from_micros(number * slower)).collect();
        let key = |name: &str, reads| Key {
            object: name.into(),
            reads,
            read_bytes: 1000,
            memory_bytes: 2 << 20,
            failure: (name == "b").then(|| "no such thing".into()),
        };
        Figures {
            module: module.into(),
            digest: "sha256:00".into(),
            paces: vec![Pace::new(2, took)],
            keys: vec![key("a", 3), key("b", 9), key("c", 4)],
        }
    }

    #[test]
    fn figures_are_ranks_not_averages() {
        let figures = figures("m.wasm", 1);
        let pace = &figures.paces[0];
        assert!((pace.median_microseconds - 100.0).abs() < 1e-6, "{pace:?}");
        assert!((pace.p99_microseconds - 198.0).abs() < 1e-6, "{pace:?}");
        // 200 calls of 100.5 µs on average, two at the same time.
        assert!((pace.calls_per_second - 2.0 / 100.5e-6).abs() < 1e-3, "{pace:?}");
        assert_eq!(figures.spread(|key| key.reads), (4, 9));
        let cases = [(0, 50, None), (1, 99, Some(0)), (100, 99, Some(98)), (101, 99, Some(99))];
        for (count, percent, expected) in cases {
            let values: Vec<usize> = (0..count).collect();
            assert_eq!(ranked(&values, percent), expected, "{percent} of {count}");
        }
    }

    #[test]
    fn two_modules_are_compared_and_failures_are_named() {
        let table = Table { modules: vec![figures("a.wasm", 2), figures("b.wasm", 3)] };
        let text = anstream::adapter::strip_str(&table.for_people()).to_string();
        assert!(
            text.contains("the second takes 1.50 × the first, 2 threads (p99: 1.50 ×)"),
            "{text}"
        );
        let failures: Vec<_> = table.failures().collect();
        assert_eq!(failures, ["b of `a.wasm`: no such thing", "b of `b.wasm`: no such thing"]);
        let alone = Table { modules: vec![figures("a.wasm", 2)] };
        assert!(!alone.for_people().contains('×'));
    }
}
