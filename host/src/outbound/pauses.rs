//! Pauses that the other side asks for, by 429 and 503.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use jiff::{Timestamp, fmt::rfc2822::DateTimeParser};
use mortise_core::{contract::ObjectRef, outbound::Authorization};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The longest pause.
pub(crate) const MAX_PAUSE: Duration = Duration::from_mins(10);
/// The pauses that are kept for the processors of one namespace; of more, the one that ends first is
/// dropped.
pub(crate) const MAX_OF_NAMESPACE: usize = 256;

/// The pauses that last. Kept by namespace of the Processor: others neither push them out nor ask
/// for pauses in their place.
#[derive(Debug, Default)]
pub(super) struct Pauses(Mutex<BTreeMap<String, HashMap<Paused, Instant>>>);

/// The namespace of a Processor, and what is paused for it.
#[derive(Debug, Clone)]
pub(super) struct Key {
    namespace: String,
    of: Paused,
}

/// An origin, and the object and path of the credential, if there is one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Paused {
    origin: String,
    credential: Option<(ObjectRef, String)>,
}

/// Returns the pause that the headers of an answer ask for; `None` if they name no time after now.
pub(super) fn asked(headers: &[(String, String)], now: Timestamp) -> Option<Duration> {
    let (_, text) = headers.iter().find(|(name, _)| name == "retry-after")?;
    let text = text.trim();
    let pause = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        // More digits than that are still a number.
        Err(_) if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => MAX_PAUSE,
        Err(_) => {
            let until = DateTimeParser::new().parse_timestamp(text).ok()?;
            Duration::try_from(until.duration_since(now)).ok()?
        }
    };
    (!pause.is_zero()).then_some(pause)
}

// === impl Key ===

impl Key {
    pub(super) fn new(namespace: &str, origin: &str, with: Option<&Authorization>) -> Self {
        let credential = with.map(|with| (with.credential.of.clone(), with.credential.at.clone()));
        let of = Paused { origin: origin.to_owned(), credential };
        Self { namespace: namespace.to_owned(), of }
    }
}

// === impl Pauses ===

impl Pauses {
    /// Begins a pause, unless a longer one lasts.
    pub(super) fn begin(&self, key: Key, pause: Duration, now: Instant) {
        if pause.is_zero() {
            return;
        }
        let until = now + pause.min(MAX_PAUSE);
        let mut all = self.0.lock();
        all.retain(|_, of| {
            of.retain(|_, until| *until > now);
            !of.is_empty()
        });
        let of = all.entry(key.namespace).or_default();
        if of.len() >= MAX_OF_NAMESPACE && !of.contains_key(&key.of) {
            let first = of.iter().min_by_key(|(_, until)| **until).map(|(key, _)| key.clone());
            first.and_then(|first| of.remove(&first));
        }
        let known = of.entry(key.of).or_insert(until);
        *known = until.max(*known);
    }

    /// Returns the time until a pause ends; `None` if there is none.
    pub(super) fn left(&self, key: &Key, now: Instant) -> Option<Duration> {
        let until = *self.0.lock().get(&key.namespace)?.get(&key.of)?;
        until.checked_duration_since(now).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use mortise_core::fixture::reference;

    use super::*;

    fn key(namespace: &str, origin: &str, credential: Option<&str>) -> Key {
        let credential =
            credential.map(|name| (reference("Secret", name), "data.token".to_owned()));
        let of = Paused { origin: origin.to_owned(), credential };
        Key { namespace: namespace.to_owned(), of }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_after_now() {
        let now: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        let cases = [
            ("7", Some(7)),
            (" 7 ", Some(7)),
            ("99999999999999999999999", Some(600)),
            ("Sun, 01 Mar 2026 12:00:07 GMT", Some(7)),
            ("Sun, 01 Mar 2026 11:59:59 GMT", None),
            ("Sun, 01 Mar 2026 12:00:00 GMT", None),
            ("0", None),
            ("-7", None),
            ("7.5", None),
            ("soon", None),
            ("", None),
        ];
        for (text, expected) in cases {
            let headers = [("retry-after".to_owned(), text.to_owned())];
            assert_eq!(asked(&headers, now), expected.map(Duration::from_secs), "{text:?}");
        }
        assert_eq!(asked(&[], now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_is_of_one_namespace_origin_and_credential_and_ends() {
        let (pauses, now) = (Pauses::default(), Instant::now());
        let asked_for = key("a", "https://a.example", Some("one"));
        pauses.begin(asked_for.clone(), Duration::from_hours(1), now);
        assert_eq!(pauses.left(&asked_for, now), Some(MAX_PAUSE));
        pauses.begin(asked_for.clone(), Duration::from_secs(1), now);
        assert_eq!(pauses.left(&asked_for, now), Some(MAX_PAUSE), "the longer one lasts");
        let others = [
            key("b", "https://a.example", Some("one")),
            key("a", "https://b.example", Some("one")),
            key("a", "https://a.example", Some("two")),
            key("a", "https://a.example", None),
        ];
        for other in others {
            assert_eq!(pauses.left(&other, now), None, "{other:?}");
        }
        assert_eq!(pauses.left(&asked_for, now + MAX_PAUSE), None);
        pauses.begin(asked_for.clone(), Duration::ZERO, now + MAX_PAUSE);
        assert_eq!(pauses.left(&asked_for, now + MAX_PAUSE), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_pushes_out_its_own_pauses_only() {
        let (pauses, now) = (Pauses::default(), Instant::now());
        let second = Duration::from_secs(1);
        let (first, other) =
            (key("a", "https://0.example", None), key("b", "https://b.example", None));
        pauses.begin(first.clone(), second, now);
        pauses.begin(other.clone(), second, now);
        for at in 1..=1000 {
            let origin = format!("https://{at}.example");
            pauses.begin(key("a", &origin, None), 2 * second, now);
        }
        assert_eq!(pauses.left(&first, now), None);
        assert_eq!(pauses.left(&other, now), Some(second));
        assert_eq!(pauses.0.lock()["a"].len(), MAX_OF_NAMESPACE);
        pauses.begin(other, second, now + 3 * second);
        assert_eq!(pauses.0.lock().len(), 1, "pauses that are over are dropped");
    }
}
