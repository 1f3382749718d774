//! The waits between attempts that fail.

use std::time::Duration;

/// The wait before the first retry of a failed attempt. It doubles with each further retry.
pub(super) const FIRST_RETRY_DELAY: Duration = Duration::from_secs(5);
pub(super) const MAX_RETRY_DELAY: Duration = Duration::from_mins(5);

/// Returns the wait after this many failed attempts in a row.
pub(super) fn wait_after(attempts: u32) -> Duration {
    let doubled = 2_u32
        .checked_pow(attempts.saturating_sub(1))
        .and_then(|times| FIRST_RETRY_DELAY.checked_mul(times));
    doubled.unwrap_or(MAX_RETRY_DELAY).min(MAX_RETRY_DELAY)
}
