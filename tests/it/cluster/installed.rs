//! The rights that `deploy/install.yaml` gives to the host's own account.

use std::{collections::BTreeSet, path::Path};

use http::Method;
use mortise::files;
use mortise_tests::cluster::Event;
use serde_json::{Value, json};

const INSTALLATION: &str = "deploy/install.yaml";

/// A verb on a resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Right {
    pub(super) verb: String,
    pub(super) group: String,
    /// The plural, followed by a slash and the subresource if there is one.
    pub(super) resource: String,
    /// The name of the object; empty: all names.
    pub(super) name: String,
}

// === impl Right ===

impl Right {
    pub(super) fn new(verb: &str, group: &str, resource: &str, name: &str) -> Self {
        let [verb, group, resource, name] = [verb, group, resource, name].map(str::to_owned);
        Self { verb, group, resource, name }
    }

    /// Returns the right that a request needs; `None` if its path is no resource.
    pub(super) fn of_request(request: &Event) -> Option<Self> {
        let of = request.object_ref.as_ref()?;
        Some(Self::new(&request.verb, &of.api_group, &request.resource(), &of.name))
    }

    /// Returns the rights that a rule gives.
    pub(super) fn of_rule(rule: &Value) -> Vec<Self> {
        let words = |key: &str| -> Vec<String> {
            serde_json::from_value(rule[key].clone()).unwrap_or_default()
        };
        let mut names = words("resourceNames");
        if names.is_empty() {
            names.push(String::new());
        }
        let mut rights = Vec::new();
        for group in &words("apiGroups") {
            for resource in &words("resources") {
                for verb in &words("verbs") {
                    rights.extend(names.iter().map(|name| Self::new(verb, group, resource, name)));
                }
            }
        }
        rights
    }

    pub(super) fn as_rule(&self) -> Value {
        let names: Vec<&str> = [&*self.name].into_iter().filter(|name| !name.is_empty()).collect();
        json!({"apiGroups": [self.group], "resources": [self.resource], "verbs": [self.verb], "resourceNames": names})
    }

    /// Returns the resource in the form `processors.mortise.dev/status`.
    pub(super) fn title(&self) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        match self.resource.split_once('/') {
            Some((plural, subresource)) => format!("{plural}{dot}{}/{subresource}", self.group),
            None => format!("{}{dot}{}", self.resource, self.group),
        }
    }

    /// Returns the same right on all objects.
    pub(super) fn whatever_the_name(self) -> Self {
        Self { name: String::new(), ..self }
    }

    /// Returns whether this right covers the needed one.
    pub(super) fn gives(&self, needed: &Self) -> bool {
        let is_named = self.name.is_empty() || self.name == needed.name;
        is_named && self.clone().whatever_the_name() == needed.clone().whatever_the_name()
    }
}

/// Returns the objects in a file of the repository.
pub(super) fn documents(file: &str) -> Vec<Value> {
    files::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file)).unwrap()
}

/// Returns the objects of the installation.
pub(super) fn installation() -> Vec<Value> {
    documents(INSTALLATION)
}

/// Returns the rules of the installation's `ClusterRole`, for all namespaces, or of its `Role`, for
/// the host's own namespace.
pub(super) fn rules(kind: &str) -> Vec<Right> {
    let mut roles = installation();
    roles.retain(|object| object["kind"] == kind);
    let [role] = roles.as_slice() else { panic!("one {kind}") };
    role["rules"].as_array().unwrap().iter().flat_map(Right::of_rule).collect()
}

/// Returns all rights that the installation states.
pub(super) fn stated() -> BTreeSet<Right> {
    rules("ClusterRole").into_iter().chain(rules("Role")).collect()
}

/// Returns the rights that every account has through `system:basic-user`, and the host uses.
pub(super) fn of_every_account() -> [Right; 2] {
    [("authentication", "selfsubjectreviews"), ("authorization", "selfsubjectaccessreviews")]
        .map(|(group, resource)| Right::new("create", &format!("{group}.k8s.io"), resource, ""))
}

/// Returns those requests of the host's own account, in the namespace `home`, that exceed the
/// stated rights, or are not on the host's own list.
pub(super) fn beyond<'a>(
    requests: impl IntoIterator<Item = &'a Event>,
    home: &str,
) -> Vec<&'a Event> {
    let everywhere: Vec<Right> =
        rules("ClusterRole").into_iter().chain(of_every_account()).collect();
    let at_home = rules("Role");
    let is_stated = |request: &Event| {
        let Some(needed) = Right::of_request(request) else { return true };
        let is_at_home = request.object_ref.as_ref().is_some_and(|of| of.namespace == home);
        let stated = everywhere.iter().chain(at_home.iter().filter(|_| is_at_home));
        stated.into_iter().any(|right| right.gives(&needed))
    };
    requests.into_iter().filter(|request| !is_stated(request) || !is_on_list(request)).collect()
}

/// Returns whether a request is on the list of those that a host makes with its own rights, in
/// whatever test.
fn is_on_list(request: &Event) -> bool {
    let method = match request.verb.as_str() {
        "get" | "list" | "watch" => Method::GET,
        "create" => Method::POST,
        "update" => Method::PUT,
        "patch" => Method::PATCH,
        _ => Method::DELETE,
    };
    mortise_host::cluster::is_own(&method, &request.request_uri.parse().unwrap())
}
