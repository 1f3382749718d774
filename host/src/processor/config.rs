//! Checks configurations in the way that modules are compiled: in a child process within limits, or
//! in this process (developer commands).

use std::{
    io::{self, Read as _},
    time::Duration,
};

use super::{compiler::Compiler, engine::Engine};
use crate::{
    check_config::{self, Question, Verdict},
    child::{self, Cancelled, Failure},
};

/// Limits far above the need of any useful schema, which takes some ten milliseconds. The limit on
/// real time is for a busy machine and the child's low priority.
const LIMITS: child::Limits =
    child::Limits { memory_mib: 256, seconds: 1, patience: Duration::from_mins(1) };
/// Bytes of a verdict that are read. A verdict holds a few messages, each of them cut.
const LONGEST: u64 = 64 << 10;

/// The reason why a check of a configuration has no verdict.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    /// The check exceeded the limit on CPU time.
    #[error("it takes too long to check spec.config against it: limit {limit} s of CPU time")]
    Time { limit: u32 },

    /// The check exceeded the limit on memory.
    #[error("it takes too much memory to check spec.config against it: limit {limit} MiB")]
    Memory { limit: u32 },

    /// The check crashed, on an endless recursion for instance.
    #[error("the check of spec.config against it crashed ({how}){said}")]
    Crashed { how: String, said: String },

    /// The machine was too busy to finish in time. No fault of the schema.
    #[error("the check was not done after {} s: the machine has too much else to do", limit.as_secs())]
    Starved { limit: Duration },

    /// The child was killed from outside. No fault of the schema, or not only.
    #[error("the check was killed ({how}), most likely for want of memory")]
    Killed { how: String },

    /// The check could not be run. No fault of the schema.
    #[error("the check cannot be run")]
    NotRun(#[source] io::Error),
}

impl Engine {
    /// Checks a configuration against a schema, never on a thread that runs calls. Dropping the
    /// future ends the child.
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
    /// Answers a [`Question`] in a child, or in this process if modules are compiled in this
    /// process; the latter has no limits.
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

    /// Returns whether a later attempt at the same check may succeed.
    pub(crate) fn passes(&self) -> bool {
        matches!(self, Self::Starved { .. } | Self::Killed { .. } | Self::NotRun(_))
    }
}
