//! A client for unit tests: requests in, JSON out, through the router.

use axum::body::Body;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::{EmbeddedApi, Options};

/// The status of an answer and its body.
pub(crate) type Got = (u16, Value);

/// Returns an API with a stopped clock and the namespace `n`.
pub(crate) async fn api() -> EmbeddedApi {
    let now = "2024-06-01T12:00:00Z".parse().unwrap();
    let api =
        EmbeddedApi::new(Options { now: std::sync::Arc::new(move || now), ..Options::default() });
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    assert_eq!(send(&api, "POST", "/api/v1/namespaces", &namespace).await.0, 201);
    api
}

/// Sends a body; a patch is a merge patch, or an apply if the path names a manager.
pub(crate) async fn send(api: &EmbeddedApi, method: &str, path: &str, body: &Value) -> Got {
    let content_type = match method {
        "PATCH" if path.contains("fieldManager=") => "application/apply-patch+yaml",
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    send_as(api, method, path, content_type, body).await
}

/// Sends a body of any content type.
pub(crate) async fn send_as(
    api: &EmbeddedApi,
    method: &str,
    path: &str,
    content_type: &str,
    body: &Value,
) -> Got {
    let (status, _, answer) = exchange(api, method, path, content_type, body).await;
    (status, answer)
}

/// Sends a body of any content type. Also returns the texts of the `Warning` headers.
pub(crate) async fn exchange(
    api: &EmbeddedApi,
    method: &str,
    path: &str,
    content_type: &str,
    body: &Value,
) -> (u16, Vec<String>, Value) {
    let request =
        http::Request::builder().method(method).uri(path).header("content-type", content_type);
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    let response = api.router().oneshot(request.body(body).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|text| text.to_str().unwrap().to_owned()).collect();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (
        status,
        warnings,
        serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes))),
    )
}

pub(crate) async fn get(api: &EmbeddedApi, path: &str) -> Got {
    send(api, "GET", path, &Value::Null).await
}

pub(crate) async fn delete(api: &EmbeddedApi, path: &str) -> Got {
    send(api, "DELETE", path, &Value::Null).await
}

/// Creates a `ConfigMap` in `n`, owned by the objects given as (name, uid, blocks). Returns its
/// uid.
pub(crate) async fn config_map(
    api: &EmbeddedApi,
    name: &str,
    owners: &[(&str, &str, bool)],
    finalizers: &[&str],
) -> String {
    let owners: Vec<Value> = owners
        .iter()
        .map(|(name, uid, blocks)| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": blocks})
        })
        .collect();
    let metadata = json!({"name": name, "ownerReferences": owners, "finalizers": finalizers});
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    let (status, made) = send(api, "POST", "/api/v1/namespaces/n/configmaps", &object).await;
    assert_eq!(status, 201, "{made}");
    made["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// A CRD for `widgets.example.dev` with any spec.
pub(crate) fn widgets(scope: &str) -> Value {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.dev"},
        "spec": {
            "group": "example.dev",
            "scope": scope,
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": any},
            }}}],
        },
    })
}
