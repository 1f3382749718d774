//! The life cycle of a `CustomResourceDefinition`: validation ([`validate`]), accepted names, and
//! status.
//!
//! A CRD is served once its names are accepted ([`settle`]). Its deletion is in `collect`.

mod approval;
#[cfg(test)]
mod tests;
pub(crate) mod validate;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use self::approval::Approval;
use crate::{
    builtin::edit::{at, child, default, items, remove, set, text},
    kind::{Form, Registry},
    structural::unrecognized_formats,
};

/// Returns a CRD with its status brought up to date: accepted names and conditions. `None` if the
/// status is up to date already, or the CRD is being deleted.
///
/// Names that other CRDs of the same group hold are not accepted.
pub(crate) fn settle(crd: &Value, registry: &Registry, now: &str) -> Option<Value> {
    if !at(crd, &["metadata", "deletionTimestamp"]).is_null() {
        return None;
    }
    let (names, conflict) = accepted(crd, &Taken::by(crd, registry));
    let mut settled = crd.clone();
    let status = child(&mut settled, "status")?;
    set(status, "acceptedNames", names);
    let was_established = is_true(status, "Established");
    match conflict {
        None => {
            condition(status, ["NamesAccepted", "True", "NoConflicts", "no conflicts found"], now);
            let text = "the initial names have been accepted";
            if !was_established {
                condition(status, ["Established", "True", "InitialNamesAccepted", text], now);
            }
        }
        Some((reason, message)) => {
            condition(status, ["NamesAccepted", "False", reason, &message], now);
            let text = "not all names are accepted";
            if !was_established {
                condition(status, ["Established", "False", "NotAccepted", text], now);
            }
        }
    }
    if let Some(approval) = Approval::of(crd) {
        let [value, reason] = approval.status();
        let kind = "KubernetesAPIApprovalPolicyConformant";
        condition(status, [kind, value, reason, &approval.message()], now);
    }
    (settled != *crd).then_some(settled)
}

/// Returns warnings about the schemas of a CRD: formats that are not validated.
pub(crate) fn warnings(crd: &Value) -> Vec<String> {
    let versions = items(at(crd, &["spec", "versions"]));
    let schemas = versions.iter().map(|version| at(version, &["schema", "openAPIV3Schema"]));
    let formats: BTreeSet<_> = schemas.flat_map(unrecognized_formats).collect();
    formats.into_iter().map(|format| format!("unrecognized format \"{format}\"")).collect()
}

/// Sets a condition (type, status, reason, message); `lastTransitionTime` changes only with the
/// status.
fn condition(status: &mut Value, [kind, value, reason, message]: [&str; 4], now: &str) {
    default(status, "conditions", json!([]));
    let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) else {
        return;
    };
    let old = conditions.iter_mut().find(|condition| condition["type"] == kind);
    let kept = old
        .as_ref()
        .filter(|old| old["status"] == value)
        .map(|old| old["lastTransitionTime"].clone());
    let new = json!({
        "type": kind,
        "status": value,
        "reason": reason,
        "message": message,
        "lastTransitionTime": kept.unwrap_or_else(|| now.into()),
    });
    match old {
        Some(old) => *old = new,
        None => conditions.push(new),
    }
}

fn is_true(status: &Value, kind: &str) -> bool {
    let mut conditions = items(&status["conditions"]).iter();
    conditions.any(|condition| condition["type"] == kind && condition["status"] == "True")
}

/// The names that other resources of a group hold.
#[derive(Default)]
struct Taken<'a> {
    /// Plural, singular and short names.
    resources: Vec<&'a str>,
    /// Kinds and list kinds.
    kinds: Vec<&'a str>,
}

impl<'a> Taken<'a> {
    fn by(crd: &Value, registry: &'a Registry) -> Self {
        let (name, group) = (text(&crd["metadata"], "name"), text(&crd["spec"], "group"));
        let mut taken = Self::default();
        let versions = registry.group(group).map(|group| group.versions).unwrap_or_default();
        for resource in versions.iter().flat_map(|version| registry.resources(group, version)) {
            let is_own = match &resource.form {
                Form::Custom(custom) => custom.crd == name,
                // Served untyped until its CRD arrives, which is this one.
                Form::Untyped => format!("{}.{group}", resource.plural) == name,
                Form::BuiltIn(_) => false,
            };
            if is_own {
                continue;
            }
            taken.resources.extend([resource.plural.as_str(), resource.singular.as_str()]);
            taken.resources.extend(resource.short_names.iter().map(String::as_str));
            taken.kinds.extend([resource.kind.as_str(), resource.list_kind.as_str()]);
        }
        taken
    }
}

/// A name conflict: reason and message of the condition.
type Conflict = (&'static str, String);

/// Returns the accepted names of a CRD, and the last of the conflicts, if any.
fn accepted(crd: &Value, taken: &Taken<'_>) -> (Value, Option<Conflict>) {
    let wanted = at(crd, &["spec", "names"]);
    let mut names = at(crd, &["status", "acceptedNames"]).clone();
    if !names.is_object() {
        names = json!({});
    }
    let mut conflicts: Vec<Conflict> = Vec::new();
    for (key, reason) in [("plural", "PluralConflict"), ("singular", "SingularConflict")] {
        conflicts.extend(
            take(&mut names, text(wanted, key), key, &taken.resources).map(|text| (reason, text)),
        );
    }
    match short_names_in_use(&names, wanted, taken).as_slice() {
        [] => same_list(&mut names, "shortNames", wanted),
        [one] => conflicts.push(("ShortNamesConflict", in_use(one))),
        several => {
            let texts: Vec<_> = several.iter().map(|name| in_use(name)).collect();
            conflicts.push(("ShortNamesConflict", format!("[{}]", texts.join(", "))));
        }
    }
    for (key, reason) in [("kind", "KindConflict"), ("listKind", "ListKindConflict")] {
        conflicts.extend(
            take(&mut names, text(wanted, key), key, &taken.kinds).map(|text| (reason, text)),
        );
    }
    same_list(&mut names, "categories", wanted);
    (names, conflicts.pop())
}

/// Sets a name, or returns the message of the conflict.
fn take(names: &mut Value, name: &str, key: &str, taken: &[&str]) -> Option<String> {
    if name != text(names, key) && taken.contains(&name) {
        return Some(in_use(name));
    }
    set(names, key, name);
    None
}

fn in_use(name: &str) -> String {
    format!("\"{name}\" is already in use")
}

/// Returns the new short names that another resource holds.
fn short_names_in_use<'a>(names: &Value, wanted: &'a Value, taken: &Taken<'_>) -> Vec<&'a str> {
    let had = items(&names["shortNames"]);
    let fresh = items(&wanted["shortNames"]).iter().filter(|name| !had.contains(name));
    fresh.filter_map(Value::as_str).filter(|name| taken.resources.contains(name)).collect()
}

/// Copies a list, or removes it if it is absent or empty.
fn same_list(names: &mut Value, key: &str, wanted: &Value) {
    match items(&wanted[key]) {
        [] => _ = remove(names, key),
        list => set(names, key, list),
    }
}
