//! `mortise compile`: makes machine code of one component, within limits, and ends. It is what `mortise run` starts for each module
//! that is not in its cache.

use std::{
    fs,
    io::{self, IsTerminal as _, Read as _, Write as _},
    process::ExitCode,
};

use anyhow::Context as _;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, getppid, set_parent_process_death_signal, setpriority_process,
    setrlimit,
};

use crate::{
    args::CompileArgs,
    processor::{self, CompileError},
};

/// What the message starts with when it is the module that is wrong.
pub(crate) const REFUSED: &str = "cannot compile the module: ";
/// The exit code then.
pub(crate) const BAD_INPUT: i32 = 1;
/// What the host itself does has the CPU first, ten times out of eleven. Not the lowest priority: on a machine that is busy all the
/// time, the module that would mend that has to be compiled too.
const LOW_PRIORITY: i32 = 10;
/// If memory is short all the same, the kernel ends this process before any other.
const FIRST_TO_GO: &str = "1000";
/// Standard input, output and error, and what the runtime looks at for a moment: a compiler opens nothing.
const DESCRIPTORS: u64 = 16;

/// Reads a module from standard input and writes its code to standard output.
///
/// Nothing else of the program may have been started: threads that are there already would keep their priority.
///
/// # Errors
///
/// Limits that cannot be set, a module that is none, code that cannot be written.
pub fn run(args: &CompileArgs) -> anyhow::Result<ExitCode> {
    close_others()?;
    if let Some(parent) = args.parent {
        end_with(parent)?;
    }
    confine(args)?;
    let mut output = io::stdout().lock();
    anyhow::ensure!(
        !output.is_terminal(),
        "the code would be written to the terminal: redirect it, as in `mortise compile < my.wasm > my.code`"
    );
    let mut module = Vec::new();
    io::stdin().lock().read_to_end(&mut module).context("cannot read the module")?;
    let code = processor::compile(&module).map_err(|error| match error {
        CompileError::Refused(cause) => anyhow::anyhow!("{REFUSED}{cause}"),
        error => error.into(),
    })?;
    output.write_all(&code).and_then(|()| output.flush()).context("cannot write the code")?;
    Ok(ExitCode::SUCCESS)
}

/// Closes all but standard input, output and error: the host's own files are closed by the system when this program is started, but
/// the host may itself have been given some that nobody knows of.
#[expect(unsafe_code, reason = "only the system knows which descriptors there are")]
fn close_others() -> anyhow::Result<()> {
    let open = fs::read_dir("/proc/self/fd").context("cannot see what is open")?;
    let names: io::Result<Vec<_>> = open.map(|entry| Ok(entry?.file_name())).collect();
    let numbers = names?.into_iter().filter_map(|name| name.to_str()?.parse().ok());
    // The folder that was listed is among them, and closed by now.
    let is_open = |number: &i32| fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok();
    for descriptor in numbers.filter(|number| *number > 2).filter(is_open) {
        // SAFETY: this program has just been started and has opened nothing: no value of it owns a descriptor.
        unsafe { rustix::io::close(descriptor) };
    }
    Ok(())
}

/// Ends this process when the one ends that has started it.
fn end_with(parent: u32) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot end with the parent")?;
    // It may have ended before the system was told.
    let is_there = getppid().map(Pid::as_raw_pid).and_then(|id| u32::try_from(id).ok());
    anyhow::ensure!(is_there == Some(parent), "the process {parent} is not the parent of this one");
    Ok(())
}

/// Sets the limits, which no thread of this process can get out of.
fn confine(args: &CompileArgs) -> anyhow::Result<()> {
    let memory = u64::from(args.memory_mib) << 20;
    let limits = [
        // What can be written to, whether it is used yet or not. Not the address space, much of which is only reserved.
        (Resource::Data, memory, memory),
        // Its end comes with a signal that says why; a second later with one that cannot be caught.
        (Resource::Cpu, args.seconds.into(), u64::from(args.seconds) + 1),
        (Resource::Fsize, memory, memory),
        (Resource::Nofile, DESCRIPTORS, DESCRIPTORS),
        (Resource::Core, 0, 0),
    ];
    for (resource, current, maximum) in limits {
        let limit = Rlimit { current: Some(current), maximum: Some(maximum) };
        setrlimit(resource, limit).with_context(|| format!("cannot set the limit {resource:?}"))?;
    }
    setpriority_process(None, LOW_PRIORITY).context("cannot lower the priority")?;
    // Only a wish, and not all systems know it: the limits hold without.
    let _ = fs::write("/proc/self/oom_score_adj", FIRST_TO_GO);
    Ok(())
}
