//! Where the program's own log goes: to standard error, or for a time to whoever has the screen.

use std::io;

use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

type Take = Box<dyn Fn(String) + Send>;

/// Who takes the lines instead of standard error.
static TAKEN: Mutex<Option<Take>> = Mutex::new(None);

/// The log's writer.
#[derive(Debug, Clone, Copy)]
pub struct Output;

/// Lines go to standard error again when this is dropped.
#[derive(Debug)]
pub struct Redirected(());

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
