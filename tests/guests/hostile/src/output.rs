//! Hostile texts for people: the log, and failures.

use mortise_sdk::{
    Failure, Level, ObjectRef, Retry,
    bindings::mortise::host::{cluster, log},
    kubernetes::Secret,
};

use crate::Play;

/// A message with a line break, after which it looks like a log line of the host.
const FORGED: &str =
    "all is well\n2026-01-01T00:00:00Z FORGED as another: \u{1b}[31mred\u{1b}[0m\r\u{9b}2J";

pub(crate) fn log(play: &Play) {
    let message = "x".repeat(play.bytes);
    for _ in 0..play.times {
        log::write(Level::Warn, &message, &[]);
    }
}

pub(crate) fn forge(play: &Play) {
    for _ in 0..play.times {
        log::write(Level::Info, FORGED, &[(FORGED.to_owned(), FORGED.to_owned())]);
    }
}

/// Returns a failure that repeats the Secret `treasure`.
pub(crate) fn fail(play: &Play) -> Failure {
    let secret = ObjectRef::of::<Secret>(Some(&play.namespace), "treasure");
    let read = match cluster::get(&secret, &[]) {
        Ok(secret) => secret.unwrap_or_default(),
        Err(error) => format!("{error:?}"),
    };
    let mut message = format!("{read}\n");
    while message.len() < play.bytes {
        message.push_str(&read);
        message.push_str("\nFORGED ");
    }
    failure(message, Retry::After(0))
}

pub(crate) fn failure(message: String, retry: Retry) -> Failure {
    Failure { message, status: None, events: Vec::new(), retry, note: None }
}
