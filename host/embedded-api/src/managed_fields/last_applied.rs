//! The annotation of `kubectl apply` without server-side apply.
//!
//! An apply by `kubectl` takes over the fields in the annotation, which it applied before, and
//! updates the annotation.

use serde_json::{Map, Value};

use super::{Writer, tracked::Scope};
use crate::{fields::Set, typed};

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Returns whether the writer is kubectl, the only one for which the annotation counts.
pub(super) fn is_kubectl(writer: &Writer<'_>) -> bool {
    writer.manager == "kubectl"
}

/// Returns the fields that were applied before server-side apply and are unchanged since then.
pub(super) fn owned(live: &Value, scope: &Scope<'_>) -> Option<Set> {
    let text = annotations(live)?.get(ANNOTATION)?.as_str().filter(|text| !text.is_empty())?;
    let applied: Value = serde_json::from_str(text).ok()?;
    if applied.get("apiVersion")?.as_str()? != scope.writer.api_version {
        return None;
    }
    let type_ = scope.target.schema.root();
    typed::validate(&applied, type_, false).ok()?;
    let differs = typed::compare(&applied, live, type_);
    let set = typed::fields(&applied, type_).difference(&differs.modified);
    Some(set.difference(&differs.added).difference(&differs.removed))
}

/// Writes the applied object to the annotation, if the object has one.
pub(super) fn renew(object: &mut Value, applied: &Value) {
    if !annotations(object).is_some_and(|annotations| annotations.contains_key(ANNOTATION)) {
        return;
    }
    let mut applied = applied.clone();
    let own = applied.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"));
    if let Some(own) = own.and_then(Value::as_object_mut) {
        own.remove(ANNOTATION);
    }
    let text = format!("{applied}\n");
    let annotations =
        object.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"));
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.insert(ANNOTATION.to_owned(), text.into());
    }
}

fn annotations(object: &Value) -> Option<&Map<String, Value>> {
    object.get("metadata")?.get("annotations")?.as_object()
}
