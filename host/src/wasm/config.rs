//! Checks configurations in the way that modules are compiled: in a child process within limits, or
//! in this process (developer commands).

use std::{
    collections::VecDeque,
    io::{self, Read as _, Seek as _},
    time::Duration,
};

use parking_lot::Mutex;

use super::{
    Digest,
    child::{
        self, Cancelled, Failure,
        check_config::{self, Question, Verdict},
    },
    compiler::Compiler,
    engine::Engine,
};

/// Limits far above the need of any useful schema, which takes some ten milliseconds. The limit on
/// wall-clock time allows for a busy machine and the child's low priority.
const LIMITS: child::Limits =
    child::Limits { memory_mib: 256, seconds: 1, patience: Duration::from_mins(1) };
/// Bytes of a verdict that are read. A verdict holds a few truncated messages.
const MAX_VERDICT_BYTES: u64 = 64 << 10;

/// The number of valid configurations that are cached. A processor has one, and several of one
/// module often have the same.
const MAX_CACHED_CONFIGS: usize = 256;

/// The digests of the last valid configurations, each with its schema: a new version of a module,
/// or a second Processor with it, starts no child for the same check.
#[derive(Debug, Default)]
pub(super) struct ValidConfigs(Mutex<VecDeque<Digest>>);

/// The reason why a check of a configuration has no verdict.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    /// The check exceeded the limit on CPU time.
    #[error("the check of spec.config against it takes too long: limit {limit} s of CPU time")]
    Time { limit: u32 },

    /// The check exceeded the limit on memory.
    #[error("the check of spec.config against it takes too much memory: limit {limit} MiB")]
    Memory { limit: u32 },

    /// The check crashed, on an endless recursion for instance.
    #[error("the check of spec.config against it crashed ({how}){stderr}")]
    Crashed { how: String, stderr: String },

    /// The machine was too busy to finish in time. Not the schema's fault.
    #[error("the check was not done after {} s: the machine has too much else to do", limit.as_secs())]
    Starved { limit: Duration },

    /// The child was killed from outside. Not the schema's fault, or not alone.
    #[error("the check was killed ({how}), most likely for want of memory")]
    Killed { how: String },

    /// The check could not be run. Not the schema's fault.
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
        let digest = Digest::of(&question);
        if self.valid_configs().contains(digest) {
            return Ok(Verdict::Valid);
        }
        let place = self.checking().take(tenant).await;
        if self.valid_configs().contains(digest) {
            return Ok(Verdict::Valid);
        }
        let (_guard, cancelled) = child::canceller().map_err(CheckError::NotRun)?;
        let engine = self.clone();
        let check = move || {
            let _place = place;
            let checked = engine.compiler().check_config(&question, &cancelled);
            if matches!(checked, Ok(Verdict::Valid)) {
                engine.valid_configs().insert(digest);
            }
            checked
        };
        let checked = tokio::task::spawn_blocking(check).await;
        checked.unwrap_or_else(|error| Err(CheckError::not_run(error)))
    }
}

impl Compiler {
    /// Answers a [`Question`] in a child, or in this process, without limits, if modules are
    /// compiled in this process.
    fn check_config(&self, question: &[u8], cancelled: &Cancelled) -> Result<Verdict, CheckError> {
        let Self::Child { program, .. } = self else {
            return check_config::answer(question).map_err(CheckError::not_run);
        };
        let files = child::input(question).and_then(|input| {
            let output = child::memory_file("output")?;
            Ok((input, output))
        });
        let (input, mut output) = files.map_err(CheckError::NotRun)?;
        let ran = child::run(program, "check-config", LIMITS, (input, &output), cancelled);
        ran.map_err(CheckError::NotRun)?.map_err(CheckError::of)?;
        output.rewind().map_err(CheckError::NotRun)?;
        let mut verdict = Vec::new();
        output.take(MAX_VERDICT_BYTES).read_to_end(&mut verdict).map_err(CheckError::NotRun)?;
        serde_json::from_slice(&verdict).map_err(CheckError::not_run)
    }
}

// === impl ValidConfigs ===

impl ValidConfigs {
    fn contains(&self, digest: Digest) -> bool {
        self.0.lock().contains(&digest)
    }

    fn insert(&self, digest: Digest) {
        let mut all = self.0.lock();
        if all.len() >= MAX_CACHED_CONFIGS {
            all.pop_front();
        }
        all.push_back(digest);
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
            Failure::Other { status, stderr } => {
                Self::Crashed { how: status.to_string(), stderr: child::first_line(&stderr) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wasm::{CompileLimits, Options};

    #[tokio::test]
    async fn a_configuration_that_was_valid_is_not_checked_again() {
        let compiler =
            Compiler::Child { program: "/none".into(), limits: CompileLimits::default() };
        let engine = Engine::new(Options { compiler, ..Options::default() }).unwrap();
        let check = |config| engine.check_config(None, "{}", config);
        check("1").await.unwrap_err();
        let question = Question { schema: "{}".into(), config: "1".into() };
        engine.valid_configs().insert(Digest::of(&serde_json::to_vec(&question).unwrap()));
        assert_eq!(check("1").await.unwrap(), Verdict::Valid);
        check("2").await.unwrap_err();
    }

    #[tokio::test]
    async fn only_valid_configurations_are_remembered_and_so_many() {
        let compiler = Compiler::InProcess;
        let engine = Engine::new(Options { compiler, ..Options::default() }).unwrap();
        let schema = r#"{"type": "integer"}"#;
        let refused = engine.check_config(None, schema, "\"a\"").await.unwrap();
        assert!(matches!(refused, Verdict::Invalid(_)), "{refused:?}");
        assert_eq!(engine.valid_configs().0.lock().len(), 0);
        for config in 0..=MAX_CACHED_CONFIGS {
            let verdict = engine.check_config(None, schema, &config.to_string()).await.unwrap();
            assert_eq!(verdict, Verdict::Valid);
        }
        assert_eq!(engine.valid_configs().0.lock().len(), MAX_CACHED_CONFIGS);
    }
}
