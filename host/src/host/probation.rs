//! The probation of a version that has replaced another one: its first minute. Pure: callers pass
//! the time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use mortise_core::queue::Key;
use tokio::time::Instant;

use super::registry::LastFailure;

/// The length of a probation, from the version's first call on.
const PROBATION: Duration = Duration::from_mins(1);
/// The minimum number of calls for a verdict: fewer failures can be due to one object, or to a
/// transient fault.
const MIN_CALLS: u64 = 3;

/// The trust in a running version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// The version has replaced no other one, or has passed its probation.
    Proven,
    /// The version has replaced another one, and its probation is not over.
    OnProbation {
        /// The end of the first minute; `None` before the first call.
        until: Option<Instant>,
        /// True if there were enough calls for a verdict, and no more than half of the objects
        /// broke.
        works: bool,
    },
    /// The version broke on more than half of the objects that it was called for in its first
    /// minute.
    Broken(Verdict),
}

/// The reason why a version is not trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The number of objects that the version was called for.
    pub objects: usize,
    /// The number of these objects for which the last call broke.
    pub broke: usize,
    /// The first call that broke.
    pub first: LastFailure,
}

/// The calls of a version on probation. Only the last call for each object counts, so that retries
/// add no weight.
#[derive(Debug, Default)]
pub(super) struct Probation {
    /// The number of objects that the version will be called for, at least.
    expected: usize,
    /// The objects that broke the former version too: calls for these do not count.
    exempt: BTreeSet<Key>,
    began: Option<Instant>,
    calls: u64,
    /// The objects that the version was called for; true if the last call broke.
    objects: BTreeMap<Key, bool>,
    broke: usize,
    first: Option<LastFailure>,
    verdict: Option<Verdict>,
}

// === impl Probation ===

