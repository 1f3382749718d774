//! Pauses that the other side asks for, by 429 and 503.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use jiff::{Timestamp, fmt::rfc2822::DateTimeParser};
use parking_lot::Mutex;

use super::{Allowed, Answer, CallError};
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

/// Calls that are paused together.
///
/// An API counts the calls of a credential, whichever of its hosts they go to. The origin of the
/// grant, with its `*`, says which hosts belong together: they all get the credential. So a server
/// of another grant pauses nothing here, although it gets the same credential.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Paused {
    /// The origin of the grant; of calls without a credential, the origin that they go to.
    origin: String,
    /// The object and path of the credential, if there is one.
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
        let credential = call.authorization.as_ref().map(|with| &with.credential);
        let of = match credential {
            Some(with) => Paused {
                origin: call.egress.origin.clone(),
                credential: Some((with.of.clone(), with.at.clone())),
            },
            None => Paused { origin: call.target.origin().to_string(), credential: None },
        };
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
    use std::sync::Arc;

    use super::*;
    use crate::{
        fixture::reference,
        outbound::{Authorization, Credential, Egress, Method, Scheme, Target},
    };

    const NOW: Duration = Duration::from_secs(7);

    fn key(namespace: &str, granted: &str, host: &str, credential: Option<&str>) -> PauseKey {
        let authorization = credential.map(|name| Authorization {
            credential: Credential {
                of: reference("Secret", name),
                at: "data.token".to_owned(),
                scheme: Scheme::Bearer,
            },
            header: "authorization".to_owned(),
            value: String::new().into(),
        });
        let egress = Egress {
            origin: format!("https://{granted}"),
            credentials: Vec::new(),
            rate: None,
            ca_bundle: None,
            private: false,
            connect: None,
        };
        PauseKey::of(&Allowed {
            method: Method::Get,
            target: Target::parse(&format!("https://{host}/")).unwrap(),
            headers: Vec::new(),
            body: None,
            authorization,
            egress: Arc::new(egress),
            pause: Duration::ZERO,
            timeout: Duration::ZERO,
            processor: format!("{namespace}/p").into(),
        })
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
    fn a_pause_is_of_one_namespace_grant_and_credential_and_ends() {
        let pauses = Pauses::default();
        let of = key("a", "*.a.example", "x.a.example", Some("one"));
        pauses.begin(of.clone(), Duration::from_hours(1), NOW);
        assert_eq!(pauses.left(&of, NOW), Some(MAX_PAUSE));
        pauses.begin(of.clone(), Duration::from_secs(1), NOW);
        assert_eq!(pauses.left(&of, NOW), Some(MAX_PAUSE), "the longer one lasts");
        let same = key("a", "*.a.example", "y.a.example", Some("one"));
        assert_eq!(pauses.left(&same, NOW), Some(MAX_PAUSE), "another host of the grant");
        let others = [
            key("b", "*.a.example", "x.a.example", Some("one")),
            key("a", "b.example", "b.example", Some("one")),
            key("a", "x.a.example", "x.a.example", Some("one")),
            key("a", "*.a.example", "x.a.example", Some("two")),
            key("a", "*.a.example", "x.a.example", None),
        ];
        for other in others {
            assert_eq!(pauses.left(&other, NOW), None, "{other:?}");
        }
        assert_eq!(pauses.left(&of, NOW + MAX_PAUSE), None);
        pauses.begin(of.clone(), Duration::ZERO, NOW + MAX_PAUSE);
        assert_eq!(pauses.left(&of, NOW + MAX_PAUSE), None);
    }

    #[test]
    fn without_a_credential_a_pause_is_of_one_host() {
        let (pauses, second) = (Pauses::default(), Duration::from_secs(1));
        pauses.begin(key("a", "*.a.example", "x.a.example", None), second, NOW);
        let left = |granted, host| pauses.left(&key("a", granted, host, None), NOW);
        assert_eq!(left("x.a.example", "x.a.example"), Some(second), "by another grant");
        assert_eq!(left("*.a.example", "y.a.example"), None);
        assert_eq!(left("*.a.example", "x.a.example:8443"), None);
    }

    #[test]
    fn a_namespace_pushes_out_its_own_pauses_only() {
        let (pauses, second) = (Pauses::default(), Duration::from_secs(1));
        let key = |namespace, host: &str| key(namespace, host, host, None);
        let (first, other) = (key("a", "0.example"), key("b", "b.example"));
        pauses.begin(first.clone(), second, NOW);
        pauses.begin(other.clone(), second, NOW);
        for at in 1..=1000 {
            pauses.begin(key("a", &format!("{at}.example")), 2 * second, NOW);
        }
        assert_eq!(pauses.left(&first, NOW), None);
        assert_eq!(pauses.left(&other, NOW), Some(second));
        assert_eq!(pauses.0.lock()["a"].len(), MAX_OF_NAMESPACE);
        pauses.begin(other, second, NOW + 3 * second);
        assert_eq!(pauses.0.lock().len(), 1, "pauses that are over are dropped");
    }
}
