//! Authorization: evaluates RBAC objects for access reviews and for impersonated requests.
//!
//! A client that connects is an administrator. Only requests with `Impersonate-User` are authorized
//! against RBAC objects.

mod escalation;
#[cfg(test)]
mod tests;

pub(crate) use escalation::Grant;

use std::sync::Arc;

use http::HeaderMap;
use serde_json::{Value, json};

use crate::{
    Failure,
    builtin::edit::{at, items, text},
    name::is_path_segment,
    request::{ResourcePath, Verb},
    selector::parse_fields,
    state::State,
    status::Named,
    storage::{Image, TableId},
};

const RBAC: &str = "rbac.authorization.k8s.io";
const MASTERS: &str = "system:masters";
const AUTHENTICATED: &str = "system:authenticated";
/// Paths that every authenticated user may get.
const PUBLIC_PATHS: [&str; 11] = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
];

/// The reviews that every authenticated user may create about itself: API group and resources.
const ABOUT_ONESELF: [(&str, &[&str]); 2] = [
    ("authorization.k8s.io", &["selfsubjectaccessreviews", "selfsubjectrulesreviews"]),
    ("authentication.k8s.io", &["selfsubjectreviews"]),
];

/// The user that makes a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) groups: Vec<String>,
}

/// The action that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Resource {
        verb: String,
        group: String,
        resource: String,
        subresource: String,
        namespace: String,
        name: String,
    },
    Path {
        verb: String,
        path: String,
    },
}

// === impl User ===

impl User {
    /// Returns the user of requests without impersonation headers: `admin`, in `system:masters`.
    pub(crate) fn administrator() -> Self {
        Self {
            name: "admin".to_owned(),
            groups: vec![MASTERS.to_owned(), AUTHENTICATED.to_owned()],
        }
    }

    /// Returns the user that the impersonation headers name, if any.
    pub(crate) fn impersonated(headers: &HeaderMap, path: &str) -> Result<Option<Self>, Failure> {
        let texts = |name: &str| -> Vec<String> {
            headers
                .get_all(name)
                .iter()
                .filter_map(|value| value.to_str().ok())
                .map(str::to_owned)
                .collect()
        };
        let mut groups = texts("impersonate-group");
        let Some(name) =
            texts("impersonate-user").into_iter().next().filter(|name| !name.is_empty())
        else {
            if groups.is_empty() && texts("impersonate-uid").is_empty() {
                return Ok(None);
            }
            let asked: Vec<String> =
                groups.iter().map(|group| format!("{{Group  {group}    }}")).collect();
            let why = format!("requested [{}] without impersonating a user", asked.join(" "));
            return Err(Failure::plain(500, format!("Internal Server Error: {path:?}: {why}\n")));
        };
        if let Some((namespace, _)) =
            name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'))
            && groups.is_empty()
        {
            groups = vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
            ];
        }
        if name != "system:anonymous" && !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Ok(Some(Self { name, groups }))
    }

    /// Returns the user as reviews show it.
    pub(crate) fn to_value(&self) -> Value {
        json!({"username": self.name, "groups": self.groups})
    }

    fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }
}

// === impl Action ===

impl Action {
    /// Returns the action of a request for a resource. If the field selector of a collection
    /// request selects one object by its name, the action names that object, as in Kubernetes: a
    /// rule with `resourceNames` can so allow list and watch.
    pub(crate) fn of(path: &ResourcePath, verb: Verb, fields: &str) -> Self {
        let selected = || {
            let selector = parse_fields(fields).ok()?;
            selector.name().filter(|name| is_path_segment(name).is_empty()).map(str::to_owned)
        };
        let name = match verb {
            Verb::List | Verb::Watch | Verb::DeleteCollection if path.name.is_empty() => {
                selected().unwrap_or_default()
            }
            _ => path.name.clone(),
        };
        let is_namespace = path.group.is_empty() && path.resource == "namespaces";
        Self::Resource {
            verb: verb.as_str().to_owned(),
            group: path.group.clone(),
            resource: path.resource.clone(),
            subresource: path.subresource.clone(),
            namespace: if is_namespace { path.name.clone() } else { path.namespace.clone() },
            name,
        }
    }

