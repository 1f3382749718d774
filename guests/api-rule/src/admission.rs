//! The two decisions about an APIRule that is about to be stored.
//!
//! Both are pure. Objects are as in a review: whole, in the version that the hook is for.

use serde_json::Value;

use crate::{
    annotation::{MIGRATION_STEP, ORIGINAL_VERSION, V1BETA1},
    conversion::{annotation_of, set_annotation},
};

/// The account of the original, which may write v1beta1 without a grant: it is there before and
/// after a take-over.
const ORIGINAL: &str = "system:serviceaccount:kyma-system:api-gateway-controller-manager";
/// The refusal of a write in v1beta1.
pub const REFUSAL: &str = "v1beta1 APIRule version is no longer supported, please use v2 instead";
/// The version whose writes are looked at here.
const V2ALPHA1: &str = "v2alpha1";

/// Returns an object that is written in v2alpha1 as it must be stored, if it must be changed: it is
/// marked as one of this version. `old` is the object that it replaces, if there is one.
///
/// An object that was written in v1beta1 stays one of that version as long as v2 has no rules for
/// it. It also does if only what this processor itself writes was changed.
pub fn mark(object: &Value, old: Option<&Value>) -> Option<Value> {
    let is_marked = match annotation_of(object, ORIGINAL_VERSION) {
        None => false,
        Some(V1BETA1) => {
            let has_rules = object.pointer("/spec/rules/0").is_some();
            !has_rules || old.is_some_and(|old| by_others(old) == by_others(object))
        }
        Some(_) => true,
    };
    if is_marked {
        return None;
    }
    let mut marked = object.clone();
    set_annotation(&mut marked, ORIGINAL_VERSION, Some(V2ALPHA1)).ok()?;
    Some(marked)
}

/// Returns the part of an object that this processor does not write, without what the API server
/// sets.
fn by_others(object: &Value) -> Value {
    let mut part = object.clone();
    // An object whose annotations are none is compared as it is.
    let _unchanged = set_annotation(&mut part, MIGRATION_STEP, None);
    if let Some(metadata) = part.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["finalizers", "generation", "managedFields", "resourceVersion"] {
            metadata.remove(field);
        }
    }
    if let Some(members) = part.as_object_mut() {
        members.remove("status");
    }
    part
}

/// Returns whether a user may create, change or delete an object in v1beta1. `granted` tells
/// whether access is granted, and is asked only if that matters; a question without an answer
/// counts as no.
pub fn is_allowed<E>(user: &str, granted: impl FnOnce() -> Result<bool, E>) -> bool {
    user == ORIGINAL || granted().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(version: Option<&str>, rules: &Value) -> Value {
        let mut object = json!({
            "apiVersion": "gateway.kyma-project.io/v2alpha1", "kind": "APIRule",
            "metadata": {"name": "web", "namespace": "shop"}, "spec": {"rules": rules},
        });
        if let Some(version) = version {
            object["metadata"]["annotations"] = json!({ORIGINAL_VERSION: version});
        }
        object
    }

    #[test]
    fn an_object_is_marked_with_its_version() {
        let (none, one) = (json!([]), json!([{"path": "/a"}]));
        let cases = [
            ("new", None, &one, true),
            ("new, without rules", None, &none, true),
            ("of v1beta1, with rules", Some("v1beta1"), &one, true),
            ("of v1beta1, without rules", Some("v1beta1"), &none, false),
            ("of v1beta1, with null for rules", Some("v1beta1"), &json!(null), false),
            ("of v2", Some("v2"), &one, false),
            ("of v2alpha1", Some("v2alpha1"), &one, false),
        ];
        for (case, version, rules, expected) in cases {
            let object = object(version, rules);
            let marked = mark(&object, None);
            assert_eq!(marked.is_some(), expected, "{case}");
            if let Some(marked) = marked {
                assert_eq!(annotation_of(&marked, ORIGINAL_VERSION), Some("v2alpha1"), "{case}");
                assert_eq!((&marked["spec"], mark(&marked, None)), (&object["spec"], None));
            }
        }
    }

    #[test]
    fn what_the_processor_writes_does_not_mark_an_object_of_v1beta1() {
        let old = object(Some("v1beta1"), &json!([{"path": "/a"}]));
        let changes = [
            ("a finalizer", "/metadata/finalizers", json!(["a"]), false),
            ("a status", "/status", json!({"state": "Ready"}), false),
            ("nothing", "/metadata/resourceVersion", json!("2"), false),
            ("a label", "/metadata/labels", json!({"a": "b"}), true),
            ("a rule", "/spec/rules", json!([{"path": "/b"}]), true),
        ];
        for (case, place, value, expected) in changes {
            let mut new = old.clone();
            let (parent, key) = place.rsplit_once('/').unwrap();
            new.pointer_mut(parent).unwrap()[key] = value;
            assert_eq!(mark(&new, Some(&old)).is_some(), expected, "{case}");
        }
        let mut new = old.clone();
        new["metadata"]["annotations"][MIGRATION_STEP] = "vs-switch-to-service".into();
        assert_eq!(mark(&new, Some(&old)), None);
    }

    #[test]
    fn v1beta1_is_written_with_a_grant_or_by_the_original() {
        let cases = [
            ("granted", "jane", Ok(true), true),
            ("not granted", "jane", Ok(false), false),
            ("no answer", "jane", Err(()), false),
            ("the original", ORIGINAL, Ok(false), true),
        ];
        for (case, user, granted, expected) in cases {
            assert_eq!(is_allowed(user, || granted), expected, "{case}");
        }
        assert!(is_allowed::<()>(ORIGINAL, || panic!("the original needs no grant")));
    }
}
