//! The note of a run for the next run of the same object: the time of the last attempt, and the hash
//! of what was sent or refused.
//!
//! A note is a hint. Without one, an object that is programmed is sent once within the period.

use std::time::Duration;

use serde_json::Value;

use crate::body::hash;

/// The last attempt to send an entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    /// The time, in milliseconds since 1970.
    pub(crate) at: u64,
    /// The hash of what was sent with success, or of what an entity has that was found; "" after a
    /// refusal.
    pub(crate) sent: String,
    /// The hash of all that a user may edit to have a refused entity sent again; "" after a success.
    pub(crate) refused: String,
}

/// How late a run may be that is due at a time of the period.
const WINDOW: Duration = Duration::from_secs(2);
/// Offsets are below this, in milliseconds: a day.
const MAX_OFFSET: u64 = 86_400_000;

// === impl Note ===

impl Note {
    /// Notes a success.
    pub(crate) fn sent(at: u64, sent: String) -> Self {
        Self { at, sent, refused: String::new() }
    }

    /// Notes a refusal.
    pub(crate) fn refused(at: u64, refused: String) -> Self {
        Self { at, sent: String::new(), refused }
    }

    /// Notes an object that was programmed before this host knew it.
    ///
    /// The uid decides at which time of each period it is sent. So a start of the host sends no
    /// burst, and an object whose notes are always lost is still sent once a period.
    pub(crate) fn of_start(now: u64, period: Duration, uid: &str, sent: String) -> Self {
        let window = milliseconds(WINDOW.min(period / 8));
        let period = milliseconds(period);
        let number = u64::from_str_radix(&hash(&Value::from(uid)), 16).unwrap_or_default();
        let passed =
            now.saturating_add(number % MAX_OFFSET).checked_rem(period).unwrap_or_default();
        let passed = if passed < window { period } else { passed };
        Self::sent(now.saturating_sub(passed), sent)
    }

    /// Returns the note as text.
    pub(crate) fn text(&self) -> String {
        format!("{} {} {}", self.at, self.sent, self.refused)
    }

    /// Reads a note; `None` if it is not one of this version.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(' ');
        let at = parts.next()?.parse().ok()?;
        let (sent, refused) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        parts.next().is_none().then_some(Self { at, sent, refused })
    }

    /// Returns how long the period still lasts; `None` if it is over. A time in the future, from a
    /// clock that was set back, ends it.
    pub(crate) fn rest(&self, now: u64, period: Duration) -> Option<Duration> {
        let passed = now.checked_sub(self.at)?;
        let rest = milliseconds(period).checked_sub(passed)?;
        (rest > 0).then(|| Duration::from_millis(rest))
    }
}

fn milliseconds(of: Duration) -> u64 {
    u64::try_from(of.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_mins(1);

    #[test]
    fn a_note_is_read_as_it_was_written() {
        for note in [Note::sent(1_767_225_600_000, "ab".into()), Note::refused(0, "cd".into())] {
            assert_eq!(Note::parse(&note.text()), Some(note));
        }
        for text in ["", "1", "1 a", "x a b", "1 a b c"] {
            assert_eq!(Note::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_rest_of_a_period_ends_with_it() {
        let note = Note::sent(1_000, String::new());
        let rest = |now| note.rest(now, PERIOD).map(|rest| rest.as_millis());
        assert_eq!(
            [rest(1_000), rest(60_999), rest(61_000), rest(500_000), rest(999)],
            [Some(60_000), Some(1), None, None, None]
        );
    }

    #[test]
    fn after_a_start_the_first_updates_are_spread_over_a_period() {
        let now = 1_767_225_600_000;
        let mut tenths = [0; 10];
        for of in 0..10_000 {
            let note = Note::of_start(now, PERIOD, &format!("uid-{of}"), String::new());
            let rest = note.rest(now, PERIOD).unwrap_or_default().as_millis();
            tenths[usize::try_from(rest / 6_000).unwrap().min(9)] += 1;
        }
        assert!(tenths.iter().all(|count| (600..1_400).contains(count)), "{tenths:?}");
    }

    #[test]
    fn without_any_note_an_object_is_sent_once_a_period() {
        let rest = |now| Note::of_start(now, PERIOD, "uid", String::new()).rest(now, PERIOD);
        let mut now = 1_767_225_600_000;
        for _ in 0..5 {
            let wait = rest(now).unwrap_or(PERIOD);
            assert_eq!(rest(now + milliseconds(wait)), None, "due");
            now += milliseconds(wait) + 3_000;
            assert!(rest(now).is_some(), "not due again");
        }
    }
}
