use serde_json::json;

use super::*;
use crate::schema::Schema;

fn schema() -> Schema {
    Schema::custom(
        &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "any": {"x-kubernetes-preserve-unknown-fields": true},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
                     "items": {"type": "object", "properties": {"n": {"type": "string"}, "v": {"type": "string"}}}},
        }}}}),
        false,
    )
}

fn spec(spec: &Value) -> Value {
    json!({"spec": spec})
}

#[test]
fn merged_lists_keep_the_order_of_both_as_far_as_they_agree() {
    let cases = [
        (vec!["a", "b"], vec!["c", "b"], vec!["a", "c", "b"]),
        (vec!["a", "b", "c"], vec!["c", "a"], vec!["b", "c", "a"]),
        (vec!["a", "b"], vec![], vec!["a", "b"]),
        (vec!["a"], vec!["b", "a", "c"], vec!["b", "a", "c"]),
        (vec!["x", "a", "y", "b"], vec!["a", "n", "b"], vec!["x", "a", "y", "n", "b"]),
    ];
    for (live, applied, expected) in cases {
        let merged =
            merge(spec(&json!({"set": live})), &spec(&json!({"set": applied})), schema().root());
        assert_eq!(merged.unwrap()["spec"]["set"], json!(expected), "{live:?} {applied:?}");
    }
}

#[test]
fn items_that_are_there_twice_are_owned_compared_and_replaced_as_one() {
    let twice = spec(&json!({"list": [{"n": "a", "v": "1"}, {"n": "a", "v": "2"}]}));
    let schema = schema();
    let whole = Set::from_json(&json!({"f:spec": {"f:list": {r#"k:{"n":"a"}"#: {}}}})).unwrap();
    assert_eq!(fields(&twice, schema.root()), whole);
    let once = spec(&json!({"list": [{"n": "a", "v": "3"}]}));
    assert_eq!(merge(twice.clone(), &once, schema.root()).unwrap(), once);
    let comparison = compare(&twice, &once, schema.root());
    assert_eq!(comparison.removed, whole);
    assert!(validate(&twice, schema.root(), true).is_ok());
    assert!(validate(&twice, schema.root(), false).is_err());
}

#[test]
fn a_value_of_another_form_is_another_value() {
    let schema = schema();
    let (map, text) = (spec(&json!({"any": {"a": "1"}})), spec(&json!({"any": "1"})));
    let comparison = compare(&map, &text, schema.root());
    let set = |fields| Set::from_json(&fields).unwrap();
    assert_eq!(comparison.modified, set(json!({"f:spec": {"f:any": {}}})));
    assert_eq!(comparison.removed, set(json!({"f:spec": {"f:any": {"f:a": {}}}})));
}

#[test]
fn a_map_that_loses_all_its_fields_is_null() {
    let gone = Set::from_json(&json!({"f:spec": {"f:set": {r#"v:"a""#: {}}}})).unwrap();
    let left = remove(spec(&json!({"set": ["a"]})), &gone, schema().root());
    assert_eq!(left, json!({"spec": {"set": null}}));
}

#[test]
fn declared_fields_count_when_something_below_them_does() {
    let set = Set::from_json(&json!({"f:spec": {"f:any": {"f:x": {"f:y": {}}}}})).unwrap();
    let named =
        Set::from_json(&json!({"f:spec": {".": {}, "f:any": {".": {}, "f:x": {"f:y": {}}}}}))
            .unwrap();
    assert_eq!(with_named_fields(&set, schema().root()), named);
}
