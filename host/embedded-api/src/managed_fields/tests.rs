mod scenarios;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::fields::Set;

const NOW: &str = "2026-01-01T00:00:00Z";
const LATER: &str = "2026-01-01T00:00:09Z";
const VERSION: &str = "example.dev/v1";

fn schema() -> Schema {
    Schema::custom(
        &json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "x": {"type": "string"},
                "n": {"type": "integer"},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "atomic": {"type": "array", "items": {"type": "string"}},
                "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n", "p"],
                          "items": {"type": "object", "properties": {
                              "n": {"type": "string"}, "p": {"type": "integer", "default": 80},
                              "v": {"type": "string"}}}},
            }},
            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
        }}),
        false,
    )
}

fn object(spec: &Value) -> Value {
    json!({"apiVersion": VERSION, "kind": "Widget", "metadata": {"name": "a", "namespace": "n"}, "spec": spec})
}

fn writer(manager: &str) -> Writer<'_> {
    Writer { manager, api_version: VERSION, subresource: "", now: NOW }
}

fn with_target<R>(schema: &Schema, run: impl FnOnce(&Target<'_>) -> R) -> R {
    run(&Target {
        kind: "Widget",
        schema,
        has_status: true,
        is_custom: true,
        is_converted: false,
        other_version: &|_| None,
    })
}

fn apply_as(
    manager: &str,
    live: Option<&Value>,
    spec: &Value,
    force: bool,
) -> Result<Value, ApplyError> {
    let applied = object(spec);
    with_target(&schema(), |target| apply(live, &applied, target, &writer(manager), force))
}

fn update_as(manager: &str, live: Option<&Value>, new: Value) -> Value {
    with_target(&schema(), |target| update(live, new, target, &writer(manager)))
}

/// Returns the fields of each entry, by `manager operation`.
fn owners(object: &Value) -> Value {
    let entries = managed_fields(object).and_then(Value::as_array).cloned().unwrap_or_default();
    let each = entries.iter().map(|entry| {
        let name = format!(
            "{} {}",
            entry["manager"].as_str().unwrap(),
            entry["operation"].as_str().unwrap()
        );
        (name, entry["fieldsV1"].clone())
    });
    Value::Object(each.collect())
}

#[test]
fn an_item_whose_key_has_a_default_need_not_say_it() {
    let first = apply_as("a", None, &json!({"items": [{"n": "x", "v": "1"}]}), false).unwrap();
    let set =
        json!({"f:spec": {"f:items": {r#"k:{"n":"x","p":80}"#: {".": {}, "f:n": {}, "f:v": {}}}}});
    assert_eq!(owners(&first), json!({"a Apply": set}));
    let conflict =
        apply_as("b", Some(&first), &json!({"items": [{"n": "x", "p": 80, "v": "2"}]}), false);
    let message = conflict.unwrap_err().to_string();
    assert_eq!(
        message,
        r#"Apply failed with 1 conflict: conflict with "a": .spec.items[n="x",p=80].v"#
    );
}

#[test]
fn an_update_takes_ownership_of_the_fields_that_it_changes() {
    let first = apply_as("a", None, &json!({"x": "1", "map": {"k": "1"}}), false).unwrap();
    let mut new = first.clone();
    new["spec"] = json!({"x": "2", "map": {"k": "1", "l": "1"}});
    let second = update_as("u", Some(&first), new);
    let expected = json!({
        "a Apply": {"f:spec": {"f:map": {"f:k": {}}}},
        "u Update": {"f:spec": {"f:map": {"f:l": {}}, "f:x": {}}},
    });
    assert_eq!(owners(&second), expected);
}

#[test]
fn fields_of_an_updater_remain_when_an_applier_drops_their_parent() {
    let first = apply_as("a", None, &json!({"x": "1", "map": {"k": "1"}}), false).unwrap();
    let mut new = first.clone();
    new["spec"]["map"]["l"] = json!("2");
    let second = update_as("u", Some(&first), new);
    let third = apply_as("a", Some(&second), &json!({"x": "1"}), false).unwrap();
    assert_eq!(third["spec"], json!({"x": "1", "map": {"l": "2"}}));
}

#[test]
fn an_applier_can_conflict_with_its_own_updates() {
    let mut new = object(&json!({"x": "1"}));
    new = update_as("a", None, new);
    let error = apply_as("a", Some(&new), &json!({"x": "2"}), false).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"Apply failed with 1 conflict: conflict with "a" using example.dev/v1: .spec.x"#
    );
}

#[test]
fn updates_beyond_ten_managers_become_one_per_version() {
    let mut live = object(&json!({"map": {}}));
    live["metadata"]["uid"] = json!("u");
    live = update_as("m00", None, live);
    for n in 1..=12 {
        let mut new = live.clone();
        new["spec"]["map"][format!("k{n}")] = json!("1");
        let manager = format!("m{n:02}");
        let now = format!("2026-01-01T00:00:{n:02}Z");
        let by = Writer { now: &now, ..writer(&manager) };
        live = with_target(&schema(), |target| update(Some(&live), new, target, &by));
    }
    let owners = owners(&live);
    let names: Vec<&String> = owners.as_object().unwrap().keys().collect();
    assert_eq!(names.len(), 10);
    assert_eq!(*names[0], "ancient-changes Update");
    let ancient = &owners["ancient-changes Update"]["f:spec"];
    assert_eq!(*ancient, json!({".": {}, "f:map": {".": {}, "f:k1": {}, "f:k2": {}, "f:k3": {}}}));
}

#[test]
fn managers_sent_by_an_update_count_if_they_can_be_read() {
    let live = apply_as("a", None, &json!({"x": "1"}), false).unwrap();
    let entry = |operation: &str| {
        json!([{"manager": "z", "operation": operation, "apiVersion": VERSION, "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:x": {}}}, "time": NOW}])
    };
    let cases = [
        ("another list", entry("Update"), json!({"z Update": {"f:spec": {"f:x": {}}}})),
        ("unreadable", entry("Bogus"), json!({"a Apply": {"f:spec": {"f:x": {}}}})),
        ("none", json!([]), json!({})),
        ("reset", json!([{}]), json!({})),
    ];
    let mut live = live;
    live["metadata"]["uid"] = json!("u");
    for (case, sent, expected) in cases {
        let mut new = live.clone();
        new["metadata"]["managedFields"] = sent;
        assert_eq!(owners(&update_as("u", Some(&live), new)), expected, "{case}");
    }
}

#[test]
fn a_manager_of_a_version_that_is_no_more_owns_nothing() {
    let mut live = apply_as("a", None, &json!({"x": "1"}), false).unwrap();
    live["metadata"]["managedFields"][0]["apiVersion"] = json!("example.dev/v0");
    let forced = apply_as("b", Some(&live), &json!({"x": "2"}), false).unwrap();
    assert_eq!(owners(&forced), json!({"b Apply": {"f:spec": {"f:x": {}}}}));
}

#[test]
fn a_list_that_became_atomic_is_owned_as_a_whole() {
    let live = apply_as("a", None, &json!({"set": ["1"]}), false).unwrap();
    let atomic = Schema::custom(
        &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "set": {"type": "array", "items": {"type": "string"}}}}}}),
        false,
    );
    let applied = object(&json!({"set": ["1"]}));
    let after =
        with_target(&atomic, |target| apply(Some(&live), &applied, target, &writer("b"), false));
    let whole = json!({"f:spec": {"f:set": {}}});
    assert_eq!(owners(&after.unwrap()), json!({"a Apply": whole, "b Apply": whole}));
}

