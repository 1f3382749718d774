//! Daily windows of time.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const MINUTES_PER_DAY: u32 = 24 * 60;

/// A window of time, every day. One that ends before it starts goes over midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// The beginning, in UTC, as `22:30`.
    pub from: TimeOfDay,
    /// The end, in UTC. The same as the beginning: the whole day.
    pub to: TimeOfDay,
}

/// A time of day, in minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct TimeOfDay(
    #[schemars(with = "String", regex(pattern = r"^([01]\d|2[0-3]):[0-5]\d$"))] u32,
);

impl TryFrom<String> for TimeOfDay {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let number = |text: &str, below: u32| -> Option<u32> {
            let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|number| is_number && *number < below)
        };
        let parts = text.split_once(':');
        let minutes =
            parts.and_then(|(hour, minute)| Some(number(hour, 24)? * 60 + number(minute, 60)?));
        minutes.map(Self).ok_or_else(|| format!("`{text}` is no time of day such as `22:30`"))
    }
}

impl From<TimeOfDay> for String {
    fn from(TimeOfDay(minutes): TimeOfDay) -> Self {
        format!("{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

/// Returns the time until the next window begins; `None` within a window, and if there is none.
/// `now` is Unix time in milliseconds.
pub fn wait(windows: &[Window], now: u64) -> Option<Duration> {
    let minute = u32::try_from(now / 60_000 % u64::from(MINUTES_PER_DAY)).unwrap_or_default();
    let until = |window: &Window| {
        let (from, to) = (window.from.0, window.to.0);
        let is_within = match from.cmp(&to) {
            std::cmp::Ordering::Less => (from..to).contains(&minute),
            std::cmp::Ordering::Equal => true,
            std::cmp::Ordering::Greater => minute >= from || minute < to,
        };
        if is_within { 0 } else { (from + MINUTES_PER_DAY - minute) % MINUTES_PER_DAY }
    };
    let minutes = windows.iter().map(until).min().filter(|minutes| *minutes > 0)?;
    let of_minute = Duration::from_millis(now % 60_000);
    Some(Duration::from_mins(minutes.into()).saturating_sub(of_minute))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn windows(all: &[[&str; 2]]) -> Vec<Window> {
        let window = |[from, to]: &[&str; 2]| json!({"from": from, "to": to});
        serde_json::from_value(all.iter().map(window).collect()).unwrap()
    }

    #[test]
    fn the_next_window_is_waited_for() {
        let at = |hour: u64, minute: u64| (20_000 * 86_400 + hour * 3600 + minute * 60) * 1000;
        let night = windows(&[["22:00", "04:30"]]);
        let lunch = windows(&[["12:00", "12:30"], ["18:00", "19:00"]]);
        let minutes = |minutes: u64| Some(Duration::from_mins(minutes));
        let cases = [
            ("no window", &Vec::new(), at(12, 0), None),
            ("before midnight", &night, at(22, 0), None),
            ("after midnight", &night, at(4, 29), None),
            ("at the end", &night, at(4, 30), minutes(17 * 60 + 30)),
            ("the first of two", &lunch, at(11, 59), minutes(1)),
            ("the second of two", &lunch, at(12, 30), minutes(5 * 60 + 30)),
            ("tomorrow", &lunch, at(19, 0), minutes(17 * 60)),
            ("the whole day", &windows(&[["08:00", "08:00"]]), at(3, 0), None),
        ];
        for (case, windows, now, expected) in cases {
            assert_eq!(wait(windows, now), expected, "{case}");
        }
        assert_eq!(wait(&lunch, at(11, 59) + 1500), Some(Duration::from_millis(58_500)));
    }

    #[test]
    fn other_times_of_day_are_refused() {
        for text in ["24:00", "7:00", "07:60", "0700", "", "+7:00", "07:00:00"] {
            let read = serde_json::from_value::<TimeOfDay>(text.into());
            assert!(read.is_err(), "{text}");
        }
        let time: TimeOfDay = serde_json::from_value(json!("07:05")).unwrap();
        assert_eq!(serde_json::to_value(time).unwrap(), json!("07:05"));
    }
}
