use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Digests, digest, of, of_manifest};

const MANAGER: &str = "mortise/default/api-rule/a1";

/// A live object with one applied entry of ours.
#[expect(clippy::needless_pass_by_value, reason = "values are made where they are used")]
fn live(mut object: Value, fields: Value) -> Value {
    object["metadata"]["managedFields"] = json!([
        {"manager": "kubectl-edit", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:z": {}}}},
        {"manager": MANAGER, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields},
    ]);
    object
}

fn same(manifest: &Value, object: &Value) -> bool {
    of(object).get(MANAGER, "").map(|pair| pair.values) == Some(of_manifest(manifest))
}

#[expect(clippy::needless_pass_by_value, reason = "values are made where they are used")]
fn manifest(fields: Value) -> Value {
    let mut manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "x", "uid": "u"}});
    manifest.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    manifest
}

#[test]
fn an_object_that_holds_just_the_manifest_has_its_digest() {
    let cases = [
        (
            "map",
            json!({"data": {"a": "1"}}),
            json!({"data": {"a": "1", "z": "theirs"}}),
            json!({"f:data": {"f:a": {}}}),
        ),
        (
            "atomic list",
            json!({"spec": {"hosts": ["a", "b"]}}),
            json!({"spec": {"hosts": ["a", "b"], "x": 1}}),
            json!({"f:spec": {"f:hosts": {}}}),
        ),
        (
            "list by key with a defaulted key",
            json!({"spec": {"ports": [{"port": 80, "name": "web"}]}}),
            json!({"spec": {"ports": [{"port": 1, "protocol": "TCP"}, {"port": 80, "name": "web", "protocol": "TCP"}]}}),
            json!({"f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:name": {}}}}}),
        ),
        (
            "set",
            json!({"spec": {"of": ["b"]}}),
            json!({"spec": {"of": ["a", "b"]}}),
            json!({"f:spec": {"f:of": {"v:\"b\"": {}}}}),
        ),
        (
            "items by their place",
            json!({"spec": {"of": ["b"]}}),
            json!({"spec": {"of": ["a", "b"]}}),
            json!({"f:spec": {"f:of": {"i:1": {}}}}),
        ),
        (
            "items by keys of several names",
            json!({"spec": {"of": [{"a": 1, "x": "m"}, {"b": 1, "x": "m"}]}}),
            json!({"spec": {"of": [{"a": 1, "x": "m"}, {"b": 1, "x": "m"}, {"a": 2, "b": 2, "x": "t"}]}}),
            json!({"f:spec": {"f:of": {"k:{\"a\":1}": {"f:a": {}, "f:x": {}}, "k:{\"b\":1}": {"f:b": {}, "f:x": {}}}}}),
        ),
        (
            "number written otherwise",
            json!({"spec": {"n": 1.0}}),
            json!({"spec": {"n": 1}}),
            json!({"f:spec": {"f:n": {}}}),
        ),
    ];
    for (case, sent, held, fields) in cases {
        assert!(same(&manifest(sent), &live(held, fields)), "{case}");
    }
}

#[test]
fn an_object_that_differs_from_the_manifest_has_another_digest() {
    let sent = json!({"data": {"a": "1", "b": "2"}});
    let both = json!({"f:data": {"f:a": {}, "f:b": {}}});
    let cases = [
        ("changed value", json!({"data": {"a": "1", "b": "3"}}), both.clone()),
        ("field gone", json!({"data": {"a": "1"}}), both.clone()),
        ("field not ours", json!({"data": {"a": "1", "b": "2"}}), json!({"f:data": {"f:a": {}}})),
        (
            "field no longer sent",
            json!({"data": {"a": "1", "b": "2", "c": "3"}}),
            json!({"f:data": {"f:a": {}, "f:b": {}, "f:c": {}}}),
        ),
        (
            "owned field that is not there",
            json!({"data": {"a": "1", "b": "2"}}),
            json!({"f:data": {"f:a": {}, "f:b": {}}, "f:stringData": {}}),
        ),
        ("of another form", json!({"data": "text"}), both),
    ];
    for (case, held, fields) in cases {
        assert!(!same(&manifest(sent.clone()), &live(held, fields)), "{case}");
    }
    let reordered = live(
        json!({"spec": {"of": ["b", "a"]}}),
        json!({"f:spec": {"f:of": {"v:\"a\"": {}, "v:\"b\"": {}}}}),
    );
    assert!(!same(&manifest(json!({"spec": {"of": ["a", "b"]}})), &reordered), "another order");
}

/// Anybody who may write an object chooses its fields and those of a manager with our prefix. To
/// compare each of these items with each element would take minutes.
#[test]
fn the_work_for_a_long_list_is_proportional_to_its_length() {
    let items: Vec<String> = (0..40_000).map(|number| format!("x.dev/{number}")).collect();
    let of_value = |item: &String| (format!("v:\"{item}\""), json!({}));
    let elements: serde_json::Map<String, Value> = items.iter().map(of_value).collect();
    let held = json!({"metadata": {"finalizers": items}});
    let fields = json!({"f:metadata": {"f:finalizers": elements}});
    assert!(same(&manifest(held.clone()), &live(held, fields)));
    let items: Vec<Value> = (0..40_000).map(|number| json!({format!("k{number}"): 0})).collect();
    let of_key = |number: usize| (format!("k:{{\"k{number}\":0}}"), json!({}));
    let elements: serde_json::Map<String, Value> = (0..40_000).map(of_key).collect();
    let held = json!({"spec": {"of": items}});
    let fields = json!({"f:spec": {"f:of": elements}});
    assert!(!same(&manifest(held.clone()), &live(held, fields)), "no schema has so many keys");
}

