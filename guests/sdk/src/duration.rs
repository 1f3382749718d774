//! Durations as Go and Kubernetes read and write them, such as `1m30s`. They are nanoseconds, at
//! most 2⁶³.

/// The units, each with its nanoseconds; µ is a letter of two alphabets.
const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", NANOSECONDS_PER_SECOND),
    ("m", 60 * NANOSECONDS_PER_SECOND),
    ("h", 3600 * NANOSECONDS_PER_SECOND),
];

const NANOSECONDS_PER_SECOND: i128 = 1_000_000_000;

/// Returns the nanoseconds of a duration.
///
/// # Errors
///
/// Fails with Go's message if the text is no duration.
pub fn parse(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {}", quoted(text));
    let (is_negative, mut rest) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut sum = 0;
    while !rest.is_empty() {
        let mut dots = 0;
        let number = prefix(rest, |c| {
            dots += usize::from(c == '.');
            c.is_ascii_digit() || c == '.' && dots == 1
        });
        if number.is_empty() || number == "." {
            return Err(invalid());
        }
        let after = rest.get(number.len()..).unwrap_or_default();
        let unit = prefix(after, |c| !c.is_ascii_digit() && c != '.');
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {}", quoted(text)));
        }
        let Some((_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            let (unit, text) = (quoted(unit), quoted(text));
            return Err(format!("time: unknown unit {unit} in duration {text}"));
        };
        sum += nanoseconds(number, *scale).ok_or_else(invalid)?;
        // Go counts up to 2⁶³, so that the lowest negative duration can be read.
        if sum > 1 << 63 {
            return Err(invalid());
        }
        rest = after.get(unit.len()..).unwrap_or_default();
    }
    i64::try_from(if is_negative { -sum } else { sum }).map_err(|_| invalid())
}

/// Returns a duration in Go's shortest form.
pub fn format(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let amount = i128::from(nanoseconds).abs();
    let text = match amount {
        0 => "0s".to_owned(),
        1..1_000 => format!("{amount}ns"),
        1_000..1_000_000 => fraction(amount, 1_000) + "\u{b5}s",
        1_000_000..NANOSECONDS_PER_SECOND => fraction(amount, 1_000_000) + "ms",
        _ => {
            let minutes = amount / (60 * NANOSECONDS_PER_SECOND);
            let seconds =
                fraction(amount % (60 * NANOSECONDS_PER_SECOND), NANOSECONDS_PER_SECOND) + "s";
            match (minutes / 60, minutes % 60) {
                (0, 0) => seconds,
                (0, minutes) => format!("{minutes}m{seconds}"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
            }
        }
    };
    sign.to_owned() + &text
}

fn prefix(text: &str, mut belongs: impl FnMut(char) -> bool) -> &str {
    let end = text.find(|c| !belongs(c)).unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

/// Returns the nanoseconds of a decimal number of a unit; `None` if they are too many.
fn nanoseconds(number: &str, scale: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // A nanosecond of an hour is the 13th digit.
    let fraction = fraction.get(..18).unwrap_or(fraction);
    let digits = u32::try_from(fraction.len()).ok()?;
    let part: i128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let sum = whole.checked_mul(scale)?.checked_add(part * scale / 10_i128.pow(digits))?;
    (sum <= 1 << 63).then_some(sum)
}

fn fraction(amount: i128, unit: i128) -> String {
    let (whole, rest) = (amount / unit, amount % unit);
    if rest == 0 {
        return whole.to_string();
    }
    let width = unit.to_string().len() - 1;
    format!("{whole}.{rest:0width$}").trim_end_matches('0').to_owned()
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_as_by_go() {
        let cases = [
            ("0", "0s"),
            ("-0", "0s"),
            ("1500ms", "1.5s"),
            ("90s", "1m30s"),
            ("1m30s", "1m30s"),
            ("1h", "1h0m0s"),
            ("36h5m", "36h5m0s"),
            ("1.5h", "1h30m0s"),
            (".5s", "500ms"),
            ("1.s", "1s"),
            ("10us", "10\u{b5}s"),
            ("1.5\u{3bc}s", "1.5\u{b5}s"),
            ("7ns", "7ns"),
            ("0.3ns", "0s"),
            ("-1.5s", "-1.5s"),
            ("+2s", "2s"),
            ("1s2s", "3s"),
            ("2562047h47m16.854775807s", "2562047h47m16.854775807s"),
            ("-2562047h47m16.854775808s", "-2562047h47m16.854775808s"),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text).map(format).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused_as_by_go() {
        let cases = [
            ("", r#"time: invalid duration """#),
            ("-", r#"time: invalid duration "-""#),
            ("s", r#"time: invalid duration "s""#),
            (".s", r#"time: invalid duration ".s""#),
            ("1.2.3s", r#"time: missing unit in duration "1.2.3s""#),
            ("5", r#"time: missing unit in duration "5""#),
            ("5d", r#"time: unknown unit "d" in duration "5d""#),
            ("1s-2s", r#"time: unknown unit "s-" in duration "1s-2s""#),
            ("2562047h47m16.854775808s", r#"time: invalid duration "2562047h47m16.854775808s""#),
            (
                "99999999999999999999999999999999999999999s",
                "time: invalid duration \"99999999999999999999999999999999999999999s\"",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text).unwrap_err(), expected, "{text}");
        }
    }
}
