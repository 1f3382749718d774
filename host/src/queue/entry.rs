//! Keys as they stand in the queue, for people; and keys as people write them.

use std::{str::FromStr, sync::Arc, time::Duration};

use super::{Cause, Key};

/// What is known of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Key,
    /// Whether it could run now.
    pub ready: bool,
    /// Whether it runs.
    pub running: bool,
    /// How long it still waits, if it waits for a time.
    pub due_in: Option<Duration>,
    /// How many runs of it in a row have failed.
    pub failures: u32,
    /// Why it will run: the first few causes.
    pub causes: Vec<Cause>,
}

/// Where a key can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// It could run now.
    Ready,
    /// It runs.
    Running,
    /// It waits for its time.
    Delayed,
    /// Its last run failed, wherever it is now.
    Failing,
}

/// A text that is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key is PROCESSOR/RECONCILER:NAMESPACE/NAME")]
pub struct NoKey;

// === impl Entry ===

impl Entry {
    /// Whether it is there.
    pub fn is(&self, place: Where) -> bool {
        match place {
            Where::Ready => self.ready,
            Where::Running => self.running,
            Where::Delayed => self.due_in.is_some() && !self.ready && !self.running,
            Where::Failing => self.failures > 0,
        }
    }

    /// Where it is. One that fails and waits for nothing but a change is failing.
    pub fn state(&self) -> Where {
        let places = [Where::Running, Where::Ready, Where::Delayed];
        places.into_iter().find(|place| self.is(*place)).unwrap_or(Where::Failing)
    }
}

// === impl Where ===

impl Where {
    /// Each of them.
    pub const ALL: [Self; 4] = [Self::Ready, Self::Running, Self::Delayed, Self::Failing];

    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Delayed => "delayed",
            Self::Failing => "failing",
        }
    }
}

// === impl Key ===

impl FromStr for Key {
    type Err = NoKey;

    /// As it is shown. Only the object's own name may hold a colon.
    fn from_str(text: &str) -> Result<Self, NoKey> {
        let (who, object) = text.split_once(':').ok_or(NoKey)?;
        let (processor, reconciler) = who.rsplit_once('/').ok_or(NoKey)?;
        let (namespace, name) = match object.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, object),
        };
        let is_empty =
            [processor, reconciler, name, namespace.unwrap_or("-")].into_iter().any(str::is_empty);
        if is_empty {
            return Err(NoKey);
        }
        Ok(Self::new(&Arc::from(processor), &Arc::from(reconciler), namespace, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_is_shown() {
        let keys = [
            ("shop/greeter", "rules", Some("orders"), "a"),
            ("greeter", "namespaces", None, "orders"),
            ("shop/greeter", "roles", None, "system:a:b"),
        ];
        for (processor, reconciler, namespace, name) in keys {
            let key = Key::new(&processor.into(), &reconciler.into(), namespace, name);
            assert_eq!(key.to_string().parse(), Ok(key));
        }
        for text in ["", "a", "a/b", "a:b", "a/b:", "/b:c", "a/:c", "a/b:/c", "a/b:c/"] {
            assert_eq!(text.parse::<Key>(), Err(NoKey), "{text}");
        }
    }
}
