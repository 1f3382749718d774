//! The resource under which a kind is served, and its paths.

use std::{collections::HashMap, fmt::Write as _, sync::Arc};

use serde_json::Value;

use crate::contract::Kind;

/// A kind as the cluster serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// The group, version and kind.
    pub kind: Kind,
    /// The plural name, which URLs use.
    pub plural: String,
    /// True if the objects of the kind live in namespaces.
    pub namespaced: bool,
    /// True if the kind has the subresource `status`.
    pub status: bool,
}

/// The size of a page of a list, that of client-go's pager.
const PAGE_SIZE: usize = 500;

/// The requests for the pages of a list, one after the other.
#[derive(Debug)]
pub struct Pages {
    /// The path and query of the first page.
    first: String,
    /// The token of the next page; empty for the first one.
    token: String,
}

/// The resources of known kinds: one lookup for all kinds of an outcome.
#[derive(Clone, Debug, Default)]
pub struct Kinds(HashMap<Kind, Arc<Resource>>);

// === impl Resource ===

impl Resource {
    /// Returns the path of the objects, in one namespace or in all.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let base = api_path(&self.kind.group, &self.kind.version);
        match namespace {
            Some(namespace) if self.namespaced => {
                format!("{base}/namespaces/{}/{}", encoded(namespace), self.plural)
            }
            _ => format!("{base}/{}", self.plural),
        }
    }

    /// Returns the path of one object.
    pub fn path_of(&self, namespace: Option<&str>, name: &str) -> String {
        format!("{}/{}", self.path(namespace), encoded(name))
    }

    /// Returns the resources that a cluster's `CustomResourceDefinition` defines, one for each
    /// served version.
    pub fn of_definition(cluster: &Arc<str>, definition: &Value) -> Vec<Self> {
        let text = |pointer: &str| {
            definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let versions =
            definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
        let served = versions
            .filter(|version| version.get("served").and_then(Value::as_bool).unwrap_or_default());
        served
            .map(|version| Self {
                kind: Kind {
                    cluster: Arc::clone(cluster),
                    ..Kind::home(
                        text("/spec/group"),
                        version.get("name").and_then(Value::as_str).unwrap_or_default(),
                        text("/spec/names/kind"),
                    )
                },
                plural: text("/spec/names/plural"),
                namespaced: text("/spec/scope") == "Namespaced",
                status: version.pointer("/subresources/status").is_some(),
            })
            .collect()
    }
}

// === impl Pages ===

impl Pages {
    /// Returns the requests for a list at a path, of objects of one name if there is one.
    pub fn of(path: &str, name: Option<&str>) -> Self {
        let pages = Self { first: format!("{path}?limit={PAGE_SIZE}"), token: String::new() };
        match name {
            Some(name) => pages.with("fieldSelector", &format!("metadata.name={name}")),
            None => pages,
        }
    }

    /// Adds a parameter to the query.
    #[must_use]
    pub fn with(mut self, parameter: &str, value: &str) -> Self {
        _ = write!(self.first, "&{parameter}={}", encoded(value));
        self
    }

    /// Returns the path and query of the next page.
    pub fn path(&self) -> String {
        if self.token.is_empty() {
            return self.first.clone();
        }
        format!("{}&continue={}", self.first, encoded(&self.token))
    }

    /// Takes the token of the next page from a page. Returns whether there is one.
    pub fn turn(&mut self, page: &Value) -> bool {
        let next = page.pointer("/metadata/continue").and_then(Value::as_str);
        next.unwrap_or_default().clone_into(&mut self.token);
        !self.token.is_empty()
    }
}

// === impl Kinds ===

impl Kinds {
    /// Returns the resource of a kind, if it is known.
    pub fn get(&self, kind: &Kind) -> Option<&Arc<Resource>> {
        self.0.get(kind)
    }

    /// Adds or replaces the resource of a kind.
    pub fn insert(&mut self, resource: Arc<Resource>) {
        self.0.insert(resource.kind.clone(), resource);
    }
}

/// Encodes a text as part of a URL's path or query.
pub fn encoded(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' => {
                result.push(byte.into());
            }
            _ => _ = write!(result, "%{byte:02X}"),
        }
    }
    result
}

/// Returns the path of a group and version: `/api/v1`, `/apis/apps/v1`.
pub fn api_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}
