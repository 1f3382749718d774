//! Field ownership: server-side apply, and `metadata.managedFields` after all other writes.
//!
//! [`apply`] merges an applied object into the live one; [`update`] tracks every other write. Both
//! are functions of objects: reading, defaults, validation and storing are the callers'. The rules
//! are those of kube-apiserver's field manager:
//!
//! - an applier owns the fields that it applied, an updater those that it changed; an applied field
//!   that another manager owns with another value is a conflict, unless the apply is forced;
//! - a field that an applier no longer applies and that no other manager owns is removed;
//! - managers of other versions are compared in the schemas of their versions, which differ in
//!   nothing but that. If webhooks convert between the versions, the fields of managers of other
//!   versions stay as they are: they meet no conflict, and what they give up is not removed.

mod apply;
mod conflict;
mod entries;
mod last_applied;
#[cfg(test)]
mod tests;
mod tracked;

pub(crate) use apply::{BEFORE_FIRST_APPLY, apply, object_text};
pub(crate) use conflict::ApplyError;

use serde_json::{Map, Value};

use self::{
    entries::{Entries, Operation},
    tracked::Scope,
};
use crate::{schema::Schema, typed};

/// The kind of the written objects.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) kind: &'a str,
    /// The schema of the written version.
    pub(crate) schema: &'a Schema,
    /// True if status is a subresource.
    pub(crate) has_status: bool,
    /// True if a CRD defines the kind.
    pub(crate) is_custom: bool,
    /// True if webhooks convert objects between the kind's versions.
    pub(crate) is_converted: bool,
    /// The schemas of the kind's other versions, by `apiVersion`; `None` if there is no such
    /// version.
    pub(crate) other_version: &'a dyn Fn(&str) -> Option<Schema>,
}

/// The manager, version, subresource and time of a write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer<'a> {
    /// The `fieldManager`, or the default that stands for it.
    pub(crate) manager: &'a str,
    /// The `apiVersion` of the request.
    pub(crate) api_version: &'a str,
    /// The subresource; empty for the object itself.
    pub(crate) subresource: &'a str,
    /// The time: RFC 3339, whole seconds, `Z`.
    pub(crate) now: &'a str,
}

/// Returns the object to store in place of `live` when `new` was put, posted or patched, with its
/// updated managers.
///
/// `new` is complete: patched, decoded and defaulted, but before the strategy restores the fields
/// that may not be changed. An object without managers stays without, unless it is created.
/// `managedFields` sent as `[]` or `[{}]` remove all managers; others that can be read replace the
/// live ones.
pub(crate) fn update(
    live: Option<&Value>,
    mut new: Value,
    target: &Target<'_>,
    writer: &Writer<'_>,
) -> Value {
    let sent = take_managed_fields(&mut new);
    let mut entries = entries_of_update(live, sent.as_ref(), writer);
    if live.is_none() || !entries.is_empty() {
        let scope = Scope { target, writer };
        let missing;
        let old = if let Some(live) = live {
            live
        } else {
            missing = scope.empty_object();
            &missing
        };
        // An object that does not fit its schema has no managers: Kubernetes cannot compute them,
        // and drops them.
        entries = track_update(entries, old, &new, &scope).unwrap_or_default();
        entries.merge_ancient();
    }
    put_managed_fields(&mut new, entries);
    new
}

/// Returns the managers after `new` replaced `old`.
///
/// # Errors
/// Fails if an object does not fit the schema of its kind, or that of the version of another
/// manager.
fn track_update(
    mut entries: Entries,
    old: &Value,
    new: &Value,
    scope: &Scope<'_>,
) -> Result<Entries, ApplyError> {
    let type_ = scope.target.schema.root();
    for (object, which) in [(new, "new"), (old, "live")] {
        typed::validate(object, type_, true).map_err(|errors| {
            let object = object_text(object);
            ApplyError::Typed(format!(
                "failed to convert {which} object ({object}) to smd typed: {errors}"
            ))
        })?;
    }
    scope.reconcile(&mut entries);
    check_versions(&entries, [old, new], scope)?;
    let comparison = typed::compare(old, new, type_);
    scope.differences(&entries, &comparison, old, new).disown(&mut entries, |_| true);
    let taken = comparison.written().difference(&comparison.removed);
    let taken = taken.recursive_difference(scope.ignored()).difference(tracked::untracked());
    if !taken.is_empty() {
        entries.add(Operation::Update, scope.writer, taken);
    }
    Ok(entries)
}

