//! Child processes of the host: the same program, with resource limits, for untrusted input.
//!
//! This module is the parent's side: [`run`] starts a child, waits for it and finds out how it
//! ended. The child's side is [`confine()`].

pub(crate) mod check_config;
pub(crate) mod compile;
mod confine;

pub(crate) use confine::confine;

use std::{
    fs::File,
    io::{self, PipeReader, PipeWriter, Read as _, Seek as _, Write as _},
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

/// The maximum bytes read of a child's standard error.
const MAX_STDERR_BYTES: u64 = 16 << 10;
/// The message with which Rust's library aborts a program without memory.
const NO_MEMORY: &str = "memory allocation of ";

/// Environment of the child. mimalloc, in the static program and in tests, starts before `main` and
/// reserves a GiB of writable memory, which counts against the limit though it is unused: see
/// host/decisions/0027.
const OF_ALLOCATOR: &[(&str, &str)] = &[("MIMALLOC_ARENA_EAGER_COMMIT", "0")];

/// The resources that a child may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The memory limit, in MiB.
    pub(crate) memory_mib: u32,
    /// The CPU time limit of all its threads together, in seconds.
    pub(crate) seconds: u32,
    /// The wall-clock time limit.
    pub(crate) patience: Duration,
}

/// The limits that a child sets for itself: its own side of [`Limits`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnLimits {
    /// The memory limit, in MiB.
    pub(crate) memory_mib: u32,
    /// The CPU time limit of all its threads together, in seconds.
    pub(crate) seconds: u32,
    /// The process with whose end the child ends; it has to be the parent.
    pub(crate) parent: Option<u32>,
}

/// Kills the children that have its [`Cancelled`] when it is dropped.
#[derive(Debug)]
pub(crate) struct Canceller {
    _writer: PipeWriter,
}

/// The read end of a pipe that is closed when the [`Canceller`] is dropped.
#[derive(Debug)]
pub(crate) struct Cancelled(PipeReader);

/// The reason why a child did not do its work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The child exceeded the limit on memory.
    Memory,
    /// The child exceeded the limit on CPU time.
    Time,
    /// The child was killed, and not by the host.
    Killed(ExitStatus),
    /// The child did not end within the wall-clock time limit.
    Starved,
    /// The [`Canceller`] was dropped: the result is not needed any more.
    Cancelled,
    /// The child ended by itself, or crashed.
    Other {
        status: ExitStatus,
        /// The start of the child's standard error.
        stderr: String,
    },
}

/// Runs `PROGRAM COMMAND` with files as its standard input and output.
///
/// The child is killed when the thread that started it ends, so that thread blocks here until the
/// child has ended.
pub(crate) fn run(
    program: &Path,
    command: &str,
    limits: Limits,
    (input, output): (File, &File),
    cancelled: &Cancelled,
) -> io::Result<Result<(), Failure>> {
    let stderr = memory_file("messages")?;
    if cancelled.is_so()? {
        return Ok(Err(Failure::Cancelled));
    }
    let mut child = Command::new(program)
        .arg0("mortise")
        .arg(command)
        .arg(format!("--memory-mib={}", limits.memory_mib))
        .arg(format!("--seconds={}", limits.seconds))
        .arg(format!("--parent={}", getpid()))
        // The child inherits nothing from the host: no environment, no working directory, no
        // signals of its terminal. All other descriptors are close-on-exec.
        .env_clear()
        .envs(OF_ALLOCATOR.iter().copied())
        .current_dir("/")
        .process_group(0)
        .stdin(input)
        .stdout(output.try_clone()?)
        .stderr(stderr.try_clone()?)
        .spawn()?;
    match wait(&mut child, limits.patience, cancelled)? {
        Err(failure) => Ok(Err(failure)),
        Ok(status) if status.success() => Ok(Ok(())),
        Ok(status) => Ok(Err(failure(status, read(stderr)?))),
    }
}

