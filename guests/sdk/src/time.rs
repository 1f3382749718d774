//! Conversion between Unix time and RFC 3339, in which Kubernetes writes times.

/// Formats a Unix time in milliseconds as RFC 3339, in UTC and whole seconds.
pub fn rfc3339(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Parses an RFC 3339 time into Unix time in milliseconds; fractions of a second are dropped.
///
/// Returns `None` if the text is no such time, does not end in `Z` (UTC), or is before 1970.
pub fn parse(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time.split('.').next()?, ':')?;
    if !(1..=12).contains(&month)
        || !(1..=31).contains(&day)
        || hour > 23
        || minute > 59
        || second > 60
    {
        return None;
    }
    let (year, month) =
        if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    let days = days.checked_sub(719_468)?;
    Some((days * 86_400 + hour * 3600 + minute * 60 + second) * 1000)
}

fn numbers(text: &str, separator: char) -> Option<[u64; 3]> {
    let mut parts = text.split(separator);
    let mut next = || -> Option<u64> {
        let part = parts.next()?;
        if part.len() > 4 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            None
        } else {
            part.parse().ok()
        }
    };
    let numbers = [next()?, next()?, next()?];
    parts.next().is_none().then_some(numbers)
}

/// Returns year, month and day of a day counted from 1970-01-01. The computation uses years that
/// start in March, so that a leap day is the last day of its year.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // from 0000-03-01
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next_year, month, day)
}

#[cfg(test)]
mod tests {
    use super::{parse, rfc3339};

    #[test]
    fn dates_are_right() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399_999, "2000-02-28T23:59:59Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (951_868_800_000, "2000-03-01T00:00:00Z"),
            (1_709_208_000_000, "2024-02-29T12:00:00Z"),
            (1_767_225_599_000, "2025-12-31T23:59:59Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        ];
        for (milliseconds, text) in cases {
            assert_eq!(rfc3339(milliseconds), text);
            assert_eq!(parse(text), Some(milliseconds / 1000 * 1000), "{text}");
        }
        assert_eq!(parse("2025-12-31T23:59:59.123456Z"), parse("2025-12-31T23:59:59Z"));
        for text in [
            "",
            "2025-12-31",
            "2025-13-01T00:00:00Z",
            "2025-12-31T23:59:59+01:00",
            "1969-12-31T23:59:59Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
