//! What was seen of an attack, and what must hold of it on any machine.

use std::{fmt, time::Duration};

use super::{attack::Attack, benign::Answers};

/// In which each change of a benign object is answered.
const ANSWERED: Duration = Duration::from_secs(5);
/// In which `/livez` is answered.
const LIVE: Duration = Duration::from_secs(1);
/// What a host may hold above the quiet one, besides what the attack's own calls may hold.
const MEMORY: u64 = 256 << 20;
/// The most that the calls of one processor may hold, whatever its limits: the share of the host's budget.
const CALLS: u64 = 512 << 20;
/// What it may hold above the quiet one a minute after the attack.
pub(super) const AFTER: u64 = 64 << 20;
/// How much log there may be, for each attacker.
const LOG: usize = 5_000_000;
/// How many more series of metrics, for each attacker.
const SERIES: usize = 200;
/// How many requests of the host's own, for each attacker, besides what it sends for the changes of a Processor.
const REQUESTS: usize = 1_000;
/// In which a Processor with `onDelete: Release` is gone, and in which the host ends.
const ENDED: Duration = Duration::from_secs(5);

/// What was seen while an attack lasted, or several beside each other.
#[derive(Debug, Default)]
pub struct Figures {
    /// Which.
    pub attacks: Vec<&'static Attack>,
    /// The last lines of the log of a host that has ended by itself.
    pub died: Option<String>,
    /// Whether it does not answer afterwards.
    pub is_hung: bool,
    /// To the changes of benign objects.
    pub answers: Answers,
    /// How long `/livez` took, in ascending order.
    pub livez: Vec<Duration>,
    /// How often it did not answer.
    pub silent: usize,
    /// Resident memory in bytes: before, and the most.
    pub memory: [u64; 2],
    /// The resident memory after the attack, in bytes: once it is small again, and a minute later at most.
    pub memory_after: Option<u64>,
    /// What was logged, in bytes.
    pub log: usize,
    /// Lines of the log that a guest has begun.
    pub forged: usize,
    /// Where the value of a Secret was found.
    pub leaked: Vec<String>,
    /// Series of metrics: before, the most, and after it.
    pub series: [usize; 3],
    /// The series that name an attacker which is gone.
    pub left: Vec<String>,
    /// How many requests the host has sent as itself.
    pub requests: usize,
    /// Those that are not what it needs.
    pub strange: Vec<String>,
    /// The attacks of which nothing is said, with what is.
    pub unsaid: Vec<String>,
    /// How long it took until the Processors were gone.
    pub removed: Option<Duration>,
    /// How long it took until the host had ended beside the attack, where that was tried: none where it did not.
    pub ended: Option<Option<Duration>>,
}

// === impl Figures ===

impl Figures {
    /// The names of the attacks.
    pub fn name(&self) -> String {
        let names: Vec<&str> = self.attacks.iter().map(|attack| attack.name).collect();
        names.join(" + ")
    }

    /// What does not hold.
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
        check(slowest <= ANSWERED, format!("a change is answered after {slowest:?}"));
        let livez = self.livez.last().copied().unwrap_or_default();
        check(
            self.silent == 0 && livez <= LIVE,
            format!("/livez takes {livez:?}, {} times silent", self.silent),
        );
        check(self.unsaid.is_empty(), format!("not said: {}", self.unsaid.join("; ")));
        faults.extend(self.faults_of_size());
        faults.into_iter().map(|fault| format!("{}: {fault}", self.name())).collect()
    }

    fn faults_of_size(&self) -> Vec<String> {
        let (count, mib) = (self.attacks.len(), |bytes: u64| bytes >> 20);
        let own: u64 = self.attacks.iter().map(|attack| attack.may_hold().min(CALLS)).sum();
        let [quiet, most] = self.memory;
        let is_late = |took: Option<Duration>| took.is_none_or(|took| took > ENDED);
        let [before, series, after] = self.series;
        let checks = [
            (
                most <= quiet + own + MEMORY,
                format!("{} MiB of memory, quiet {}", mib(most), mib(quiet)),
            ),
            (
                self.memory_after.is_none_or(|after| after <= quiet + AFTER),
                format!(
                    "{:?} bytes of memory afterwards, quiet {} MiB",
                    self.memory_after,
                    mib(quiet)
                ),
            ),
            (self.log <= LOG * count, format!("{} bytes of log", self.log)),
            (self.forged == 0, format!("{} forged lines", self.forged)),
            (self.leaked.is_empty(), format!("a Secret's value is in {}", self.leaked.join(", "))),
            (series <= before + SERIES * count, format!("{series} series, quiet {before}")),
            // The host's own that come with what happens seldom, as a compilation, stay.
            (after <= before + SERIES, format!("{after} series afterwards, quiet {before}")),
            (
                self.left.is_empty(),
                format!("{} series are left: {}", self.left.len(), self.left.join(", ")),
            ),
            (self.requests <= REQUESTS * count, format!("{} requests of its own", self.requests)),
            (self.strange.is_empty(), format!("requests of its own: {}", self.strange.join(", "))),
            (
                self.died.is_some() || !is_late(self.removed),
                format!("it is gone after {:?}", self.removed),
            ),
            (
                self.ended.is_none_or(|ended| !is_late(ended)),
                format!("the host ends after {:?}", self.ended),
            ),
        ];
        checks.into_iter().filter(|(holds, _)| !holds).map(|(_, fault)| fault).collect()
    }
}

impl fmt::Display for Figures {
    /// One line of a table: what is not compared with anything.
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
            " | {} kB | {before} → {series} → {after} | {} ({} strange) | {:.1?} | {:.1?} |",
            self.log / 1000,
            self.requests,
            self.strange.len(),
            self.removed,
            self.ended,
        )?;
        f.write_str(match (&self.died, self.is_hung) {
            (Some(_), _) => " the host ended |",
            (None, true) => " the host hangs |",
            (None, false) => "",
        })
    }
}