/// Returns a memory file with these bytes, positioned at its start.
pub(crate) fn input(bytes: &[u8]) -> io::Result<File> {
    let mut file = memory_file("input")?;
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

/// Creates a [`Canceller`] and the [`Cancelled`] that observes it.
///
/// # Errors
///
/// No descriptors are left.
pub(crate) fn canceller() -> io::Result<(Canceller, Cancelled)> {
    let (reader, writer) = io::pipe()?;
    Ok((Canceller { _writer: writer }, Cancelled(reader)))
}

/// Creates a file in memory. It needs no writable folder and is freed with its last descriptor.
pub(crate) fn memory_file(name: &str) -> io::Result<File> {
    Ok(memfd_create(name, MemfdFlags::CLOEXEC)?.into())
}

/// Waits for a child. Kills it at the time limit or when cancelled. The child has ended when this
/// returns.
fn wait(
    child: &mut Child,
    patience: Duration,
    cancelled: &Cancelled,
) -> io::Result<Result<ExitStatus, Failure>> {
    let ended = has_ended(child, patience, cancelled);
    if !matches!(ended, Ok(Ok(()))) {
        child.kill()?;
    }
    let status = child.wait()?;
    Ok(ended?.map(|()| status))
}

fn has_ended(
    child: &Child,
    patience: Duration,
    cancelled: &Cancelled,
) -> io::Result<Result<(), Failure>> {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let start = Instant::now();
    loop {
        let left = Timespec::try_from(patience.saturating_sub(start.elapsed()));
        let left = left.map_err(io::Error::other)?;
        let mut ends =
            [PollFd::new(&process, PollFlags::IN), PollFd::new(&cancelled.0, PollFlags::IN)];
        match poll(&mut ends, Some(&left)) {
            Ok(0) => return Ok(Err(Failure::Starved)),
            Ok(_) if ends.first().is_some_and(|end| !end.revents().is_empty()) => {
                return Ok(Ok(()));
            }
            Ok(_) => return Ok(Err(Failure::Cancelled)),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads the start of the child's standard error.
fn read(mut stderr: File) -> io::Result<String> {
    let mut text = Vec::new();
    stderr.rewind()?;
    stderr.take(MAX_STDERR_BYTES).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn failure(status: ExitStatus, stderr: String) -> Failure {
    let signal = status.signal();
    let is = |wanted: Signal| signal == Some(wanted.as_raw());
    if is(Signal::ABORT) && stderr.contains(NO_MEMORY) {
        Failure::Memory
    } else if is(Signal::XCPU) {
        Failure::Time
    } else if is(Signal::KILL) || is(Signal::TERM) || is(Signal::INT) {
        Failure::Killed(status)
    } else {
        Failure::Other { status, stderr }
    }
}

/// Returns the first line of a child's standard error, as a suffix of a message.
pub(crate) fn first_line(stderr: &str) -> String {
    let line = stderr.lines().map(str::trim).find(|line| !line.is_empty());
    line.map(|line| format!(": {line}")).unwrap_or_default()
}

// === impl Cancelled ===

impl Cancelled {
    fn is_so(&self) -> io::Result<bool> {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&now)) {
            Ok(ready) => Ok(ready > 0),
            // A signal interrupted the call: the wait for the child checks again.
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeping() -> Child {
        Command::new("sleep").arg("1000").spawn().unwrap()
    }

    fn was_killed(child: &mut Child) -> bool {
        child.try_wait().unwrap().unwrap().signal() == Some(Signal::KILL.as_raw())
    }

    #[test]
    fn a_child_that_does_not_end_is_ended() {
        let (_guard, cancelled) = canceller().unwrap();
        let mut child = sleeping();
        let ended = wait(&mut child, Duration::from_millis(1), &cancelled).unwrap();
        assert!(matches!(ended, Err(Failure::Starved)) && was_killed(&mut child));
        let mut child = Command::new("sh").args(["-c", "exit 7"]).spawn().unwrap();
        let status = wait(&mut child, Duration::from_mins(2), &cancelled).unwrap().unwrap();
        assert_eq!(status.code(), Some(7));
    }

    #[test]
    fn a_child_that_nobody_waits_for_is_ended_or_not_started() {
        let (guard, cancelled) = canceller().unwrap();
        let mut child = sleeping();
        let dropper = std::thread::spawn(move || drop(guard));
        let ended = wait(&mut child, Duration::from_mins(2), &cancelled).unwrap();
        assert!(matches!(ended, Err(Failure::Cancelled)) && was_killed(&mut child));
        dropper.join().unwrap();
        let limits = Limits { memory_mib: 64, seconds: 1, patience: Duration::ZERO };
        let program = Path::new("/nowhere/at/all");
        let (given, output) = (input(b"").unwrap(), memory_file("output").unwrap());
        let ended = run(program, "compile", limits, (given, &output), &cancelled).unwrap();
        assert!(matches!(ended, Err(Failure::Cancelled)), "{ended:?}");
    }
}
