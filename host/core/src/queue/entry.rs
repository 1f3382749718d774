//! Entries: keys and their states, for display. Parses keys from text.

use std::{str::FromStr, sync::Arc, time::Duration};

use super::{Cause, Key, ReconcilerId};

/// A key and its state in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Key,
    /// True if the key could run now.
    pub ready: bool,
    /// True if the key runs.
    pub running: bool,
    /// The time until the key is due, if it waits for a time.
    pub due_in: Option<Duration>,
    /// The number of consecutive failed runs of the key.
    pub failures: u32,
    /// The first few causes of the next run.
    pub causes: Vec<Cause>,
}

/// A state that a key can be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// The key could run now.
    Ready,
    /// The key runs.
    Running,
    /// The key waits for its time.
    Delayed,
    /// The last run of the key failed, whatever other state the key is in.
    Failing,
}

/// The error that a text is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key is PROCESSOR/RECONCILER:NAMESPACE/NAME")]
pub struct NoKey;

// === impl Entry ===

impl Entry {
    /// Returns whether the key is in a state.
    pub fn is(&self, place: Where) -> bool {
        match place {
            Where::Ready => self.ready,
            Where::Running => self.running,
            Where::Delayed => self.due_in.is_some() && !self.ready && !self.running,
            Where::Failing => self.failures > 0,
        }
    }

    /// Returns the state of the key. A key whose last run failed and that waits for a change only
    /// is `Failing`.
    pub fn state(&self) -> Where {
        let places = [Where::Running, Where::Ready, Where::Delayed];
        places.into_iter().find(|place| self.is(*place)).unwrap_or(Where::Failing)
    }
}

// === impl Where ===

impl Where {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Ready, Self::Running, Self::Delayed, Self::Failing];

    /// Returns the name of the state, as people write it.
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

    /// Parses a key as `Display` shows it. Only the object's own name may hold a colon.
    fn from_str(text: &str) -> Result<Self, NoKey> {
        let (who, object) = text.split_once(':').ok_or(NoKey)?;
        // The kind of an on-demand reconciler holds slashes, too.
        let names = who.split_once('@').map_or(who, |(names, _)| names);
        let (processor, name) = names.rsplit_once('/').ok_or(NoKey)?;
        let reconciler = ReconcilerId::from(who.get(processor.len() + 1..).ok_or(NoKey)?);
        if reconciler.is_on_demand() && reconciler.kind().is_none() {
            return Err(NoKey);
        }
        let (namespace, object) = match object.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, object),
        };
        let is_empty =
            [processor, name, object, namespace.unwrap_or("-")].into_iter().any(str::is_empty);
        if is_empty {
            return Err(NoKey);
        }
        Ok(Self::new(&Arc::from(processor), &reconciler, namespace, object))
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
            ("shop/greeter", "objects@/g.dev/v1/Rule", Some("orders"), "a"),
            ("greeter", "objects@//v1/Namespace", None, "a:b"),
            ("shop/greeter", "objects@ns/secret/key/g.dev/v1/Rule", Some("orders"), "a"),
        ];
        for (processor, reconciler, namespace, name) in keys {
            let key = Key::new(&processor.into(), &reconciler.into(), namespace, name);
            assert_eq!(key.to_string().parse(), Ok(key));
        }
        for text in [
            "",
            "a",
            "a/b",
            "a:b",
            "a/b:",
            "/b:c",
            "a/b@v1/C:d",
            "a/@///C:d",
            "a/:c",
            "a/b:/c",
            "a/b:c/",
        ] {
            assert_eq!(text.parse::<Key>(), Err(NoKey), "{text}");
        }
    }
}
