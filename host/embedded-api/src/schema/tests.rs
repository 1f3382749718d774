use serde_json::json;

use super::*;

fn at<'a>(schema: &'a Schema, path: &[&str]) -> &'a Type {
    path.iter().fold(schema.root(), |type_, name| {
        if *name == "[]" {
            let Shape::List(list, _) = type_.shape(&json!([])) else { panic!("no list") };
            &list.items
        } else {
            type_.map().and_then(|map| map.type_of(name)).expect("a declared field")
        }
    })
}

#[test]
fn lists_of_built_in_kinds_are_maps_sets_or_atomic() {
    let deployment = Schema::built_in("apps/v1", "Deployment").unwrap();
    let pod = ["spec", "template", "spec"];
    let list = |path: &[&str]| match at(&deployment, path).shape(&json!([])) {
        Shape::List(list, _) => list.relation.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(list(&[&pod[..], &["containers"]].concat()), Relation::Map(vec!["name".into()]));
    assert_eq!(list(&[&pod[..], &["containers", "[]", "args"]].concat()), Relation::Atomic);
    assert_eq!(list(&["metadata", "finalizers"]), Relation::Set);
    let selector = at(&deployment, &["spec", "selector"]).shape(&json!({}));
    assert!(matches!(selector, Shape::Map(_, true)), "{selector:?}");
}

#[test]
fn a_definition_may_contain_itself() {
    let crd = Schema::built_in("apiextensions.k8s.io/v1", "CustomResourceDefinition").unwrap();
    let schema = ["spec", "versions", "[]", "schema", "openAPIV3Schema"];
    let deep = at(&crd, &[&schema[..], &["not", "not", "not", "type"]].concat());
    assert!(matches!(deep.shape(&json!("x")), Shape::Scalar(Scalar::String)));
}

#[test]
fn keys_of_built_in_list_maps_have_defaults() {
    let pod = Schema::built_in("v1", "Pod").unwrap();
    let port = at(&pod, &["spec", "containers", "[]", "ports", "[]"]).map().unwrap();
    let default = |name| port.field(name).unwrap().default().cloned();
    assert_eq!(default("containerPort"), Some(json!(0)));
    assert_eq!(default("protocol"), Some(json!("TCP")));
    assert_eq!(default("hostIP"), None);
}

#[test]
fn unknown_fields_of_custom_resources_are_declared_by_few() {
    let source = json!({"type": "object", "properties": {
        "closed": {"type": "object", "properties": {"a": {"type": "string"}}},
        "open": {"type": "object"},
        "kept": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                 "properties": {"inner": {"type": "object", "properties": {"a": {"type": "string"}}}}},
        "template": {"type": "object", "x-kubernetes-embedded-resource": true,
                     "properties": {"spec": {"type": "object"}}},
        "port": {"x-kubernetes-int-or-string": true},
    }});
    let schema = Schema::custom(&source, false);
    let cases = [("closed", false), ("open", true), ("kept", true), ("template", false)];
    for (field, allowed) in cases {
        let map = at(&schema, &[field]).map().unwrap();
        assert_eq!(map.type_of("other").is_some(), allowed, "{field}");
    }
    assert!(at(&schema, &["kept", "inner"]).map().unwrap().type_of("other").is_some());
    assert!(at(&schema, &["template", "metadata"]).map().unwrap().field("finalizers").is_some());
    assert!(schema.root().map().unwrap().type_of("other").is_none());
    assert!(matches!(at(&schema, &["port"]).shape(&json!(1)), Shape::Scalar(Scalar::Untyped)));
}
