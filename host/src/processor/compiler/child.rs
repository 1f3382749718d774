//! Runs `mortise compile` and finds out how it ended.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    path::Path,
    process::{Child, Command, ExitStatus},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{MemfdFlags, memfd_create},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, getpid, pidfd_open},
};

use super::{CompileError, CompileLimits};
use crate::compile::{self, REFUSED};

/// Of what a child says, so much is read.
const SAID: u64 = 16 << 10;
/// How Rust's library ends a program that gets no memory.
const NO_MEMORY: &str = "memory allocation of ";

/// Variables of the child. The static program's allocator begins before `main` and would take a GiB that can be written to, which counts
/// against the limit on memory though nothing is in it: see host/decisions/0027.
const OF_ALLOCATOR: &[(&str, &str)] =
    if cfg!(target_feature = "crt-static") { &[("MIMALLOC_ARENA_EAGER_COMMIT", "0")] } else { &[] };

/// Compiles a module in a child process. Its code is in a file that has no name.
///
/// The child is told to end with the thread that has started it, so that thread stays here until the child has ended.
pub(super) fn run(
    program: &Path,
    limits: CompileLimits,
    module: &[u8],
) -> Result<File, CompileError> {
    try_run(program, limits, module).unwrap_or_else(|error| Err(CompileError::NotRun(error)))
}

fn try_run(
    program: &Path,
    limits: CompileLimits,
    module: &[u8],
) -> io::Result<Result<File, CompileError>> {
    let mut input = memory_file("module")?;
    input.write_all(module)?;
    input.rewind()?;
    let (mut code, said) = (memory_file("code")?, memory_file("messages")?);
    let mut child = Command::new(program)
        .arg0("mortise")
        .arg("compile")
        .arg(format!("--memory-mib={}", limits.memory_mib))
        .arg(format!("--seconds={}", limits.seconds))
        .arg(format!("--parent={}", getpid()))
        // Nothing of the host's: no environment, no folder, no signals of its terminal. Descriptors are closed by themselves, all but
        // these three.
        .env_clear()
        .envs(OF_ALLOCATOR.iter().copied())
        .current_dir("/")
        .process_group(0)
        .stdin(input)
        .stdout(code.try_clone()?)
        .stderr(said.try_clone()?)
        .spawn()?;
    let Some(status) = wait(&mut child, limits.real_time())? else {
        return Ok(Err(CompileError::Starved { limit: limits.real_time() }));
    };
    if status.success() {
        code.rewind()?;
        return Ok(Ok(code));
    }
    Ok(Err(failure(status, &read(said)?, limits)))
}

/// A file in memory: it needs no folder that can be written to, and is gone when nobody has it open.
fn memory_file(name: &str) -> io::Result<File> {
    Ok(memfd_create(name, MemfdFlags::CLOEXEC)?.into())
}

/// Waits for the end of a child; none if it did not end by itself in time. It has ended in any case.
fn wait(child: &mut Child, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let ended = has_ended(child, patience);
    if !matches!(ended, Ok(true)) {
        child.kill()?;
    }
    let status = child.wait()?;
    Ok(ended?.then_some(status))
}

fn has_ended(child: &Child, patience: Duration) -> io::Result<bool> {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let start = Instant::now();
    loop {
        let left = Timespec::try_from(patience.saturating_sub(start.elapsed()));
        let left = left.map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&left)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// What the child wrote to standard error.
fn read(mut said: File) -> io::Result<String> {
    let mut text = Vec::new();
    said.rewind()?;
    said.take(SAID).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn failure(status: ExitStatus, said: &str, limits: CompileLimits) -> CompileError {
    let signal = status.signal();
    let is = |wanted: Signal| signal == Some(wanted.as_raw());
    if let Some(cause) = said.find(REFUSED).and_then(|start| said.get(start + REFUSED.len()..))
        && status.code() == Some(compile::BAD_INPUT)
    {
        return CompileError::Refused(cause.trim().to_owned());
    }
    if is(Signal::ABORT) && said.contains(NO_MEMORY) {
        return CompileError::Memory { limit: limits.memory_mib };
    }
    if is(Signal::XCPU) {
        return CompileError::Time { limit: limits.seconds };
    }
    if is(Signal::KILL) || is(Signal::TERM) || is(Signal::INT) {
        return CompileError::Killed { how: status.to_string() };
    }
    let said = said.lines().map(str::trim).find(|line| !line.is_empty());
    let said = said.map(|line| format!(": {line}")).unwrap_or_default();
    CompileError::Crashed { how: status.to_string(), said }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_does_not_end_is_ended() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(wait(&mut child, Duration::from_millis(1)).unwrap().is_none());
        assert_eq!(child.try_wait().unwrap().unwrap().signal(), Some(Signal::KILL.as_raw()));
        let mut child = Command::new("sh").args(["-c", "exit 7"]).spawn().unwrap();
        let status = wait(&mut child, Duration::from_mins(2)).unwrap().unwrap();
        assert_eq!(status.code(), Some(7));
    }
}
