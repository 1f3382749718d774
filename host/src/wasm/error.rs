//! The errors that end a call without an outcome. Describes traps in terms that help the author fix
//! them.

use std::{fmt, time::Duration};

use mortise_core::{
    contract::bounds::{self, text},
    reconcile::{Fault, Line},
};
use wasmtime::{Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use super::{budget::Short, library::Failed, limits::Limits, log::Log, state::Exceeded};

/// The reason why a processor returned no outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call took longer than its deadline.
    #[error("processor `{processor}` ran past its limit of {limit:?}")]
    OutOfTime { processor: String, limit: Duration, backtrace: Trace },

    /// The guest asked for more linear memory than its limit.
    #[error(
        "processor `{processor}` ran out of memory: it asked for {asked} bytes, its limit is {limit}"
    )]
    OutOfMemory { processor: String, limit: usize, asked: usize, backtrace: Trace },

    /// The guest's call stack overflowed, most often by infinite recursion.
    #[error(
        "processor `{processor}` overflowed its stack: a recursion without end, or one that is too deep"
    )]
    StackOverflow { processor: String, backtrace: Trace },

    /// The guest panicked.
    #[error("processor `{processor}` panicked: {message}")]
    Panicked { processor: String, message: String, backtrace: Trace },

    /// The guest trapped without a message.
    #[error("processor `{processor}` trapped: {reason}")]
    Trapped { processor: String, reason: String, backtrace: Trace },

    /// The guest exited instead of returning.
    #[error("processor `{processor}` exited with status {status} instead of returning an outcome")]
    Exited { processor: String, status: i32, backtrace: Trace },

    /// The guest exceeded the limit on reads.
    #[error("processor `{processor}` made more than {limit} reads in one call")]
    TooManyReads { processor: String, limit: u32, backtrace: Trace },

    /// The guest exceeded the limit on bytes read.
    #[error("processor `{processor}` read more than {limit} bytes in one call")]
    TooMuchRead { processor: String, limit: usize, backtrace: Trace },

    /// The arguments of all reads of the call together exceeded their limit.
    #[error(
        "processor `{processor}` passed more than {limit} bytes to all reads of one call together"
    )]
    TooManyArguments { processor: String, limit: usize, backtrace: Trace },

    /// The arguments of one import exceeded their limit.
    #[error("processor `{processor}` passed more than {limit} bytes to one function of the host")]
    ArgumentTooLarge { processor: String, limit: usize, backtrace: Trace },

    /// The guest exceeded the limit on calls to systems outside of the cluster.
    #[error("processor `{processor}` made more than {limit} calls to the outside in one call")]
    TooManyCalls { processor: String, limit: usize, backtrace: Trace },

    /// The guest called a system outside of the cluster in a trial, which ends it. Not the
    /// processor's fault.
    #[error("the trial of processor `{processor}` ended at its first call to the outside")]
    TrialCalled { processor: String },

    /// A library that the guest called failed.
    #[error("processor `{processor}` got no answer of a library: {failed}")]
    Library { processor: String, failed: String, fault: Fault, backtrace: Trace },

    /// The returned outcome exceeds its limit.
    #[error(
        "the outcome of processor `{processor}` is too large: {found}, its limit is {limit} bytes"
    )]
    OutcomeTooLarge { processor: String, limit: usize, found: String },

    /// The processor refused its configuration.
    #[error("processor `{processor}` does not accept its configuration: {message}")]
    ConfigRefused { processor: String, message: String },

    /// The memory budget of all calls has no more left for this processor.
    #[error(
        "processor `{processor}` got no more memory from the host: its calls would have {asked} bytes, of the {limit} that those of all processors may have together (--call-memory-mib), of which one gets no more than is left for others"
    )]
    OutOfHostMemory { processor: String, limit: usize, asked: usize, backtrace: Trace },

    /// The host cancelled the call: its processor is deleted or suspended, or the host shuts down.
    /// Not the processor's fault.
    #[error(
        "the call of processor `{processor}` was cancelled: the processor is gone or suspended, or the host ends"
    )]
    Cancelled { processor: String },

    /// Every slot for calls of hooks was taken until the caller's timeout.
    #[error(
        "a hook of processor `{processor}` was not called within {limit:?}: too many calls of hooks run"
    )]
    Crowded { processor: String, limit: Duration },

    /// The description exceeds a bound, or is malformed.
    #[error("the description of processor `{processor}` is not accepted: {found}")]
    DescriptionRefused { processor: String, found: String },

    /// The host failed to make the call.
    #[error("cannot call processor `{processor}`")]
    Host { processor: String, source: wasmtime::Error },
}

