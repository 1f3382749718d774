//! The comparison of an object with its round trip: converted to another version and back.

use std::collections::BTreeSet;

use serde_json::Value;

use super::conversion::OF_COMPONENT;
use crate::contract::bounds::{PATH, text};

/// Returns the path of the first field that a round trip through another version has changed.
///
/// Ignores added labels and annotations, where a version stores values that it has no field for,
/// and fields that differ in `former` too, the result of another converter for the same object.
pub fn first_difference(
    object: &Value,
    mut back: Value,
    mut former: Option<Value>,
) -> Option<String> {
    drop_added(object, &mut back);
    if let Some(former) = &mut former {
        drop_added(object, former);
    }
    let mut path = String::new();
    let former = former.as_ref().unwrap_or(object);
    differs(Some(object), Some(&back), Some(former), &mut path)
        .then(|| text::shortened(&path, PATH))
}

/// Drops the labels and annotations that an object did not have before.
fn drop_added(before: &Value, after: &mut Value) {
    let Some(metadata) = after.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    for key in OF_COMPONENT {
        let before = before.pointer(&format!("/metadata/{key}")).and_then(Value::as_object);
        match (before, metadata.get_mut(key)) {
            (Some(before), Some(Value::Object(after))) => {
                after.retain(|key, _| before.contains_key(key));
            }
            (None, Some(_)) => {
                metadata.remove(key);
            }
            _ => {}
        }
    }
}

/// Returns whether `after` differs from `before` where `former`, the former version's value, does
/// not. `path` is the path of the value; afterwards, that of the first difference.
fn differs(
    before: Option<&Value>,
    after: Option<&Value>,
    former: Option<&Value>,
    path: &mut String,
) -> bool {
    if before == after {
        return false;
    }
    match (before, after, former) {
        (Some(Value::Object(before)), Some(Value::Object(after)), Some(Value::Object(former))) => {
            let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            keys.into_iter().any(|key| {
                let step = step(key, path.is_empty());
                let values = (before.get(key), after.get(key), former.get(key));
                differs_at(&step, values, path)
            })
        }
        (Some(Value::Array(before)), Some(Value::Array(after)), Some(Value::Array(former))) => {
            (0..before.len().max(after.len())).any(|index| {
                let values = (before.get(index), after.get(index), former.get(index));
                differs_at(&format!("[{index}]"), values, path)
            })
        }
        _ => before == former,
    }
}

fn differs_at(
    step: &str,
    (before, after, former): (Option<&Value>, Option<&Value>, Option<&Value>),
    path: &mut String,
) -> bool {
    let length = path.len();
    path.push_str(step);
    let differs = differs(before, after, former, path);
    if !differs {
        path.truncate(length);
    }
    differs
}

/// Returns the step of a path for a key; the keys of an object may be any text.
fn step(key: &str, is_first: bool) -> String {
    let is_word = |sign: char| sign.is_ascii_alphanumeric() || sign == '_' || sign == '-';
    match key {
        _ if key.is_empty() || !key.chars().all(is_word) => format!("[{key:?}]"),
        _ if is_first => key.to_owned(),
        _ => format!(".{key}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule() -> Value {
        json!({
            "metadata": {"name": "a", "annotations": {"example.com/a": "1"}},
            "spec": {"size": 3, "ports": [{"number": 80}, {"number": 90}]},
        })
    }

    type Change = fn(&mut Value);

    fn changed(change: Change) -> Value {
        let mut rule = rule();
        change(&mut rule);
        rule
    }

    #[test]
    fn the_first_difference_is_named() {
        let cases: [(Change, Option<&str>); 8] = [
            (|_| {}, None),
            (|of| of["spec"] = json!({"ports": of["spec"]["ports"]}), Some("spec.size")),
            (|of| of["spec"]["more"] = json!(null), Some("spec.more")),
            (|of| of["spec"]["a b\n"] = json!(1), Some(r#"spec["a b\n"]"#)),
            (|of| of["spec"]["ports"][1]["number"] = json!("90"), Some("spec.ports[1].number")),
            (|of| of["spec"]["ports"] = json!([{"number": 80}]), Some("spec.ports[1]")),
            (|of| of["spec"] = json!([]), Some("spec")),
            (
                |of| of["metadata"]["annotations"] = json!({}),
                Some(r#"metadata.annotations["example.com/a"]"#),
            ),
        ];
        for (change, expected) in cases {
            let back = changed(change);
            let found = first_difference(&rule(), back.clone(), None);
            assert_eq!(found.as_deref(), expected, "{back}");
        }
    }

    #[test]
    fn added_labels_and_annotations_are_no_difference() {
        let back = changed(|of| {
            of["metadata"]["annotations"]["example.com/b"] = json!("2");
            of["metadata"]["labels"] = json!({"c": "3"});
        });
        assert_eq!(first_difference(&rule(), back, None), None);
    }

    #[test]
    fn a_difference_that_there_was_before_does_not_count() {
        let former = changed(|of| {
            of["spec"]["size"] = json!(4);
            of["spec"]["ports"] = json!(null);
        });
        let of = |change| first_difference(&rule(), changed(change), Some(former.clone()));
        assert_eq!(of(|_| {}), None, "it is mended");
        assert_eq!(of(|of| of["spec"]["size"] = json!(5)), None);
        assert_eq!(of(|of| of["spec"]["ports"][0] = json!(1)), None, "they were lost as a whole");
        let more: Change = |of| {
            of["spec"]["size"] = json!(4);
            of["metadata"]["name"] = json!("b");
        };
        assert_eq!(of(more).as_deref(), Some("metadata.name"));
    }

    /// The keys of an object and its nesting depth are untrusted.
    #[test]
    fn a_path_is_bounded() {
        let object = json!({"k".repeat(2 * PATH): 1});
        let path = first_difference(&object, json!({}), None).unwrap();
        assert!(path.len() <= PATH + "…".len(), "{}", path.len());
    }
}
