//! Validation of namespaces: the finalizers in the spec, and the phase.

use super::{FieldError, FieldPath, Value, add_invalid, at, items, text};
use crate::name;

/// The finalizers that need no domain.
const STANDARD: [&str; 3] = ["foregroundDeletion", "kubernetes", "orphan"];

/// Validates the finalizers of a new namespace; errors name the whole list.
pub(super) fn create(object: &Value, errors: &mut Vec<FieldError>) {
    for name in finalizers(object) {
        finalizer(name, &FieldPath::new("spec.finalizers"), errors);
    }
}

/// Validates the finalizers that are written through `finalize`.
pub(super) fn finalize(object: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::new("spec.finalizers");
    for (index, name) in finalizers(object).enumerate() {
        finalizer(name, &path.index(index), errors);
    }
}

/// Validates that the phase is that of the deletion.
pub(super) fn status_update(object: &Value, errors: &mut Vec<FieldError>) {
    let is_deleted = !at(object, &["metadata", "deletionTimestamp"]).is_null();
    let (phase, when) =
        if is_deleted { ("Terminating", "is not empty") } else { ("Active", "is empty") };
    let found = text(&object["status"], "phase");
    if found != phase {
        let fault = format!("may only be '{phase}' if `deletionTimestamp` {when}");
        errors.push(FieldError::invalid("status.Phase", found, fault));
    }
}

fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    items(at(object, &["spec", "finalizers"])).iter().filter_map(Value::as_str)
}

fn finalizer(name: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    add_invalid(errors, path, name, name::is_qualified_name(name));
    if !name.contains('/') && !STANDARD.contains(&name) {
        let fault = "name is neither a standard finalizer name nor is it fully qualified";
        errors.push(FieldError::invalid(path, name, fault));
    }
}
