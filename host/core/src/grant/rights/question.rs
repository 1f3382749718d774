//! A right of an account, as a question to the API server.

use std::{borrow::Cow, fmt, sync::Arc};

use serde_json::{Value, json};

use super::Account;
use crate::resource::Resource;

/// A right that an account may have or not: a verb on a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Question {
    /// The cluster that is asked.
    pub cluster: Arc<str>,
    /// The API group; empty: the core group.
    pub group: Box<str>,
    /// The name in URLs, with the subresource: `pods/eviction`.
    pub resource: Box<str>,
    /// The verb of an RBAC rule: `get`, `patch`.
    pub verb: Cow<'static, str>,
    /// The namespace; `None`: all namespaces, or a cluster-scoped resource.
    pub namespace: Option<Box<str>>,
    /// The object's name; `None`: every object.
    pub name: Option<Box<str>>,
}

// === impl Question ===

impl Question {
    /// Returns the question whether a verb is allowed on objects of a kind. The namespace is
    /// ignored for cluster-scoped kinds.
    pub fn of(
        resource: &Resource,
        verb: &'static str,
        namespace: Option<&str>,
        name: Option<&str>,
    ) -> Self {
        Self {
            cluster: Arc::clone(&resource.kind.cluster),
            group: resource.kind.group.as_str().into(),
            resource: resource.plural.as_str().into(),
            verb: Cow::Borrowed(verb),
            namespace: namespace.filter(|_| resource.namespaced).map(Into::into),
            name: name.map(Into::into),
        }
    }

    /// Returns the question whether a `ServiceAccount` may be impersonated, which only the host's
    /// own cluster is asked.
    pub fn impersonate(account: &Account) -> Self {
        Self {
            cluster: Arc::default(),
            group: "".into(),
            resource: "serviceaccounts".into(),
            verb: Cow::Borrowed("impersonate"),
            namespace: Some(account.namespace.as_str().into()),
            name: Some(account.name.as_str().into()),
        }
    }

    /// Parses the right that an account lacks from the message of a cluster's 403. `None` for a 403
    /// with another reason: a quota, an admission policy.
    pub fn refused(message: &str, account: &Account, cluster: &Arc<str>) -> Option<Self> {
        let (_, told) = message.split_once(&format!("User \"{}\" cannot ", account.user()))?;
        let (verb, told) = told.split_once(" resource \"")?;
        let (resource, told) = told.split_once('"')?;
        let quoted = |after: &str| Some(told.split_once(after)?.1.split_once('"')?.0);
        let (_, before) = message.split_once(" \"").unwrap_or_default();
        let name = before.split_once("\" is forbidden").map(|(name, _)| name);
        Some(Self {
            cluster: Arc::clone(cluster),
            group: quoted("in API group \"").unwrap_or_default().into(),
            resource: resource.into(),
            verb: Cow::Owned(verb.to_owned()),
            namespace: quoted("in the namespace \"").map(Into::into),
            name: name.filter(|name| !name.contains('"')).map(Into::into),
        })
    }

    /// Returns the `SubjectAccessReview` that asks the question. The API server derives no groups
    /// from the user of a review, so the account's groups are sent along.
    pub fn review(&self, account: &Account) -> Value {
        json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "metadata": {},
            "spec": {
                "user": account.user(),
                "groups": account.groups(),
                "resourceAttributes": self.attributes(),
            },
        })
    }

    /// Returns the `SelfSubjectAccessReview` by which a user asks the question about itself.
    pub fn self_review(&self) -> Value {
        json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "metadata": {},
            "spec": {"resourceAttributes": self.attributes()},
        })
    }

    /// Returns the attributes as the API server derives them from a request. A request to a
    /// namespace counts as one in this namespace, so that a `RoleBinding` there may allow it; a list
    /// with this name does not.
    fn attributes(&self) -> Value {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        let is_of_one = ["get", "update", "patch", "delete"].contains(&&*self.verb);
        let is_namespace = self.group.is_empty() && resource == "namespaces" && is_of_one;
        let namespace = if is_namespace { self.name.as_ref() } else { self.namespace.as_ref() };
        json!({
            "group": &*self.group,
            "resource": resource,
            "subresource": subresource,
            "verb": &*self.verb,
            "namespace": namespace.map_or("", |namespace| namespace),
            "name": self.name.as_deref().unwrap_or_default(),
        })
    }
}

/// Formats the right: `get secrets in all namespaces`,
/// ``patch virtualservices.networking.istio.io in namespace `shop` ``.
impl fmt::Display for Question {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (resource, below) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        write!(to, "{} {resource}", self.verb)?;
        if !self.group.is_empty() {
            write!(to, ".{}", self.group)?;
        }
        if !below.is_empty() {
            write!(to, "/{below}")?;
        }
        match (&self.namespace, &self.name) {
            (None, None) => write!(to, " in all namespaces"),
            (None, Some(name)) => write!(to, " named `{name}`"),
            (Some(namespace), None) => write!(to, " in namespace `{namespace}`"),
            (Some(namespace), Some(name)) => write!(to, " `{namespace}/{name}`"),
        }?;
        if self.cluster.is_empty() { Ok(()) } else { write!(to, " in cluster `{}`", self.cluster) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_asked_for_within_itself() {
        let place = |verb: &'static str, resource: &str, name: Option<&str>| {
            let question = Question {
                cluster: Arc::default(),
                group: "".into(),
                resource: resource.into(),
                verb: verb.into(),
                namespace: None,
                name: name.map(Into::into),
            };
            question.self_review()["spec"]["resourceAttributes"]["namespace"].clone()
        };
        assert_eq!(place("get", "namespaces", Some("team")), "team");
        assert_eq!(place("patch", "namespaces/status", Some("team")), "team");
        assert_eq!(place("get", "namespaces", None), "");
        assert_eq!(place("list", "namespaces", Some("team")), "");
        assert_eq!(place("get", "nodes", Some("team")), "");
    }
}
