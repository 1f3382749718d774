//! Objects whose spec is replaced, and deletions of objects that exist.

use mortise_sdk::{Deletion, Error, Host, Kind, Manifest, ObjectRef, object::Metadata};
use serde::Deserialize;
use serde_json::Value;

/// The fields that are read of an object whose spec is replaced.
pub const FIELDS: [&str; 2] = ["metadata.labels", "spec"];
/// The most foreign fields that are removed one by one; an outcome may name no more.
const MAX_PATHS: usize = 128;
/// The longest path of a field that is removed, in bytes.
const MAX_PATH_BYTES: usize = 1024;

/// An object that exists.
#[derive(Debug, Clone, Deserialize)]
pub struct Existing {
    /// The metadata: name, namespace, uid and labels.
    pub metadata: Metadata,
    /// The spec; null if it was not read.
    #[serde(default)]
    pub spec: Value,
}

impl Existing {
    /// Reads an object with its labels and its spec.
    ///
    /// # Errors
    ///
    /// Fails if the object cannot be read.
    pub fn read(host: &Host, of: &ObjectRef) -> Result<Option<Self>, Error> {
        host.get_ref(of, &FIELDS)
    }

    /// Reads an object with its labels; `None` also if the cluster does not know the kind.
    ///
    /// # Errors
    ///
    /// Fails if the object cannot be read for another reason.
    pub fn find(host: &Host, of: &ObjectRef) -> Result<Option<Self>, Error> {
        match host.get_ref(of, &["metadata.labels"]) {
            Err(error) if error.is_unknown_kind() => Ok(None),
            found => found,
        }
    }

    /// Returns the deletion of this very object; `None` if it is being deleted already.
    pub fn deletion(&self, of: ObjectRef) -> Option<Deletion> {
        if self.metadata.is_deleted() {
            return None;
        }
        let deletion = Deletion::new(of);
        Some(match &self.metadata.uid {
            Some(uid) => deletion.uid(uid),
            None => deletion,
        })
    }

    /// Returns whether the spec holds all that another one holds.
    pub fn holds(&self, spec: &Value) -> bool {
        holds(&self.spec, spec)
    }
}

/// Returns the reference to the object that a manifest describes.
pub fn reference(manifest: &Value) -> ObjectRef {
    let text = |pointer| manifest.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("/apiVersion").split_once('/').unwrap_or(("", text("/apiVersion")));
    let namespace = manifest.pointer("/metadata/namespace").and_then(Value::as_str);
    ObjectRef::new(Kind::new(group, version, text("/kind")), namespace, text("/metadata/name"))
}

/// Returns the manifest of an object, which loses the fields of its spec that the manifest does not
/// name. Of more foreign fields than an outcome may name, the first are removed.
pub fn replacing(desired: &Value, existing: Option<&Existing>) -> Manifest {
    let mut manifest = Manifest::json(desired);
    if let (Some(existing), Some(spec)) = (existing, desired.get("spec")) {
        add_absent(&existing.spec, spec, "spec", &mut manifest.absent);
        manifest.absent.retain(|path| path.len() <= MAX_PATH_BYTES);
        manifest.absent.truncate(MAX_PATHS);
    }
    manifest
}

fn holds(existing: &Value, desired: &Value) -> bool {
    match (existing, desired) {
        (Value::Object(existing), Value::Object(desired)) => desired
            .iter()
            .all(|(key, value)| existing.get(key).is_some_and(|existing| holds(existing, value))),
        (existing, desired) => existing == desired,
    }
}

/// Adds the paths of fields that exist and are not desired. Lists are replaced as a whole, so only
/// maps are compared field by field.
fn add_absent(existing: &Value, desired: &Value, path: &str, absent: &mut Vec<String>) {
    let (Value::Object(existing), Value::Object(desired)) = (existing, desired) else { return };
    for (key, value) in existing {
        let path = member(path, key);
        match desired.get(key) {
            Some(desired) => add_absent(value, desired, &path, absent),
            None => absent.push(path),
        }
    }
}

fn member(path: &str, key: &str) -> String {
    let is_plain =
        key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if is_plain && !key.is_empty() {
        return format!("{path}.{key}");
    }
    let key = key.replace('\\', "\\\\").replace('"', "\\\"");
    format!("{path}[\"{key}\"]")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn existing(spec: Value) -> Existing {
        Existing { metadata: Metadata { uid: Some("u".to_owned()), ..Metadata::new("a") }, spec }
    }

    #[test]
    fn foreign_fields_of_the_spec_are_removed() {
        let desired = json!({
            "apiVersion": "x.dev/v1", "kind": "Thing", "metadata": {"name": "a", "namespace": "b"},
            "spec": {"keep": {"a": 1}, "list": [1]},
        });
        let spec = json!({"keep": {"a": 2, "b.c": 3, "q\"": 2}, "list": [1, 2], "more": {}});
        let manifest = replacing(&desired, Some(&existing(spec)));
        let expected = [r#"spec.keep["b.c"]"#, r#"spec.keep["q\""]"#, "spec.more"];
        assert_eq!(manifest.absent, expected);
        assert!(replacing(&desired, None).absent.is_empty());
        let of = reference(&desired);
        assert_eq!((of.kind.api_version().as_str(), of.name.as_str()), ("x.dev/v1", "a"));
        assert_eq!(of.namespace.as_deref(), Some("b"));
    }

    #[test]
    fn no_more_fields_are_named_than_an_outcome_may_name() {
        let mut spec: serde_json::Map<String, Value> =
            (0..200).map(|index| (format!("f{index}"), json!(1))).collect();
        spec.insert("x".repeat(2000), json!(1));
        let desired =
            json!({"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}, "spec": {}});
        let manifest = replacing(&desired, Some(&existing(spec.into())));
        assert_eq!(manifest.absent.len(), 128);
    }

    #[test]
    fn a_spec_holds_another_one_if_nothing_of_it_is_missing() {
        let existing = existing(json!({"a": {"b": 1, "c": 2}, "list": [{"d": 1}]}));
        assert!(existing.holds(&json!({"a": {"b": 1}})));
        assert!(existing.holds(&json!({"list": [{"d": 1}]})));
        for other in [json!({"a": {"b": 2}}), json!({"x": 1}), json!({"list": []})] {
            assert!(!existing.holds(&other), "{other}");
        }
    }

    #[test]
    fn an_object_is_deleted_once_and_only_itself() {
        let of = || ObjectRef::new(Kind::new("", "v1", "Secret"), Some("b"), "a");
        let mut existing = existing(Value::Null);
        assert_eq!(existing.deletion(of()).unwrap().uid.as_deref(), Some("u"));
        existing.metadata.deletion_timestamp = Some("2026-01-01T00:00:00Z".to_owned());
        assert_eq!(existing.deletion(of()), None);
    }
}
