//! Merges a manifest into an object, and compares two versions of an object without status and
//! server-set metadata.

use serde_json::Value;

use crate::path::{Extent, Fields};

/// Keys that identify the elements of a list whose schema is not known.
const IDENTITIES: [&str; 5] = ["name", "type", "key", "uid", "port"];

/// Returns the object with the fields of a manifest merged into it. Null removes a field. Maps are
/// merged, and so are lists if all their elements have the same identifying key; other lists and
/// values are replaced.
pub fn lay_over(live: Option<&Value>, sent: &Value) -> Value {
    let Some(live) = live else { return sent.clone() };
    match (live, sent) {
        (Value::Object(live), Value::Object(sent)) => {
            let mut laid = live.clone();
            for (key, value) in sent {
                match value {
                    Value::Null => _ = laid.remove(key),
                    value => _ = laid.insert(key.clone(), lay_over(live.get(key), value)),
                }
            }
            Value::Object(laid)
        }
        (Value::Array(live), Value::Array(sent)) => lay_list(live, sent),
        (_, sent) => sent.clone(),
    }
}

fn lay_list(live: &[Value], sent: &[Value]) -> Value {
    let is_in_all = |key: &&&str| {
        let identity = |element: &Value| {
            element.get(**key).is_some_and(|value| !value.is_object() && !value.is_array())
        };
        live.iter().chain(sent).all(identity)
    };
    let Some(key) = IDENTITIES.iter().find(is_in_all).filter(|_| !live.is_empty()) else {
        return Value::Array(sent.to_vec());
    };
    let same = |a: &Value, b: &Value| a.get(key) == b.get(key);
    let kept = live.iter().map(|element| match sent.iter().find(|sent| same(sent, element)) {
        Some(sent) => lay_over(Some(element), sent),
        None => element.clone(),
    });
    let added = sent.iter().filter(|sent| !live.iter().any(|element| same(sent, element))).cloned();
    Value::Array(kept.chain(added).collect())
}

/// Returns whether two versions of an object differ in more than status, `resourceVersion`,
/// `generation` and `managedFields`.
pub fn differs(old: &Value, new: &Value) -> bool {
    Fields::whole().differ(Some(old), Some(new), Extent::WithoutStatus)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_manifest_is_laid_over_the_live_object() {
        let cases = [
            ("nothing there", Value::Null, json!({"a": 1}), json!({"a": 1})),
            (
                "maps",
                json!({"a": {"b": 1, "c": 2}}),
                json!({"a": {"b": 3}}),
                json!({"a": {"b": 3, "c": 2}}),
            ),
            (
                "what is null",
                json!({"a": {"b": 1, "c": 2}}),
                json!({"a": {"b": null}}),
                json!({"a": {"c": 2}}),
            ),
            ("plain lists", json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]})),
            (
                "lists with names",
                json!({"a": [{"name": "x", "given": 1}, {"name": "y"}]}),
                json!({"a": [{"name": "x", "b": 2}, {"name": "z"}]}),
                json!({"a": [{"name": "x", "given": 1, "b": 2}, {"name": "y"}, {"name": "z"}]}),
            ),
            (
                "lists of which some elements have no name",
                json!({"a": [{"name": "x"}]}),
                json!({"a": [{"host": "x"}]}),
                json!({"a": [{"host": "x"}]}),
            ),
            ("another type", json!({"a": {"b": 1}}), json!({"a": "text"}), json!({"a": "text"})),
        ];
        for (case, live, sent, expected) in cases {
            assert_eq!(lay_over(Some(&live), &sent), expected, "{case}");
        }
    }

    #[test]
    fn versions_differ_by_spec_and_labels_but_not_by_status_or_revision() {
        let old = json!({"metadata": {"name": "a", "resourceVersion": "1", "generation": 1}, "spec": 1, "status": 1});
        let same = json!({"metadata": {"name": "a", "resourceVersion": "2", "generation": 2, "managedFields": []},
            "spec": 1, "status": 2});
        assert!(!differs(&old, &same));
        for other in [
            json!({"metadata": {"name": "a"}, "spec": 2}),
            json!({"metadata": {"name": "a", "labels": {}}, "spec": 1}),
        ] {
            assert!(differs(&old, &other), "{other}");
        }
    }
}
