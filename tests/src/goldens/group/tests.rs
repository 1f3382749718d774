use serde_json::json;

use super::*;

fn case(input: Value) -> GroupCase {
    GroupCase { name: "a".to_owned(), files: [("cluster.yaml".to_owned(), vec![input])].into() }
}

fn rules(rule: &Value) -> Rules {
    serde_json::from_value(json!([rule])).unwrap()
}

#[test]
fn a_rule_changes_its_places_and_no_others() {
    let rules = rules(&json!({
        "group": "g", "part": "p", "at": "/list/*/port", "from": 0, "to": 443, "reason": "r",
        "when": {"file": "cluster.yaml", "at": "/*/port", "is": "string"},
    }));
    let original = json!({"list": [{"port": 0}, {"port": 1}, {"other": 0}]});
    let changed = json!({"list": [{"port": 443}, {"port": 1}, {"other": 0}]});
    let named = case(json!({"port": "api"}));
    let reasons = vec!["r".to_owned()];
    assert_eq!(rules.apply(("g", "p"), &named, &original, &json!(null)), (changed, reasons));
    for (group, part, port) in
        [("h", "p", json!("a")), ("g", "q", json!("a")), ("g", "p", json!(1))]
    {
        let case = case(json!({"port": port}));
        assert_eq!(
            rules.apply((group, part), &case, &original, &json!(null)),
            (original.clone(), vec![])
        );
    }
}

#[test]
fn a_rule_adds_replaces_and_removes() {
    let cases = [
        (json!({"at": "/a", "to": null}), json!({"b": [1]})),
        (json!({"at": "/c", "to": 2}), json!({"a": {"x/y": 1}, "b": [1], "c": 2})),
        (json!({"at": "/a/x~1y", "to": 3}), json!({"a": {"x/y": 3}, "b": [1]})),
        (json!({"at": "/b/0", "to": 3}), json!({"a": {"x/y": 1}, "b": [3]})),
        (json!({"at": "/none/x", "to": 3}), json!({"a": {"x/y": 1}, "b": [1]})),
        (json!({"to": "whole"}), json!("whole")),
    ];
    for (rule, expected) in cases {
        let mut whole = json!({"group": "g", "part": "p", "reason": "r"});
        whole.as_object_mut().unwrap().extend(rule.as_object().unwrap().clone());
        let original = json!({"a": {"x/y": 1}, "b": [1]});
        let (changed, _) =
            rules(&whole).apply(("g", "p"), &case(json!({})), &original, &json!(null));
        assert_eq!(changed, expected, "{rule}");
    }
}

/// Checks what rules make of the original's value at `/a`, beside ours.
#[track_caller]
fn check_at_a<const N: usize>(rules: &Rules, cases: [(Value, Value, Value); N]) {
    for (original, ours, expected) in cases {
        let [original, ours, expected] = [original, ours, expected].map(|a| json!({"a": a}));
        let (changed, why) = rules.apply(("g", "p"), &case(json!({})), &original, &ours);
        assert_eq!(changed, expected);
        assert_eq!(why.is_empty(), changed == original, "{ours}");
    }
}

#[test]
fn ours_may_have_more_where_a_rule_says_so() {
    let rules = rules(&json!({
        "group": "g", "part": "p", "at": "/a", "besides": ["x", "y"], "reason": "r",
    }));
    let cases = [
        (json!(["b"]), json!(["b", "x"]), json!(["b", "x"])),
        (json!(["b", "x"]), json!(["b"]), json!(["b", "x"])),
        (json!(["b"]), json!(["b", "z"]), json!(["b"])),
        (json!({"b": 1}), json!({"x": 2, "z": 3}), json!({"b": 1, "x": 2})),
        (json!({"x": 1}), json!({"x": 2}), json!({"x": 1})),
    ];
    check_at_a(&rules, cases);
}

#[test]
fn ours_may_lack_something_where_a_rule_says_so() {
    let rules = rules(&json!({
        "group": "g", "part": "p", "at": "/a", "lacks": ["x", "y"], "reason": "r",
    }));
    let cases = [
        (json!(["b", "x"]), json!(["b"]), json!(["b"])),
        (json!(["b", "x"]), json!(["b", "x"]), json!(["b", "x"])),
        (json!(["b", "x"]), json!(["x"]), json!(["b", "x"])),
    ];
    check_at_a(&rules, cases);
}

#[test]
fn maps_are_laid_over_maps() {
    let rules = rules(&json!({
        "group": "g", "part": "p", "over": {"a": {"b": 2}, "c": [1]}, "reason": "r",
    }));
    let original = json!({"a": {"b": 1, "d": 1}, "c": {"e": 1}});
    let changed = json!({"a": {"b": 2, "d": 1}, "c": [1]});
    let apply =
        |original: &Value| rules.apply(("g", "p"), &case(json!({})), original, &json!(null));
    assert_eq!(apply(&original), (changed.clone(), vec!["r".to_owned()]));
    assert_eq!(apply(&changed), (changed.clone(), vec![]));
}

#[test]
fn a_rule_applies_only_if_every_condition_holds() {
    let whens = json!([
        {"file": "cluster.yaml", "at": "/*/a", "in": [1, 2]},
        {"file": "cluster.yaml", "at": "/*/b", "begins": ["x", "y"]},
    ]);
    let rules = rules(&json!({
        "group": "g", "part": "p", "to": 1, "reason": "r", "when": whens,
    }));
    let cases = [
        (json!({"a": 2, "b": "yes"}), 1),
        (json!({"a": 3, "b": "yes"}), 0),
        (json!({"a": 2, "b": "no"}), 0),
        (json!({"a": 2}), 0),
    ];
    for (input, expected) in cases {
        let (changed, _) = rules.apply(("g", "p"), &case(input.clone()), &json!(0), &json!(null));
        assert_eq!(changed, json!(expected), "{input}");
    }
}

#[test]
fn texts_that_begin_in_the_same_way_count_as_equal() {
    let rules = rules(&json!({
        "group": "g", "part": "p", "at": "/error", "begins": "broken: ", "reason": "r",
    }));
    let cases = [
        ("broken: one", "broken: two", "broken: two", 1),
        ("broken: one", "broken: one", "broken: one", 0),
        ("broken: one", "other", "broken: one", 0),
        ("other", "broken: two", "other", 0),
    ];
    for (original, ours, expected, reasons) in cases {
        let [original, ours, expected] =
            [original, ours, expected].map(|error| json!({"error": error}));
        let (changed, why) = rules.apply(("g", "p"), &case(json!({})), &original, &ours);
        assert_eq!((changed, why.len()), (expected, reasons));
    }
}

#[test]
fn a_text_may_be_taken_for_one_that_begins_in_another_way() {
    let rules = rules(&json!({
        "group": "g", "part": "p", "from": "failed", "begins": "failed: ", "reason": "r",
    }));
    let apply = |original: &str, ours: &str| {
        rules.apply(("g", "p"), &case(json!({})), &original.into(), &ours.into()).0
    };
    assert_eq!(apply("failed", "failed: why"), "failed: why");
    assert_eq!(apply("failed", "other"), "failed");
    assert_eq!(apply("failed: a", "failed: b"), "failed: a");
}
