//! The denials of processors, for a missing right or a missing declaration: logged once, counted,
//! and kept as long as they hold.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use mortise_core::{
    contract::display_kind,
    grant::rights::{Account, Denial, Lack},
    key::Key,
};
use parking_lot::Mutex;

/// The maximum number of distinct denials kept and reported for a processor. An operator fixes the
/// first few; a guest can produce any number.
const MAX_DENIALS: usize = 64;
/// The maximum number of denials kept for one key: there may be many keys.
const MAX_DENIALS_PER_KEY: usize = 16;

/// The current denials, by processor and by the keys whose last run was denied.
#[derive(Debug, Default)]
pub struct Denials(Mutex<HashMap<Arc<str>, OfProcessor>>);

/// The denials of one processor.
#[derive(Debug, Default)]
struct OfProcessor {
    held: BTreeMap<Arc<Lack>, Held>,
    by_key: HashMap<Key, OfKey>,
}

/// A current denial.
#[derive(Debug)]
struct Held {
    denial: Denial,
    /// The number of keys whose last run met the denial.
    keys: usize,
}

/// The denials of a key's last run.
#[derive(Debug, Default)]
struct OfKey {
    held: Vec<Arc<Lack>>,
    /// The number of denials of that run that are not kept.
    more: usize,
}

// === impl Denials ===

impl Denials {
    /// Replaces the denials of a key's previous run by those of its last one; logs those that are
    /// new to the processor.
    pub(crate) fn keep(&self, key: &Key, account: &Account, denials: &[Denial]) {
        let distinct: BTreeMap<&Lack, &Denial> =
            denials.iter().map(|denial| (&denial.lack, denial)).collect();
        let new = self.replace(key, &distinct);
        // After the lock is released: writing to the log may be slow.
        for Denial { lack, kind } in new {
            let (verb, kind) = (lack.verb(), display_kind(&kind));
            tracing::warn!(processor = %key.processor(), %account, verb, kind, %key, "denied: {lack}");
        }
    }

    fn replace(&self, key: &Key, denials: &BTreeMap<&Lack, &Denial>) -> Vec<Denial> {
        let mut all = self.0.lock();
        if denials.is_empty() {
            forget(&mut all, key);
            return Vec::new();
        }
        let of = all.entry(Arc::clone(key.processor())).or_default();
        of.replace(key, denials)
    }

    /// Returns the distinct denials kept for a processor's keys, and the number of denials that are
    /// not kept.
    pub fn of_processor(&self, processor: &str) -> (Vec<Denial>, usize) {
        let all = self.0.lock();
        let Some(of) = all.get(processor) else { return (Vec::new(), 0) };
        let held = of.held.values().map(|held| held.denial.clone()).collect();
        (held, of.by_key.values().map(|of| of.more).sum())
    }

    pub(crate) fn forget(&self, key: &Key) {
        forget(&mut self.0.lock(), key);
    }

    /// Forgets the denials of all keys of a processor.
    pub(crate) fn forget_processor(&self, processor: &str) {
        self.0.lock().remove(processor);
    }
}

fn forget(all: &mut HashMap<Arc<str>, OfProcessor>, key: &Key) {
    if let Some(of) = all.get_mut(key.processor()) {
        of.forget(key);
        if of.by_key.is_empty() {
            all.remove(key.processor());
        }
    }
}

// === impl OfProcessor ===

impl OfProcessor {
    /// Replaces the denials of a key. Returns the kept denials that no key had before.
    fn replace(&mut self, key: &Key, denials: &BTreeMap<&Lack, &Denial>) -> Vec<Denial> {
        let (mut held, mut unknown) = (Vec::new(), Vec::new());
        for (lack, denial) in denials {
            match self.held.get_key_value(*lack) {
                Some((lack, _)) if held.len() < MAX_DENIALS_PER_KEY => held.push(Arc::clone(lack)),
                Some(_) => {}
                None => unknown.push(*denial),
            }
        }
        for lack in &held {
            if let Some(held) = self.held.get_mut(lack) {
                held.keys += 1;
            }
        }
        self.forget(key);
        let room =
            (MAX_DENIALS_PER_KEY - held.len()).min(MAX_DENIALS.saturating_sub(self.held.len()));
        unknown.truncate(room);
        for denial in &unknown {
            let lack = Arc::new(denial.lack.clone());
            held.push(Arc::clone(&lack));
            self.held.insert(lack, Held { denial: (*denial).clone(), keys: 1 });
        }
        let more = denials.len() - held.len();
        self.by_key.insert(key.clone(), OfKey { held, more });
        unknown.into_iter().cloned().collect()
    }

