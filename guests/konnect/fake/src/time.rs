//! Times as text.

use jiff::Timestamp;

/// Returns a time, in milliseconds since 1970, as RFC 3339 text.
pub(crate) fn text(now: u64) -> String {
    let time = i64::try_from(now).ok().and_then(|now| Timestamp::from_millisecond(now).ok());
    format!("{:.3}", time.unwrap_or_default())
}
