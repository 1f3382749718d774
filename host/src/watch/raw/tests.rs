use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::own_fields::{self, FieldSets, MANAGER_PREFIX};

/// A set of fields as an API server may send it: with keys that JSON has to escape.
fn field_set() -> impl Strategy<Value = Value> {
    let leaf = Just(json!({}));
    leaf.prop_recursive(3, 24, 5, |below| {
        let key = prop_oneof![
            "f:[a-c]",
            Just(".".to_owned()),
            Just(r#"k:{"name":"a","port":80}"#.to_owned()),
            Just(r#"v:"ä\"\\""#.to_owned()),
            Just("f:a\u{1}b".to_owned()),
        ];
        prop::collection::btree_map(key, below, 0..5).prop_map(|map| json!(map))
    })
}

/// What of an object is left as text, as it was.
fn restored(mut object: Value) -> Value {
    let entries = object["metadata"]["managedFields"].as_array_mut();
    for entry in entries.into_iter().flatten() {
        if let Some(Value::String(text)) = entry.get("fieldsV1") {
            entry["fieldsV1"] = serde_json::from_str(text).unwrap();
        }
    }
    object
}

proptest! {
    #[test]
    fn an_object_is_taken_as_it_is_and_its_sets_of_fields_are_what_they_were(
        sets in prop::collection::vec((any::<bool>(), any::<bool>(), field_set()), 0..4),
    ) {
        let entry = |(ours, applied, set): &(bool, bool, Value)| json!({
            "manager": format!("{}x", if *ours { MANAGER_PREFIX } else { "kubectl" }),
            "operation": if *applied { "Apply" } else { "Update" },
            "fieldsType": "FieldsV1",
            "fieldsV1": set,
        });
        let managed: Vec<Value> = sets.iter().map(entry).collect();
        let object = json!({
            "apiVersion": "v1", "kind": "Thing", "a": {"port": 80, "": null}, "b": [1, -2, 3.5, true, "ä"],
            "metadata": {"name": "n", "resourceVersion": "7", "managedFields": managed},
        });
        let read: Raw = serde_json::from_str(&object.to_string()).unwrap();
        prop_assert_eq!(&restored(read.value.clone()), &object);
        let mut known = FieldSets::default();
        for _ in 0..2 {
            prop_assert_eq!(own_fields::of_with(&read.value, &mut known), own_fields::of(&object));
        }
        // As it comes where the type of an event stands behind its object.
        let read: Raw = serde_json::from_value(object.clone()).unwrap();
        prop_assert_eq!(restored(read.value), object);
    }
}

#[test]
fn what_is_nowhere_else_so_is_taken_as_it_is() {
    for object in [
        json!({"metadata": null}),
        json!({"metadata": {"managedFields": {"fieldsV1": {"f:a": {}}}}}),
        json!({"metadata": {"managedFields": [null, 1, ["fieldsV1"], {"fieldsV1": null}, {}]}}),
        json!({"spec": {"metadata": {"managedFields": [{"fieldsV1": {"f:a": {}}}]}}}),
        json!([{"metadata": {}}]),
        json!("text"),
    ] {
        let read: Raw = serde_json::from_str(&object.to_string()).unwrap();
        assert_eq!(read.value, object);
    }
    let bad = r#"{"metadata": {"managedFields": [{"fieldsV1": {"f:a": 1}}]}}"#;
    let error = serde_json::from_str::<Raw>(bad).unwrap_err().to_string();
    assert!(error.contains("a set of fields: a map of maps"), "{error}");
}

#[test]
fn sets_that_nobody_has_any_more_are_forgotten() {
    let object = |at: usize| {
        let set = format!(r#"{{"f:data":{{"f:{at}":{{}}}}}}"#);
        let manager = format!("{MANAGER_PREFIX}x");
        json!({"data": {at.to_string(): "1"}, "metadata": {"name": "n", "managedFields": [
            {"manager": manager, "operation": "Apply", "fieldsV1": set},
        ]}})
    };
    let mut sets = FieldSets::default();
    for at in (0..200).chain(0..200) {
        let fresh = own_fields::of_with(&object(at), &mut FieldSets::default());
        assert_eq!(own_fields::of_with(&object(at), &mut sets), fresh);
        assert!(sets.len() <= 64);
    }
    let before = sets.len();
    own_fields::of_with(&object(10_usize.pow(9)), &mut sets);
    assert_eq!(sets.len(), before + 1);
    let mut long = object(0);
    let set = format!(r#"{{"f:data":{{"f:{}":{{}}}}}}"#, "a".repeat(20_000));
    long["metadata"]["managedFields"][0]["fieldsV1"] = set.into();
    own_fields::of_with(&long, &mut sets);
    assert_eq!(sets.len(), before + 1, "one that is so long is not kept");
}