#[test]
fn only_entries_of_this_host_are_kept() {
    let object = live(json!({"data": {"a": "1"}}), json!({"f:data": {"f:a": {}}}));
    let digests = of(&object);
    assert_eq!(digests.iter().map(|own| &*own.manager).collect::<Vec<_>>(), [MANAGER]);
    assert!(digests.holds(MANAGER) && !digests.holds("kubectl-edit"));
    assert_eq!(of(&json!({"metadata": {}})), Digests::default());
}

#[test]
fn the_status_is_an_entry_of_its_own() {
    let object = json!({"status": {"state": "Ready"}, "metadata": {"managedFields": [
        {"manager": MANAGER, "operation": "Apply", "subresource": "status", "fieldsV1": {"f:status": {"f:state": {}}}},
    ]}});
    let own = of(&object);
    assert_eq!(own.get(MANAGER, ""), None);
    assert_eq!(
        own.get(MANAGER, "status").unwrap().values,
        of_manifest(&json!({"kind": "R", "status": {"state": "Ready"}}))
    );
}

#[test]
fn values_of_different_form_have_different_digests() {
    let all = [
        json!(null),
        json!(false),
        json!(0),
        json!(""),
        json!([]),
        json!({}),
        json!("0"),
        json!([[]]),
        json!([""]),
        json!({"a": "b"}),
        json!(["a", "b"]),
        json!(["ab"]),
        json!(1.5),
        json!(1),
        json!({"a": {}}),
        json!({"a": null}),
        json!(u64::MAX),
        json!(-1),
    ];
    let digests: std::collections::BTreeSet<u128> = all.iter().map(digest).collect();
    assert_eq!(digests.len(), all.len());
}

proptest! {
    #[test]
    fn the_order_of_keys_does_not_matter(mut keys in proptest::collection::btree_map("[a-z]{1,4}", 0..9i32, 0..8)) {
        let text = |pairs: Vec<(String, i32)>| {
            format!("{{{}}}", pairs.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect::<Vec<_>>().join(","))
        };
        let forward: Vec<_> = keys.clone().into_iter().collect();
        let mut backward = forward.clone();
        backward.reverse();
        let parse = |text: String| serde_json::from_str::<Value>(&text).unwrap();
        prop_assert_eq!(digest(&parse(text(forward.clone()))), digest(&parse(text(backward))));
        if let Some((_, value)) = keys.iter_mut().next() {
            *value += 1;
            prop_assert_ne!(digest(&json!(keys)), digest(&parse(text(forward))));
        }
    }
}

/// Each of 2,500 managers has a value of 1 MB; one has a small field.
#[test]
fn values_that_many_managers_own_together_are_compared_by_the_version_of_the_object() {
    let big = "x".repeat(1 << 20);
    let managed = |number: usize, fields: Value| json!({"manager": format!("mortise/a/p/a{number}"), "operation": "Apply", "fieldsV1": fields});
    let object = |version: &str, small: &str| {
        let all = |number| managed(number, json!({"f:data": {"f:big": {}}}));
        let mut managers: Vec<Value> = (0..2500).map(all).collect();
        managers.push(managed(2500, json!({"f:data": {"f:small": {}}})));
        json!({
            "metadata": {"resourceVersion": version, "managedFields": managers},
            "data": {"big": big, "small": small},
        })
    };
    let values =
        |object: &Value| -> Vec<u128> { of(object).iter().map(|own| own.pair.values).collect() };
    let (first, same, next) =
        (values(&object("1", "a")), values(&object("1", "a")), values(&object("2", "a")));
    let exact = of_manifest(&manifest(json!({"data": {"big": big}})));
    let compared = first.iter().filter(|values| **values == exact).count();
    assert!((1..20).contains(&compared), "{compared}");
    assert_eq!(first, same);
    assert_ne!(first[2499], next[2499], "each version is another one");
    assert_eq!(first[2500], next[2500], "few values are always compared");
    assert_eq!(first[2500], of_manifest(&manifest(json!({"data": {"small": "a"}}))));
}

#[test]
fn elements_of_a_list_are_looked_up_for_a_bounded_number_of_managers() {
    let items: Vec<Value> = (0..20_000).map(|at| json!({"name": at.to_string()})).collect();
    let fields = json!({"f:list": {"k:{\"name\":\"7\"}": {".": {}, "f:name": {}}}});
    let managers: Vec<Value> = (0..1000)
        .map(|at| json!({"manager": format!("mortise/a/p/a{at}"), "operation": "Apply", "fieldsV1": fields}))
        .collect();
    let object = json!({"metadata": {"managedFields": managers}, "list": items});
    let exact = of_manifest(&manifest(json!({"list": [{"name": "7"}]})));
    let compared = of(&object).iter().filter(|own| own.pair.values == exact).count();
    assert!((1..20).contains(&compared), "{compared}");
}
