//! Escalation: nobody stores a role that grants permissions which its writer does not hold, nor a
//! binding of such a role. The verbs `escalate` (of roles) and `bind` lift this, and so does
//! `system:masters`.
//!
//! The rules are those of kube-apiserver 1.34, `pkg/registry/rbac` and
//! `component-helpers/auth/rbac/validation`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{Action, MASTERS, RBAC, User, path_matches};
use crate::{
    Failure,
    builtin::edit::{at, items, text},
    kind::Resource,
    state::State,
    status::Named,
};

/// A write of an RBAC object.
pub(crate) struct Grant<'a> {
    pub(crate) user: &'a User,
    pub(crate) resource: &'a Resource,
    /// The namespace and the name in the path of the request; a creation has no name there.
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// The live object; `None` for a new one.
    pub(crate) old: Option<&'a Value>,
    pub(crate) new: &'a Value,
}

/// An object of a rule: one resource of one group, with at most one name, or one path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Target<'a> {
    Resource { group: &'a str, resource: &'a str, name: Option<&'a str> },
    Path(&'a str),
}

/// A single permission: one verb for one target.
#[derive(Debug, Clone)]
struct Permission<'a> {
    target: Target<'a>,
    verb: &'a str,
}

// === impl State ===

impl State {
    /// Checks that a write grants nothing that its writer does not hold.
    ///
    /// # Errors
    /// Fails with 403 if it does, and with 404 if a bound role does not exist.
    pub(crate) fn check_escalation(&self, grant: &Grant<'_>) -> Result<(), Failure> {
        let Grant { user, resource, old, new, .. } = grant;
        let changes = || old.is_none_or(|old| !changes_only_ownership(new, old));
        if resource.group != RBAC || user.is_in(MASTERS) {
            return Ok(());
        }
        match resource.plural.as_str() {
            "roles" | "clusterroles" if self.may_escalate(grant) || !changes() => Ok(()),
            "roles" | "clusterroles" => self.check_role(grant),
            "rolebindings" | "clusterrolebindings" if changes() => self.check_binding(grant),
            _ => Ok(()),
        }
    }

    fn may_escalate(&self, grant: &Grant<'_>) -> bool {
        let Resource { group, plural, .. } = grant.resource;
        let action = action("escalate", [group, plural, grant.name], grant.namespace);
        self.allows(grant.user, &action).is_some()
    }

    fn check_role(&self, grant: &Grant<'_>) -> Result<(), Failure> {
        self.check_held(grant, items(&grant.new["rules"]))?;
        let aggregates = |role: &Value| {
            !items(at(role, &["aggregationRule", "clusterRoleSelectors"])).is_empty()
        };
        // An aggregation rule can gather every permission.
        let everything = [
            json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}),
            json!({"nonResourceURLs": ["*"], "verbs": ["*"]}),
        ];
        if (aggregates(grant.new) || grant.old.is_some_and(aggregates))
            && self.check_held(grant, &everything).is_err()
        {
            let why = "must have cluster-admin privileges to use the aggregationRule";
            return Err(grant.forbidden(why));
        }
        Ok(())
    }

    fn check_binding(&self, grant: &Grant<'_>) -> Result<(), Failure> {
        let role = &grant.new["roleRef"];
        let (kind, name) = (text(role, "kind"), text(role, "name"));
        let plural = match kind {
            "ClusterRole" => "clusterroles",
            "Role" => "roles",
            _ => {
                let why = format!("unsupported role reference kind: {kind:?}");
                return Err(Failure::unclassified(why));
            }
        };
        let action = action("bind", [text(role, "apiGroup"), plural, name], grant.namespace);
        if self.allows(grant.user, &action).is_some() {
            return Ok(());
        }
        if kind == "Role" && grant.namespace.is_empty() {
            return Err(Failure::bad_request("Namespace parameter required."));
        }
        // Kubernetes names the missing role as if it were a binding.
        let missing = || Failure::not_found(Named::new(RBAC, &grant.resource.plural, name));
        let role = self.role(grant.new, grant.namespace).ok_or_else(missing)?;
        self.check_held(grant, items(at(&role, &["rules"])))
    }

    /// Checks that the user holds all permissions of these rules in the namespace.
    fn check_held(&self, grant: &Grant<'_>, rules: &[Value]) -> Result<(), Failure> {
        let (held, unresolved) = self.resolved_rules(grant.user, grant.namespace);
        let wanted = rules.iter().flat_map(permissions);
        let is_missing = |wanted: &Permission<'_>| !held.iter().any(|rule| wanted.is_in(rule));
        let missing: Vec<Permission<'_>> = wanted.filter(is_missing).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let User { name, groups } = grant.user;
        let missing: Vec<String> = shown(missing).into_iter().collect();
        let why = format!(
            "user {name:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}{}",
            quoted(groups),
            missing.join("\n"),
            grant.resolution_errors(&unresolved)
        );
        Err(grant.forbidden(&why))
    }
}

