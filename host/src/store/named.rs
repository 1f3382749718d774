//! The metadata that identifies an object, read in one pass.

use super::hashed::{self, Space};
use crate::json::Json;

/// The metadata that identifies an object and its version, and the object's labels.
#[derive(Debug)]
pub(super) struct Named<'a, J> {
    /// Empty if the object has none.
    pub(super) namespace: &'a str,
    /// Empty if the object has none.
    pub(super) name: &'a str,
    /// Empty if the object has none.
    pub(super) uid: &'a str,
    /// The resource version; empty if the object has none.
    pub(super) version: &'a str,
    labels: Option<J>,
}

// === impl Named ===

impl<'a, J: Json<'a>> Named<'a, J> {
    pub(super) fn of(object: J) -> Self {
        let mut named = Self { namespace: "", name: "", uid: "", version: "", labels: None };
        for (key, value) in object.get("metadata").into_iter().flat_map(Json::entries) {
            let text = || value.text().unwrap_or_default();
            match key {
                "namespace" => named.namespace = text(),
                "name" => named.name = text(),
                "uid" => named.uid = text(),
                "resourceVersion" => named.version = text(),
                "labels" => named.labels = Some(value),
                _ => {}
            }
        }
        named
    }

    /// Returns namespace and name.
    pub(super) fn place(&self) -> (&'a str, &'a str) {
        (self.namespace, self.name)
    }

    /// Returns the resource version as a number; 0 if it is not a number.
    pub(super) fn revision(&self) -> u64 {
        self.version.parse().unwrap_or_default()
    }

    /// Returns key and term of each label.
    pub(super) fn label_terms(&self) -> impl Iterator<Item = (u64, u64)> {
        self.labels.into_iter().flat_map(Json::entries).filter_map(|(key, value)| {
            let key = hashed::key(Space::Label, key);
            Some((key, hashed::term(key, value.text()?)))
        })
    }
}
