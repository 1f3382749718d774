//! What the metadata of an object say of which one it is, found in one go.

use serde_json::{Map, Value};

use super::hashed::{self, Space};

/// What tells an object and its version from others, and its labels.
#[derive(Debug, Default)]
pub(super) struct Named<'a> {
    /// Empty where it has none.
    pub(super) namespace: &'a str,
    /// Empty where it has none.
    pub(super) name: &'a str,
    /// Empty where it has none.
    pub(super) uid: &'a str,
    /// Its resource version; empty where it has none.
    pub(super) version: &'a str,
    labels: Option<&'a Map<String, Value>>,
}

// === impl Named ===

impl<'a> Named<'a> {
    pub(super) fn of(object: &'a Value) -> Self {
        let mut named = Self::default();
        let metadata = object.get("metadata").and_then(Value::as_object);
        for (key, value) in metadata.into_iter().flatten() {
            let text = value.as_str().unwrap_or_default();
            match key.as_str() {
                "namespace" => named.namespace = text,
                "name" => named.name = text,
                "uid" => named.uid = text,
                "resourceVersion" => named.version = text,
                "labels" => named.labels = value.as_object(),
                _ => {}
            }
        }
        named
    }

    /// Namespace and name.
    pub(super) fn place(&self) -> (&'a str, &'a str) {
        (self.namespace, self.name)
    }

    /// The resource version as a number; 0 where it is none.
    pub(super) fn revision(&self) -> u64 {
        self.version.parse().unwrap_or_default()
    }

    /// Key and term of each label.
    pub(super) fn label_terms(&self) -> impl Iterator<Item = (u64, u64)> {
        self.labels.into_iter().flatten().filter_map(|(key, value)| {
            let key = hashed::key(Space::Label, key);
            Some((key, hashed::term(key, value.as_str()?)))
        })
    }
}
