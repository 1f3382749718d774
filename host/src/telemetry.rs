//! The program's own log: its levels, format, limits and output, which is standard error or, for a
//! time, the owner of the screen ([`redirect`]).
//!
//! No thread blocks on the reader of the log (`output`). No line holds a control character; a value
//! of an event takes at most 16 KiB of a line, all values of the event together at most 32 KiB
//! (`text`, `json`). No processor exceeds its share of lines (`limit`).

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
use mortise_core::contract::bounds::text::escaped_lines;
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

type Take = Box<dyn Fn(String) + Send>;

/// The function that receives the lines instead of standard error, if any.
static TAKEN: Mutex<Option<Take>> = Mutex::new(None);
/// The queue of lines for standard error, once the thread that writes them runs.
static LINES: OnceLock<Lines> = OnceLock::new();

/// The levels for `kube_client`. It logs each request without an answer as an error, though its
/// caller handles that. It logs an answer that is not JSON as a warning with the whole text, even
/// of Secrets.
const QUIET: &str = "kube_client::client::builder=off,kube_client::client=error";
/// The time that the program waits at its end for standard error to accept the last lines: enough
/// for a reader, and short if there is none.
const LAST_LINES_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The log's writer.
#[derive(Debug, Clone, Copy)]
pub struct Output;

/// Dropping this sends lines to standard error again.
#[derive(Debug)]
pub struct Redirected(());

/// Starts the log.
///
/// # Errors
///
/// Fails for an invalid `filter`, if the thread cannot be started, or if there is a log already.
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

/// Logs panics; otherwise the panicking thread writes them to standard error.
pub fn take_panics() {
    panic::set_hook(Box::new(|panic| {
        let trace = std::backtrace::Backtrace::capture();
        tracing::error!(%trace, "{panic}");
    }));
}

/// Writes the error that ends the program, regardless of the log's filter and even if the log could
/// not start: as a line of a JSON log, or for people.
pub fn write_error(error: &anyhow::Error, format: LogFormat) {
    let mut line = match format {
        LogFormat::Json => json::line("ERROR", "mortise", &format!("{error:#}")),
        LogFormat::Text => {
            format!("{RED}error:{RED:#} {}", escaped_lines(&format!("{error:#}")))
        }
    };
    line.push('\n');
    if AutoStream::choice(&io::stderr()) == ColorChoice::Never {
        line = strip_str(&line).to_string();
    }
    match LINES.get() {
        Some(lines) => lines.push_last(line.as_bytes()),
        // There is nowhere to report a closed standard error.
        None => _ = io::stderr().write_all(line.as_bytes()),
    }
}

/// Waits for a moment until all lines are written, at the end of the program.
pub fn finish() {
    if let Some(lines) = LINES.get() {
        // There is nowhere to report a blocked standard error.
        let _ = lines.drained(LAST_LINES_TIMEOUT);
    }
}

/// Passes each line to `take`. There is one log: a second call replaces the first one.
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

/// Returns the subscriber that formats and writes the events of these levels.
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

/// Writes lines forever, and logs from time to time how many were dropped.
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

/// Returns the filter with each standalone level more verbose than `warn` restricted to mortise's
/// own crates: libraries log much at these levels that no user asked for.
fn own_levels(filter: &str) -> String {
    let directives =
        filter.split(',').map(|directive| match directive.trim().parse::<LevelFilter>() {
            Ok(level) if level > LevelFilter::WARN => format!("warn,mortise={level}"),
            _ => directive.to_owned(),
        });
    directives.collect::<Vec<_>>().join(",")
}
