//! Compiles components to machine code: in this process, or in a child process for each module.
//!
//! A compiler is a large program with untrusted input. A compilation that takes too much memory or
//! time, or that crashes, must not take down the host; so a host in a cluster compiles in child
//! processes, within limits (host/decisions/0027-compiling-in-a-child.md). The developer commands
//! compile in their own process: the module is the developer's own, and a child would only be
//! slower.

use std::{fs::File, io, path::PathBuf, time::Duration};

use super::{
    child::{
        self, Cancelled, Failure,
        compile::{self, NOT_WRITTEN, REFUSED},
    },
    content::Content,
};

/// The way in which modules are compiled.
#[derive(Debug, Clone, Default)]
pub enum Compiler {
    /// In this process, on a thread of its own.
    #[default]
    InProcess,
    /// In a child process for each module: `PROGRAM compile`, which reads the module from standard
    /// input and writes its code to standard output.
    Child { program: PathBuf, limits: CompileLimits },
}

/// The limits on compiling one module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompileLimits {
    pub memory_mib: u32,
    /// CPU time of all its threads together, in seconds.
    pub seconds: u32,
}

/// The reason why a child produced no code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// The module is not a component that can be compiled.
    #[error("{0}")]
    Refused(String),

    /// Compiling the module exceeded the memory limit.
    #[error(
        "the compiler takes more than the {limit} MiB of memory that --compile-memory-mib allows"
    )]
    Memory { limit: u32 },

    /// Compiling the module exceeded the limit on CPU time.
    #[error("the compiler takes more than the {limit} s of CPU time that --compile-seconds allows")]
    Time { limit: u32 },

    /// The compiler crashed.
    #[error("the compiler crashed ({how}){stderr}")]
    Crashed { how: String, stderr: String },

    /// The machine was too busy to finish in time. Not the module's fault.
    #[error("the compiler was not done after {} s: the machine has too much else to do", limit.as_secs())]
    Starved { limit: Duration },

    /// The child was killed from outside. Not the module's fault, or not alone.
    #[error(
        "the compiler was killed ({how}), most likely for want of memory: the container's limit has to hold the host and what --compile-memory-mib allows"
    )]
    Killed { how: String },

    /// The code could not be written. Not the module's fault.
    #[error("the compiled code cannot be written{stderr}")]
    NotWritten { stderr: String },

    /// The child could not be run. Not the module's fault.
    #[error("the compiler cannot be run")]
    NotRun(#[source] io::Error),

    /// The compilation was cancelled.
    #[error("the compilation was cancelled: nobody waits for it any more")]
    Cancelled,
}

/// Factor and addend that turn the limit on CPU time into one on wall-clock time, for a child at a
/// low priority on a busy machine.
const REAL_TIME_FACTOR: u32 = 5;
const REAL_TIME_ALLOWANCE: Duration = Duration::from_mins(5);

// === impl Compiler ===

impl Compiler {
    /// Compiles with the running program's executable, even if its file was replaced since the
    /// start.
    pub fn this_program(limits: CompileLimits) -> Self {
        Self::Child { program: PathBuf::from("/proc/self/exe"), limits }
    }

    /// Writes the machine code of a module to a file; `None` for [`Compiler::InProcess`]. Blocks
    /// until the child ends, which its limits bound, or until it is cancelled.
    pub(super) fn run_child(
        &self,
        module: &Content,
        output: &File,
        cancelled: &Cancelled,
    ) -> Option<Result<(), CompileError>> {
        let Self::Child { program, limits } = self else { return None };
        let ran = module.input().and_then(|input| {
            child::run(program, "compile", limits.of_child(), (input, output), cancelled)
        });
        Some(match ran {
            Ok(ended) => ended.map_err(|failure| CompileError::of(failure, *limits)),
            Err(error) => Err(CompileError::NotRun(error)),
        })
    }
}

// === impl CompileLimits ===

impl Default for CompileLimits {
    /// Enough for the largest accepted module: one of 53 MiB of code takes 690 MiB, and half a
    /// minute.
    fn default() -> Self {
        Self { memory_mib: 1024, seconds: 120 }
    }
}

impl CompileLimits {
    /// Returns the wall-clock time limit of a child.
    fn real_time(self) -> Duration {
        Duration::from_secs(self.seconds.into()) * REAL_TIME_FACTOR + REAL_TIME_ALLOWANCE
    }

    fn of_child(self) -> child::Limits {
        let Self { memory_mib, seconds } = self;
        child::Limits { memory_mib, seconds, patience: self.real_time() }
    }
}

// === impl CompileError ===

impl CompileError {
    fn of(failure: Failure, limits: CompileLimits) -> Self {
        match failure {
            Failure::Memory => Self::Memory { limit: limits.memory_mib },
            Failure::Time => Self::Time { limit: limits.seconds },
            Failure::Killed(status) => Self::Killed { how: status.to_string() },
            Failure::Starved => Self::Starved { limit: limits.real_time() },
            Failure::Cancelled => Self::Cancelled,
            Failure::Other { stderr, .. } if stderr.contains(NOT_WRITTEN) => {
                Self::NotWritten { stderr: child::first_line(&stderr) }
            }
            Failure::Other { status, stderr } => {
                let refused = stderr.split_once(REFUSED).map(|(_, cause)| cause.trim().to_owned());
                let is_refused = status.code() == Some(compile::BAD_INPUT_EXIT_CODE);
                refused.filter(|_| is_refused).map_or_else(
                    || Self::Crashed {
                        how: status.to_string(),
                        stderr: child::first_line(&stderr),
                    },
                    Self::Refused,
                )
            }
        }
    }

    /// Returns the error in one word, for metrics.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Refused(_) => "refused",
            Self::Memory { .. } => "memory",
            Self::Time { .. } => "time",
            Self::Crashed { .. } => "crashed",
            Self::Starved { .. } => "starved",
            Self::Killed { .. } => "killed",
            Self::NotWritten { .. } => "not_written",
            Self::NotRun(_) => "not_run",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns whether a later attempt with the same module may succeed.
    pub fn passes(&self) -> bool {
        matches!(
            self,
            Self::Starved { .. }
                | Self::Killed { .. }
                | Self::NotWritten { .. }
                | Self::NotRun(_)
                | Self::Cancelled
        )
    }
}