#[test]
fn kubectl_takes_over_fields_from_its_last_client_side_apply() {
    let mut live = object(&json!({"x": "1", "map": {"k": "1"}}));
    let last = object(&json!({"x": "1"})).to_string();
    live["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": last});
    let live = update_as("kubectl-client-side-apply", None, live);
    let taken = apply_as("kubectl", Some(&live), &json!({"x": "2"}), false).unwrap();
    assert_eq!(taken["spec"]["x"], "2");
    let annotation =
        &taken["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"];
    assert!(annotation.as_str().unwrap().contains(r#""x":"2""#));
    let error = apply_as("kubectl", Some(&live), &json!({"map": {"k": "2"}}), false);
    assert!(matches!(error, Err(ApplyError::Conflicts(_))), "{error:?}");
}

#[test]
fn a_wrong_type_is_told_in_the_words_of_kubernetes() {
    let cases = [
        (json!({"x": 5}), ".spec.x: expected string, got &value.valueUnstructured{Value:5}"),
        (json!({"n": "5"}), ".spec.n: expected numeric (int or float), got string"),
        (json!({"set": "a"}), ".spec.set: expected list, got &{a}"),
        (json!({"map": ["a"]}), ".spec.map: expected map, got &{[a]}"),
        (
            json!({"atomic": [{"a": "b"}]}),
            r#".spec.atomic[0]: expected string, got &value.valueUnstructured{Value:map[string]interface {}{"a":"b"}}"#,
        ),
    ];
    for (spec, message) in cases {
        let error = apply_as("a", None, &spec, false).unwrap_err().to_string();
        let prefix = "failed to create typed patch object (n/a; example.dev/v1, Kind=Widget): ";
        assert_eq!(error, format!("{prefix}{message}"));
    }
}

#[test]
fn an_apply_without_changes_does_not_set_the_time_of_its_entry() {
    let live = apply_as("a", None, &json!({"x": "1"}), false).unwrap();
    let time =
        |object: &Value, at: usize| object["metadata"]["managedFields"][at].get("time").cloned();
    let applied = object(&json!({"x": "1"}));
    let again = |live: &Value, manager| {
        let by = Writer { now: LATER, ..writer(manager) };
        with_target(&schema(), |target| apply(Some(live), &applied, target, &by, false)).unwrap()
    };
    assert_eq!(again(&live, "a"), live);
    let shared = again(&live, "b");
    // An entry without a time comes first.
    assert_eq!((time(&shared, 0), time(&shared, 1)), (None, Some(json!(NOW))));
    assert_eq!(again(&shared, "b"), shared);
}

#[test]
fn an_update_that_changes_times_only_is_none() {
    let live = apply_as("a", None, &json!({"x": "1"}), false).unwrap();
    let mut again = live.clone();
    again["metadata"]["managedFields"][0]["time"] = json!(LATER);
    keep_times(&live, &mut again);
    assert_eq!(again, live);
    let by = Writer { now: LATER, ..writer("a") };
    let mut changed = with_target(&schema(), |target| {
        apply(Some(&live), &object(&json!({"x": "2"})), target, &by, false)
    })
    .unwrap();
    keep_times(&live, &mut changed);
    assert_eq!(changed["metadata"]["managedFields"][0]["time"], LATER);
}

/// Generates specs without empty lists and maps, which no one owns or which are a case of their own
/// (see above).
fn specs() -> impl Strategy<Value = Value> {
    let text = || prop_oneof![Just("1"), Just("2")];
    let item = ("[a-c]", prop::option::of(text()));
    let items = prop::collection::vec(item, 0..4).prop_map(|items| {
        let by_name: std::collections::BTreeMap<_, _> = items.into_iter().collect();
        let item = |(n, v)| match v {
            Some(v) => json!({"n": n, "p": 1, "v": v}),
            None => json!({"n": n, "p": 1}),
        };
        Value::from(by_name.into_iter().map(item).collect::<Vec<Value>>())
    });
    let set = prop::sample::subsequence(vec!["a", "b", "c"], 0..3).prop_shuffle();
    let map = prop::collection::btree_map("[a-c]", text(), 0..3);
    (text(), items, set, map).prop_map(|(x, items, set, map)| {
        let mut spec = json!({"x": x, "items": items, "set": set, "map": map});
        spec.as_object_mut().unwrap().retain(|_, value| *value != json!([]) && *value != json!({}));
        spec
    })
}

/// Removes empty parts, as decoding does: they count as absent.
fn tidy(mut object: Value) -> Value {
    fn drop_nulls(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.retain(|_, value| !value.is_null());
                map.values_mut().for_each(drop_nulls);
            }
            Value::Array(items) => items.iter_mut().for_each(drop_nulls),
            _ => {}
        }
    }
    drop_nulls(&mut object["spec"]);
    object
}

