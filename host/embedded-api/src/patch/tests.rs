use serde_json::{Value, json};

use super::*;
use crate::schema::Schema;

#[test]
fn a_json_patch_does_as_the_library_of_kubernetes() {
    let object = json!({"a": "1", "l": [1, 2], "m": {"x/y": 1}});
    let done = |patch: Value| super::json(&object, &patch);
    let cases = [
        (
            "replace of an absent key",
            json!([{"op": "replace", "path": "/b", "value": 2}]),
            "/b",
            json!(2),
        ),
        ("append", json!([{"op": "add", "path": "/l/-", "value": 3}]), "/l", json!([1, 2, 3])),
        ("insert", json!([{"op": "add", "path": "/l/0", "value": 3}]), "/l", json!([3, 1, 2])),
        ("from the end", json!([{"op": "remove", "path": "/l/-1"}]), "/l", json!([1])),
        (
            "escaped",
            json!([{"op": "replace", "path": "/m/x~1y", "value": 2}]),
            "/m",
            json!({"x/y": 2}),
        ),
        ("move", json!([{"op": "move", "from": "/a", "path": "/m/a"}]), "/m/a", json!("1")),
        ("copy", json!([{"op": "copy", "from": "/l/0", "path": "/m/l"}]), "/m/l", json!(1)),
        (
            "test of what is absent",
            json!([{"op": "test", "path": "/z", "value": null}]),
            "/a",
            json!("1"),
        ),
    ];
    for (case, patch, at, expected) in cases {
        assert_eq!(done(patch).unwrap().pointer(at), Some(&expected), "{case}");
    }
    let refused = [
        ("remove of an absent key", json!([{"op": "remove", "path": "/b"}])),
        ("missing parent", json!([{"op": "add", "path": "/b/c", "value": 1}])),
        ("beyond the end", json!([{"op": "add", "path": "/l/5", "value": 1}])),
        ("failed test", json!([{"op": "test", "path": "/a", "value": "2"}])),
        ("the root", json!([{"op": "replace", "path": "", "value": {}}])),
        ("unknown operation", json!([{"op": "merge", "path": "/a"}])),
        ("move of what is absent", json!([{"op": "move", "from": "/b", "path": "/c"}])),
    ];
    for (case, patch) in refused {
        assert!(matches!(done(patch), Err(PatchError::Rejected(_))), "{case}");
    }
    assert!(matches!(done(json!({"op": "add"})), Err(PatchError::BadRequest(_))));
    let many: Value = vec![json!({"op": "test", "path": "/a", "value": "1"}); 10_001].into();
    assert!(matches!(done(many), Err(PatchError::TooLarge { got: 10_001, .. })));
}

#[test]
fn a_merge_patch_merges_maps_and_replaces_the_rest() {
    let object = json!({"a": "1", "m": {"x": 1, "y": 2}, "l": [1], "n": null});
    let patch = json!({"a": null, "m": {"x": null, "z": {"k": null}}, "l": [{"k": null}], "n": {"k": null, "l": 1}});
    let expected = json!({"m": {"y": 2, "z": {}}, "l": [{}], "n": {"l": 1}});
    assert_eq!(merge(&object, &patch).unwrap(), expected);
    assert!(matches!(merge(&object, &json!(["x"])), Err(PatchError::BadRequest(_))));
}

fn pod_patched(spec: &Value, patch: &Value) -> Result<Value, PatchError> {
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"finalizers": ["a", "b"]}, "spec": spec});
    let patch =
        if patch.get("metadata").is_some() { patch.clone() } else { json!({"spec": patch}) };
    strategic(&object, &patch, &Schema::built_in("v1", "Pod").unwrap())
}