/// Fails if an object does not fit the versions of managers of other versions: their fields are
/// computed there, and no item may occur twice.
fn check_versions(
    entries: &Entries,
    objects: [&Value; 2],
    scope: &Scope<'_>,
) -> Result<(), ApplyError> {
    let others = entries.iter().filter(|entry| entry.api_version != scope.writer.api_version);
    for schema in others.filter_map(|entry| scope.schema(&entry.api_version)) {
        for object in objects {
            typed::validate(object, schema.root(), false)
                .map_err(|errors| ApplyError::Typed(errors.to_string()))?;
        }
    }
    Ok(())
}

fn entries_of_update(live: Option<&Value>, sent: Option<&Value>, writer: &Writer<'_>) -> Entries {
    let of_live = || Entries::read(live.and_then(managed_fields)).unwrap_or_default();
    let is_reset = |sent: &Value| {
        sent.as_array().is_some_and(|entries| match entries.as_slice() {
            [] => true,
            [Value::Object(only)] => only.is_empty(),
            _ => false,
        })
    };
    match sent {
        // Managers sent to a subresource are ignored.
        _ if !writer.subresource.is_empty() => of_live(),
        Some(sent) if is_reset(sent) => Entries::default(),
        sent => match Entries::read(sent) {
            Ok(entries) if !entries.is_empty() => entries,
            _ => of_live(),
        },
    }
}

/// Restores the live times of managers if `new` differs from `live` in nothing else, so that the
/// write is no change.
pub(crate) fn keep_times(live: &Value, new: &mut Value) {
    let (Some(before), Some(after)) = (managed_fields(live), managed_fields(new)) else { return };
    if !entries::same_but_times(before, after) || !same_but_tracking(live, new) {
        return;
    }
    let before = before.clone();
    if let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("managedFields".to_owned(), before);
    }
}

/// Returns whether two objects are equal apart from `managedFields` and `resourceVersion`.
fn same_but_tracking(a: &Value, b: &Value) -> bool {
    fn kept<'a>(
        object: &'a Map<String, Value>,
        left_out: &'a [&str],
    ) -> impl Iterator<Item = (&'a String, &'a Value)> {
        object.iter().filter(move |(key, _)| !left_out.contains(&key.as_str()))
    }
    fn metadata(object: &Map<String, Value>) -> Option<&Map<String, Value>> {
        object.get("metadata")?.as_object()
    }
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return false };
    let empty = Map::new();
    let (a_metadata, b_metadata) = (metadata(a).unwrap_or(&empty), metadata(b).unwrap_or(&empty));
    let server_given = ["managedFields", "resourceVersion"];
    kept(a, &["metadata"]).eq(kept(b, &["metadata"]))
        && kept(a_metadata, &server_given).eq(kept(b_metadata, &server_given))
}

fn managed_fields(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

fn take_managed_fields(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

/// Returns a copy of the object without its managers.
fn without_managed_fields(object: &Value) -> Value {
    let Some(map) = object.as_object() else { return object.clone() };
    let bare = map.iter().map(|(key, value)| {
        let value = match value.as_object() {
            Some(metadata) if key == "metadata" => {
                let kept = metadata.iter().filter(|(key, _)| *key != "managedFields");
                Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect())
            }
            _ => value.clone(),
        };
        (key.clone(), value)
    });
    Value::Object(bare.collect())
}

fn put_managed_fields(object: &mut Value, mut entries: Entries) {
    take_managed_fields(object);
    entries.retain(|entry| !entry.set.is_empty());
    if entries.is_empty() {
        return;
    }
    if let Some(object) = object.as_object_mut() {
        let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("managedFields".to_owned(), entries.write());
        }
    }
}
