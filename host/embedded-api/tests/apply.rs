//! Server-side apply against the whole server, where the recorded scenarios do not reach.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use axum::body::Body;
use http_body_util::BodyExt as _;
use mortise_embedded_api::{EmbeddedApi, Options};
use serde_json::{Value, json};
use tower::ServiceExt as _;

const WIDGETS: &str = "/apis/example.dev/v1/namespaces/n/widgets";

async fn send(
    api: &EmbeddedApi,
    method: &str,
    path: &str,
    content_type: &str,
    body: &Value,
) -> (u16, Value) {
    let request = http::Request::builder().method(method).uri(path);
    let request = request.header("content-type", content_type).header("user-agent", "test/1");
    let request = request.body(Body::from(body.to_string())).unwrap();
    let answer = api.router().oneshot(request).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

async fn with_widgets(properties: Value) -> EmbeddedApi {
    let api = EmbeddedApi::new(Options::default());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.dev"},
        "spec": {
            "group": "example.dev", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": {"type": "object", "properties": properties}}}}}],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for (path, body) in [("/api/v1/namespaces", namespace), (definitions, crd)] {
        let (status, answer) = send(&api, "POST", path, "application/json", &body).await;
        assert_eq!(status, 201, "{answer}");
    }
    api
}

async fn apply(api: &EmbeddedApi, manager: &str, spec: Value) -> (u16, Value) {
    let body = json!({"apiVersion": "example.dev/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec});
    let path = format!("{WIDGETS}/a?fieldManager={manager}");
    send(api, "PATCH", &path, "application/apply-patch+yaml", &body).await
}

#[tokio::test]
async fn an_applied_null_is_refused_where_null_is_not_allowed() {
    let nullable = json!({"type": "string", "nullable": true});
    let api = with_widgets(json!({"n": {"type": "integer"}, "nullable": nullable})).await;
    let (status, answer) = apply(&api, "m1", json!({"n": null})).await;
    assert_eq!(
        (status, &answer["details"]["causes"][0]["field"]),
        (422, &json!("spec.n")),
        "{answer}"
    );
    let (status, answer) = apply(&api, "m1", json!({"nullable": null})).await;
    assert_eq!((status, &answer["spec"]), (201, &json!({"nullable": null})), "{answer}");
}

#[tokio::test]
async fn a_map_that_loses_its_last_child_while_it_is_applied_is_refused() {
    let map = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let api = with_widgets(json!({"map": map, "x": {"type": "string"}})).await;
    assert_eq!(apply(&api, "m1", json!({"x": "1", "map": {"k": "1"}})).await.0, 201);
    let (status, answer) = apply(&api, "m1", json!({"x": "1", "map": {}})).await;
    assert_eq!(
        (status, &answer["details"]["causes"][0]["field"]),
        (422, &json!("spec.map")),
        "{answer}"
    );
    let (status, answer) = apply(&api, "m1", json!({"x": "1"})).await;
    assert_eq!((status, &answer["spec"]), (200, &json!({"x": "1"})), "{answer}");
}

#[tokio::test]
async fn an_applied_value_that_no_decoder_takes_is_a_500() {
    let api = with_widgets(json!({})).await;
    let path = "/apis/apps/v1/namespaces/n/deployments/web?fieldManager=m1";
    let container = json!({"name": "main", "image": "x", "resources": {"limits": {"cpu": "much"}}});
    let body = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "n"},
        "spec": {"selector": {"matchLabels": {"a": "b"}},
                 "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}}});
    let (status, answer) = send(&api, "PATCH", path, "application/apply-patch+yaml", &body).await;
    let prefix = "failed to convert new typed object (n/web; apps/v1, Kind=Deployment) to object: ";
    assert!(
        status == 500 && answer["message"].as_str().unwrap().starts_with(prefix),
        "{status} {answer}"
    );
}