    /// Returns the 403 for this action.
    pub(crate) fn refusal(&self, user: &User) -> Failure {
        let user = &user.name;
        match self {
            Self::Path { verb, path } => {
                let why = format!("User {user:?} cannot {verb} path {path:?}");
                Failure::forbidden(Named::new("", "", ""), &why)
            }
            Self::Resource { verb, group, resource, subresource, namespace, name } => {
                let full = if subresource.is_empty() {
                    resource.clone()
                } else {
                    format!("{resource}/{subresource}")
                };
                let scope = if namespace.is_empty() {
                    "at the cluster scope".to_owned()
                } else {
                    format!("in the namespace {namespace:?}")
                };
                let why = format!(
                    "User {user:?} cannot {verb} resource {full:?} in API group {group:?} {scope}"
                );
                Failure::forbidden(Named::new(group, resource, name), &why)
            }
        }
    }

    /// Returns whether a rule of a role allows the action.
    fn is_allowed_by(&self, rule: &Value) -> bool {
        let list = |key: &str| {
            rule.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
        };
        let has = |key: &str, wanted: &str| list(key).any(|item| item == "*" || item == wanted);
        match self {
            Self::Path { verb, path } => {
                has("verbs", verb) && list("nonResourceURLs").any(|rule| path_matches(rule, path))
            }
            Self::Resource { verb, group, resource, subresource, name, .. } => {
                let full = format!("{resource}/{subresource}");
                let any = format!("*/{subresource}");
                let names_resource = if subresource.is_empty() {
                    has("resources", resource)
                } else {
                    has("resources", &full) || list("resources").any(|item| item == any)
                };
                let names_object = list("resourceNames").next().is_none()
                    || list("resourceNames").any(|item| item == name);
                has("verbs", verb) && has("apiGroups", group) && names_resource && names_object
            }
        }
    }

    fn namespace(&self) -> &str {
        match self {
            Self::Path { .. } => "",
            Self::Resource { namespace, .. } => namespace,
        }
    }
}

fn path_matches(rule: &str, path: &str) -> bool {
    match rule.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => rule == path,
    }
}

// === impl State ===

impl State {
    /// Returns the reason for which a user may do an action; `None` if nothing allows it.
    pub(crate) fn allows(&self, user: &User, action: &Action) -> Option<String> {
        if user.is_in(MASTERS) {
            return Some(String::new());
        }
        if let Some(reason) = by_default(user, action) {
            return Some(reason);
        }
        let bindings = self.bindings("clusterrolebindings", "");
        for (binding, body) in &bindings {
            if let Some(subject) = self.grants(body, "", user, action) {
                return Some(reason(
                    &format!("ClusterRoleBinding {:?}", binding.head.name),
                    body,
                    &subject,
                ));
            }
        }
        let namespace = action.namespace();
        if namespace.is_empty() {
            return None;
        }
        for (binding, body) in self.bindings("rolebindings", namespace) {
            if let Some(subject) = self.grants(&body, namespace, user, action) {
                let name =
                    format!("RoleBinding {:?}", format!("{}/{namespace}", binding.head.name));
                return Some(reason(&name, &body, &subject));
            }
        }
        None
    }

    /// Returns every rule that applies to a user in a namespace.
    pub(crate) fn rules_of(&self, user: &User, namespace: &str) -> Vec<Value> {
        self.resolved_rules(user, namespace).0
    }

