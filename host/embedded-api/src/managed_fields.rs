//! Who owns which fields: server-side apply, and what all other writes leave in `metadata.managedFields`.
//!
//! [`apply`] merges an applied object into the one that is there; [`update`] is told of every other write. Both are functions of
//! objects: reading, defaults, validation and storing are the callers'. The rules are those of kube-apiserver's field manager:
//!
//! - an applier owns what it applied, an updater what it changed; an applied field of another manager with another value is a
//!   conflict, unless forced;
//! - what an applier no longer applies and no one else owns goes;
//! - managers of other versions are compared in their version's schema. Versions differ in nothing but their schemas.

use serde_json::{Map, Value};

use crate::schema::Schema;
use crate::typed;

mod apply;
mod conflict;
mod entries;
mod last_applied;
#[cfg(test)]
mod tests;
mod tracked;

pub(crate) use apply::{BEFORE_FIRST_APPLY, apply, object_text};
pub(crate) use conflict::ApplyError;
use entries::{Entries, Operation};
use tracked::Scope;

/// The kind of the objects that are written.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    /// Its kind.
    pub(crate) kind: &'a str,
    /// The schema of the version that is written.
    pub(crate) schema: &'a Schema,
    /// Whether status is a subresource.
    pub(crate) has_status: bool,
    /// Whether a CRD defines it.
    pub(crate) is_custom: bool,
    /// The schemas of the kind's other versions, by apiVersion; `None` if there is no such version.
    pub(crate) other_version: &'a dyn Fn(&str) -> Option<Schema>,
}

/// Who writes, how and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer<'a> {
    /// `fieldManager`, or what stands for it.
    pub(crate) manager: &'a str,
    /// The apiVersion of the request.
    pub(crate) api_version: &'a str,
    /// Empty for the object itself.
    pub(crate) subresource: &'a str,
    /// RFC 3339, whole seconds, `Z`.
    pub(crate) now: &'a str,
}

/// What is to be stored in place of `live` when `new` was put, posted or patched, with the managers that follow from it.
///
/// `new` is complete: patched, decoded and defaulted, but before the strategy puts back what may not be changed. An object
/// without managers stays without, unless it is created. managedFields sent as `[]` or `[{}]` are forgotten; others that can be
/// read count instead of the live ones.
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
        // What is no object of its kind has no managers: Kubernetes cannot tell them then, and drops them.
        entries = track_update(entries, old, &new, &scope).unwrap_or_default();
        entries.merge_ancient();
    }
    put_managed_fields(&mut new, entries);
    new
}

/// The managers after `new` took the place of `old`.
///
/// # Errors
/// One of them is no object of its kind.
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

/// Managers of other versions are told apart from what their version makes of the objects, where no item may be there twice.
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
        // A subresource does not speak for the managers.
        _ if !writer.subresource.is_empty() => of_live(),
        Some(sent) if is_reset(sent) => Entries::default(),
        sent => match Entries::read(sent) {
            Ok(entries) if !entries.is_empty() => entries,
            _ => of_live(),
        },
    }
}

/// Puts the live times of managers back where `new` differs from `live` in nothing else, so that it is no change.
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

/// Whether two objects are the same, managedFields and resourceVersion apart.
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

/// A copy of the object without its managers.
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
