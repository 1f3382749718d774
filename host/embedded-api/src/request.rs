//! Requests: what a path names, what a query asks for, and what a body holds.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method};

mod body;
mod options;
mod query;

#[cfg(test)]
mod tests;

pub(crate) use body::{Body, Encoding};
pub(crate) use options::{DeleteOptions, ListOptions, Match, Propagation, WriteOptions};
pub(crate) use query::Query;

/// What is done to a resource, in the words of Kubernetes' rules of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// One object is read.
    Get,
    /// Objects are read.
    List,
    /// Changes are followed.
    Watch,
    /// An object is made.
    Create,
    /// An object is replaced.
    Update,
    /// An object is changed in part; server-side apply, too.
    Patch,
    /// An object is deleted.
    Delete,
    /// All that a selector matches is deleted.
    DeleteCollection,
}

/// One request, with its body read.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// Decoded, without the query.
    pub(crate) path: String,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// What a path below `/api/v1` or `/apis/<group>/<version>` names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    /// Empty for cluster-scoped resources and for all namespaces.
    pub(crate) namespace: String,
    /// Empty for a collection.
    pub(crate) name: String,
    /// Empty for the object itself.
    pub(crate) subresource: String,
    /// The old form `/api/v1/watch/…`.
    pub(crate) watch: bool,
}

// === impl Verb ===

impl Verb {
    /// The word that Kubernetes uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

impl std::fmt::Display for Verb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl Request ===

impl Request {
    pub(crate) fn new(parts: Parts, body: Bytes) -> Self {
        Self {
            path: query::decode_percent(parts.uri.path()),
            query: Query::parse(parts.uri.query().unwrap_or_default()),
            method: parts.method,
            headers: parts.headers,
            body,
        }
    }

    /// A header as text; absent if it is no text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// What this request does to the resource that its path names.
    pub(crate) fn verb(&self, path: &ResourcePath) -> Option<Verb> {
        let one = !path.name.is_empty();
        Some(match self.method {
            Method::GET | Method::HEAD if path.watch => Verb::Watch,
            Method::GET | Method::HEAD if one => Verb::Get,
            Method::GET | Method::HEAD if self.query.flag("watch") => Verb::Watch,
            Method::GET | Method::HEAD => Verb::List,
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE if one => Verb::Delete,
            Method::DELETE => Verb::DeleteCollection,
            _ => return None,
        })
    }

    /// Who owns the fields that this request writes: the manager it names, else the beginning of the user agent.
    pub(crate) fn manager(&self) -> String {
        match self.query.get("fieldManager") {
            Some(manager) if !manager.is_empty() => manager.to_owned(),
            _ => {
                let agent = self.header("user-agent").unwrap_or_default();
                let name = agent.split('/').next().unwrap_or_default();
                name.chars().filter(|c| !c.is_control()).take(128).collect()
            }
        }
    }
}

// === impl ResourcePath ===

impl ResourcePath {
    /// `None` if the path names no resource.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let mut segments: Vec<&str> = path.trim_matches('/').split('/').collect();
        let rest = match segments.as_slice() {
            ["api", _, _, ..] => segments.split_off(2),
            ["apis", _, _, _, ..] => segments.split_off(3),
            _ => return None,
        };
        let (group, version) = match segments.as_slice() {
            [_, version] => ("", *version),
            [_, group, version] => (*group, *version),
            _ => return None,
        };
        let (watch, rest) = match rest.as_slice() {
            ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
            rest => (false, rest),
        };
        let (namespace, rest) = match rest {
            ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => ("", rest),
            ["namespaces", namespace, rest @ ..] => (*namespace, rest),
            rest => ("", rest),
        };
        let (resource, name, subresource) = match rest {
            [resource] => (*resource, "", String::new()),
            [resource, name, subresource @ ..] => (*resource, *name, subresource.join("/")),
            [] => return None,
        };
        Some(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource,
            watch,
        })
    }
}