    /// Returns every rule that applies to a user in a namespace, and the names of bound roles that
    /// do not exist.
    fn resolved_rules(&self, user: &User, namespace: &str) -> (Vec<Value>, Vec<String>) {
        if user.is_in(MASTERS) {
            let everything = vec![
                json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}),
                json!({"verbs": ["*"], "nonResourceURLs": ["*"]}),
            ];
            return (everything, Vec::new());
        }
        let (mut rules, mut missing) = (Vec::new(), Vec::new());
        if user.is_in(AUTHENTICATED) {
            for (group, resources) in ABOUT_ONESELF {
                rules.push(
                    json!({"verbs": ["create"], "apiGroups": [group], "resources": resources}),
                );
            }
            rules.push(json!({"verbs": ["get"], "nonResourceURLs": PUBLIC_PATHS}));
        }
        let mut bindings = self.bindings("clusterrolebindings", "");
        if !namespace.is_empty() {
            bindings.extend(self.bindings("rolebindings", namespace));
        }
        for (binding, body) in bindings {
            let subjects = body.get("subjects").and_then(Value::as_array).into_iter().flatten();
            let namespace = binding.head.namespace();
            if subjects.into_iter().any(|subject| subject_of(subject, namespace, user).is_some()) {
                match self.role(&body, namespace) {
                    Some(role) => rules.extend(items(at(&role, &["rules"])).iter().cloned()),
                    None => missing.push(text(at(&body, &["roleRef"]), "name").to_owned()),
                }
            }
        }
        (rules, missing)
    }

    fn bindings(&self, plural: &str, namespace: &str) -> Vec<(Arc<Image>, Value)> {
        let table = self.storage.table(&TableId::new(RBAC, plural));
        let images = table.into_iter().flat_map(|table| table.list(namespace, None));
        images.map(|(_, image)| (image.clone(), image.bare())).collect()
    }

    /// Returns the subject through which a binding grants the action to the user, if any.
    fn grants(
        &self,
        binding: &Value,
        namespace: &str,
        user: &User,
        action: &Action,
    ) -> Option<String> {
        let subjects = binding.get("subjects").and_then(Value::as_array)?;
        let subject = subjects.iter().find_map(|subject| subject_of(subject, namespace, user))?;
        let role = self.role(binding, namespace)?;
        let rules = role.get("rules").and_then(Value::as_array)?;
        rules.iter().any(|rule| action.is_allowed_by(rule)).then_some(subject)
    }

    fn role(&self, binding: &Value, namespace: &str) -> Option<Value> {
        let part = |key: &str| {
            binding.pointer(&format!("/roleRef/{key}")).and_then(Value::as_str).unwrap_or_default()
        };
        let (plural, namespace) =
            if part("kind") == "Role" { ("roles", namespace) } else { ("clusterroles", "") };
        let key = crate::storage::object_key(namespace, part("name"));
        Some(self.storage.table(&TableId::new(RBAC, plural))?.get(&key)?.bare())
    }
}

/// Returns the reason for which Kubernetes' default roles allow an action to every authenticated
/// user: reading the discovery paths, and reviews about oneself. `None` for other actions.
fn by_default(user: &User, action: &Action) -> Option<String> {
    if !user.is_in(AUTHENTICATED) {
        return None;
    }
    let through = |name: &str| {
        let group = format!("Group {AUTHENTICATED:?}");
        format!("RBAC: allowed by ClusterRoleBinding {name:?} of ClusterRole {name:?} to {group}")
    };
    match action {
        Action::Path { verb, path } => {
            let is_public =
                PUBLIC_PATHS.iter().any(|rule| path_matches(rule, path.trim_end_matches('/')));
            (verb == "get" && is_public).then(|| through("system:discovery"))
        }
        Action::Resource { verb, resource, .. } => {
            let about_oneself = ABOUT_ONESELF.iter().flat_map(|(_, resources)| *resources);
            (verb == "create" && about_oneself.into_iter().any(|known| known == resource))
                .then(|| through("system:basic-user"))
        }
    }
}

/// Returns the text that names the subject of a binding, if the subject is the user.
fn subject_of(subject: &Value, namespace: &str, user: &User) -> Option<String> {
    let part = |key: &str| subject.get(key).and_then(Value::as_str).unwrap_or_default();
    let name = part("name");
    match part("kind") {
        "User" => (user.name == name).then(|| format!("User {name:?}")),
        "Group" => user.is_in(name).then(|| format!("Group {name:?}")),
        "ServiceAccount" => {
            let namespace =
                if part("namespace").is_empty() { namespace } else { part("namespace") };
            let full = format!("system:serviceaccount:{namespace}:{name}");
            (user.name == full)
                .then(|| format!("ServiceAccount {:?}", format!("{name}/{namespace}")))
        }
        _ => None,
    }
}

fn reason(binding: &str, body: &Value, subject: &str) -> String {
    let part = |key: &str| {
        body.pointer(&format!("/roleRef/{key}")).and_then(Value::as_str).unwrap_or_default()
    };
    format!("RBAC: allowed by {binding} of {} {:?} to {subject}", part("kind"), part("name"))
}
