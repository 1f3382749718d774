use serde_json::json;

use super::*;

fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn names_are_accepted_or_not() {
    let long = "a".repeat(254);
    let cases = [
        (NameRule::Subdomain, "a.b-c", true),
        (NameRule::Subdomain, "Bad_Name", false),
        (NameRule::Subdomain, "a..b", false),
        (NameRule::Subdomain, long.as_str(), false),
        (NameRule::Label, "a-b", true),
        (NameRule::Label, "a.b", false),
        (NameRule::Label1035, "a1", true),
        (NameRule::Label1035, "1bad", false),
        (NameRule::PathSegment, "system:a B", true),
        (NameRule::PathSegment, "a/b", false),
        (NameRule::PathSegment, "..", false),
    ];
    for (rule, name, fine) in cases {
        assert_eq!(rule.check(name).is_empty(), fine, "{rule:?} {name}");
    }
    assert_eq!(NameRule::Subdomain.check(&long), ["must be no more than 253 characters"]);
    assert_eq!(
        NameRule::Label.check("A"),
        [
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an \
          alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        ]
    );
}

#[test]
fn a_dash_may_end_a_beginning() {
    assert!(NameRule::Subdomain.check_prefix("web-").is_empty());
    assert!(!NameRule::Subdomain.check_prefix("Bad_").is_empty());
    assert!(NameRule::PathSegment.check_prefix("..").is_empty());
}

#[test]
fn metadata_of_a_new_object_is_checked() {
    let path = FieldPath::new("metadata");
    let rules = MetadataRules { namespaced: true, ..MetadataRules::default() };
    let metadata = json!({
        "name": "a", "namespace": "n", "labels": {"a/b/c": "x", "k": "-"}, "annotations": {"UP/per": "x"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "o1", "uid": "1", "controller": true},
                            {"apiVersion": "", "kind": "K", "name": "o2", "uid": "2", "controller": true}],
        "finalizers": ["x y"],
    });
    let fields: Vec<String> =
        validate_metadata(&metadata, rules, &path).into_iter().map(|error| error.field).collect();
    assert_eq!(
        fields,
        [
            "metadata.labels",
            "metadata.labels",
            "metadata.ownerReferences.apiVersion",
            "metadata.ownerReferences",
            "metadata.finalizers"
        ]
    );
    let none = validate_metadata(&json!({}), rules, &path);
    assert_eq!(
        texts(&none),
        [
            "metadata.name: Required value: name or generateName is required",
            "metadata.namespace: Required value"
        ]
    );
}

#[test]
fn metadata_that_must_stay_is_told() {
    let path = FieldPath::new("metadata");
    let old = json!({"name": "a", "uid": "u", "resourceVersion": "1", "generation": 2, "deletionTimestamp": "t", "finalizers": ["a/b"]});
    let new = json!({"name": "b", "uid": "u", "generation": 1, "deletionTimestamp": "t", "finalizers": ["a/b", "c/d"]});
    assert_eq!(
        texts(&validate_metadata_update(&new, &old, &path)),
        [
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, \
             found new finalizers []string{\"c/d\"}",
            "metadata.resourceVersion: Invalid value: \"\": must be specified for an update",
            "metadata.generation: Invalid value: 1: must not be decremented",
            "metadata.name: Invalid value: \"b\": field is immutable",
        ]
    );
}
