use serde_json::{Value, json};

use super::{Document, answer};
use crate::kind::Registry;

fn json(path: &str) -> Value {
    match answer(&Registry::new(), path, "") {
        Some(Document::Json(document)) => document,
        other => panic!("{path}: {other:?}"),
    }
}

#[test]
fn a_version_lists_its_resources_with_their_subresources() {
    let list = json("/api/v1");
    let resources = list["resources"].as_array().unwrap();
    let find = |name: &str| resources.iter().find(|resource| resource["name"] == name).unwrap();
    assert_eq!(find("configmaps")["shortNames"], json!(["cm"]));
    assert_eq!(find("secrets").get("shortNames"), None);
    let eviction = json!({
        "name": "pods/eviction", "singularName": "", "namespaced": true, "kind": "Eviction",
        "group": "policy", "version": "v1", "verbs": ["create"],
    });
    assert_eq!(*find("pods/eviction"), eviction);
}

#[test]
fn unknown_discovery_paths_are_not_answered() {
    for path in [
        "/apis/none",
        "/apis/apps/v2",
        "/healthz/none",
        "/metrics",
        "/api/v2",
        "/openapi/v3/apis/none/v1",
    ] {
        assert_eq!(answer(&Registry::new(), path, ""), None, "{path}");
    }
}

#[test]
fn the_aggregated_form_is_answered_when_it_is_preferred() {
    let new = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let cases = [
        (
            format!(
                "{new},application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
            ),
            true,
        ),
        ("application/json".to_owned(), false),
        (format!("application/json,{new}"), false),
    ];
    for (accept, aggregated) in cases {
        let answered = answer(&Registry::new(), "/apis", &accept).unwrap();
        match answered {
            Document::Typed(list, content_type) => {
                assert!(aggregated, "{accept}");
                assert_eq!(list["apiVersion"], "apidiscovery.k8s.io/v2");
                assert_eq!(list["items"][0]["metadata"]["name"], "apps");
                assert_eq!(content_type, new);
            }
            _ => assert!(!aggregated, "{accept}"),
        }
    }
}
