//! Pauses that the other side asks for, by 429 and 503.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use jiff::{Timestamp, fmt::rfc2822::DateTimeParser};
use parking_lot::Mutex;

use super::{Allowed, Answer, CallError, Target};
use crate::{contract::ObjectRef, key::tenant_of};

/// The longest pause.
pub const MAX_PAUSE: Duration = Duration::from_mins(10);
/// The pauses that are kept for the processors of one namespace; of more, the one that ends first is
/// dropped.
pub const MAX_OF_NAMESPACE: usize = 256;

/// The pauses that last. Kept by namespace of the Processor: others neither push them out nor ask
/// for pauses in their place.
///
/// Times are counted from any moment that stays the same, such as the start of the host.
#[derive(Debug, Default)]
pub struct Pauses(Mutex<BTreeMap<String, HashMap<Paused, Duration>>>);

/// The namespace of a Processor, and the calls that are paused for it.
#[derive(Debug, Clone)]
pub struct PauseKey {
    namespace: String,
    of: Paused,
}

/// The scheme, host and port of calls, and the object and path of their credential, if there is one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Paused {
    tls: bool,
    host: String,
    port: u16,
    credential: Option<(ObjectRef, String)>,
}

/// Returns the pause that the headers of an answer ask for; `None` if they name no time after now.
pub fn asked(headers: &[(String, String)], now: Timestamp) -> Option<Duration> {
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

// === impl PauseKey ===

impl PauseKey {
    /// Returns the key of a call.
    pub fn of(call: &Allowed) -> Self {
        let namespace = tenant_of(&call.processor);
        let Target { tls, host, port, path_and_query: _ } = &call.target;
        let credential = call.authorization.as_ref().map(|with| &with.credential);
        let credential = credential.map(|with| (with.of.clone(), with.at.clone()));
        let of = Paused { tls: *tls, host: host.clone(), port: *port, credential };
        Self { namespace: namespace.to_owned(), of }
    }
}

// === impl Pauses ===

impl Pauses {
    /// Begins the pause that an answer to a call asks for, if it does. `date` is the time by which
    /// its headers count, `now` the time by which pauses do.
    pub fn follow(&self, call: &Allowed, answer: &Answer, date: Timestamp, now: Duration) {
        // 503 alone says that the other side is away, not that it has been asked too often.
        let pause = match answer.status {
            429 => asked(&answer.headers, date).or(Some(call.pause)),
            503 => asked(&answer.headers, date),
            _ => None,
        };
        if let Some(pause) = pause {
            self.begin(PauseKey::of(call), pause, now);
        }
    }

    /// Begins a pause, unless a longer one lasts.
    pub fn begin(&self, key: PauseKey, pause: Duration, now: Duration) {
        if pause.is_zero() {
            return;
        }
        let until = now.saturating_add(pause.min(MAX_PAUSE));
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
    pub fn left(&self, key: &PauseKey, now: Duration) -> Option<Duration> {
        let until = *self.0.lock().get(&key.namespace)?.get(&key.of)?;
        until.checked_sub(now).filter(|left| !left.is_zero())
    }
}

// === impl CallError ===

impl CallError {
    /// Returns the error of a call that is paused for so long, rounded up: at the end of the pause
    /// the call is sent.
    pub fn paused(left: Duration) -> Self {
        Self::Paused(u64::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::reference;

    const NOW: Duration = Duration::from_secs(7);

    fn key(namespace: &str, host: &str, credential: Option<&str>) -> PauseKey {
        let credential =
            credential.map(|name| (reference("Secret", name), "data.token".to_owned()));
        let of = Paused { tls: true, host: host.to_owned(), port: 443, credential };
        PauseKey { namespace: namespace.to_owned(), of }
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

    #[test]
    fn a_pause_is_of_one_namespace_origin_and_credential_and_ends() {
        let pauses = Pauses::default();
        let of = key("a", "a.example", Some("one"));
        pauses.begin(of.clone(), Duration::from_hours(1), NOW);
        assert_eq!(pauses.left(&of, NOW), Some(MAX_PAUSE));
        pauses.begin(of.clone(), Duration::from_secs(1), NOW);
        assert_eq!(pauses.left(&of, NOW), Some(MAX_PAUSE), "the longer one lasts");
        let others = [
            key("b", "a.example", Some("one")),
            key("a", "b.example", Some("one")),
            key("a", "a.example", Some("two")),
            key("a", "a.example", None),
        ];
        for other in others {
            assert_eq!(pauses.left(&other, NOW), None, "{other:?}");
        }
        assert_eq!(pauses.left(&of, NOW + MAX_PAUSE), None);
        pauses.begin(of.clone(), Duration::ZERO, NOW + MAX_PAUSE);
        assert_eq!(pauses.left(&of, NOW + MAX_PAUSE), None);
    }

    #[test]
    fn a_namespace_pushes_out_its_own_pauses_only() {
        let (pauses, second) = (Pauses::default(), Duration::from_secs(1));
        let (first, other) = (key("a", "0.example", None), key("b", "b.example", None));
        pauses.begin(first.clone(), second, NOW);
        pauses.begin(other.clone(), second, NOW);
        for at in 1..=1000 {
            pauses.begin(key("a", &format!("{at}.example"), None), 2 * second, NOW);
        }
        assert_eq!(pauses.left(&first, NOW), None);
        assert_eq!(pauses.left(&other, NOW), Some(second));
        assert_eq!(pauses.0.lock()["a"].len(), MAX_OF_NAMESPACE);
        pauses.begin(other, second, NOW + 3 * second);
        assert_eq!(pauses.0.lock().len(), 1, "pauses that are over are dropped");
    }
}
