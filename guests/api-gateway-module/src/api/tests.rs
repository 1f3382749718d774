use serde_json::json;

use super::*;

fn gateway(name: &str, age: Option<&str>) -> ApiGateway {
    let metadata = json!({"name": name, "creationTimestamp": age});
    serde_json::from_value(json!({"metadata": metadata, "spec": null, "status": null})).unwrap()
}

#[test]
fn the_oldest_counts_and_of_one_age_the_last() {
    let (old, new) = (Some("2024-01-01T00:00:00Z"), Some("2024-05-01T00:00:00Z"));
    let cases = [
        (vec![], None),
        (vec![("a", new)], Some("a")),
        (vec![("a", new), ("b", old)], Some("b")),
        (vec![("a", old), ("b", new)], Some("a")),
        (vec![("a", old), ("b", old), ("c", new)], Some("b")),
    ];
    for (all, expected) in cases {
        let all: Vec<_> = all.into_iter().map(|(name, age)| gateway(name, age)).collect();
        assert_eq!(oldest(&all).map(|of| of.metadata.name.as_str()), expected);
    }
}

#[test]
fn the_definition_is_that_of_the_original() {
    let definition = definition();
    assert_eq!(definition["spec"]["scope"], "Cluster");
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    assert_eq!(schema["status"]["required"], json!(["state"]));
    assert_eq!(schema["status"]["properties"]["conditions"].get("x-kubernetes-list-type"), None);
    assert_eq!(schema["spec"]["properties"]["enableKymaGateway"]["type"], "boolean");
}