fn action(verb: &str, [group, resource, name]: [&str; 3], namespace: &str) -> Action {
    Action::Resource {
        verb: verb.to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        subresource: String::new(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

/// Returns whether only finalizers and owners change, as by the garbage collector.
fn changes_only_ownership(new: &Value, old: &Value) -> bool {
    let rest = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for key in ["finalizers", "managedFields", "ownerReferences"] {
                metadata.remove(key);
            }
        }
        object
    };
    rest(new) == rest(old)
}

// === impl Grant ===

impl Grant<'_> {
    fn forbidden(&self, why: &str) -> Failure {
        let name = text(&self.new["metadata"], "name");
        Failure::forbidden(Named::new(RBAC, &self.resource.plural, name), why)
    }

    /// Returns the end of a refusal: the roles that are bound to the user and do not exist. As
    /// Kubernetes does, it names them as if they were of the resource that is written.
    fn resolution_errors(&self, roles: &[String]) -> String {
        let plural = &self.resource.plural;
        let errors = roles.iter().map(|role| format!("{plural}.{RBAC} \"{role}\" not found"));
        let errors: Vec<String> = errors.collect();
        match errors.as_slice() {
            [] => String::new(),
            [only] => format!("; resolution errors: [{only}]"),
            many => format!("; resolution errors: [[{}]]", many.join(", ")),
        }
    }
}

// === impl Permission ===

impl Permission<'_> {
    /// Returns whether a rule includes the permission.
    fn is_in(&self, rule: &Value) -> bool {
        let has = |key: &str, wanted: &str| texts(rule, key).any(|text| text == wanted);
        let has_or_all = |key: &str, wanted: &str| has(key, wanted) || has(key, "*");
        let includes_target = match self.target {
            Target::Path(path) => texts(rule, "nonResourceURLs")
                .any(|own| own == path || (own.ends_with('*') && path_matches(own, path))),
            Target::Resource { group, resource, name } => {
                let subresource = resource.split_once('/').map(|(_, name)| format!("*/{name}"));
                let includes_resource = has_or_all("resources", resource)
                    || subresource.is_some_and(|any| has("resources", &any));
                let includes_name = texts(rule, "resourceNames").next().is_none()
                    || name.is_some_and(|name| has("resourceNames", name));
                has_or_all("apiGroups", group) && includes_resource && includes_name
            }
        };
        has_or_all("verbs", self.verb) && includes_target
    }
}

fn texts<'a>(rule: &'a Value, key: &str) -> impl Iterator<Item = &'a str> {
    items(&rule[key]).iter().filter_map(Value::as_str)
}

/// Breaks a rule down to its permissions.
fn permissions(rule: &Value) -> Vec<Permission<'_>> {
    let mut names: Vec<Option<&str>> = texts(rule, "resourceNames").map(Some).collect();
    if names.is_empty() {
        names.push(None);
    }
    let mut found = Vec::new();
    for group in texts(rule, "apiGroups") {
        for resource in texts(rule, "resources") {
            for verb in texts(rule, "verbs") {
                found.extend(names.iter().map(|&name| Permission {
                    target: Target::Resource { group, resource, name },
                    verb,
                }));
            }
        }
    }
    for path in texts(rule, "nonResourceURLs") {
        found.extend(
            texts(rule, "verbs").map(|verb| Permission { target: Target::Path(path), verb }),
        );
    }
    found
}

/// Returns permissions as messages show them: the verbs of a resource together, those of a path one
/// by one.
fn shown(permissions: Vec<Permission<'_>>) -> BTreeSet<String> {
    let mut resources: BTreeMap<Target<'_>, Vec<&str>> = BTreeMap::new();
    let mut texts = BTreeSet::new();
    for Permission { target, verb } in permissions {
        match target {
            Target::Path(path) => {
                texts.insert(format!("{{NonResourceURLs:[{path:?}], Verbs:[{verb:?}]}}"));
            }
            Target::Resource { .. } => resources.entry(target).or_default().push(verb),
        }
    }
    for (target, verbs) in resources {
        let Target::Resource { group, resource, name } = target else { continue };
        let name = name.map(|name| format!(", ResourceNames:[{name:?}]")).unwrap_or_default();
        let verbs = quoted(&verbs);
        texts.insert(format!(
            "{{APIGroups:[{group:?}], Resources:[{resource:?}]{name}, Verbs:{verbs}}}"
        ));
    }
    texts
}

/// Returns texts as Go's `%q` prints a list of them: `["a" "b"]`.
fn quoted(texts: &[impl std::fmt::Debug]) -> String {
    let each: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", each.join(" "))
}
