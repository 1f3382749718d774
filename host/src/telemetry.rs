//! The program's own log: which lines are written, in which format, how many, and where to: to
//! standard error, or for a time to the owner of the screen ([`redirect`]).
//!
//! No thread waits for the reader of the log (`output`). No line holds a control character; a value
//! of an event takes at most 16 KiB of a line, all values of the event together at most 32 KiB
//! (`text`, `json`). No processor has more than its share of lines (`limit`).

use std::{
    io::{self, IsTerminal as _, Write as _},
    panic,
    sync::{Arc, OnceLock},
    thread,
    time::{Duration, Instant},
};

use anstream::{AutoStream, ColorChoice, adapter::strip_str};
use anstyle::{AnsiColor, Style};
use anyhow::Context as _;
use clap::ValueEnum;
use parking_lot::Mutex;
use tracing::{Subscriber, level_filters::LevelFilter, warn};
use tracing_subscriber::{
    EnvFilter,
    fmt::{
        MakeWriter,
        format::{Format, JsonFields},
    },
    layer::SubscriberExt as _,
};

use self::{
    limit::{Limited, Limits, REPORT_INTERVAL, Spans},
    output::Lines,
    text::Text,
};
use crate::metrics::dropped_lines;

/// The style of the word `error`.
pub const RED: Style = AnsiColor::Red.on_default();

mod escape;
mod json;
pub(crate) mod limit;
mod output;
#[cfg(test)]
mod tests;
mod text;

pub use escape::escaped;

type Take = Box<dyn Fn(String) + Send>;

/// The function that takes the lines instead of standard error, if any.
static TAKEN: Mutex<Option<Take>> = Mutex::new(None);
/// The lines for standard error, once there is a thread that writes them.
static LINES: OnceLock<Lines> = OnceLock::new();

/// The levels for `kube_client`. It logs each request that was not answered as an error; the sender
/// of the request decides what becomes of that. It logs an answer that is not JSON as a warning
/// with the whole text, of Secrets too.
const QUIET: &str = "kube_client::client::builder=off,kube_client::client=error";
/// The time that the program waits at its end for standard error to take the last lines: enough for
/// a reader, and not long if nobody reads.
const LAST_LINES_TIMEOUT: Duration = Duration::from_secs(2);

/// The format of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

/// The log's writer.
#[derive(Debug, Clone, Copy)]
pub struct Output;

/// Lines go to standard error again when this is dropped.
#[derive(Debug)]
pub struct Redirected(());

/// Starts the log.
///
/// # Errors
///
/// `filter` is no filter; the thread of the log cannot be started; there is a log already.
pub fn init(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    let levels = EnvFilter::try_new(format!("{QUIET},{}", own_levels(filter)))
        .map_err(|_| {
            anyhow::anyhow!(
                "`--log {filter}` is no filter: LEVEL or TARGET=LEVEL, separated by commas, is expected; \
                 a level is off, error, warn, info, debug or trace"
            )
        })?;
    let limits = Arc::new(Limits::default());
    let of_thread = Arc::clone(&limits);
    let lines = LINES.get_or_init(Lines::default);
    let write = move || write_for_ever(lines, &of_thread);
    thread::Builder::new()
        .name("log".to_owned())
        .spawn(write)
        .context("cannot start the thread of the log")?;
    let ansi = io::stderr().is_terminal();
    let subscriber = subscriber(levels, format, ansi, limits, Output);
    tracing::subscriber::set_global_default(subscriber).context("there is a log already")
}

/// Logs panics, too; otherwise the thread that panics writes them to standard error.
pub fn take_panics() {
    panic::set_hook(Box::new(|panic| {
        let trace = std::backtrace::Backtrace::capture();
        tracing::error!(%trace, "{panic}");
    }));
}

/// Writes the error that ends the program, whatever else is logged, also if the log could not
/// start: as a line of a log in JSON, or for people.
pub fn write_error(error: &anyhow::Error, format: LogFormat) {
    let mut line = match format {
        LogFormat::Json => json::line("ERROR", "mortise", &format!("{error:#}")),
        LogFormat::Text => format!("{RED}error:{RED:#} {error:#}"),
    };
    line.push('\n');
    if AutoStream::choice(&io::stderr()) == ColorChoice::Never {
        line = strip_str(&line).to_string();
    }
    match LINES.get() {
        Some(lines) => lines.push_last(line.as_bytes()),
        // If standard error is gone, there is nowhere to report it.
        None => _ = io::stderr().write_all(line.as_bytes()),
    }
}

/// Waits for a moment until all lines are written: the program is about to end.
pub fn finish() {
    if let Some(lines) = LINES.get() {
        // If standard error is blocked, there is nowhere to report it.
        let _ = lines.drained(LAST_LINES_TIMEOUT);
    }
}

/// Hands each line to `take`. There is one log: a second call replaces the first one.
pub fn redirect(take: impl Fn(String) + Send + 'static) -> Redirected {
    *TAKEN.lock() = Some(Box::new(take));
    Redirected(())
}

impl Drop for Redirected {
    fn drop(&mut self) {
        *TAKEN.lock() = None;
    }
}

impl MakeWriter<'_> for Output {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        *self
    }
}

impl io::Write for Output {
    /// Takes a line: events are written as a whole.
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        match &*TAKEN.lock() {
            Some(take) => take(String::from_utf8_lossy(text).trim_end().to_owned()),
            None => match LINES.get() {
                Some(lines) if lines.push(text) => {}
                Some(_) => dropped_lines::count(None),
                None => io::stderr().write_all(text)?,
            },
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the subscriber that takes events and writes those of these levels.
fn subscriber<W>(
    levels: EnvFilter,
    format: LogFormat,
    ansi: bool,
    limits: Arc<Limits>,
    to: W,
) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let log = tracing_subscriber::fmt().with_env_filter(levels).with_writer(to).with_ansi(ansi);
    match format {
        LogFormat::Text => {
            let inner = Format::default().with_ansi(ansi);
            let log = log.fmt_fields(Text).event_format(Limited { inner, limits });
            Box::new(log.finish().with(Spans))
        }
        LogFormat::Json => {
            let inner = json::Json;
            let log = log.fmt_fields(JsonFields::new()).event_format(Limited { inner, limits });
            Box::new(log.finish().with(Spans))
        }
    }
}

/// Writes lines for ever, and logs from time to time how many were dropped.
fn write_for_ever(lines: &Lines, limits: &Limits) {
    loop {
        lines.write(&mut io::stderr(), REPORT_INTERVAL, |lines| {
            warn!(lines, "log lines were dropped: standard error is blocked");
        });
        for of in limits.take_dropped(Instant::now()) {
            let (processor, lines) = (of.processor.as_deref(), of.lines);
            warn!(processor, lines, "log lines were dropped: over the rate limit");
        }
    }
}

/// Returns the filter with each level that stands alone and is more verbose than `warn` restricted
/// to mortise's own crates: libraries log much at these levels, and nothing that a user asked for.
fn own_levels(filter: &str) -> String {
    let directives =
        filter.split(',').map(|directive| match directive.trim().parse::<LevelFilter>() {
            Ok(level) if level > LevelFilter::WARN => format!("warn,mortise={level}"),
            _ => directive.to_owned(),
        });
    directives.collect::<Vec<_>>().join(",")
}
