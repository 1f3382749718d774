//! What the host says in its log.

use std::{
    io,
    sync::{Arc, Mutex},
};

use serde_json::Value;
use tracing::subscriber::DefaultGuard;

/// The lines of the thread that listens, as JSON.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<u8>>>);

// === impl Log ===

impl Log {
    /// Until the guard is dropped.
    pub(super) fn listen(&self) -> DefaultGuard {
        let to = self.clone();
        tracing::subscriber::set_default(
            tracing_subscriber::fmt()
                .json()
                .flatten_event(true)
                .with_writer(move || to.clone())
                .finish(),
        )
    }

    /// Whether a warning about a processor says this.
    pub(super) fn has(&self, processor: &str, says: impl Fn(&str) -> bool) -> bool {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.any(|line| {
            let message = line["message"].as_str().unwrap_or_default();
            line["level"] == "WARN" && line["processor"] == processor && says(message)
        })
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
