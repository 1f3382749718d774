//! Requests to the API, and discovery of the kinds that it serves.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
};

use serde_json::Value;

use super::{Cluster, text};
use crate::{Kind, ObjectRef};

/// A kind, as the API serves it.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::testing) struct Resource {
    pub(in crate::testing) kind: Kind,
    pub(in crate::testing) plural: String,
    pub(in crate::testing) namespaced: bool,
    pub(in crate::testing) status: bool,
}

/// An answer with an error status, or a request that could not be built.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::testing) struct Refusal {
    pub(in crate::testing) code: u16,
    pub(in crate::testing) reason: String,
    pub(in crate::testing) message: String,
    /// The `details.causes` of the status: reason, message and field.
    pub(in crate::testing) causes: Vec<(String, String, String)>,
}

/// An answer with a status of 2xx.
pub(in crate::testing) struct Answer {
    pub(in crate::testing) created: bool,
    pub(in crate::testing) body: Value,
}

/// The HTTP method of a request and the content type of its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::testing) enum Method {
    Get,
    Post,
    Delete,
    Apply,
    JsonPatch,
    MergePatch,
}

/// The kinds that discovery returned, by group and version, for one revision of the definitions.
#[derive(Default)]
pub(super) struct Served {
    revision: u64,
    resources: BTreeMap<(String, String), Arc<[Resource]>>,
}

impl Cluster {
    pub(super) fn group_versions(&self) -> Vec<(String, String)> {
        let mut found = vec![(String::new(), "v1".to_owned())];
        let Ok(groups) = self.send(Method::Get, "/apis", None) else { return found };
        let groups =
            groups.body.get("groups").and_then(Value::as_array).cloned().unwrap_or_default();
        for group in &groups {
            let versions = group.get("versions").and_then(Value::as_array).into_iter().flatten();
            found.extend(versions.map(|version| {
                (text(group, "/name").to_owned(), text(version, "/version").to_owned())
            }));
        }
        found
    }

    pub(super) fn resources(&self, group: &str, version: &str) -> Arc<[Resource]> {
        let revision = self.api.latest("apiextensions.k8s.io", "customresourcedefinitions");
        let of = (group.to_owned(), version.to_owned());
        let mut served = self.served.lock();
        if served.revision != revision {
            *served = Served { revision, ..Served::default() };
        }
        let discovered =
            served.resources.entry(of).or_insert_with(|| self.discover(group, version));
        Arc::clone(discovered)
    }

    fn discover(&self, group: &str, version: &str) -> Arc<[Resource]> {
        let Ok(answer) = self.send(Method::Get, &root(group, version), None) else {
            return Arc::default();
        };
        let all =
            answer.body.get("resources").and_then(Value::as_array).cloned().unwrap_or_default();
        let name = |resource: &Value| text(resource, "/name").to_owned();
        let names: BTreeSet<String> = all.iter().map(name).collect();
        let whole = all.iter().filter(|resource| !name(resource).contains('/'));
        whole
            .map(|resource| Resource {
                kind: Kind::new(group, version, text(resource, "/kind")),
                plural: name(resource),
                namespaced: resource.get("namespaced") == Some(&Value::Bool(true)),
                status: names.contains(&format!("{}/status", name(resource))),
            })
            .collect()
    }

    /// Returns a kind as the API serves it; `None` if the API does not serve it.
    pub(in crate::testing) fn resource(&self, kind: &Kind) -> Option<Resource> {
        let resources = self.resources(&kind.group, &kind.version);
        resources.iter().find(|resource| resource.kind == *kind).cloned()
    }

    /// Returns an object as it is now; `None` if there is no such object or kind.
    pub(in crate::testing) fn get(&self, of: &ObjectRef) -> Option<Value> {
        let path = self.resource(&of.kind)?.path_of(of);
        self.send(Method::Get, &path, None).ok().map(|answer| answer.body)
    }

    pub(in crate::testing) fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer, Refusal> {
        let (verb, content_type) = match method {
            Method::Get => ("GET", "application/json"),
            Method::Post => ("POST", "application/json"),
            Method::Delete => ("DELETE", "application/json"),
            Method::Apply => ("PATCH", "application/apply-patch+yaml"),
            Method::JsonPatch => ("PATCH", "application/json-patch+json"),
            Method::MergePatch => ("PATCH", "application/merge-patch+json"),
        };
        let request =
            http::Request::builder().method(verb).uri(path).header("content-type", content_type);
        let request = request
            .body(body.map(Value::to_string).unwrap_or_default())
            .map_err(|error| Refusal { message: error.to_string(), ..Refusal::default() })?;
        match self.api.answer(request) {
            (code @ 200..=299, body) => Ok(Answer { created: code == 201, body }),
            (code, status) => Err(Refusal::of(code, &status)),
        }
    }
}

fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

// === impl Resource ===

impl Resource {
    /// Returns the path of the kind's objects in a namespace, or in all.
    pub(in crate::testing) fn path(&self, namespace: Option<&str>) -> String {
        let root = root(&self.kind.group, &self.kind.version);
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{}", self.plural),
            None => format!("{root}/{}", self.plural),
        }
    }

    /// Returns the path of an object. A reference without a namespace means `default` if the kind
    /// has namespaces.
    pub(in crate::testing) fn path_of(&self, of: &ObjectRef) -> String {
        let namespace = of.namespace.as_deref().unwrap_or("default");
        format!("{}/{}", self.path(Some(namespace)), of.name)
    }
}

// === impl Refusal ===

impl Refusal {
    fn of(code: u16, status: &Value) -> Self {
        let causes = status.pointer("/details/causes").and_then(Value::as_array);
        let cause = |cause: &Value| {
            let part = |pointer| text(cause, pointer).to_owned();
            (part("/reason"), part("/message"), part("/field"))
        };
        Self {
            code,
            reason: text(status, "/reason").to_owned(),
            message: text(status, "/message").to_owned(),
            causes: causes.into_iter().flatten().map(cause).collect(),
        }
    }

    /// Returns whether the details name a cause with this reason.
    pub(in crate::testing) fn has_cause(&self, reason: &str) -> bool {
        self.causes.iter().any(|(held, ..)| held == reason)
    }

    /// Returns the managers that own the fields with which an apply conflicts; empty for any other
    /// refusal.
    pub(in crate::testing) fn conflicting_managers(&self) -> Vec<String> {
        let managers: BTreeSet<String> =
            self.conflicts().into_iter().map(|(manager, _)| manager).collect();
        managers.into_iter().collect()
    }

    /// Returns manager and field of each conflict that a 409 names; empty for any other refusal.
    pub(in crate::testing) fn conflicts(&self) -> Vec<(String, String)> {
        let conflicts = self
            .causes
            .iter()
            .filter(|(reason, ..)| self.code == 409 && reason == "FieldManagerConflict");
        let manager = |message: &str| {
            let quoted = message.get(message.find('"')?..)?;
            serde_json::Deserializer::from_str(quoted).into_iter::<String>().next()?.ok()
        };
        conflicts
            .map(|(_, message, field)| {
                (manager(message).unwrap_or_else(|| message.clone()), field.clone())
            })
            .collect()
    }
}

/// Percent-encodes a text for the query of a request.
pub(in crate::testing) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}
