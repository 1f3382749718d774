//! Server-side apply.

use serde_json::Value;

use super::{
    ApplyError, Target, Writer,
    conflict::Conflict,
    entries::{Entries, Entry, Operation},
    last_applied, managed_fields, put_managed_fields, same_but_tracking, track_update,
    tracked::{Scope, untracked},
    without_managed_fields,
};
use crate::{
    fields::Set,
    schema::Type,
    typed::{self, with_named_fields},
};

/// The manager that owns the fields of an object before the first apply.
pub(crate) const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Returns the object to store in place of `live` (`None`: the object is created) when `applied` is
/// applied.
///
/// The result is neither defaulted nor validated: values of applied fields may still be invalid.
///
/// # Errors
/// Fails with [`ApplyError::Conflicts`] unless `force`; see [`ApplyError`] for the other errors.
pub(crate) fn apply(
    live: Option<&Value>,
    applied: &Value,
    target: &Target<'_>,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    let scope = Scope { target, writer };
    check_type(applied, &scope)?;
    let Some(live) = live else {
        check(applied, &scope)?;
        return Ok(create(applied, &scope));
    };
    let application = Application { scope, live, applied };
    if !last_applied::is_kubectl(writer) {
        return application.run(force, None);
    }
    let forgiven = last_applied::owned(live, &scope);
    let mut object = application.run(force, forgiven.as_ref())?;
    last_applied::renew(&mut object, applied);
    Ok(object)
}

/// Returns the object to create if there is none to apply to.
fn create(applied: &Value, scope: &Scope<'_>) -> Value {
    let mut entries = Entries::default();
    let set = applied_set(applied, scope).difference(untracked());
    entries.add(Operation::Apply, scope.writer, set);
    let mut object = applied.clone();
    put_managed_fields(&mut object, entries);
    object
}

/// Returns the fields that the applier owns by applying `applied`.
fn applied_set(applied: &Value, scope: &Scope<'_>) -> Set {
    typed::fields(applied, scope.target.schema.root()).recursive_difference(scope.ignored())
}

/// Fails if the object is not of the kind and version of the request.
fn check_type(applied: &Value, scope: &Scope<'_>) -> Result<(), ApplyError> {
    let text = |key| applied.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if api_version != scope.writer.api_version || kind != scope.target.kind {
        let message = format!("invalid object type: {}", kind_text(api_version, kind));
        return Err(ApplyError::BadRequest(message));
    }
    Ok(())
}

/// Fails if the object may not be applied at all.
fn check(applied: &Value, scope: &Scope<'_>) -> Result<(), ApplyError> {
    if managed_fields(applied).is_some_and(|sent| !sent.is_null()) {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    typed::validate(applied, scope.target.schema.root(), false).map_err(|errors| {
        ApplyError::Typed(format!(
            "failed to create typed patch object ({}): {errors}",
            object_text(applied)
        ))
    })
}

/// Returns the text `group/version, Kind=Kind`.
fn kind_text(api_version: &str, kind: &str) -> String {
    let separator = if api_version.contains('/') { "" } else { "/" };
    format!("{separator}{api_version}, Kind={kind}")
}

/// Returns the text `namespace/name; group/version, Kind=Kind`.
pub(crate) fn object_text(object: &Value) -> String {
    let text =
        |value: &Value, key| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let metadata = object.get("metadata").unwrap_or(&Value::Null);
    let (namespace, name) = (text(metadata, "namespace"), text(metadata, "name"));
    let kind = kind_text(&text(object, "apiVersion"), &text(object, "kind"));
    format!("{namespace}/{name}; {kind}")
}

/// An apply to one object.
struct Application<'a> {
    scope: Scope<'a>,
    live: &'a Value,
    applied: &'a Value,
}

