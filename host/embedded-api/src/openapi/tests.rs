use serde_json::Value;

use super::answer;
use crate::{discovery::Document, kind::Registry};

fn document(path: &[&str]) -> Value {
    match answer(&Registry::new(), path, "application/json") {
        Some(Document::Json(document)) => document,
        other => panic!("{path:?}: {other:?}"),
    }
}

#[test]
fn a_document_has_the_kinds_of_its_version_and_all_they_refer_to() {
    let document = document(&["v3", "apis", "apps", "v1"]);
    let schemas = document["components"]["schemas"].as_object().unwrap();
    assert!(schemas.contains_key("io.k8s.api.apps.v1.Deployment"));
    assert!(schemas.contains_key("io.k8s.api.core.v1.Container"));
    let mut text = document.to_string();
    while let Some(start) = text.find("#/components/schemas/") {
        let rest = text.split_off(start + "#/components/schemas/".len());
        let name = rest.split('"').next().unwrap();
        assert!(schemas.contains_key(name), "{name}");
        text = rest;
    }
    assert!(!document.to_string().contains("#/definitions/"));
    // The operation that kubectl looks up before it lets the server validate fields.
    let patch =
        &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Deployment");
    let parameters = patch["parameters"].as_array().unwrap();
    assert!(parameters.iter().any(|parameter| parameter["name"] == "fieldValidation"));
}

#[test]
fn the_index_names_a_document_for_each_version() {
    let index = document(&["v3"]);
    for (path, entry) in index["paths"].as_object().unwrap() {
        let url = entry["serverRelativeURL"].as_str().unwrap();
        assert!(url.starts_with(&format!("/openapi/v3/{path}?hash=")), "{url}");
        let segments: Vec<_> = std::iter::once("v3").chain(path.split('/')).collect();
        document(&segments);
    }
}

#[test]
fn protobuf_alone_gets_a_document_that_describes_nothing() {
    let accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let answered = answer(&Registry::new(), &["v2"], accept);
    let answer_type = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    assert_eq!(answered, Some(Document::Bytes(b"\x0a\x032.0", answer_type)));
    let accept = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
    let answered = answer(&Registry::new(), &["v3"], accept);
    assert_eq!(answered, Some(Document::NotAcceptable("application/json")));
}
