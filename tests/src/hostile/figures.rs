//! Measurements of an attack, and their bounds, which hold on any machine.

use std::{fmt, time::Duration};

use super::{attack::Attack, benign::Answers};

/// The time in which each change of a benign object must be answered.
const MAX_CHANGE_LATENCY: Duration = Duration::from_secs(5);
/// The time in which `/livez` must answer.
const MAX_LIVEZ_LATENCY: Duration = Duration::from_secs(1);
/// Bytes of memory that the host may have above the quiet host and the memory of the attack's own
/// calls.
const MAX_ADDED_MEMORY_BYTES: u64 = 256 << 20;
/// Bytes that the calls of one processor may have at most, whatever its limits: its share of the
/// host's budget.
const MAX_CALLS_MEMORY_BYTES: u64 = 512 << 20;
/// Bytes of memory that the host may have above the quiet host a minute after the attack.
pub(super) const MAX_LASTING_MEMORY_BYTES: u64 = 64 << 20;
/// Bytes of log that are allowed for each attacker.
const MAX_LOG_BYTES: usize = 5_000_000;
/// Additional series of metrics that are allowed for each attacker.
const MAX_ADDED_SERIES: usize = 200;
/// Requests of the host as itself that are allowed for each attacker, besides those that it sends
/// for changes of a Processor.
const MAX_REQUESTS: usize = 1_000;
/// The time in which a Processor with `onDelete: Release` must be gone.
const MAX_REMOVAL_DELAY: Duration = Duration::from_secs(5);
/// The time in which the host must end: with webhooks it answers for 5 s after it was told to.
const MAX_END_DELAY: Duration = Duration::from_secs(7);
/// The time in which a host that starts during an attack must answer benign changes, and be ready.
const MAX_RESTART_DELAY: Duration = Duration::from_secs(30);

/// Measurements of one attack, or of several at the same time.
#[derive(Debug, Default)]
pub struct Figures {
    pub attacks: Vec<&'static Attack>,
    /// The last log lines of a host that has crashed or exited.
    pub died: Option<String>,
    /// True if the host does not answer after the attack.
    pub is_hung: bool,
    /// The answers to the changes of benign objects.
    pub answers: Answers,
    /// Response times of `/livez`, in ascending order.
    pub livez: Vec<Duration>,
    /// Number of requests for `/livez` without an answer.
    pub silent: usize,
    /// Resident memory in bytes: before the attack, and the maximum.
    pub memory: [u64; 2],
    /// The resident memory after the attack, in bytes: once it is small again, and a minute later
    /// at most.
    pub memory_after: Option<u64>,
    /// Bytes of log.
    pub log: usize,
    /// Log lines that a guest has forged.
    pub forged: usize,
    /// Places that show the value of a Secret.
    pub leaked: Vec<String>,
    /// Number of metric series: before, at the end of, and after the attack.
    pub series: [usize; 3],
    /// Series that name a removed attacker, and files that are stored for one.
    pub left: Vec<String>,
    /// Number of requests that the host has sent as itself.
    pub requests: usize,
    /// Requests of the host that it does not need.
    pub strange: Vec<String>,
    /// The attacks without the expected condition, with the conditions that they have.
    pub unsaid: Vec<String>,
    /// The errors of side actions.
    pub failed: Vec<String>,
    /// The time until the Processors were gone; `None` if they stay.
    pub removed: Option<Duration>,
    /// The time until the host ended during the attack, if that was tried; the inner `None` if it
    /// did not end.
    pub ended: Option<Option<Duration>>,
    /// The time until a host that started during the attack answered benign changes, and was ready.
    pub back: Option<Duration>,
}

// === impl Figures ===

impl Figures {
    /// Returns the names of the attacks.
    pub fn name(&self) -> String {
        let names: Vec<&str> = self.attacks.iter().map(|attack| attack.name).collect();
        names.join(" + ")
    }