impl Application<'_> {
    /// Returns the object to store. Conflicts about fields in `forgiven` are ignored.
    fn run(&self, force: bool, forgiven: Option<&Set>) -> Result<Value, ApplyError> {
        let mut entries = self.managers()?;
        let mut merged = self.merged(&mut entries);
        let own = typed::compare(self.live, &merged, self.type_());
        let differences = self.scope.differences(&entries, &own, self.live, &merged);
        if !force {
            let others = entries.iter().filter(|entry| !self.is_mine(entry));
            let conflicts = others.flat_map(|entry| {
                let disputed = differences.disputed(entry);
                let left = forgiven.map(|forgiven| disputed.difference(forgiven));
                Conflict::all(entry, &left.unwrap_or(disputed))
            });
            let conflicts: Vec<Conflict> = conflicts.collect();
            if !conflicts.is_empty() {
                return Err(ApplyError::Conflicts(conflicts));
            }
        }
        differences.disown(&mut entries, |entry| !self.is_mine(entry));
        for entry in entries.iter_mut().filter(|entry| self.is_mine(entry)) {
            entry.set = entry.set.difference(untracked());
        }
        put_managed_fields(&mut merged, entries);
        Ok(merged)
    }

    fn type_(&self) -> &Type {
        self.scope.target.schema.root()
    }

    fn is_mine(&self, entry: &Entry) -> bool {
        entry.is(Operation::Apply, self.scope.writer)
    }

    /// Returns the managers before the apply.
    fn managers(&self) -> Result<Entries, ApplyError> {
        let mut entries = Entries::read(managed_fields(self.live))?;
        if entries.is_empty() {
            let before = Writer { manager: BEFORE_FIRST_APPLY, ..*self.scope.writer };
            let scope = Scope { writer: &before, ..self.scope };
            entries = track_update(entries, &scope.empty_object(), self.live, &scope).map_err(
                |error| match error {
                    ApplyError::Typed(why) => ApplyError::Typed(format!(
                        "failed to create manager for existing fields: {why}"
                    )),
                    other => other,
                },
            )?;
        }
        check(self.applied, &self.scope)?;
        typed::validate(self.live, self.type_(), true).map_err(|errors| {
            ApplyError::Typed(format!(
                "failed to create typed live object ({}): {errors}",
                object_text(self.live)
            ))
        })?;
        self.scope.reconcile(&mut entries);
        Ok(entries)
    }

    /// Returns the merged object; the applier's entry is set to the fields that it applies now.
    fn merged(&self, entries: &mut Entries) -> Value {
        let bare = without_managed_fields(self.live);
        let merged = typed::merge(bare, self.applied, self.type_()).unwrap_or(Value::Null);
        let last = entries.take(Operation::Apply, self.scope.writer);
        let set = applied_set(self.applied, &self.scope);
        let gives_up = last.as_ref().filter(|last| !last.set.is_subset(&set));
        entries.add(Operation::Apply, self.scope.writer, set);
        let merged = match gives_up {
            Some(last) => self.prune(merged, last, entries),
            None => merged,
        };
        if same_but_tracking(self.live, &merged) {
            // An apply that changes nothing keeps the time of the applier's last change, if there
            // was one.
            for entry in entries.iter_mut().filter(|entry| self.is_mine(entry)) {
                entry.time = last.as_ref().and_then(|last| last.time.clone());
            }
        }
        merged
    }

    /// Returns `merged` without the fields that the applier applied last time but not now and that
    /// no other manager owns.
    fn prune(&self, merged: Value, last: &Entry, entries: &Entries) -> Value {
        let Some(schema) = self.scope.schema(&last.api_version) else { return merged };
        let type_ = schema.root();
        let given_up = with_named_fields(&last.set, type_);
        let mut pruned = typed::remove(merged.clone(), &given_up, type_);
        for version in versions_from(&last.api_version, entries) {
            let Some(schema) = self.scope.schema(version) else { continue };
            let type_ = schema.root();
            let owners = entries.iter().filter(|entry| entry.api_version == version);
            let owned = owners.fold(Set::default(), |all, entry| all.union(entry.set.clone()));
            let kept = named_fields(&pruned, type_).union(with_named_fields(&owned, type_));
            let gone = named_fields(&merged, type_).difference(&kept);
            pruned = typed::remove(merged.clone(), &gone, type_);
        }
        let gone = named_fields(&merged, type_).difference(&named_fields(&pruned, type_));
        typed::remove(merged, &gone.intersection(&given_up), type_)
    }
}

fn named_fields(value: &Value, type_: &Type) -> Set {
    with_named_fields(&typed::fields(value, type_), type_)
}

/// Returns the versions of the managers, each once, `first` before the others.
fn versions_from<'a>(first: &'a str, entries: &'a Entries) -> Vec<&'a str> {
    let mut versions: Vec<&str> = entries.iter().map(|entry| entry.api_version.as_str()).collect();
    versions.sort_unstable();
    versions.dedup();
    versions.sort_by_key(|version| *version != first);
    versions
}