/// The reaction to an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Retry with back-off: later, with other data or on a less busy machine, the call may succeed.
    Retry,
    /// Wait for a change of the module or its configuration; a retry does not help.
    Wait,
}

/// The guest's backtrace at an error, the innermost function first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    frames: Vec<String>,
}

/// Occurrences of one function in the kept frames from which the trace counts as a recursion.
const MIN_RECURSIVE_FRAMES: usize = 8;
/// Lines of a backtrace that are shown.
const MAX_BACKTRACE_LINES: usize = 16;
/// Prefixes of the Rust functions between a panic and the trap.
const PANIC_FRAMES: [&str; 4] =
    ["core::panicking::", "std::panicking::", "__rustc::", "std::sys::backtrace::"];

// === impl Error ===

impl Error {
    /// Returns whether to retry or to wait.
    pub fn next(&self) -> Next {
        match self {
            Self::ConfigRefused { .. } | Self::DescriptionRefused { .. } => Next::Wait,
            _ => Next::Retry,
        }
    }

    /// Returns the origin of the error. A call cancelled by the host is not the processor's fault,
    /// nor is a lack of memory that other processors share.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Cancelled { .. } | Self::TrialCalled { .. } => Fault::Cancelled,
            Self::OutOfHostMemory { .. } | Self::Crowded { .. } => Fault::Host,
            Self::Library { fault, .. } => *fault,
            _ => Fault::Processor,
        }
    }

    /// Returns the error in one word, for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::OutOfTime { .. } => "out-of-time",
            Self::OutOfMemory { .. } => "out-of-memory",
            Self::StackOverflow { .. } => "stack-overflow",
            Self::Panicked { .. } => "panicked",
            Self::Trapped { .. } => "trapped",
            Self::Exited { .. } => "exited",
            Self::TooManyReads { .. } => "too-many-reads",
            Self::TooMuchRead { .. } => "too-much-read",
            Self::TooManyArguments { .. } => "too-many-arguments",
            Self::ArgumentTooLarge { .. } => "argument-too-large",
            Self::TooManyCalls { .. } => "too-many-calls",
            Self::TrialCalled { .. } => "trial-called",
            Self::Library { .. } => "library",
            Self::OutcomeTooLarge { .. } => "outcome-too-large",
            Self::ConfigRefused { .. } => "config-refused",
            Self::OutOfHostMemory { .. } => "out-of-host-memory",
            Self::Cancelled { .. } => "cancelled",
            Self::Crowded { .. } => "crowded",
            Self::DescriptionRefused { .. } => "description-refused",
            Self::Host { .. } => "host",
        }
    }

    /// Returns the guest's backtrace, if the error has one; empty if its functions are not known.
    pub fn backtrace(&self) -> Option<&Trace> {
        match self {
            Self::OutOfTime { backtrace, .. }
            | Self::OutOfMemory { backtrace, .. }
            | Self::OutOfHostMemory { backtrace, .. }
            | Self::StackOverflow { backtrace, .. }
            | Self::Panicked { backtrace, .. }
            | Self::Trapped { backtrace, .. }
            | Self::Exited { backtrace, .. }
            | Self::TooManyReads { backtrace, .. }
            | Self::TooMuchRead { backtrace, .. }
            | Self::TooManyArguments { backtrace, .. }
            | Self::TooManyCalls { backtrace, .. }
            | Self::Library { backtrace, .. }
            | Self::ArgumentTooLarge { backtrace, .. } => Some(backtrace),
            Self::OutcomeTooLarge { .. }
            | Self::ConfigRefused { .. }
            | Self::Cancelled { .. }
            | Self::TrialCalled { .. }
            | Self::Crowded { .. }
            | Self::DescriptionRefused { .. }
            | Self::Host { .. } => None,
        }
    }

    /// Converts the wasmtime error that ended a call.
    pub(super) fn of_call(
        processor: &str,
        limits: &Limits,
        log: &Log,
        source: wasmtime::Error,
    ) -> Self {
        let trace = source.downcast_ref::<WasmBacktrace>();
        let from_guest = trace.is_some();
        let backtrace = trace.map(Trace::of).unwrap_or_default();
        let processor = processor.to_owned();
        if let Some(exceeded) = source.downcast_ref::<Exceeded>() {
            return Self::of_limit(processor, limits, *exceeded, backtrace);
        }
        if let Some(failed) = source.downcast_ref::<Failed>() {
            if failed.fault == Fault::Cancelled {
                return Self::Cancelled { processor };
            }
            // The library's functions were called by those of the processor.
            let backtrace = failed.backtrace.clone().within(backtrace);
            let (fault, failed) = (failed.fault, failed.to_string());
            return Self::Library { processor, failed, fault, backtrace };
        }
        if is_copy_limit(&source) {
            return if from_guest {
                Self::ArgumentTooLarge { processor, limit: bounds::IMPORT_COPY, backtrace }
            } else {
                let limit = limits.outcome_copy();
                let found = format!("its texts together have more than {limit} bytes");
                Self::OutcomeTooLarge { processor, limit: limits.outcome, found }
            };
        }
        if let Some(I32Exit(status)) = source.downcast_ref::<I32Exit>() {
            return Self::Exited { processor, status: *status, backtrace };
        }
        let Some(trap) = source.downcast_ref::<Trap>() else {
            if from_guest {
                let reason = source.root_cause().to_string();
                return Self::Trapped { processor, reason, backtrace };
            }
            return Self::Host { processor, source };
        };
        Self::of_trap(processor, *trap, log, backtrace)
    }

    /// Returns how a library's call ended, as a predicate for a message about the library.
    pub(super) fn of_library(&self) -> String {
        match self {
            Self::OutOfTime { limit, .. } => format!("ran past its limit of {limit:?}"),
            Self::OutOfMemory { limit, asked, .. } => {
                format!("ran out of memory: it asked for {asked} bytes, its limit is {limit}")
            }
            Self::OutOfHostMemory { limit, asked, .. } => format!(
                "got no more memory from the host: the calls of this processor and of its libraries would have {asked} bytes, of the {limit} that those of all processors may have together (--call-memory-mib)"
            ),
            Self::StackOverflow { .. } => "overflowed its stack".to_owned(),
            Self::Panicked { message, .. } => format!("panicked: {message}"),
            Self::Trapped { reason, .. } => format!("trapped: {reason}"),
            Self::OutcomeTooLarge { .. } => {
                format!("returned more than {} bytes", bounds::LIBRARY_ANSWER)
            }
            Self::ArgumentTooLarge { .. } => {
                format!("logged more than {} bytes at once", bounds::IMPORT_COPY)
            }
            Self::Host { source, .. } => format!("cannot be called: {source:#}"),
            other => other.to_string(),
        }
    }

    fn of_limit(processor: String, limits: &Limits, exceeded: Exceeded, backtrace: Trace) -> Self {
        match exceeded {
            Exceeded::Deadline => Self::OutOfTime { processor, limit: limits.deadline, backtrace },
            Exceeded::Memory { asked } => {
                Self::OutOfMemory { processor, limit: limits.memory, asked, backtrace }
            }
            Exceeded::HostMemory(Short { asked, limit }) => {
                Self::OutOfHostMemory { processor, limit, asked, backtrace }
            }
            Exceeded::Reads => Self::TooManyReads { processor, limit: limits.reads, backtrace },
            Exceeded::ReadBytes => {
                Self::TooMuchRead { processor, limit: limits.read_bytes, backtrace }
            }
            Exceeded::Calls => Self::TooManyCalls { processor, limit: bounds::CALLS, backtrace },
            Exceeded::Trial => Self::TrialCalled { processor },
            Exceeded::Arguments => {
                let limit = bounds::CALL_ARGUMENTS;
                Self::TooManyArguments { processor, limit, backtrace }
            }
            Exceeded::Tables { .. } | Exceeded::RandomBytes { .. } => {
                Self::Trapped { processor, reason: exceeded.to_string(), backtrace }
            }
        }
    }

    fn of_trap(processor: String, trap: Trap, log: &Log, backtrace: Trace) -> Self {
        // A guest keeps its own stack in linear memory, which ends at address zero: if it overflows
        // first, the trap only says that the address is out of bounds.
        let recursed = trap == Trap::MemoryOutOfBounds && backtrace.repeats();
        if trap == Trap::StackOverflow || recursed {
            return Self::StackOverflow { processor, backtrace };
        }
        match panic_message(log) {
            Some(message) if trap == Trap::UnreachableCodeReached => {
                Self::Panicked { processor, message, backtrace: backtrace.without_panic() }
            }
            _ => Self::Trapped { processor, reason: trap.to_string(), backtrace },
        }
    }
}