    /// Returns the measurements that exceed a bound.
    pub fn faults(&self) -> Vec<String> {
        let mut faults: Vec<String> = Vec::new();
        let mut check = |holds: bool, fault: String| {
            if !holds {
                faults.push(fault);
            }
        };
        check(
            self.died.is_none(),
            format!("the host ended: {}", self.died.as_deref().unwrap_or("")),
        );
        check(!self.is_hung, "the host does not answer any more".to_owned());
        let slowest = self.answers.at(100);
        check(self.answers.lost == 0, format!("{} changes have no answer", self.answers.lost));
        check(!self.answers.times.is_empty(), "no change is answered".to_owned());
        check(slowest <= MAX_CHANGE_LATENCY, format!("a change is answered after {slowest:?}"));
        let livez = self.livez.last().copied().unwrap_or_default();
        check(
            self.silent == 0 && livez <= MAX_LIVEZ_LATENCY,
            format!("/livez takes {livez:?}, {} times silent", self.silent),
        );
        check(self.unsaid.is_empty(), format!("not said: {}", self.unsaid.join("; ")));
        // A host that has ended answers no side action.
        check(
            self.died.is_some() || self.failed.is_empty(),
            format!("beside the Processor: {}", self.failed.join("; ")),
        );
        faults.extend(self.faults_of_size());
        faults.into_iter().map(|fault| format!("{}: {fault}", self.name())).collect()
    }

    fn faults_of_size(&self) -> Vec<String> {
        let (count, mib) = (self.attacks.len(), |bytes: u64| bytes >> 20);
        let own: u64 =
            self.attacks.iter().map(|attack| attack.may_hold().min(MAX_CALLS_MEMORY_BYTES)).sum();
        let [quiet, most] = self.memory;
        let is_late = |took: Option<Duration>, most| took.is_none_or(|took| took > most);
        let [before, series, after] = self.series;
        let checks = [
            (
                most <= quiet + own + MAX_ADDED_MEMORY_BYTES,
                format!("{} MiB of memory, quiet {}", mib(most), mib(quiet)),
            ),
            (
                self.memory_after.is_none_or(|after| after <= quiet + MAX_LASTING_MEMORY_BYTES),
                format!(
                    "{:?} bytes of memory afterwards, quiet {} MiB",
                    self.memory_after,
                    mib(quiet)
                ),
            ),
            (self.log <= MAX_LOG_BYTES * count, format!("{} bytes of log", self.log)),
            (self.forged == 0, format!("{} forged lines", self.forged)),
            (self.leaked.is_empty(), format!("a Secret's value is in {}", self.leaked.join(", "))),
            (
                series <= before + MAX_ADDED_SERIES * count,
                format!("{series} series, quiet {before}"),
            ),
            // Series of the host itself that appear with rare events, such as a compilation, stay.
            (
                after <= before + MAX_ADDED_SERIES,
                format!("{after} series afterwards, quiet {before}"),
            ),
            (
                self.left.is_empty(),
                format!("{} series or files are left: {}", self.left.len(), self.left.join(", ")),
            ),
            (
                self.requests <= MAX_REQUESTS * count,
                format!("{} requests of its own", self.requests),
            ),
            (self.strange.is_empty(), format!("requests of its own: {}", self.strange.join(", "))),
            (
                self.died.is_some() || !is_late(self.removed, MAX_REMOVAL_DELAY),
                format!("it is gone after {:?}", self.removed),
            ),
            (
                self.ended.is_none_or(|ended| !is_late(ended, MAX_END_DELAY)),
                format!("the host ends after {:?}", self.ended),
            ),
            (
                self.back.is_none_or(|took| took <= MAX_RESTART_DELAY),
                format!("a new host answers, and is ready, after {:?}", self.back),
            ),
        ];
        checks.into_iter().filter(|(holds, _)| !holds).map(|(_, fault)| fault).collect()
    }
}

impl fmt::Display for Figures {
    /// Writes a row of a table with the measurements, without their bounds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [quiet, most] = self.memory.map(|bytes| bytes >> 20);
        let livez = self.livez.last().copied().unwrap_or_default();
        write!(
            f,
            "| {} | {} changes, {} lost, p50 {:.0?}, p99 {:.0?}, longest {:.0?} | {livez:.0?}, {} silent | {quiet} → {most} MiB",
            self.name(),
            self.answers.times.len() + self.answers.lost,
            self.answers.lost,
            self.answers.at(50),
            self.answers.at(99),
            self.answers.at(100),
            self.silent,
        )?;
        if let Some(after) = self.memory_after {
            write!(f, " → {} MiB", after >> 20)?;
        }
        let [before, series, after] = self.series;
        write!(
            f,
            " | {} kB | {before} → {series} → {after} | {} ({} strange) | {:.1?} | {:.1?} | {:.1?} |",
            self.log / 1000,
            self.requests,
            self.strange.len(),
            self.removed,
            self.ended,
            self.back,
        )?;
        f.write_str(match (&self.died, self.is_hung) {
            (Some(_), _) => " the host ended |",
            (None, true) => " the host hangs |",
            (None, false) => "",
        })
    }
}