fn names(patched: &Value, list: &str) -> Vec<String> {
    let items = patched["spec"][list].as_array().unwrap();
    items.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn items_of_keyed_lists_merge_and_new_ones_come_first() {
    let spec = json!({"containers": [
        {"name": "a", "image": "a:1", "args": ["x"], "ports": [{"containerPort": 80}]},
        {"name": "b", "image": "b:1"}]});
    let patch = json!({"containers": [{"name": "new", "image": "n:1"}, {"name": "a", "image": "a:2", "args": ["y"],
        "ports": [{"containerPort": 443}]}]});
    let patched = pod_patched(&spec, &patch).unwrap();
    assert_eq!(names(&patched, "containers"), ["new", "a", "b"]);
    let a = json!({"name": "a", "image": "a:2", "args": ["y"], "ports": [{"containerPort": 443}, {"containerPort": 80}]});
    assert_eq!(patched["spec"]["containers"][1], a);
}

#[test]
fn directives_delete_replace_and_order() {
    let spec = || json!({"containers": [{"name": "a", "image": "1"}, {"name": "b"}, {"name": "c"}], "nodeSelector": {"k": "1"}});
    let cases = [
        (
            "delete an item",
            json!({"containers": [{"name": "b", "$patch": "delete"}]}),
            vec!["a", "c"],
        ),
        (
            "delete what is absent",
            json!({"containers": [{"name": "z", "$patch": "delete"}]}),
            vec!["a", "b", "c"],
        ),
        (
            "replace the list",
            json!({"containers": [{"$patch": "replace"}, {"name": "z"}]}),
            vec!["z"],
        ),
        (
            "order",
            json!({"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}]}),
            vec!["b", "c", "a"],
        ),
        (
            "order with items",
            json!({"$setElementOrder/containers": [{"name": "c"}, {"name": "d"}, {"name": "a"}, {"name": "b"}],
            "containers": [{"name": "d"}]}),
            vec!["c", "d", "a", "b"],
        ),
    ];
    for (case, patch, expected) in cases {
        assert_eq!(names(&pod_patched(&spec(), &patch).unwrap(), "containers"), expected, "{case}");
    }
    let replaced =
        pod_patched(&spec(), &json!({"nodeSelector": {"$patch": "replace", "l": "2"}})).unwrap();
    assert_eq!(replaced["spec"]["nodeSelector"], json!({"l": "2"}));
    let gone = pod_patched(&spec(), &json!({"nodeSelector": {"k": null, "l": null}})).unwrap();
    assert_eq!(gone["spec"]["nodeSelector"], json!({}));
}

#[test]
fn lists_of_scalars_merge_and_lose_single_values() {
    let cases = [
        ("merge", json!({"metadata": {"finalizers": ["c", "a"]}}), json!(["c", "a", "b"])),
        (
            "delete",
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}),
            json!(["b"]),
        ),
        (
            "order",
            json!({"metadata": {"$setElementOrder/finalizers": ["c", "b"], "finalizers": ["c"]}}),
            json!(["c", "a", "b"]),
        ),
    ];
    for (case, patch, expected) in cases {
        assert_eq!(
            pod_patched(&json!({}), &patch).unwrap()["metadata"]["finalizers"],
            expected,
            "{case}"
        );
    }
}

#[test]
fn retained_keys_are_all_that_stays() {
    let schema = Schema::built_in("apps/v1", "Deployment").unwrap();
    let object =
        json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}});
    let patch =
        |strategy: Value| strategic(&object, &json!({"spec": {"strategy": strategy}}), &schema);
    let patched = patch(json!({"$retainKeys": ["type"], "type": "Recreate"})).unwrap();
    assert_eq!(patched["spec"]["strategy"], json!({"type": "Recreate"}));
    let wrong = patch(json!({"$retainKeys": ["rollingUpdate"], "type": "Recreate"}));
    assert!(matches!(wrong, Err(PatchError::BadRequest(_))), "{wrong:?}");
}

#[test]
fn an_item_without_its_key_and_unknown_directives_are_refused() {
    let spec = || json!({"containers": [{"name": "a"}]});
    for patch in [
        json!({"containers": [{"image": "x"}]}),
        json!({"containers": [{"$patch": "delete"}]}),
        json!({"containers": [{"name": "a", "$patch": "merge"}]}),
        json!({"nodeSelector": {"$patch": "what"}, "containers": {}, "$patch": "no"}),
        json!({"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a"}]}),
    ] {
        let refused = pod_patched(&spec(), &patch);
        assert!(matches!(refused, Err(PatchError::Unclassified(_))), "{patch}: {refused:?}");
    }
}
