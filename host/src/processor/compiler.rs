//! Who makes machine code of a component: this process, or a child of it for each module.
//!
//! A compiler is a large program that strangers feed. One that takes too much memory or time, or that crashes, must not take the host
//! along; so a host in a cluster compiles in children, within limits (host/decisions/0027-compiling-in-a-child.md). At the desk, where
//! the module is one's own and one waits for it, the process does it itself.

use std::{fs::File, io, path::PathBuf, time::Duration};

use crate::{
    child::{self, Cancelled, Failure},
    compile::{self, REFUSED},
};

/// Who compiles.
#[derive(Debug, Clone, Default)]
pub enum Compiler {
    /// This process, in a thread of its own.
    #[default]
    InProcess,
    /// A child process for each module: `PROGRAM compile`, which reads the module from standard input and writes its code to standard
    /// output.
    Child {
        /// What is started.
        program: PathBuf,
        /// What it may use.
        limits: CompileLimits,
    },
}

/// What compiling one module may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompileLimits {
    /// Memory, in MiB.
    pub memory_mib: u32,
    /// CPU time of all its threads together, in seconds.
    pub seconds: u32,
}

/// Why a child made no code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are what the message says")]
pub enum CompileError {
    /// The component is not one.
    #[error("{0}")]
    Refused(String),

    /// The module is too much for the limit on memory.
    #[error("it takes more than the {limit} MiB of memory that --compile-memory-mib allows")]
    Memory { limit: u32 },

    /// The module is too much for the limit on time.
    #[error("it takes more than the {limit} s of CPU time that --compile-seconds allows")]
    Time { limit: u32 },

    /// The compiler failed as it should not.
    #[error("the compiler crashed ({how}){said}")]
    Crashed { how: String, said: String },

    /// Not the module's fault: the machine had no time for it.
    #[error("it was not done after {} s: the machine has too much else to do", limit.as_secs())]
    Starved { limit: Duration },

    /// Not the module's fault, or not only: somebody ended the child.
    #[error(
        "the compiler was killed ({how}), most likely for want of memory: the container's limit has to hold the host and what --compile-memory-mib allows"
    )]
    Killed { how: String },

    /// Not the module's fault.
    #[error("the compiler cannot be run")]
    NotRun(#[source] io::Error),

    /// Nobody has waited for it.
    #[error("it was given up: nobody waits for it any more")]
    Cancelled,
}

/// What a limit of CPU time becomes in real time, at a low priority on a machine that is busy: so many times as much, and this besides.
const STARVED_TIMES: u32 = 5;
const STARVED_BESIDES: Duration = Duration::from_mins(5);

// === impl Compiler ===

impl Compiler {
    /// The program that runs, as a compiler: the very same, though its file may have been replaced since it was started.
    pub fn this_program(limits: CompileLimits) -> Self {
        Self::Child { program: PathBuf::from("/proc/self/exe"), limits }
    }

    /// The machine code of a module in a file that has no name; none where this process is to compile. Takes long; ends when the child
    /// does, which the limits bound, and when it is cancelled.
    pub(super) fn run_child(
        &self,
        module: &[u8],
        cancelled: &Cancelled,
    ) -> Option<Result<File, CompileError>> {
        let Self::Child { program, limits } = self else { return None };
        let ran = child::run(program, "compile", limits.of_child(), module, cancelled);
        Some(match ran {
            Ok(ended) => ended.map_err(|failure| CompileError::of(failure, *limits)),
            Err(error) => Err(CompileError::NotRun(error)),
        })
    }
}

// === impl CompileLimits ===

impl Default for CompileLimits {
    /// Enough for the largest module that is accepted: one of 53 MiB of code takes 690 MiB, and half a minute.
    fn default() -> Self {
        Self { memory_mib: 1024, seconds: 120 }
    }
}

impl CompileLimits {
    /// How long a child may be there at all.
    fn real_time(self) -> Duration {
        Duration::from_secs(self.seconds.into()) * STARVED_TIMES + STARVED_BESIDES
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
            Failure::Other { status, said } => {
                let refused = said.split_once(REFUSED).map(|(_, cause)| cause.trim().to_owned());
                let is_refused = status.code() == Some(compile::BAD_INPUT);
                refused.filter(|_| is_refused).map_or_else(
                    || Self::Crashed { how: status.to_string(), said: child::first_line(&said) },
                    Self::Refused,
                )
            }
        }
    }

    /// In one word, for metrics.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Refused(_) => "refused",
            Self::Memory { .. } => "memory",
            Self::Time { .. } => "time",
            Self::Crashed { .. } => "crashed",
            Self::Starved { .. } => "starved",
            Self::Killed { .. } => "killed",
            Self::NotRun(_) => "not_run",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether the same module may compile when it is tried again.
    pub fn passes(&self) -> bool {
        matches!(
            self,
            Self::Starved { .. } | Self::Killed { .. } | Self::NotRun(_) | Self::Cancelled
        )
    }
}
