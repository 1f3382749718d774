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

/// An API with widgets in `v1`, which is stored, and in `v2`; these are the schemas of the two.
async fn with_versions(v1: &Value, v2: &Value, subresources: &Value) -> EmbeddedApi {
    let api = api().await;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let version = |name: &str, properties: &Value| {
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": properties}});
        json!({"name": name, "served": true, "storage": name == "v1", "schema": schema, "subresources": subresources})
    };
    let mut crd = widgets("Namespaced");
    crd["spec"]["versions"] = json!([version("v1", v1), version("v2", v2)]);
    let (code, answer) = send(&api, "POST", path, &crd).await;
    assert_eq!(code, 201, "{answer:#}");
    api
}

fn widget(version: &str, spec: &Value) -> Value {
    let api_version = format!("example.dev/{version}");
    json!({"apiVersion": api_version, "kind": "Widget", "metadata": {"name": "a"}, "spec": spec})
}

#[tokio::test]
async fn a_new_object_shows_the_default_of_its_status_and_stores_none() {
    let n = json!({"type": "integer", "default": 3});
    let status = json!({"status": {"type": "object", "default": {"phase": "New"}, "properties": {
        "phase": {"type": "string"}, "n": n,
    }}});
    let without = json!({"status": {"type": "object", "properties": {"n": n}}});
    let shown = Some(json!({"n": 3, "phase": "New"}));
    let api = with_versions(&status, &status, &json!({"status": {}})).await;
    let mut new = widget("v1", &json!({}));
    new["status"] = json!({"phase": "Mine", "n": 9});
    let (code, dry) = send(&api, "POST", &format!("{THINGS}?dryRun=All"), &new).await;
    assert_eq!((code, dry.get("status")), (201, shown.as_ref()));
    let (_, made) = send(&api, "POST", THINGS, &new).await;
    assert_eq!(made.get("status"), shown.as_ref());
    let paths = ["v1", "v2"].map(|version| THINGS.replace("v1", version));
    for path in paths.iter().flat_map(|path| [format!("{path}/a"), format!("{path}/a/status")]) {
        assert_eq!(get(&api, &path).await.1.get("status"), shown.as_ref(), "{path}");
    }
    assert_eq!(get(&api, THINGS).await.1["items"][0].get("status"), shown.as_ref());
    // The first write stores the default, the second one changes nothing.
    let (_, put) = send(&api, "PUT", &format!("{THINGS}/a"), &made).await;
    assert_ne!(version(&put), version(&made));
    assert_eq!((put.get("status"), &put["metadata"]["generation"]), (shown.as_ref(), &json!(1)));
    let (_, again) = send(&api, "PUT", &format!("{THINGS}/a"), &put).await;
    assert_eq!(version(&again), version(&put));

    let api = with_versions(&without, &without, &json!({"status": {}})).await;
    assert_eq!(send(&api, "POST", THINGS, &new).await.1.get("status"), None);
}

#[tokio::test]
async fn an_object_has_the_fields_and_defaults_of_the_stored_version_in_each_version() {
    let spec = |properties: Value| json!({"spec": {"type": "object", "properties": properties}});
    let (text, from) =
        (json!({"type": "string"}), |name: &str| json!({"type": "string", "default": name}));
    let v1 = spec(json!({"a": text, "both": from("v1"), "first": from("v1"), "shown": from("v1")}));
    let v2 = spec(
        json!({"a": text, "both": from("v2"), "second": from("v2"), "lost": text, "shown": text}),
    );
    let api = with_versions(&v1, &v2, &json!({})).await;
    let things = THINGS.replace("v1", "v2");
    let new = widget("v2", &json!({"a": "1", "lost": "x"}));
    let in_v2 = json!({"a": "1", "both": "v2", "shown": "v1"});
    for query in ["?dryRun=All", ""] {
        let (code, made) = send(&api, "POST", &format!("{things}{query}"), &new).await;
        assert_eq!((code, &made["spec"]), (201, &in_v2), "{query}");
    }
    assert_eq!(get(&api, &format!("{things}/a")).await.1["spec"], in_v2);
    assert_eq!(get(&api, &things).await.1["items"][0]["spec"], in_v2);
    let in_v1 = json!({"a": "1", "both": "v2", "first": "v1", "shown": "v1"});
    assert_eq!(get(&api, &format!("{THINGS}/a")).await.1["spec"], in_v1);
    let change = json!({"spec": {"a": "2", "lost": "x"}});
    let (_, patched) = send(&api, "PATCH", &format!("{things}/a"), &change).await;
    assert_eq!(patched["spec"], json!({"a": "2", "both": "v2", "shown": "v1"}));
    let (_, put) = send(&api, "PUT", &format!("{THINGS}/a"), &{
        let mut put = widget("v1", &json!({"a": "3"}));
        put["metadata"] = patched["metadata"].clone();
        put
    })
    .await;
    assert_eq!(put["spec"], json!({"a": "3", "both": "v1", "first": "v1", "shown": "v1"}));
    let in_v2 = json!({"a": "3", "both": "v1", "shown": "v1"});
    assert_eq!(get(&api, &format!("{things}/a")).await.1["spec"], in_v2);
}

#[tokio::test]
async fn a_custom_resource_that_is_too_large_for_etcd_is_refused() {
    let api = with_widgets().await;
    let too_large = "etcdserver: request is too large";
    let not_sent =
        "rpc error: code = ResourceExhausted desc = trying to send message larger than max (";
    let cases = [
        ("x", 1_500_000, 201, ""),
        ("x", 1_600_000, 500, too_large),
        ("x", 2_200_000, 500, not_sent),
        // Six bytes each, as it is stored.
        ("<", 300_000, 500, too_large),
        ("<", 200_000, 201, ""),
    ];
    for (index, (letter, count, code, message)) in cases.into_iter().enumerate() {
        let mut object = widget("v1", &json!({"text": letter.repeat(count)}));
        object["metadata"]["name"] = format!("w{index}").into();
        let (found, answer) = send(&api, "POST", THINGS, &object).await;
        let text = answer["message"].as_str().unwrap_or_default();
        assert!(found == code && text.starts_with(message), "{letter} {count}: {found} {text}");
    }
    let more = json!({"spec": {"anything": "x".repeat(200_000)}});
    let (code, answer) = send(&api, "PATCH", &format!("{THINGS}/w0"), &more).await;
    assert_eq!((code, &answer["message"]), (500, &json!(too_large)));
    assert_eq!(get(&api, &format!("{THINGS}/w0")).await.1["spec"].get("anything"), None);
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
