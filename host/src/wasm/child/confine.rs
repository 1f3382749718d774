//! The first steps of a child: it closes the descriptors that it was not given on purpose, and sets
//! its own limits.

use std::{fs, io};

use anyhow::Context as _;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, getppid, set_parent_process_death_signal, setpriority_process,
    setrlimit,
};

use super::OwnLimits;

/// The priority of a child: the host itself gets the CPU first, ten times out of eleven. It is not
/// the lowest priority: on a machine that is always busy, the module that would fix that has to be
/// compiled too.
const LOW_PRIORITY: i32 = 10;
/// The adjustment with which the kernel ends this process before any other if memory is short all
/// the same.
const FIRST_TO_GO: &str = "1000";
/// The limit on descriptors: standard input, output and error, and those that the runtime opens for
/// a moment. A child opens none.
const MAX_DESCRIPTORS: u64 = 16;

/// Confines this process to standard input, output and error and to its limits.
///
/// No other part of the program may have been started: threads that exist already would keep their
/// priority.
///
/// # Errors
///
/// A limit cannot be set, or the parent is not [`OwnLimits::parent`].
pub(crate) fn confine(limits: &OwnLimits) -> anyhow::Result<()> {
    close_others()?;
    if let Some(parent) = limits.parent {
        end_with(parent)?;
    }
    limit(limits)
}

/// Closes all descriptors but standard input, output and error. The system closes the host's own
/// files when this program is started, but the host may itself have been given descriptors that it
/// does not know of.
#[expect(unsafe_code, reason = "only the system knows which descriptors there are")]
fn close_others() -> anyhow::Result<()> {
    let open = fs::read_dir("/proc/self/fd").context("cannot see what is open")?;
    let names: io::Result<Vec<_>> = open.map(|entry| Ok(entry?.file_name())).collect();
    let numbers = names?.into_iter().filter_map(|name| name.to_str()?.parse().ok());
    // The descriptor of the folder that was listed is among them, and closed by now.
    let is_open = |number: &i32| fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok();
    for descriptor in numbers.filter(|number| *number > 2).filter(is_open) {
        // SAFETY: this program has just been started and has opened nothing: no value of it owns a
        // descriptor.
        unsafe { rustix::io::close(descriptor) };
    }
    Ok(())
}

/// Makes the system end this process when the process that started it ends.
fn end_with(parent: u32) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot end with the parent")?;
    // The parent may have ended before the system was told.
    let is_there = getppid().map(Pid::as_raw_pid).and_then(|id| u32::try_from(id).ok());
    anyhow::ensure!(is_there == Some(parent), "the process {parent} is not the parent of this one");
    Ok(())
}

/// Sets the limits, which no thread of this process can escape.
fn limit(limits: &OwnLimits) -> anyhow::Result<()> {
    let memory = u64::from(limits.memory_mib) << 20;
    let of_resources = [
        // Writable memory, whether it is used yet or not. Not the address space, much of which is
        // only reserved.
        (Resource::Data, memory, memory),
        // At the first limit comes a signal that says why; a second later, one that cannot be
        // caught.
        (Resource::Cpu, limits.seconds.into(), u64::from(limits.seconds) + 1),
        (Resource::Fsize, memory, memory),
        (Resource::Nofile, MAX_DESCRIPTORS, MAX_DESCRIPTORS),
        (Resource::Core, 0, 0),
    ];
    for (resource, current, maximum) in of_resources {
        let limit = Rlimit { current: Some(current), maximum: Some(maximum) };
        setrlimit(resource, limit).with_context(|| format!("cannot set the limit {resource:?}"))?;
    }
    setpriority_process(None, LOW_PRIORITY).context("cannot lower the priority")?;
    // Best effort, and not all systems know it: the limits hold without it.
    let _ = fs::write("/proc/self/oom_score_adj", FIRST_TO_GO);
    Ok(())
}
