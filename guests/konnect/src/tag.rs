//! The tags and labels by which an entity names its object.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::kind::{Entity, at, text};

/// The annotation with further tags, separated by commas.
pub const ANNOTATION: &str = "konghq.com/tags";
/// The key of the tag or label with the uid of the object.
pub const UID: &str = "k8s-uid";

/// The API accepts no longer tag, in characters.
const LONGEST_TAG: usize = 128;
/// The API accepts no more tags.
const MOST_TAGS: usize = 20;
/// The API accepts no longer value of a label, in characters.
const LONGEST_LABEL: usize = 63;

/// Returns the tags of an object's entity, sorted.
///
/// In the order generated tags, `spec.tags`, annotation, each tag once, those after the 20th are
/// dropped. `more` are further tags: those of the annotation of a `KongPlugin`.
pub fn tags(entity: &Entity, object: &Value, more: &[String]) -> Vec<String> {
    let generated =
        generated(entity, object).into_iter().map(|(key, value)| format!("{key}:{value}"));
    let of_spec = at(object, "spec.tags").and_then(Value::as_array).into_iter().flatten();
    let of_spec = of_spec.filter_map(Value::as_str).map(str::to_owned);
    let all = generated.chain(of_spec).chain(annotated(object)).chain(more.iter().cloned());
    let mut tags: Vec<String> = Vec::new();
    for tag in all.map(|tag| cut(&tag, LONGEST_TAG)) {
        if tags.len() < MOST_TAGS && !tag.is_empty() && !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    tags.sort_unstable();
    tags
}

/// Returns the tags in the annotation of an object, as they stand there.
pub fn annotated(object: &Value) -> Vec<String> {
    let annotations = at(object, "metadata.annotations");
    let list = annotations.and_then(|all| all.get(ANNOTATION)).and_then(Value::as_str);
    list.into_iter().flat_map(|list| list.split(',')).map(str::to_owned).collect()
}

/// Returns the labels of a control plane: the generated ones and those of the user, which win.
pub fn labels(entity: &Entity, object: &Value) -> Map<String, Value> {
    let generated = generated(entity, object).into_iter();
    let mut labels: Map<String, Value> =
        generated.map(|(key, value)| (key.to_owned(), cut(&value, LONGEST_LABEL).into())).collect();
    let of_user = at(object, "spec.createControlPlaneRequest.labels").and_then(Value::as_object);
    labels.extend(of_user.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())));
    labels
}

/// Returns the tag that holds the uid of an object; `None` for an object without uid.
pub fn uid_tag(object: &Value) -> Option<String> {
    Some(format!("{UID}:{}", text(object, "metadata.uid")?))
}

fn generated(entity: &Entity, object: &Value) -> BTreeMap<&'static str, String> {
    let metadata =
        |field: &str| text(object, &format!("metadata.{field}")).unwrap_or_default().to_owned();
    let generation = at(object, "metadata.generation").and_then(Value::as_i64).unwrap_or_default();
    let mut tags = BTreeMap::from([
        ("k8s-generation", generation.to_string()),
        ("k8s-group", entity.group.to_owned()),
        ("k8s-kind", entity.kind.to_owned()),
        ("k8s-name", metadata("name")),
        (UID, metadata("uid")),
        ("k8s-version", entity.version.to_owned()),
        ("managed-by", "kong-operator".to_owned()),
    ]);
    if !entity.is_cluster_scoped {
        tags.insert("k8s-namespace", metadata("namespace"));
    }
    tags
}

fn cut(text: &str, longest: usize) -> String {
    text.chars().take(longest).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kind::find;

    fn service(metadata: &Value, tags: &Value) -> Value {
        let mut object = json!({
            "metadata": {"name": "svc", "namespace": "ns", "uid": "u", "generation": 3},
            "spec": {"tags": tags},
        });
        for (key, value) in metadata.as_object().unwrap() {
            object["metadata"][key] = value.clone();
        }
        object
    }

    fn of(object: &Value) -> Vec<String> {
        tags(find("KongService").unwrap(), object, &[])
    }

    #[test]
    fn tags_name_the_object_and_are_sorted_and_unique() {
        let object = service(&json!({"annotations": {ANNOTATION: "b, z ,c,"}}), &json!(["b", "z"]));
        let expected = [
            " z ",
            "b",
            "c",
            "k8s-generation:3",
            "k8s-group:configuration.konghq.com",
            "k8s-kind:KongService",
            "k8s-name:svc",
            "k8s-namespace:ns",
            "k8s-uid:u",
            "k8s-version:v1alpha1",
            "managed-by:kong-operator",
            "z",
        ];
        assert_eq!(of(&object), expected);
        assert_eq!(uid_tag(&object).as_deref(), Some("k8s-uid:u"));
    }

    #[test]
    fn of_more_than_twenty_tags_the_last_are_dropped_before_they_are_sorted() {
        let of_spec: Vec<String> = (0..11).map(|number| format!("t{number:02}")).collect();
        let object = service(&json!({"annotations": {ANNOTATION: "x,y,w"}}), &json!(of_spec));
        let tags = of(&object);
        assert_eq!((tags.len(), tags.last().map(String::as_str)), (20, Some("x")));
        let of_spec: Vec<String> = (0..20).map(|number| format!("t{number:02}")).collect();
        let tags = of(&service(&json!({}), &json!(of_spec)));
        assert_eq!((tags.len(), tags.last().map(String::as_str)), (20, Some("t11")));
    }

    #[test]
    fn tags_are_cut_at_128_characters_and_labels_at_63() {
        let name = "ä".repeat(200);
        let object = service(&json!({"name": name}), &json!([]));
        let tag = of(&object).into_iter().find(|tag| tag.starts_with("k8s-name:")).unwrap();
        assert_eq!(tag.chars().count(), 128);
        let labels = labels(find("KonnectGatewayControlPlane").unwrap(), &object);
        assert_eq!(labels["k8s-name"].as_str().unwrap().chars().count(), 63);
    }

    #[test]
    fn a_cluster_scoped_kind_has_no_tag_of_a_namespace() {
        let object = json!({"metadata": {"name": "v", "uid": "u", "generation": 1}, "spec": {}});
        let tags = tags(find("KongVault").unwrap(), &object, &["of-plugin".to_owned()]);
        assert!(!tags.iter().any(|tag| tag.starts_with("k8s-namespace")), "{tags:?}");
        assert!(tags.contains(&"of-plugin".to_owned()));
    }

    #[test]
    fn the_labels_of_a_user_win() {
        let object = json!({
            "metadata": {"name": "cp", "namespace": "ns", "uid": "u", "generation": 1},
            "spec": {"createControlPlaneRequest": {"labels": {"managed-by": "me", "team": "y"}}},
        });
        let labels = labels(find("KonnectGatewayControlPlane").unwrap(), &object);
        assert_eq!((&labels["managed-by"], &labels["team"]), (&json!("me"), &json!("y")));
        assert_eq!(labels["k8s-version"], json!("v1alpha2"));
    }
}
