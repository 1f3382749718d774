use kube::core::WatchEvent;
use mortise_core::applied_fields::{self, MANAGER_PREFIX};
use serde_json::{Value, json};

use super::*;

fn object(fields: &Value) -> Value {
    let manager = format!("{MANAGER_PREFIX}x");
    json!({
        "apiVersion": "v1", "kind": "Thing", "data": {"a": "1"},
        "metadata": {
            "namespace": "n", "name": "a", "resourceVersion": "7", "labels": {"l": "1"},
            "managedFields": [{"manager": manager, "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": fields}],
        },
    })
}

fn digests<const WHOLE: bool>(raw: &Raw<WHOLE>) -> applied_fields::Digests {
    applied_fields::of(raw.object())
}

#[test]
fn an_event_is_read_alike_whether_its_type_stands_before_its_object_or_behind() {
    let object = object(&json!({"f:data": {"f:a": {}}}));
    let [before, behind] = [
        format!(r#"{{"type":"ADDED","object":{object}}}"#),
        format!(r#"{{"object":{object},"type":"ADDED"}}"#),
    ];
    let read = |text: &str| match serde_json::from_str::<WatchEvent<Raw<true>>>(text).unwrap() {
        WatchEvent::Added(raw) => raw,
        other => panic!("{other:?}"),
    };
    let [before, behind] = [read(&before), read(&behind)];
    assert_eq!(behind.object(), before.object());
    for raw in [before, behind] {
        assert_eq!(format!("{raw:?}"), r#"Some("n") Some("a") Some("7")"#);
        assert_eq!(digests(&raw), applied_fields::of(&object));
    }
}

#[test]
fn metadata_alone_are_taken_as_they_are() {
    // The second value is not a set of fields.
    for fields in [json!({"f:metadata": {"f:labels": {"f:l": {}}}}), json!({"f:a": 1})] {
        let mut object = object(&fields);
        // The API server accepts it of a tenant, and kube's types do not.
        object["metadata"]["managedFields"][0]["time"] = json!("10000-01-01T00:00:00Z");
        let raw: Raw<false> = serde_json::from_value(object.clone()).unwrap();
        assert_eq!(format!("{raw:?}"), r#"Some("n") Some("a") Some("7")"#);
        assert_eq!(raw.object(), &json!({"metadata": object["metadata"]}));
        let of_both = |digests: applied_fields::Digests| {
            digests.iter().map(|own| own.pair.fields).collect::<Vec<_>>()
        };
        assert_eq!(of_both(digests(&raw)), of_both(applied_fields::of(&object)));
    }
}
