use proptest::prelude::*;
use serde_json::json;

use super::*;

fn set(fields: &Value) -> Set {
    Set::from_json(fields).unwrap()
}

#[test]
fn paths_read_as_in_kubernetes_messages() {
    let cases = [
        (json!({"f:spec": {"f:x": {}}}), ".spec.x"),
        (json!({"f:two": {r#"k:{"n":"a","p":2}"#: {"f:v": {}}}}), r#".two[n="a",p=2].v"#),
        (json!({"f:s": {r#"v:"c""#: {}}}), r#".s[="c"]"#),
        (json!({"f:s": {"v:1": {}}}), ".s[=1]"),
        (json!({"f:s": {"i:3": {}}}), ".s[3]"),
    ];
    for (fields, text) in cases {
        let paths = set(&fields).paths();
        assert_eq!(paths.iter().map(|path| path_text(path)).collect::<Vec<_>>(), [text]);
    }
}

#[test]
fn texts_in_keys_are_escaped_as_go_escapes_them() {
    let (key, value) = (Element::key(vec![("<".to_owned(), json!("a<b&c>"))]), json!("\u{2028}<"));
    let nodes = vec![
        Node::new(Element::field("<"), true, Set::default()),
        Node::new(key, true, Set::default()),
        Node::new(Element::value(value), true, Set::default()),
    ];
    let written = Set::from_nodes(nodes).to_json();
    let names: Vec<&str> = written.keys().map(String::as_str).collect();
    let expected = ["f:<", r#"k:{"<":"a\u003cb\u0026c\u003e"}"#, r#"v:"\u2028\u003c""#];
    assert_eq!(names, expected);
    assert_eq!(Set::from_json(&written.clone().into()).unwrap().to_json(), written);
}

#[test]
fn a_level_with_children_is_a_member_only_with_its_dot() {
    let without = set(&json!({"f:data": {"f:a": {}}}));
    let with = set(&json!({"f:data": {".": {}, "f:a": {}}}));
    assert_eq!(with.difference(&without), set(&json!({"f:data": {}})));
    assert!(without.difference(&with).is_empty());
}

#[test]
fn a_difference_keeps_children_of_members_and_a_recursive_one_does_not() {
    let whole = set(&json!({"f:a": {"f:b": {".": {}, "f:c": {}}}}));
    let parent = set(&json!({"f:a": {"f:b": {}}}));
    assert_eq!(whole.difference(&parent), set(&json!({"f:a": {"f:b": {"f:c": {}}}})));
    assert!(whole.recursive_difference(&parent).is_empty());
}

#[test]
fn invalid_field_sets_are_refused() {
    for fields in [json!([]), json!({"f:a": 1}), json!({"nothing": {}}), json!({"k:x": {}})] {
        assert!(Set::from_json(&fields).is_err(), "{fields}");
    }
    assert!(set(&json!({"z:later": {}})).is_empty());
}

#[test]
fn numbers_are_equal_by_value() {
    assert!(equal(&json!({"a": [1]}), &json!({"a": [1.0]})));
    assert!(!equal(&json!(1), &json!("1")));
    assert!(!equal(&json!(null), &json!([])));
}

fn element() -> impl Strategy<Value = Element> {
    prop_oneof![
        "[a-c]".prop_map(|name| Element::field(&name)),
        (0..3i64)
            .prop_map(|n| Element::key(vec![("p".into(), n.into()), ("n".into(), "x".into())])),
        "[a-b]".prop_map(|text| Element::value(text.into())),
    ]
}

fn sets() -> impl Strategy<Value = Set> {
    prop::collection::vec(prop::collection::vec(element(), 1..4), 0..12).prop_map(|paths| {
        let mut set = Set::default();
        for path in &paths {
            set.insert(path);
        }
        set
    })
}

proptest! {
    #[test]
    fn a_set_survives_its_json_form(set in sets()) {
        prop_assert_eq!(Set::from_json(&Value::Object(set.to_json())).unwrap(), set);
    }

    #[test]
    fn the_algebra_is_that_of_the_sets_of_paths(a in sets(), b in sets()) {
        let paths = |set: &Set| set.paths().into_iter().collect::<std::collections::BTreeSet<_>>();
        let (left, right) = (paths(&a), paths(&b));
        prop_assert_eq!(paths(&a.clone().union(b.clone())), left.union(&right).cloned().collect());
        prop_assert_eq!(paths(&a.intersection(&b)), left.intersection(&right).cloned().collect());
        prop_assert_eq!(paths(&a.difference(&b)), left.difference(&right).cloned().collect());
        prop_assert_eq!(a.is_subset(&b), left.is_subset(&right));
        let kept = left.iter().filter(|path| !right.iter().any(|other| path.starts_with(other)));
        prop_assert_eq!(paths(&a.recursive_difference(&b)), kept.cloned().collect());
    }
}