proptest! {
    #[test]
    fn applying_twice_changes_nothing(steps in prop::collection::vec((0..3usize, specs()), 1..6)) {
        let mut live: Option<Value> = None;
        for (who, spec) in steps {
            let manager = ["a", "b", "c"][who];
            let once = tidy(apply_as(manager, live.as_ref(), &spec, true).unwrap());
            let mut twice = tidy(apply_as(manager, Some(&once), &spec, false).unwrap());
            keep_times(&once, &mut twice);
            prop_assert_eq!(&twice, &once);
            live = Some(once);
        }
    }

    #[test]
    fn an_applied_spec_is_contained_in_the_result(before in specs(), spec in specs()) {
        let live = tidy(apply_as("a", None, &before, true).unwrap());
        let after = tidy(apply_as("b", Some(&live), &spec, true).unwrap());
        let applied = object(&spec);
        let comparison = typed::compare(&applied, &after, schema().root());
        prop_assert!(comparison.modified.is_empty() && comparison.removed.is_empty(), "{after}");
    }

    #[test]
    fn dropping_an_appliers_fields_leaves_those_of_others(first in specs(), second in specs()) {
        let both = tidy(apply_as("a", None, &first, true).unwrap());
        let both = tidy(apply_as("b", Some(&both), &second, true).unwrap());
        let left = tidy(apply_as("a", Some(&both), &json!({"n": 1}), true).unwrap());
        let alone = apply_as("b", None, &second, true).unwrap();
        let fields = |object: &Value| typed::fields(&without_managed_fields(object), schema().root());
        let own = Set::from_json(&json!({"f:spec": {"f:n": {}}})).unwrap();
        prop_assert_eq!(fields(&left), fields(&alone).union(own));
    }
}

#[test]
fn applying_an_empty_map_takes_no_ownership_of_its_keys() {
    let empty = json!({"map": {}});
    let live = update_as("u", None, object(&json!({"map": {"k": "1"}})));
    let first = apply_as("a", Some(&live), &empty, false).unwrap();
    let both = apply_as("b", Some(&first), &empty, false).unwrap();
    let owned = owners(&both);
    for manager in ["a Apply", "b Apply"] {
        assert_eq!(owned[manager], json!({"f:spec": {"f:map": {}}}), "{manager}: {owned:#}");
    }
    assert_eq!(both["spec"], json!({"map": {"k": "1"}}));
    assert_eq!(apply_as("a", Some(&both), &empty, false).unwrap(), both, "nothing is left to do");
}
