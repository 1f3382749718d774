//! What processors were refused, for want of a right or of a declaration: said once in the log, counted, and kept as long as it holds.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use parking_lot::Mutex;

use super::Question;
use crate::{cluster::Account, contract::Kind, metrics::Metrics, queue::Key};

/// Something that a run was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// What it was refused for want of.
    pub lack: Lack,
    /// The kind that was to be read or written.
    pub kind: Kind,
}

/// What is lacking where something is refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lack {
    /// The account may not do this.
    Right(Question),
    /// The processor's description does not declare it.
    Declaration {
        /// What was to be done, as a role has it: `get`.
        verb: &'static str,
        /// What the processor was told: it names what is declared.
        message: Box<str>,
    },
}

/// What is refused now, by the keys whose last run met it.
#[derive(Debug, Default)]
pub struct Denials(Mutex<HashMap<Key, Vec<Denial>>>);

// === impl Denial ===

impl Denial {
    /// The account lacks a right.
    pub(crate) fn of_right(question: Question, kind: &Kind) -> Self {
        Self { lack: Lack::Right(question), kind: kind.clone() }
    }

    /// The description lacks a declaration.
    pub(crate) fn of_declaration(verb: &'static str, kind: &Kind, message: &str) -> Self {
        let lack = Lack::Declaration { verb, message: message.into() };
        Self { lack, kind: kind.clone() }
    }

    /// `may not get secrets in namespace …`, ``v1 Secret `a` is not declared; …``.
    pub fn in_words(&self) -> String {
        self.lack.to_string()
    }
}

// === impl Lack ===

impl Lack {
    /// What was to be done, as a role has it: `get`, `patch`.
    pub fn verb(&self) -> &str {
        match self {
            Self::Right(question) => &question.verb,
            Self::Declaration { verb, .. } => verb,
        }
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Right(question) => write!(to, "may not {question}"),
            Self::Declaration { message, .. } => to.write_str(message),
        }
    }
}

// === impl Denials ===

impl Denials {
    /// A run of a key has ended and was refused these; what the one before was refused holds no longer. Tells what is new.
    pub(crate) fn keep(&self, key: &Key, account: &Account, denials: &[Denial], metrics: &Metrics) {
        for denial in denials {
            metrics.denied(key.processor(), denial);
        }
        let mut all = self.0.lock();
        let is_told = |denial: &&Denial| {
            let mut of_processor =
                all.iter().filter(|(held, _)| held.processor() == key.processor());
            of_processor.any(|(_, held)| held.contains(denial))
        };
        let new = denials.iter().filter(|denial| !is_told(denial));
        let new: BTreeMap<&Lack, &Denial> = new.map(|new| (&new.lack, new)).collect();
        for Denial { lack, kind } in new.into_values() {
            let (verb, kind) = (lack.verb(), &kind.kind);
            tracing::warn!(processor = %key.processor(), %account, verb, kind, %key, "denied: {lack}");
        }
        if denials.is_empty() {
            all.remove(key);
        } else {
            all.insert(key.clone(), denials.to_vec());
        }
    }

    /// What the keys of a processor are refused now, each once.
    pub fn of_processor(&self, processor: &str) -> Vec<Denial> {
        let all = self.0.lock();
        let of = all.iter().filter(|(key, _)| &**key.processor() == processor);
        let denials: BTreeMap<&Lack, &Denial> =
            of.flat_map(|(_, denials)| denials).map(|denial| (&denial.lack, denial)).collect();
        denials.into_values().cloned().collect()
    }

    /// Forgets a key.
    pub(crate) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }

    /// Forgets all keys of a processor.
    pub(crate) fn forget_processor(&self, processor: &str) {
        self.0.lock().retain(|key, _| &**key.processor() != processor);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex as StdMutex},
    };

    use serde_json::Value;

    use super::*;
    use crate::fixture::v1;

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
            group: "".into(),
            resource: "secrets".into(),
            verb: "get".into(),
            namespace: Some("shop".into()),
            name: Some(name.into()),
        };
        Denial::of_right(question, &v1("", "Secret"))
    }

    #[test]
    fn a_denial_is_one_line_that_names_who_what_and_for_which_object() {
        let log = Log::default();
        let to = log.clone();
        let lines =
            tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || to.clone());
        let _listening = tracing::subscriber::set_default(lines.finish());
        let (denials, metrics) = (Denials::default(), Metrics::default());
        let account: Account = "shop/painter".parse().unwrap();
        let key =
            |name: &str| Key::new(&"shop/painter".into(), &"rules".into(), Some("shop"), name);
        denials.keep(&key("a"), &account, &[denial("s")], &metrics);
        // Neither what was said of this key before nor what is said of another one is said again.
        denials.keep(&key("a"), &account, &[denial("s")], &metrics);
        denials.keep(&key("b"), &account, &[denial("s")], &metrics);
        let lines = log.lines();
        assert_eq!(lines.len(), 1, "{lines:#?}");
        let expected = [
            ("level", "WARN"),
            ("message", "denied: may not get secrets `shop/s`"),
            ("processor", "shop/painter"),
            ("account", "shop/painter"),
            ("verb", "get"),
            ("kind", "Secret"),
        ];
        for (field, value) in expected {
            assert_eq!(lines[0][field], value, "{field}: {:#}", lines[0]);
        }
        assert_eq!(lines[0]["key"], key("a").to_string());
        denials.keep(&key("b"), &account, &[denial("another")], &metrics);
        assert_eq!(log.lines().len(), 2);
        // What holds no longer is said when it holds again.
        for key in [key("a"), key("b")] {
            denials.keep(&key, &account, &[], &metrics);
        }
        denials.keep(&key("a"), &account, &[denial("s")], &metrics);
        assert_eq!(log.lines().len(), 3);
    }
}