    fn forget(&mut self, key: &Key) {
        for lack in self.by_key.remove(key).unwrap_or_default().held {
            let Some(held) = self.held.get_mut(&lack) else { continue };
            held.keys -= 1;
            if held.keys == 0 {
                self.held.remove(&lack);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Mutex as StdMutex};

    use mortise_core::{fixture::v1, grant::rights::Question};
    use serde_json::Value;

    use super::*;

    #[derive(Clone, Default)]
    struct Log(Arc<StdMutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Log {
        fn lines(&self) -> Vec<Value> {
            let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        }
    }

    fn denial(name: &str) -> Denial {
        let question = Question {
            cluster: Arc::default(),
            group: "".into(),
            resource: "secrets".into(),
            verb: "get".into(),
            namespace: Some("shop".into()),
            name: Some(name.into()),
        };
        Denial::of_right(question, &v1("", "Secret"))
    }

    #[test]
    fn a_denial_is_logged_once_with_processor_account_right_and_key() {
        let log = Log::default();
        let to = log.clone();
        let lines =
            tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || to.clone());
        let _listening = mortise_core::fixture::listen(lines.finish());
        let denials = Denials::default();
        let account: Account = "shop/painter".parse().unwrap();
        let key =
            |name: &str| Key::new(&"shop/painter".into(), &"rules".into(), Some("shop"), name);
        denials.keep(&key("a"), &account, &[denial("s")]);
        // A denial is logged once: not again for the same key, and not for another one.
        denials.keep(&key("a"), &account, &[denial("s")]);
        denials.keep(&key("b"), &account, &[denial("s")]);
        let lines = log.lines();
        assert_eq!(lines.len(), 1, "{lines:#?}");
        let expected = [
            ("level", "WARN"),
            ("message", "denied: may not get secrets `shop/s`"),
            ("processor", "shop/painter"),
            ("account", "shop/painter"),
            ("verb", "get"),
            ("kind", "Secret v1"),
        ];
        for (field, value) in expected {
            assert_eq!(lines[0][field], value, "{field}: {:#}", lines[0]);
        }
        assert_eq!(lines[0]["key"], key("a").to_string());
        denials.keep(&key("b"), &account, &[denial("another")]);
        assert_eq!(log.lines().len(), 2);
        // A denial that ended is logged when it holds again.
        for key in [key("a"), key("b")] {
            denials.keep(&key, &account, &[]);
        }
        denials.keep(&key("a"), &account, &[denial("s")]);
        assert_eq!(log.lines().len(), 3);
    }

    #[test]
    fn kept_and_logged_denials_of_a_processor_are_bounded() {
        let log = Log::default();
        let to = log.clone();
        let lines = tracing_subscriber::fmt().json().with_writer(move || to.clone());
        let _listening = mortise_core::fixture::listen(lines.finish());
        let (denials, account) = (Denials::default(), "shop/painter".parse().unwrap());
        let key = |name: &str| Key::new(&"shop/loud".into(), &"r".into(), Some("shop"), name);
        for run in 0..100 {
            let made_up: Vec<Denial> =
                (0..1000).map(|number| denial(&format!("s-{run}-{number}"))).collect();
            denials.keep(&key(&run.to_string()), &account, &made_up);
        }
        let (held, more) = denials.of_processor("shop/loud");
        assert_eq!((held.len(), more), (MAX_DENIALS, 100_000 - MAX_DENIALS));
        assert_eq!(log.lines().len(), MAX_DENIALS, "what is not kept is not said");
        // Runs without denials keep no entries and free their slots.
        for run in 0..100 {
            denials.keep(&key(&run.to_string()), &account, &[]);
        }
        assert!(denials.0.lock().is_empty());
        denials.keep(&key("a"), &account, &[denial("s")]);
        assert_eq!(denials.of_processor("shop/loud"), (vec![denial("s")], 0));
    }
}
