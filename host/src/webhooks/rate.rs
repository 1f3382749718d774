//! The rate of requests of each caller for each processor.

use std::{collections::HashMap, net::IpAddr, sync::Arc, time::Instant};

use parking_lot::Mutex;

/// Requests a second. An API server that is told to come later waits and asks again.
pub(super) const REQUESTS_A_SECOND: f64 = 1000.0;
/// Requests that a caller may send at once. An API server that reads objects from its storage asks
/// for each of them: that are two lists of 10,000 objects.
const BURST: f64 = 20_000.0;
/// The number of allowances above which those that are full again are removed.
const MAX_KEPT: usize = 1024;

/// The allowances of callers that have asked recently.
#[derive(Debug, Default)]
pub(super) struct Rates(Mutex<HashMap<(IpAddr, Arc<str>), Allowance>>);

#[derive(Clone, Copy, Debug)]
struct Allowance {
    requests: f64,
    at: Instant,
}

// === impl Rates ===

impl Rates {
    /// Takes a request from the allowance of a caller; returns false if nothing is left of it.
    pub(super) fn admit(&self, caller: IpAddr, processor: &Arc<str>, now: Instant) -> bool {
        let mut all = self.0.lock();
        if all.len() > MAX_KEPT {
            all.retain(|_, allowance| allowance.refilled(now).requests < BURST);
        }
        let full = Allowance { requests: BURST, at: now };
        let allowance = all.entry((caller, Arc::clone(processor))).or_insert(full);
        *allowance = allowance.refilled(now);
        let is_left = allowance.requests >= 1.0;
        allowance.requests -= f64::from(u8::from(is_left));
        is_left
    }
}

// === impl Allowance ===

impl Allowance {
    fn refilled(self, now: Instant) -> Self {
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        Self { requests: (self.requests + seconds * REQUESTS_A_SECOND).min(BURST), at: now }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_caller_has_its_requests_of_each_processor_and_takes_none_of_others() {
        let (rates, start) = (Rates::default(), Instant::now());
        let [one, other]: [Arc<str>; 2] = ["a/p".into(), "a/q".into()];
        let [caller, neighbour] = [IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2])];
        let taken = |now| (0..50_000).filter(|_| rates.admit(caller, &one, now)).count();
        assert_eq!(taken(start), 20_000);
        assert_eq!(taken(start + Duration::from_secs(2)), 2_000);
        let now = start + Duration::from_secs(2);
        assert!(rates.admit(caller, &other, now) && rates.admit(neighbour, &one, now));
    }

    #[test]
    fn allowances_that_are_full_again_are_removed() {
        let (rates, start) = (Rates::default(), Instant::now());
        let processor: Arc<str> = "a/p".into();
        for number in 0..10_000_u32 {
            let now = start + Duration::from_millis(u64::from(number));
            assert!(rates.admit(IpAddr::from(number.to_be_bytes()), &processor, now));
        }
        assert!(rates.0.lock().len() <= MAX_KEPT + 1);
    }
}