/// Returns whether the limit on bytes copied out of the guest was exceeded. wasmtime does not
/// export the error's type, so its text decides; the test that returns too much detects a change of
/// the text.
fn is_copy_limit(error: &wasmtime::Error) -> bool {
    error.root_cause().to_string().contains("fuel allocated for hostcalls has been exhausted")
}

// === impl Trace ===

impl Trace {
    fn of(trace: &WasmBacktrace) -> Self {
        let name = |frame: &wasmtime::FrameInfo| match frame.func_name() {
            Some(name) => function(name),
            None => format!("function {}", frame.func_index()),
        };
        Self { frames: trace.frames().iter().map(name).collect() }
    }

    /// Returns both backtraces, this one first.
    fn within(mut self, outer: Self) -> Self {
        self.frames.extend(outer.frames);
        self
    }

    /// Returns the names of the functions, the innermost first; of a deep stack only the innermost
    /// ones.
    pub fn frames(&self) -> &[String] {
        &self.frames
    }

    fn repeats(&self) -> bool {
        let times = |name: &String| self.frames.iter().filter(|other| *other == name).count();
        self.frames.iter().any(|name| times(name) >= MIN_RECURSIVE_FRAMES)
    }

    /// Removes the frames of the panic machinery, so that the trace starts with the function that
    /// panicked.
    fn without_panic(mut self) -> Self {
        let is_panic = |name: &String| PANIC_FRAMES.iter().any(|start| name.starts_with(start));
        if let Some(last) = self.frames.iter().rposition(is_panic) {
            self.frames.drain(..=last);
        }
        self
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs: Vec<&[String]> = self.frames.chunk_by(|one, other| one == other).collect();
        for (index, run) in runs.iter().take(MAX_BACKTRACE_LINES).enumerate() {
            let Some(name) = run.first() else { continue };
            let line_end = if index == 0 { "" } else { "\n" };
            write!(formatter, "{line_end}at {name}")?;
            if run.len() > 1 {
                write!(formatter, " ({} times)", run.len())?;
            }
        }
        match runs.len().checked_sub(MAX_BACKTRACE_LINES) {
            Some(more @ 1..) => write!(formatter, "\nand {more} more"),
            _ => Ok(()),
        }
    }
}

