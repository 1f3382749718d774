//! Requests: path, query and body.

mod body;
mod options;
mod query;
#[cfg(test)]
mod tests;
pub mod yaml;

pub(crate) use body::{Body, Encoding};
pub(crate) use options::{DeleteOptions, ListOptions, Match, Propagation, WriteOptions};
pub(crate) use query::Query;

use bytes::Bytes;
use http::{HeaderMap, Method, request::Parts};

/// The verb of a request for a resource, in the words of RBAC rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads the objects of a collection.
    List,
    /// Follows changes.
    Watch,
    /// Creates an object.
    Create,
    /// Replaces an object.
    Update,
    /// Changes an object in part; includes server-side apply.
    Patch,
    /// Deletes an object.
    Delete,
    /// Deletes all objects that a selector matches.
    DeleteCollection,
}

/// A request with its body read.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// The percent-decoded path, without the query.
    pub(crate) path: String,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// The resource that a path below `/api/v1` or `/apis/<group>/<version>` names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    /// The namespace; empty for cluster-scoped resources and for all namespaces.
    pub(crate) namespace: String,
    /// The name of the object; empty for a collection.
    pub(crate) name: String,
    /// The subresource; empty for the object itself.
    pub(crate) subresource: String,
    /// True for the old form `/api/v1/watch/…`.
    pub(crate) watch: bool,
}

// === impl Verb ===

impl Verb {
    /// Returns the verb as Kubernetes writes it.
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

    /// Returns a header as text; `None` if it is absent or no text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the verb of this request, if its method has one.
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

    /// Returns the manager of the fields that this request writes: `fieldManager`, else the
    /// beginning of the user agent, else `unknown`.
    pub(crate) fn manager(&self) -> String {
        match self.query.get("fieldManager") {
            Some(manager) if !manager.is_empty() => manager.to_owned(),
            _ => {
                let agent = self.header("user-agent").unwrap_or_default();
                let name = agent.split('/').next().unwrap_or_default();
                let name: String = name.chars().filter(|c| !c.is_control()).take(128).collect();
                if name.is_empty() { "unknown".to_owned() } else { name }
            }
        }
    }
}

// === impl ResourcePath ===

impl ResourcePath {
    /// Parses a path; `None` if it names no resource.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let mut segments: Vec<&str> = path.trim_matches('/').split('/').collect();
        let rest = match segments.as_slice() {
            ["api", _, _, ..] => segments.split_off(2),
            ["apis", group, _, _, ..] if !group.is_empty() => segments.split_off(3),
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
