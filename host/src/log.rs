//! What of the program's own log is written, how, and where: to standard error, or for a time to whoever has the screen.

use std::io::{self, IsTerminal as _, Write as _};

use parking_lot::Mutex;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{
    EnvFilter,
    fmt::{MakeWriter, format::JsonFields},
};

use crate::args::LogFormat;

mod json;

type Take = Box<dyn Fn(String) + Send>;

/// Who takes the lines instead of standard error.
static TAKEN: Mutex<Option<Take>> = Mutex::new(None);

/// It calls each request that was not answered an error; whoever sent it says what becomes of that. An answer that is not JSON it
/// warns of with all of its text, of Secrets too.
const QUIET: &str = "kube_client::client::builder=off,kube_client::client=error";

/// The log's writer.
#[derive(Debug, Clone, Copy)]
pub struct Output;

/// Lines go to standard error again when this is dropped.
#[derive(Debug)]
pub struct Redirected(());

/// Begins to log.
///
/// # Errors
///
/// What is given is no filter.
pub fn init(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    let levels = EnvFilter::try_new(format!("{QUIET},{}", own_levels(filter)))
        .map_err(|_| {
            anyhow::anyhow!(
                "`--log {filter}` is no filter: LEVEL or TARGET=LEVEL, separated by commas, is expected; \
                 a level is off, error, warn, info, debug or trace"
            )
        })?;
    let log = tracing_subscriber::fmt().with_env_filter(levels).with_writer(Output);
    match format {
        LogFormat::Text if io::stderr().is_terminal() => log.init(),
        LogFormat::Text => log.with_ansi(false).init(),
        LogFormat::Json => log.fmt_fields(JsonFields::new()).event_format(json::Json).init(),
    }
    Ok(())
}

/// Writes what ends the program as a line of a log in JSON, whatever is logged else, even where the log could not begin.
pub fn write_error(error: &anyhow::Error) {
    let line = json::line("ERROR", "mortise", &format!("{error:#}"));
    // Where standard error is gone there is nobody to tell.
    let _ = writeln!(io::stderr(), "{line}");
}

/// Hands each line to `take`. There is one log: a second call takes the first one's place.
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
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        match &*TAKEN.lock() {
            Some(take) => take(String::from_utf8_lossy(text).trim_end().to_owned()),
            None => io::stderr().write_all(text)?,
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// The filter with each level that stands alone and says more than a warning taken for mortise's own crates: those below say so
/// much, and nothing that a user asked for.
fn own_levels(filter: &str) -> String {
    let directives =
        filter.split(',').map(|directive| match directive.trim().parse::<LevelFilter>() {
            Ok(level) if level > LevelFilter::WARN => format!("warn,mortise={level}"),
            _ => directive.to_owned(),
        });
    directives.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_alone_is_that_of_our_own_crates() {
        let cases = [
            ("debug", "warn,mortise=debug"),
            ("error", "error"),
            ("tower=debug", "tower=debug"),
            ("info,tower=debug", "warn,mortise=info,tower=debug"),
        ];
        for (given, filter) in cases {
            assert_eq!(own_levels(given), filter);
            EnvFilter::try_new(own_levels(given)).unwrap();
        }
        assert!(EnvFilter::try_new(own_levels("tower=loud")).is_err());
    }
}
