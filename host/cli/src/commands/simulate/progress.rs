//! The progress of a simulation, on a terminal line that is removed at the end.

use std::{
    io::{IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

/// The time before the line is first shown: quicker simulations show nothing.
const FIRST_LINE_DELAY: Duration = Duration::from_secs(1);
/// The least time between two updates of the line.
const MIN_UPDATE_INTERVAL: Duration = Duration::from_millis(100);
/// Moves to the beginning of the line and erases it.
const CLEAR: &str = "\r\x1b[2K";

/// The progress of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The number of the round, from 1.
    pub round: u32,
    /// The number of reconciles of the round that have ended.
    pub done: usize,
    /// The number of reconciles of the round.
    pub of: usize,
}

/// The progress line.
pub(super) struct Progress {
    is_shown: bool,
    began: Instant,
    last: Option<Instant>,
}

// === impl Progress ===

impl Progress {
    /// Creates a line on standard error if that is a terminal; else one that shows nothing.
    pub(super) fn on_stderr() -> Self {
        Self { is_shown: std::io::stderr().is_terminal(), began: Instant::now(), last: None }
    }

    pub(super) fn show(&mut self, step: Step) {
        let now = Instant::now();
        if self.is_due(now) {
            self.last = Some(now);
            write(&format!("{CLEAR}{step}"));
        }
    }

    pub(super) fn clear(&mut self) {
        if self.last.take().is_some() {
            write(CLEAR);
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.is_shown
            && now.duration_since(self.began) >= FIRST_LINE_DELAY
            && self.last.is_none_or(|last| now.duration_since(last) >= MIN_UPDATE_INTERVAL)
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "round {}: {} of {} reconciled", self.round, self.done, self.of)
    }
}

fn write(text: &str) {
    let mut stderr = std::io::stderr();
    // There is nowhere to report a closed terminal.
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_for_patient_terminals_and_not_written_too_often() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let progress = |is_shown, last| Progress { is_shown, began, last };
        let cases = [
            ("no terminal", progress(false, None), 5_000, false),
            ("quick", progress(true, None), 999, false),
            ("slow", progress(true, None), 1_000, true),
            ("shown just now", progress(true, Some(at(2_000))), 2_099, false),
            ("shown a while ago", progress(true, Some(at(2_000))), 2_100, true),
        ];
        for (case, progress, now, expected) in cases {
            assert_eq!(progress.is_due(at(now)), expected, "{case}");
        }
        let step = Step { round: 2, done: 7, of: 1_000 };
        assert_eq!(step.to_string(), "round 2: 7 of 1000 reconciled");
    }
}
