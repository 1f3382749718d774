//! Checks configurations where modules are compiled: in a child process, within limits, or in this process at the desk.

use std::{
    io::{self, Read as _},
    time::Duration,
};

use super::{compiler::Compiler, engine::Engine};
use crate::{
    check_config::{self, Question, Verdict},
    child::{self, Cancelled, Failure},
};

/// Far more than any schema of use takes: some ten milliseconds. The real time is for a machine that is busy, at a low priority.
const LIMITS: child::Limits =
    child::Limits { memory_mib: 256, seconds: 1, patience: Duration::from_mins(1) };
/// Bytes of a verdict that are read: it holds a few messages, each cut.
const LONGEST: u64 = 64 << 10;

/// Why there is no verdict on a configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    /// The check passed the limit on CPU time.
    #[error("it takes too long to check spec.config against it: limit {limit} s of CPU time")]
    Time { limit: u32 },

    /// The check passed the limit on memory.
    #[error("it takes too much memory to check spec.config against it: limit {limit} MiB")]
    Memory { limit: u32 },

    /// The check failed as it should not, on an endless recursion for instance.
    #[error("the check of spec.config against it crashed ({how}){said}")]
    Crashed { how: String, said: String },

    /// Not the schema's fault.
    #[error("the check was not done after {} s: the machine has too much else to do", limit.as_secs())]
    Starved { limit: Duration },

    /// Not the schema's fault, or not only: somebody ended the child.
    #[error("the check was killed ({how}), most likely for want of memory")]
    Killed { how: String },

    /// Not the schema's fault.
    #[error("the check cannot be run")]
    NotRun(#[source] io::Error),
}

impl Engine {
    /// Checks a configuration against a schema, on no thread that runs calls. Where the future is dropped, the child is ended.
    pub(crate) async fn check_config(
        &self,
        tenant: Option<&str>,
        schema: &str,
        config: &str,
    ) -> Result<Verdict, CheckError> {
        let question = Question { schema: schema.into(), config: config.into() };
        let question = serde_json::to_vec(&question);
        let question = question.map_err(CheckError::not_run)?;
        let place = self.checking().take(tenant).await;
        let (_guard, cancelled) = child::canceller().map_err(CheckError::NotRun)?;
        let engine = self.clone();
        let check = move || {
            let _place = place;
            engine.compiler().check_config(&question, &cancelled)
        };
        let checked = tokio::task::spawn_blocking(check).await;
        checked.unwrap_or_else(|error| Err(CheckError::not_run(error)))
    }
}

impl Compiler {
    /// Answers a [`Question`] in a child; here where this process is to compile, too, where nothing bounds what that takes.
    fn check_config(&self, question: &[u8], cancelled: &Cancelled) -> Result<Verdict, CheckError> {
        let Self::Child { program, .. } = self else {
            return check_config::answer(question).map_err(CheckError::not_run);
        };
        let ran = child::run(program, "check-config", LIMITS, question, cancelled);
        let output = ran.map_err(CheckError::NotRun)?.map_err(CheckError::of)?;
        let mut verdict = Vec::new();
        output.take(LONGEST).read_to_end(&mut verdict).map_err(CheckError::NotRun)?;
        serde_json::from_slice(&verdict).map_err(CheckError::not_run)
    }
}

// === impl CheckError ===

impl CheckError {
    fn of(failure: Failure) -> Self {
        match failure {
            Failure::Memory => Self::Memory { limit: LIMITS.memory_mib },
            Failure::Time => Self::Time { limit: LIMITS.seconds },
            Failure::Killed(status) => Self::Killed { how: status.to_string() },
            Failure::Starved => Self::Starved { limit: LIMITS.patience },
            Failure::Cancelled => Self::NotRun(io::ErrorKind::Interrupted.into()),
            Failure::Other { status, said } => {
                Self::Crashed { how: status.to_string(), said: child::first_line(&said) }
            }
        }
    }

    fn not_run(error: impl Into<io::Error>) -> Self {
        Self::NotRun(error.into())
    }

    /// Returns whether the same check may be done when it is tried again.
    pub(crate) fn passes(&self) -> bool {
        matches!(self, Self::Starved { .. } | Self::Killed { .. } | Self::NotRun(_))
    }
}
