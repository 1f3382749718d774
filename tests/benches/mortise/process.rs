//! CPU time and memory of this process and others, as Linux reports them.

use std::{fmt, fs, ops::Sub, time::Duration};

use anyhow::Context as _;

/// The names of the API's threads begin with this.
pub(crate) const API_THREAD: &str = "api";
/// Linux counts CPU time for user space in hundredths of a second, and memory in pages of 4 KiB on
/// the machines of these benchmarks.
const TICK: Duration = Duration::from_millis(10);
const PAGE_BYTES: usize = 4096;
/// The positions of a thread's ticks in its `stat`, counted after the name: in user space and in
/// the kernel.
const USER: usize = 11;
const KERNEL: usize = 12;

/// CPU time by user.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cpu {
    /// The threads of the embedded API.
    pub(crate) api: Duration,
    /// The other threads.
    pub(crate) host: Duration,
}

/// Memory of a process, in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    /// Resident memory.
    resident: usize,
    /// The part of it that is not backed by files, so without the program's own text.
    anonymous: usize,
    /// The maximum of resident memory so far.
    peak: usize,
}

/// Returns the CPU time of all living threads.
///
/// # Errors
///
/// Fails on a system without Linux' /proc.
pub(crate) fn cpu() -> anyhow::Result<Cpu> {
    let mut cpu = Cpu::default();
    for thread in fs::read_dir("/proc/self/task")? {
        let Ok(stat) = fs::read_to_string(thread?.path().join("stat")) else { continue };
        let Some((name, numbers)) = stat.rsplit_once(") ") else { continue };
        let is_api = name.split_once('(').is_some_and(|(_, name)| name.starts_with(API_THREAD));
        let used = if is_api { &mut cpu.api } else { &mut cpu.host };
        *used += self::used(numbers);
    }
    Ok(cpu)
}

/// Returns the CPU time of another process.
///
/// # Errors
///
/// Fails if the process has ended, or on a system without Linux' /proc.
pub(crate) fn cpu_of(process: u32) -> anyhow::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let (_, numbers) = stat.rsplit_once(") ").unwrap_or_default();
    Ok(used(numbers))
}

/// Returns the CPU time in the fields of `stat` after the name.
fn used(numbers: &str) -> Duration {
    let fields = numbers.split(' ').skip(USER).take(KERNEL - USER + 1);
    TICK * fields.map(|field| field.parse::<u32>().unwrap_or(0)).sum::<u32>()
}

/// Returns the resident memory of this process in bytes.
///
/// # Errors
///
/// Fails on a system without Linux' /proc.
pub(crate) fn resident() -> anyhow::Result<usize> {
    let pages = fs::read_to_string("/proc/self/statm")?;
    let pages: usize = pages.split(' ').nth(1).unwrap_or_default().parse()?;
    Ok(pages * PAGE_BYTES)
}

/// Makes the maximum of this process's resident memory begin anew.
///
/// # Errors
///
/// Fails on a system without Linux' /proc.
pub(crate) fn forget_peak() -> anyhow::Result<()> {
    fs::write("/proc/self/clear_refs", "5").context("cannot reset the maximum of memory")
}

// === impl Memory ===

impl Memory {
    /// Returns the memory of another process.
    ///
    /// # Errors
    ///
    /// Fails if the process has ended, or on a system without Linux' /proc.
    pub(crate) fn of(process: u32) -> anyhow::Result<Self> {
        let status = fs::read_to_string(format!("/proc/{process}/status"))?;
        let field = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let number = value.and_then(|value| value.trim().strip_suffix(" kB"));
            let number = number.with_context(|| format!("process {process} has no {name}"))?;
            Ok::<_, anyhow::Error>(number.parse::<usize>()? << 10)
        };
        let (resident, anonymous) = (field("VmRSS")?, field("RssAnon")?);
        Ok(Self { resident, anonymous, peak: field("VmHWM")? })
    }

    pub(crate) fn resident(&self) -> usize {
        self.resident
    }

    pub(crate) fn peak(&self) -> usize {
        self.peak
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [resident, anonymous, peak] =
            [self.resident, self.anonymous, self.peak].map(|bytes| bytes >> 20);
        write!(f, "{resident} MiB, of it anonymous {anonymous} MiB; at most {peak} MiB")
    }
}

// === impl Cpu ===

impl Sub for Cpu {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            api: self.api.saturating_sub(before.api),
            host: self.host.saturating_sub(before.host),
        }
    }
}
