//! The first steps of a child: it closes inherited file descriptors and sets its own resource
//! limits.

use std::{fs, io};

use anyhow::Context as _;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, getppid, set_parent_process_death_signal, setpriority_process,
    setrlimit,
};

use super::OwnLimits;

/// The niceness of a child: the host itself gets the CPU first, ten times out of eleven. It is not
/// the lowest priority: on a machine that is always busy, the module that fixes the load has to be
/// compiled too.
const LOW_PRIORITY: i32 = 10;
/// The OOM score adjustment with which the kernel kills this process before any other.
const FIRST_TO_GO: &str = "1000";
/// The limit on file descriptors: standard input, output and error, and those that the runtime
/// opens briefly. A child opens none.
const MAX_DESCRIPTORS: u64 = 16;

/// Confines this process to standard input, output and error and to its limits.
///
/// Call this before any thread is started: existing threads would keep their priority.
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

/// Closes all descriptors but standard input, output and error. The host's own files are
/// close-on-exec, but the host may have inherited other descriptors itself.
#[expect(unsafe_code, reason = "only the system knows which descriptors there are")]
fn close_others() -> anyhow::Result<()> {
    let open = fs::read_dir("/proc/self/fd").context("cannot see what is open")?;
    let names: io::Result<Vec<_>> = open.map(|entry| Ok(entry?.file_name())).collect();
    let numbers = names?.into_iter().filter_map(|name| name.to_str()?.parse().ok());
    // The descriptor of the listed folder is in the list, but already closed.
    let is_open = |number: &i32| fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok();
    for descriptor in numbers.filter(|number| *number > 2).filter(is_open) {
        // SAFETY: this program has just been started and has opened nothing: no value of it owns a
        // descriptor.
        unsafe { rustix::io::close(descriptor) };
    }
    Ok(())
}

/// Makes the kernel kill this process when its parent ends.
fn end_with(parent: u32) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot end with the parent")?;
    // The parent may have ended before the call above.
    let is_there = getppid().map(Pid::as_raw_pid).and_then(|id| u32::try_from(id).ok());
    anyhow::ensure!(is_there == Some(parent), "the process {parent} is not the parent of this one");
    Ok(())
}

/// Sets the resource limits, which hold for all threads of this process.
fn limit(limits: &OwnLimits) -> anyhow::Result<()> {
    let memory = u64::from(limits.memory_mib) << 20;
    let of_resources = [
        // Writable memory, used or not. Not the address space, which is mostly only reserved.
        (Resource::Data, memory, memory),
        // The soft limit sends SIGXCPU, which names the cause; the hard limit, a second later,
        // sends SIGKILL.
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
    // Best effort, unsupported on some systems: the limits hold without it.
    let _ = fs::write("/proc/self/oom_score_adj", FIRST_TO_GO);
    Ok(())
}
