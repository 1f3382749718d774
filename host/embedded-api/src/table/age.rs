//! Ages as people read them, in at most two units.

use jiff::Timestamp;
use serde_json::Value;

/// Returns the age of a time.
pub(super) fn since(time: &Value, now: Timestamp) -> Value {
    let Some(text) = time.as_str() else { return "<unknown>".into() };
    match text.parse::<Timestamp>() {
        Ok(time) => duration(now.duration_since(time).as_secs()).into(),
        Err(_) => "<invalid>".into(),
    }
}

/// Returns the text of a duration in seconds.
pub(super) fn duration(seconds: i64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => pair(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => pair(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => pair(days, "d", hours % 24, "h"),
        _ if years < 2 => format!("{days}d"),
        _ if years < 8 => pair(years, "y", days % 365, "d"),
        _ => format!("{years}y"),
    }
}

/// Returns the text of two units, without the second if it is zero.
fn pair(large: i64, unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{small_unit}") }
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn ages_have_at_most_two_units() {
        const DAY: i64 = 86_400;
        let cases = [
            (-5, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (185, "3m5s"),
            (600, "10m"),
            (3 * 3600, "3h"),
            (4 * 3600 + 120, "4h2m"),
            (30 * 3600, "30h"),
            (4 * DAY + 7200, "4d2h"),
            (100 * DAY, "100d"),
            (3 * 365 * DAY, "3y"),
            (3 * 365 * DAY + 5 * DAY, "3y5d"),
            (9 * 365 * DAY, "9y"),
        ];
        for (seconds, text) in cases {
            assert_eq!(duration(seconds), text, "{seconds}");
        }
    }
}