impl Probation {
    /// Returns the probation of a version that is about to be called for these objects.
    pub(super) fn new<'a>(keys: impl IntoIterator<Item = &'a Key>, exempt: BTreeSet<Key>) -> Self {
        let expected = keys.into_iter().filter(|key| !exempt.contains(key)).count();
        Self { expected, exempt, ..Self::default() }
    }

    /// Records that a call begins. The first call starts the minute.
    pub(super) fn begins(&mut self, now: Instant) {
        self.began.get_or_insert(now);
    }

    /// Counts the end of a call; `broke` is its failure if it broke. Returns whether the trust in
    /// the version may have changed.
    pub(super) fn ended(&mut self, key: &Key, broke: Option<LastFailure>, now: Instant) -> bool {
        if self.is_over(now) || self.exempt.contains(key) {
            return false;
        }
        self.calls += 1;
        let before = self.objects.insert(key.clone(), broke.is_some());
        self.broke += usize::from(broke.is_some());
        self.broke -= usize::from(before == Some(true));
        self.first = self.first.take().or(broke);
        // The verdict does not wait for the end of the minute if the objects still expected cannot
        // change it.
        if self.verdict.is_none() && self.condemns(self.objects.len().max(self.expected)) {
            self.verdict = self.judged();
        }
        self.calls == 1 || self.verdict.is_some()
    }

    /// Returns how far the version can be trusted at this time.
    pub(super) fn trust(&mut self, now: Instant) -> Trust {
        if self.verdict.is_none() && self.is_over(now) && self.condemns(self.objects.len()) {
            self.verdict = self.judged();
        }
        match &self.verdict {
            Some(verdict) => Trust::Broken(verdict.clone()),
            None if self.is_over(now) => Trust::Proven,
            None => Trust::OnProbation {
                until: self.began.map(|began| began + PROBATION),
                works: self.calls >= MIN_CALLS && !self.condemns(self.objects.len()),
            },
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        self.began.is_some_and(|began| now >= began + PROBATION)
    }

    /// Returns whether there were enough calls, and more than half of this many objects broke the
    /// version.
    fn condemns(&self, objects: usize) -> bool {
        self.calls >= MIN_CALLS && self.broke * 2 > objects
    }

    fn judged(&self) -> Option<Verdict> {
        let first = self.first.clone()?;
        Some(Verdict { objects: self.objects.len(), broke: self.broke, first })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new(&"a/p".into(), &"objects".into(), Some("a"), name)
    }

    fn failure(key: &Key) -> LastFailure {
        let at = "2026-01-01T00:00:00Z".parse().unwrap();
        LastFailure { key: key.clone(), at, message: format!("broke on {}", key.name()) }
    }

    /// Returns the trust after these calls, each with its object and whether it broke: a moment
    /// after the first call began, and after the minute.
    fn after(expected: usize, exempt: &[&str], calls: &[(&str, bool)]) -> (Trust, Trust) {
        let all: Vec<Key> = (0..expected).map(|number| key(&format!("k{number}"))).collect();
        let mut probation =
            Probation::new(&all, exempt.iter().map(|name| key(name)).collect::<BTreeSet<_>>());
        let start = Instant::now();
        for (name, broke) in calls {
            let key = key(name);
            probation.begins(start);
            probation.ended(&key, broke.then(|| failure(&key)), start);
        }
        (probation.trust(start), probation.trust(start + PROBATION))
    }

    fn broken(objects: usize, broke: usize, first: &str) -> Trust {
        Trust::Broken(Verdict { objects, broke, first: failure(&key(first)) })
    }

    fn on_probation(works: bool) -> impl Fn(&Trust) -> bool {
        move |trust| matches!(trust, Trust::OnProbation { until: Some(_), works: known } if *known == works)
    }

    /// A sequence of calls, and the trust that follows.
    struct Case {
        what: &'static str,
        expected: usize,
        /// The calls, such as `k0+ k1-`: `+` went well, `-` broke.
        calls: &'static str,
        /// The trust right after the calls; `None` if the version stays on probation.
        at_once: Option<Trust>,
        at_last: Trust,
    }

    #[test]
    fn more_than_half_of_the_objects_break_a_version_that_goes_back() {
        let taken_back = |what, expected, calls, verdict: Trust| {
            let at_once = Some(verdict.clone());
            Case { what, expected, calls, at_once, at_last: verdict }
        };
        let later =
            |what, expected, calls, at_last| Case { what, expected, calls, at_once: None, at_last };
        let never = Trust::OnProbation { until: None, works: false };
        let cases = [
            taken_back("most, of all", 3, "k0- k1+ k2-", broken(3, 2, "k0")),
            taken_back("one, again and again", 1, "k0- k0- k0-", broken(1, 1, "k0")),
            taken_back("they came later", 0, "n0- n1- n2-", broken(3, 3, "n0")),
            later("most, of those that ran", 100, "k0+ k1- k2-", broken(3, 2, "k1")),
            later("half", 4, "k0- k1- k2+ k3+", Trust::Proven),
            later("two calls say nothing", 2, "k0- k1-", Trust::Proven),
            later("one of many, again and again", 3, "k0- k1+ k0- k2+ k0- k0-", Trust::Proven),
            later("one that recovers", 1, "k0- k0- k0+", Trust::Proven),
            later("none", 3, "", never),
        ];
        for Case { what, expected, calls, at_once, at_last } in cases {
            let calls: Vec<(&str, bool)> =
                calls.split_whitespace().map(|call| (&call[..2], call.ends_with('-'))).collect();
            let (now, later) = after(expected, &[], &calls);
            match at_once {
                Some(expected) => assert_eq!(now, expected, "{what}"),
                None => assert!(matches!(now, Trust::OnProbation { .. }), "{what}: {now:?}"),
            }
            assert_eq!(later, at_last, "{what}");
        }
    }

    #[test]
    fn objects_that_broke_the_former_version_too_say_nothing() {
        let calls = [("k0", true), ("k1", true), ("k2", true), ("k3", false)];
        let (now, later) = after(4, &["k0", "k1", "k2"], &calls);
        assert!(on_probation(false)(&now), "{now:?}");
        assert_eq!(later, Trust::Proven);
        assert_eq!(after(4, &[], &calls).0, broken(3, 3, "k0"), "without that they would");
    }

    #[test]
    fn a_verdict_needs_three_calls_and_ignores_calls_after_the_minute() {
        let good = [("k0", false), ("k1", false), ("k2", true)];
        assert!(on_probation(false)(&after(3, &[], &good[..2]).0));
        assert!(on_probation(true)(&after(3, &[], &good).0));
        let start = Instant::now();
        let mut probation = Probation::new(&[key("k0")], BTreeSet::new());
        probation.begins(start);
        for _ in 0..5 {
            assert!(!probation.ended(&key("k0"), Some(failure(&key("k0"))), start + PROBATION));
        }
        assert_eq!(probation.trust(start + PROBATION), Trust::Proven);
    }

    #[test]
    fn trust_may_change_at_the_first_call_and_from_the_verdict_on() {
        let start = Instant::now();
        let keys = ["k0", "k1", "k2", "k3"].map(key);
        let mut probation = Probation::new(&keys, BTreeSet::new());
        probation.begins(start);
        let told = keys.each_ref().map(|key| probation.ended(key, Some(failure(key)), start));
        assert_eq!(told, [true, false, true, true], "the first, and from the verdict on");
    }
}
