use serde_json::{json, value::to_raw_value};

use super::*;

fn existing(name: &str, labels: &Value, spec: &Value) -> Existing {
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "shop", "uid": name, "labels": labels}, "spec": spec}))
        .unwrap()
}

fn desired(key: &str, spec: &Value) -> Desired {
    Desired {
        key: key.to_owned(),
        namespace: "shop".to_owned(),
        labels: [("owner".to_owned(), "me".to_owned())].into(),
        spec: to_raw_value(spec).unwrap(),
    }
}

fn changes(existing: Vec<(Option<String>, Existing)>, desired: Vec<Desired>) -> Vec<Change> {
    let rule = ApiRule { metadata: Metadata::new("web").namespace("shop"), ..ApiRule::default() };
    let kind = Kind::new("g", "v1", "Thing");
    let lost = |_: &Desired, _: &str| Ok(None);
    Comparison { rule: &rule, kind, existing, desired, lost: &lost }.changes().unwrap()
}

fn name(manifest: &Manifest) -> String {
    let object: Value = serde_json::from_str(&manifest.object).unwrap();
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

#[test]
fn objects_are_made_updated_and_deleted_by_their_keys() {
    let there = vec![
        (Some("a".to_owned()), existing("thing-a", &json!({}), &json!({}))),
        (Some("b".to_owned()), existing("thing-b", &json!({}), &json!({}))),
        (None, existing("thing-c", &json!({}), &json!({}))),
    ];
    let changes = changes(
        there,
        vec![
            desired("a", &json!({"x": 1})),
            desired("d", &json!({})),
            desired("d", &json!({"x": 2})),
        ],
    );
    let [
        Change::Update(a),
        Change::Create(d),
        Change::Delete { reference: b, uid },
        Change::Delete { reference: c, .. },
    ] = changes.as_slice()
    else {
        panic!("{changes:?}")
    };
    assert_eq!(name(a), "thing-a");
    let made: Value = serde_json::from_str(&d.object).unwrap();
    let name = made["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("web-") && name.len() == 9, "{name}");
    let expected = json!({
        "apiVersion": "g/v1", "kind": "Thing",
        "metadata": {"name": name, "namespace": "shop", "labels": {"owner": "me"}}, "spec": {"x": 2},
    });
    assert_eq!(made, expected, "of two with one key the last one counts");
    assert_eq!(
        (b.name.as_str(), uid.as_deref(), c.name.as_str()),
        ("thing-b", Some("thing-b"), "thing-c")
    );
}

#[test]
fn an_update_removes_what_it_does_not_name() {
    let spec = json!({"list": [{"gone": 1}], "map": {"a.b/c": "x", "kept": "y", "deep": {"gone": 1}}, "tls": []});
    let there = existing("thing-a", &json!({"owner": "you", "example.com/former": "x"}), &spec);
    let wanted = desired("a", &json!({"list": [{}], "map": {"kept": "z", "deep": {}}}));
    let changes = changes(vec![(Some("a".to_owned()), there)], vec![wanted]);
    let [Change::Update(manifest)] = changes.as_slice() else { panic!("{changes:?}") };
    let expected = [
        "metadata.labels[\"example.com/former\"]",
        "spec.map[\"a.b/c\"]",
        "spec.map.deep.gone",
        "spec.tls",
    ];
    assert_eq!(manifest.absent, expected);
}

#[test]
fn an_object_that_lost_its_labels_is_updated_and_not_deleted() {
    let first = changes(Vec::new(), vec![desired("a", &json!({}))]);
    let [Change::Create(manifest)] = first.as_slice() else { panic!("{first:?}") };
    let there = existing(&name(manifest), &json!({}), &json!({}));
    let again = changes(vec![(None, there)], vec![desired("a", &json!({}))]);
    assert!(
        matches!(again.as_slice(), [Change::Update(update)] if name(update) == name(manifest)),
        "{again:?}"
    );
}

#[test]
fn what_is_being_deleted_is_not_deleted_again() {
    let mut there = existing("thing-a", &json!({}), &json!({}));
    there.metadata.deletion_timestamp = Some("2026-01-01T00:00:00Z".to_owned());
    assert_eq!(changes(vec![(None, there)], Vec::new()), []);
}

#[test]
fn what_is_made_for_another_rule_is_left_to_it() {
    let kind = Kind::new("g", "v1", "Thing");
    let of = |rule: &str| existing::name_for(("shop", rule), &kind, "shop", "a");
    let cases = [("web", 0, 1), ("other", 1, 0)];
    for (rule, creates, updates) in cases {
        let there = existing(&of(rule), &json!({}), &json!({}));
        let changes = changes(vec![(Some("a".to_owned()), there)], vec![desired("a", &json!({}))]);
        let count = |is: fn(&Change) -> bool| changes.iter().filter(|change| is(change)).count();
        let counted = (
            count(|change| matches!(change, Change::Create(_))),
            count(|change| matches!(change, Change::Update(_))),
        );
        assert_eq!(counted, (creates, updates), "{rule}: {changes:?}");
        assert_eq!(changes.len(), 1, "{rule}: {changes:?}");
    }
}
