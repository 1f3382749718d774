//! Objects that are stored in another form than they are read. The answers are those of a
//! kube-apiserver 1.34.4.

use serde_json::{Value, json};

use crate::{
    EmbeddedApi,
    testing::{api, get, send, widgets},
};

const THINGS: &str = "/apis/example.dev/v1/namespaces/n/widgets";
const SERVICES: &str = "/api/v1/namespaces/n/services";

async fn with_widgets() -> EmbeddedApi {
    let api = api().await;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let mut crd = widgets("Namespaced");
    let spec = json!({"type": "object", "properties": {
        "anything": {"x-kubernetes-preserve-unknown-fields": true},
        "maybe": {"type": "string", "nullable": true},
        "text": {"type": "string"},
    }});
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = spec;
    assert_eq!(send(&api, "POST", path, &crd).await.0, 201);
    api
}

/// Applies a widget. Returns its resource version and the answer.
async fn apply(api: &EmbeddedApi, rest: &Value) -> (u16, Value) {
    let mut object =
        json!({"apiVersion": "example.dev/v1", "kind": "Widget", "metadata": {"name": "a"}});
    for (key, value) in rest.as_object().unwrap() {
        for (inner, value) in value.as_object().unwrap() {
            object[key][inner] = value.clone();
        }
    }
    send(api, "PATCH", &format!("{THINGS}/a?fieldManager=m"), &object).await
}

fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap()
}

#[tokio::test]
async fn a_null_that_is_applied_is_a_change_each_time_and_is_not_read() {
    let api = with_widgets().await;
    let (code, first) = apply(&api, &json!({"spec": {"anything": null, "maybe": null}})).await;
    assert_eq!((code, &first["spec"]), (201, &json!({"maybe": null})));
    let (_, again) = apply(&api, &json!({"spec": {"anything": null, "maybe": null}})).await;
    assert_ne!(version(&again), version(&first));
    assert_eq!(again["metadata"]["generation"], 2);
    let (_, read) = get(&api, &format!("{THINGS}/a")).await;
    assert_eq!(read, again);
    let (code, refused) = apply(&api, &json!({"spec": {"text": null}})).await;
    assert_eq!((code, &refused["reason"]), (422, &json!("Invalid")));
}

#[tokio::test]
async fn empty_metadata_are_stored_as_they_are_applied_until_another_write() {
    let api = with_widgets().await;
    let (_, bare) = apply(&api, &json!({})).await;
    let (_, empty) = apply(&api, &json!({"metadata": {"labels": {}}})).await;
    assert_eq!(empty["metadata"].get("labels"), None);
    assert_ne!(version(&empty), version(&bare));
    // A repeated apply changes nothing, since the clock of this test stands still.
    let (_, again) = apply(&api, &json!({"metadata": {"labels": {}}})).await;
    assert_eq!(version(&again), version(&empty));
    // A write that sends the object as it was read changes what is stored.
    let (_, put) = send(&api, "PUT", &format!("{THINGS}/a"), &again).await;
    assert_ne!(version(&put), version(&again));
    let (_, put_again) = send(&api, "PUT", &format!("{THINGS}/a"), &put).await;
    assert_eq!(version(&put_again), version(&put));
}

#[tokio::test]
async fn a_label_of_null_is_read_as_an_empty_text() {
    let api = with_widgets().await;
    let (code, made) = apply(&api, &json!({"metadata": {"labels": {"a": null}}})).await;
    assert_eq!((code, &made["metadata"]["labels"]), (201, &json!({"a": ""})));
    let (_, list) = get(&api, &format!("{THINGS}?labelSelector=a%3D")).await;
    assert_eq!(list["items"][0]["metadata"]["name"], "a");
}

#[tokio::test]
async fn a_service_made_by_way_of_its_status_has_no_address_and_gets_none() {
    let api = api().await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
        "spec": {"ports": [{"port": 443}]}});
    let path = format!("{SERVICES}/a/status?fieldManager=m");
    let (code, made) = send(&api, "PATCH", &path, &service).await;
    assert_eq!((code, made["spec"].get("clusterIP")), (201, None), "{made:#}");
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let (code, patched) = send(&api, "PATCH", &format!("{SERVICES}/a"), &labels).await;
    assert_eq!(code, 200, "{patched:#}");
    assert_eq!(patched["spec"].get("clusterIPs"), None, "{patched:#}");
    assert_eq!(patched["spec"]["ipFamilies"], json!(["IPv4"]));
}

#[tokio::test]
async fn only_the_status_shows_a_service_default_that_no_longer_applies() {
    let api = api().await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
        "spec": {"clusterIP": "None"}});
    assert_eq!(send(&api, "POST", SERVICES, &service).await.0, 201);
    let external = json!({"spec": {"type": "ExternalName", "externalName": "b.example"}});
    let (code, shown) = send(&api, "PATCH", &format!("{SERVICES}/a"), &external).await;
    assert_eq!((code, shown["spec"].get("internalTrafficPolicy")), (200, None), "{shown:#}");
    assert_eq!(shown["spec"].get("clusterIPs"), None);
    let (_, status) = get(&api, &format!("{SERVICES}/a/status")).await;
    assert_eq!(status["spec"]["internalTrafficPolicy"], "Cluster");
}
