//! The call of a processor, as a reconciler makes it: its inputs and its result.

use std::time::Duration;

use futures::future::BoxFuture;

use crate::{
    contract::{Failure, Level, Outcome, Request},
    digest::ModuleDigest,
    outbound::{Made, Sending},
    reads::{View, record::Asked},
};

/// A version of a processor that can be called: a component, or a native function.
pub trait Call: Send + Sync {
    fn digest(&self) -> ModuleDigest;

    /// Returns the digests of all code that a call runs: the module and its libraries.
    fn digests(&self) -> String {
        self.digest().to_string()
    }

    /// Returns the most bytes that an outcome may have.
    fn outcome_limit(&self) -> usize;

    /// Does work of a run that takes milliseconds, so that the other tasks of this thread need not
    /// wait for it.
    fn work(&self, work: &mut dyn FnMut()) {
        work();
    }

    /// Reconciles one object.
    fn call<'a>(&'a self, input: Input<'a>) -> BoxFuture<'a, Called>;
}

/// The inputs of a call.
pub struct Input<'a> {
    pub outside: Outside,
    pub request: &'a Request,
    pub moment: Moment,
    pub occasion: Occasion,
}

/// The outside of a call: the objects that it may read, with the record of its reads, and the calls
/// that it may make.
#[derive(Debug, Default)]
pub struct Outside {
    /// The cluster's objects that the call may read.
    pub view: View,
    /// The calls to systems outside of the cluster.
    pub sending: Sending,
}

/// The occasion of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// A run, whose outcome is carried out.
    Run,
    /// The second call of a run, after writes of the first have failed: only what it reports is
    /// written.
    FailedWrites,
    /// A trial of a version that is not active yet: nothing is written.
    Trial,
}

/// The clock and the random numbers of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The time of the call, in milliseconds of Unix time.
    pub now_ms: u64,
    /// The seed of the insecure random numbers.
    pub seed: u64,
}

/// The result of one call.
pub struct Called {
    /// The outcome or failure that the processor returned, or the error that ended the call.
    pub outcome: Result<Result<Outcome, Failure>, CallError>,
    /// The outside that the call was given, with the reads made from it; present however the call
    /// ended.
    pub outside: Outside,
    /// The log and the resources of the call.
    pub usage: Usage,
}

/// The log of one call, and what it used besides its reads.
#[derive(Debug, Default)]
pub struct Usage {
    /// The lines that the processor logged.
    pub log: Vec<Line>,
    /// Number of log lines dropped at the limits.
    pub log_dropped: u32,
    /// Inputs used other than the cluster's objects, such as the clock and random bytes.
    pub asked: Asked,
    /// The calls to systems outside of the cluster.
    pub calls: Vec<Made>,
    /// Bytes of memory that the call had at its end.
    pub memory: usize,
    /// The time that the call waited for a free slot.
    pub waited: Duration,
}

/// The error of a call that returned neither an outcome nor a failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    pub fault: Fault,
    /// The reason in one word, for metrics.
    pub reason: &'static str,
    /// The error and its causes, in words.
    pub message: String,
    /// The processor's functions at the point of the error, if they are known.
    pub backtrace: Option<String>,
}

/// The cause of a [`CallError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The processor: it trapped, passed a limit, returned an outcome that is too large, or
    /// cannot be called.
    Processor,
    /// The host, which lacks memory for all calls.
    Host,
    /// The host cancelled the call: its processor is gone or suspended, or the host is ending.
    Cancelled,
}

/// A line that a processor logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The level passed to `log.write`; info for standard output, warn for standard error.
    pub level: Level,
    pub message: String,
    /// Named values, of `log.write` only.
    pub fields: Vec<(String, String)>,
    pub source: Source,
}

/// The origin of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The contract's `log.write`.
    Log,
    /// The processor's standard output.
    Output,
    /// The processor's standard error.
    Error,
}

// === impl Outside ===

impl From<View> for Outside {
    /// An outside of reads alone.
    fn from(view: View) -> Self {
        Self { view, sending: Sending::default() }
    }
}

// === impl Input ===

impl<'a> Input<'a> {
    /// Creates the input of a run.
    pub fn new(view: View, request: &'a Request, moment: Moment) -> Self {
        Self { outside: view.into(), request, moment, occasion: Occasion::Run }
    }
}