/// Returns the demangled name of a function. The name comes from the module and may be of any
/// length.
fn function(name: &str) -> String {
    /// Bytes of a name that is demangled; a longer one is truncated as it is.
    const MAX_DEMANGLED_BYTES: usize = 4096;
    let mut name = match name.len() {
        ..=MAX_DEMANGLED_BYTES => format!("{:#}", rustc_demangle::demangle(name)),
        _ => text::shortened(name, bounds::FUNCTION),
    };
    text::cut(&mut name, bounds::FUNCTION);
    name
}

/// Returns the last message of a guest that aborted: the panic on its standard error, else its last
/// error in the log.
fn panic_message(log: &Log) -> Option<String> {
    let found =
        message_on_standard_error(&log.tail()).or_else(|| log.last_error().map(message_in_log));
    found.map(|mut message| {
        text::cut(&mut message, bounds::PANIC);
        message
    })
}

/// Returns a log line's message with its location; the SDK logs a panic's location as a field.
fn message_in_log(line: &Line) -> String {
    let message = line.message.strip_prefix("panicked: ").unwrap_or(&line.message);
    match line.fields.iter().find(|(name, _)| name == "location") {
        Some((_, place)) => format!("{message} ({place})"),
        None => message.to_owned(),
    }
}

/// Finds the panic's text as Rust and Go print it, or the message of an allocator without memory.
fn message_on_standard_error(text: &str) -> Option<String> {
    if let Some((_, panic)) = text.rsplit_once("panicked at ") {
        let (place, message) = panic.split_once('\n').unwrap_or((panic, ""));
        let message = message.split("\nnote: ").next().unwrap_or_default().trim();
        return Some(format!("{message} ({})", place.trim_end_matches(':')));
    }
    let line = |start: &str| text.lines().rfind(|line| line.starts_with(start));
    let found = ["panic: ", "fatal error: ", "memory allocation of "].into_iter().find_map(line);
    found.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use mortise_core::{contract::Level, reconcile::Source};

    use super::*;

    fn backtrace(frames: &[&str]) -> Trace {
        Trace { frames: frames.iter().map(ToString::to_string).collect() }
    }

    #[test]
    fn the_message_of_a_panic_is_found() {
        let rust = "\nthread '<unnamed>' (1) panicked at src/lib.rs:3:5:\nno such rule\non two lines\n\
                    note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n";
        let cases = [
            ("rust", rust, Some("no such rule\non two lines (src/lib.rs:3:5)")),
            ("rust, no note", "x panicked at a.rs:1:1:\nboom\n", Some("boom (a.rs:1:1)")),
            ("go", "panic: boom\n\ngoroutine 1 [running]:\n", Some("panic: boom")),
            (
                "memory",
                "memory allocation of 12 bytes failed\n",
                Some("memory allocation of 12 bytes failed"),
            ),
            ("chatter", "loading rules\n", None),
        ];
        for (case, text, expected) in cases {
            assert_eq!(message_on_standard_error(text).as_deref(), expected, "{case}");
        }
    }

    #[test]
    fn the_last_error_of_the_log_is_the_message_where_nothing_was_printed() {
        let mut log = Log::new(10, 1000);
        let place = vec![("location".to_owned(), "a.rs:1:1".to_owned())];
        log.write(Level::Error, "panicked: boom".into(), place);
        log.write(Level::Info, "later".into(), Vec::new());
        log.stream(Source::Output, b"panicked at here\n");
        assert_eq!(panic_message(&log).as_deref(), Some("boom (a.rs:1:1)"));
        log.write(Level::Error, "out of rules".into(), Vec::new());
        assert_eq!(panic_message(&log).as_deref(), Some("out of rules"));
    }

    #[test]
    fn an_address_out_of_bounds_in_a_recursion_is_a_stack_overflow() {
        let log = Log::new(10, 1000);
        let of = |frames: &[&str]| {
            Error::of_trap("p".into(), Trap::MemoryOutOfBounds, &log, backtrace(frames))
        };
        assert!(matches!(of(&["a", "b", "c"]), Error::Trapped { .. }));
        assert!(matches!(of(&["walk"; 20]), Error::StackOverflow { .. }));
    }

    #[test]
    fn a_backtrace_is_shown_line_by_line_and_not_whole() {
        assert_eq!(backtrace(&["a", "b"]).to_string(), "at a\nat b");
        assert_eq!(backtrace(&["a", "a", "b"]).to_string(), "at a (2 times)\nat b");
        let names: Vec<String> = (0..20).map(|number| format!("f{number}")).collect();
        let long = Trace { frames: names }.to_string();
        assert!(long.ends_with("at f15\nand 4 more"), "{long}");
    }

    #[test]
    fn the_backtrace_of_a_panic_starts_where_it_was_raised() {
        let frames = ["abort", "__rustc::rust_panic", "core::panicking::panic_fmt", "mine", "main"];
        assert_eq!(backtrace(&frames).without_panic(), backtrace(&["mine", "main"]));
        assert_eq!(backtrace(&["mine"]).without_panic(), backtrace(&["mine"]));
    }

    #[test]
    fn only_a_refused_configuration_waits() {
        let refused = Error::ConfigRefused { processor: "p".into(), message: "m".into() };
        assert_eq!(refused.next(), Next::Wait);
        let deep = Error::StackOverflow { processor: "p".into(), backtrace: Trace::default() };
        assert_eq!(deep.next(), Next::Retry);
    }
}
