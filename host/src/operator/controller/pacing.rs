//! The times at which a controller acts without a change: the next attempt, the end of the pause
//! after a load, and the next status. Pure: callers pass the time.

use std::time::Duration;

use tokio::time::Instant;

use crate::operator::retry::wait_after;

/// The shortest time between two computations of a status, and so between two writes of it.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// The longest time between two attempts to write a status that is refused again and again, so that
/// a repair shows soon.
const MAX_STATUS_WAIT: Duration = Duration::from_mins(1);
/// The longest pause after a load. The pause is as long as the load, so that a module that is
/// replaced all the time is compiled only half of the time.
const MAX_PAUSE_AFTER_LOAD: Duration = Duration::from_mins(1);

/// The times of a controller.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    /// The number of failed attempts in a row.
    attempts: u32,
    /// The time of the next attempt; `None` if only a change leads to one.
    again: Option<Instant>,
    /// The end of the pause after a load. Until then, a change of the module's file is not acted
    /// on.
    rests_until: Option<Instant>,
    /// The earliest time of the next status computation; `None` before the first one.
    next_status: Option<Instant>,
    /// True if a status write is due that came too early or was refused.
    status_due: bool,
    /// The number of refused status writes in a row.
    refusals: u32,
}

// === impl Pacing ===

impl Pacing {
    /// Records the end of an attempt. The next one follows after a wait if a retry `may_help`, and
    /// at `latest` at the latest.
    pub(super) fn attempted(&mut self, may_help: bool, latest: Option<Instant>, now: Instant) {
        self.attempts = if may_help { self.attempts.saturating_add(1) } else { 0 };
        let retry = may_help.then(|| now + wait_after(self.attempts));
        self.again = retry.into_iter().chain(latest).min();
    }

    /// Returns whether the time of the next attempt has come.
    pub(super) fn is_attempt_due(&self, now: Instant) -> bool {
        self.again.is_some_and(|again| again <= now)
    }

    /// Starts the pause after a load.
    pub(super) fn loaded(&mut self, took: Duration, now: Instant) {
        self.rests_until = Some(now + took.min(MAX_PAUSE_AFTER_LOAD));
    }

    /// Returns the end of the pause after a load, while it lasts.
    pub(super) fn rests_until(&self, now: Instant) -> Option<Instant> {
        self.rests_until.filter(|until| *until > now)
    }

    /// Allows a status at once.
    pub(super) fn allow_status(&mut self, now: Instant) {
        self.next_status = Some(now);
    }

    /// Begins the computation of a status. Returns false if it comes too early: it is due later.
    pub(super) fn begin_status(&mut self, now: Instant) -> bool {
        self.status_due = self.next_status.is_some_and(|next| now < next);
        if !self.status_due {
            self.next_status = Some(now + STATUS_INTERVAL);
        }
        !self.status_due
    }

    pub(super) fn status_written(&mut self) {
        self.refusals = 0;
    }

    /// Records that the API server has refused a status, which is due again after a wait.
    pub(super) fn status_refused(&mut self, now: Instant) {
        self.refusals = self.refusals.saturating_add(1);
        self.next_status = Some(now + wait_after(self.refusals).min(MAX_STATUS_WAIT));
        self.status_due = true;
    }

    pub(super) fn is_status_due(&self) -> bool {
        self.status_due
    }

    /// Returns the first of the times, if any. The end of a pause counts while the pause lasts.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let status = self.next_status.filter(|_| self.status_due);
        [self.again, self.rests_until(now), status].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the seconds from `start` to the next time.
    fn next(pacing: &Pacing, start: Instant) -> Option<u64> {
        pacing.next(start).map(|next| (next - start).as_secs())
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn retries_wait_twice_as_long_each_time_until_an_attempt_needs_no_other() {
        let start = Instant::now();
        let mut pacing = Pacing::default();
        assert_eq!(next(&pacing, start), None, "only a change leads to an attempt");
        for _ in 0..2 {
            for expected in [5, 10, 20, 40, 80, 160, 300, 300] {
                pacing.attempted(true, None, start);
                assert_eq!(next(&pacing, start), Some(expected));
            }
            pacing.attempted(false, None, start);
            assert_eq!(next(&pacing, start), None);
        }
        pacing.attempts = u32::MAX;
        pacing.attempted(true, None, start);
        assert_eq!(next(&pacing, start), Some(300));
    }

    #[test]
    fn an_attempt_is_due_at_the_retry_or_at_the_given_time_whichever_is_first() {
        let start = Instant::now();
        for (may_help, latest, expected) in [(true, 3, 3), (true, 60, 5), (false, 60, 60)] {
            let mut pacing = Pacing::default();
            pacing.attempted(may_help, Some(start + seconds(latest)), start);
            assert_eq!(next(&pacing, start), Some(expected), "{may_help}, {latest}");
            let due = start + seconds(expected);
            assert!(!pacing.is_attempt_due(due - Duration::from_millis(1)));
            assert!(pacing.is_attempt_due(due));
        }
    }

    #[test]
    fn a_pause_is_as_long_as_the_load_and_a_minute_at_most() {
        let start = Instant::now();
        for (took, pause) in [(0, 0), (7, 7), (60, 60), (3600, 60)] {
            let mut pacing = Pacing::default();
            pacing.loaded(seconds(took), start);
            let end = start + seconds(pause);
            let last = (pause > 0).then_some(end);
            assert_eq!(pacing.next(start), last, "{took}");
            assert_eq!((pacing.rests_until(end), pacing.next(end)), (None, None), "{took}");
            assert!(!pacing.is_attempt_due(end), "a pause leads to no attempt");
        }
    }

    #[test]
    fn a_status_that_comes_too_early_is_due_a_second_after_the_last_one() {
        let start = Instant::now();
        let mut pacing = Pacing::default();
        assert!(pacing.begin_status(start));
        assert_eq!((pacing.is_status_due(), pacing.next(start)), (false, None));
        let early = start + Duration::from_millis(999);
        assert!(!pacing.begin_status(early));
        assert_eq!((pacing.is_status_due(), pacing.next(early)), (true, Some(start + seconds(1))));
        assert!(pacing.begin_status(start + seconds(1)));
        assert!(!pacing.is_status_due());
        assert!(!pacing.begin_status(early));
        pacing.allow_status(early);
        assert!(pacing.begin_status(early));
    }

    #[test]
    fn a_refused_status_is_due_again_within_a_minute() {
        let start = Instant::now();
        let mut pacing = Pacing::default();
        for _ in 0..2 {
            for expected in [5, 10, 20, 40, 60, 60] {
                pacing.status_refused(start);
                assert_eq!(next(&pacing, start), Some(expected));
                assert!(pacing.is_status_due());
            }
            pacing.status_written();
        }
    }

    #[test]
    fn the_first_of_all_times_is_the_next_one() {
        let start = Instant::now();
        let mut pacing = Pacing::default();
        pacing.attempted(true, None, start);
        pacing.loaded(seconds(3), start);
        assert_eq!(next(&pacing, start), Some(3));
        assert!(pacing.begin_status(start) && !pacing.begin_status(start));
        assert_eq!(next(&pacing, start), Some(1));
        pacing.status_refused(start + seconds(1));
        assert_eq!(next(&pacing, start), Some(3));
        assert_eq!(pacing.next(start + seconds(3)), Some(start + seconds(5)));
    }
}
