//! The pair that is served, and the pair that comes next.
//!
//! A pair is replaced in two steps, so that no call fails: at first the authority of the next pair
//! is announced, beside that of the current one; once all clients hold it, and some time has
//! passed, the next pair becomes the current one. A pair that nobody can use is replaced at once.

use std::time::Duration;

use certificate::{Chain, Server, issue::issue};

use crate::store::{Pair, Stored, holds};

/// The time between two looks at the certificate.
pub const CHECK_INTERVAL: Duration = Duration::from_hours(1);
/// The time before its end at which a pair is replaced.
pub const RENEWAL_LEAD_TIME: Duration = Duration::from_hours(14 * 24);
/// The time for which a pair is valid, from its first moment.
const LIFETIME: Duration = Duration::from_hours(90 * 24);
/// The time by which clocks of clients may be late.
const MAX_CLOCK_SKEW: Duration = Duration::from_hours(1);

/// The time and the hosts, on which a renewal depends beside the Secret.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// The time of the call, as Unix time.
    pub now: Duration,
    /// The hosts that the clients name now.
    pub named: &'a [String],
    /// These hosts, and the one that they will name.
    pub wanted: &'a [String],
    /// The time for which an authority is announced.
    pub announced: Duration,
}

/// The content that the Secret should have, and when to look again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The content.
    pub stored: Stored,
    /// The step that was taken.
    pub step: Step,
    /// The time until the next look.
    pub again: Duration,
}

/// A step of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The current pair is as it should be.
    Kept,
    /// There was no pair that could be used, and there is one now.
    Made,
    /// The authority of the next pair is announced from now on.
    Announced,
    /// The authority of the next pair is being announced.
    Waiting,
    /// The next pair has become the current one.
    Replaced,
}

/// Returns what should be. `is_held` says whether all clients hold an authority.
///
/// # Errors
///
/// Fails if a host cannot stand in a certificate.
pub fn plan(
    stored: Stored,
    of: &Situation<'_>,
    is_held: impl Fn(&str) -> bool,
) -> Result<Plan, String> {
    let current = stored.current.as_ref().filter(|pair| is_usable(pair, of.named, of.now));
    if current.is_some_and(|pair| of.keeps(pair)) {
        let bundle = stored.trusted().filter(|trusted| Some(trusted) == stored.bundle.as_ref());
        let stored = Stored { next: None, bundle, ..stored };
        return Ok(Plan { stored, step: Step::Kept, again: CHECK_INTERVAL });
    }
    let found = stored.next.as_ref().filter(|pair| of.keeps(pair));
    let next = found.map_or_else(|| of.issue(), |pair| Ok(pair.clone()))?;
    let authority = authority(&next).unwrap_or_default();
    let bundle = Some(bundle(&stored, &authority));
    let waits = of.waits(&next);
    let step = match (current, found) {
        (None, _) => Step::Made,
        (Some(_), None) => Step::Announced,
        (Some(_), Some(_)) if waits.is_zero() && is_held(&authority) => Step::Replaced,
        (Some(_), Some(_)) => Step::Waiting,
    };
    if matches!(step, Step::Made | Step::Replaced) {
        let stored = Stored { current: Some(next), next: None, bundle };
        return Ok(Plan { stored, step, again: CHECK_INTERVAL });
    }
    let again = if waits.is_zero() { CHECK_INTERVAL } else { waits.min(CHECK_INTERVAL) };
    Ok(Plan { stored: Stored { next: Some(next), bundle, ..stored }, step, again })
}

// === impl Situation ===

impl Situation<'_> {
    /// Returns whether a pair is good for some time to come.
    fn keeps(&self, pair: &Pair) -> bool {
        is_usable(pair, self.wanted, self.now)
            && is_usable(pair, self.wanted, self.now + RENEWAL_LEAD_TIME)
    }

    /// Returns the time for which the authority of a pair must still be announced.
    fn waits(&self, pair: &Pair) -> Duration {
        let from = Chain::read(&pair.chain).map(|chain| chain.from()).unwrap_or_default();
        (from + MAX_CLOCK_SKEW + self.announced).saturating_sub(self.now)
    }

    fn issue(&self) -> Result<Pair, String> {
        let from = self.now.saturating_sub(MAX_CLOCK_SKEW);
        let server = Server { hosts: self.wanted, from, until: from + LIFETIME };
        let issued = issue(&server)
            .map_err(|error| format!("no certificate for {}: {error}", self.wanted.join(", ")))?;
        Ok(Pair { chain: issued.chain, key: issued.key })
    }
}

/// Returns whether servers can use a pair for these hosts at a time.
fn is_usable(pair: &Pair, hosts: &[String], at: Duration) -> bool {
    Chain::read(&pair.chain).is_ok_and(|chain| chain.check(&pair.key, hosts, at).is_ok())
}

fn authority(pair: &Pair) -> Option<String> {
    Chain::read(&pair.chain).ok()?.authority()
}

/// Returns a bundle with the current authority and a new one: the one that is there if it holds
/// both.
fn bundle(stored: &Stored, new: &str) -> String {
    let current = stored.authority().unwrap_or_default();
    let is_whole =
        |bundle: &&String| holds(bundle, new) && (current.is_empty() || holds(bundle, &current));
    match stored.bundle.as_ref().filter(is_whole) {
        Some(bundle) => bundle.clone(),
        None => current + new,
    }
}

#[cfg(test)]
mod tests;
