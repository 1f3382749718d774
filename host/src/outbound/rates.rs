//! The rates of grants: so many calls a second, after so many at once.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use mortise_core::outbound::{Egress, Rate};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The rates of the grants in use, by processor and origin as granted: a new version of a processor
/// does not begin anew.
#[derive(Debug, Default)]
pub(super) struct Rates(Mutex<BTreeMap<Arc<str>, HashMap<String, Instant>>>);

/// Returns the time from which one call after another is at the rate.
fn interval(of: Rate) -> Duration {
    Duration::from_secs(1) / of.per_second.max(1)
}

// === impl Rates ===

impl Rates {
    /// Counts a call, or returns the time until the next one.
    pub(super) fn wait(
        &self,
        processor: &Arc<str>,
        egress: &Egress,
        now: Instant,
    ) -> Option<Duration> {
        let rate = egress.rate?;
        let mut all = self.0.lock();
        let of = all.entry(Arc::clone(processor)).or_default();
        // Grants that are not in use are as new ones.
        of.retain(|_, next| *next > now);
        let (interval, next) = (interval(rate), of.get(&egress.origin).copied().unwrap_or(now));
        // The time at which the calls so far are at the rate, but for the burst.
        let ahead = interval.saturating_mul(rate.burst.max(1) - 1);
        // A rate that was raised meanwhile counts from now on.
        let next = next.min(now + ahead + interval);
        let wait = next.saturating_duration_since(now).saturating_sub(ahead);
        let next = if wait.is_zero() { next + interval } else { next };
        of.insert(egress.origin.clone(), next);
        (!wait.is_zero()).then_some(wait)
    }

    pub(super) fn forget_processor(&self, processor: &str) {
        self.0.lock().remove(processor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(origin: &str, rate: Option<(u32, u32)>) -> Egress {
        Egress {
            origin: origin.to_owned(),
            credentials: Vec::new(),
            rate: rate.map(|(per_second, burst)| Rate { per_second, burst }),
            ca_bundle: None,
            private: false,
            connect: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_beyond_a_burst_wait_for_the_rate_of_their_grant() {
        let (rates, now) = (Rates::default(), Instant::now());
        let (first, second): (Arc<str>, Arc<str>) = ("n/first".into(), "n/second".into());
        let egress = granted("https://*.example.com", Some((10, 3)));
        let tenth = Duration::from_millis(100);
        let send = |at: Instant| rates.wait(&first, &egress, at);
        assert_eq!([send(now), send(now), send(now)], [None; 3]);
        assert_eq!([send(now), send(now)], [Some(tenth); 2], "refused calls do not count");
        assert_eq!(send(now + tenth / 2), Some(tenth / 2));
        assert_eq!(send(now + tenth), None);
        assert_eq!(send(now + tenth), Some(tenth));
        let long = now + Duration::from_hours(1);
        assert_eq!([send(long), send(long), send(long)], [None; 3], "the burst is back");
        assert_eq!(send(long), Some(tenth));
        assert_eq!(rates.wait(&second, &egress, long), None, "of another processor");
        let other = granted("https://other.example", Some((10, 3)));
        assert_eq!(rates.wait(&first, &other, long), None, "of another grant");
        let raised = granted("https://*.example.com", Some((1000, 1)));
        assert_eq!(rates.wait(&first, &raised, long), Some(Duration::from_millis(1)));
        let unlimited = granted("https://*.example.com", None);
        assert_eq!(rates.wait(&first, &unlimited, long), None);
        rates.forget_processor("n/first");
        assert_eq!(send(long), None);
    }
}
