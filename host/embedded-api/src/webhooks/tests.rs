use std::collections::BTreeMap;

use axum::body::Body;
use parking_lot::Mutex;
use serde_json::json;
use tower::ServiceExt as _;

use super::*;
use crate::{
    EmbeddedApi,
    testing::{Got, api, delete, exchange, get, send, widgets},
};

/// Webhooks for widgets, whose `spec.size` (v1, stored) is `spec.length` in v2. `spec.do` tells
/// them to refuse.
#[derive(Default)]
struct Widgets {
    /// The number of objects of each conversion.
    conversions: Mutex<Vec<usize>>,
    /// The user and the presence of object and old object of each review.
    reviews: Mutex<Vec<(String, bool, bool)>>,
}

impl Webhooks for Widgets {
    fn converts(&self, group: &str, kind: &str) -> bool {
        (group, kind) == ("example.dev", "Widget")
    }

    fn convert(&self, kind: &str, to: &str, objects: Vec<Value>) -> Result<Vec<Value>, String> {
        assert_eq!(kind, "Widget");
        self.conversions.lock().push(objects.len());
        objects.into_iter().map(|object| converted(object, to)).collect()
    }

    fn admit(&self, review: &Review<'_>) -> Result<Admitted, Refused> {
        if (review.version, review.kind) != ("v2", "Widget") {
            return Ok(Admitted::default());
        }
        let (new, old) = (review.object, review.old);
        self.reviews.lock().push((review.user.to_owned(), new.is_some(), old.is_some()));
        let object = new.or(old).unwrap();
        let (hook, message) = ("check".to_owned(), "told to".to_owned());
        match object.pointer("/spec/do").and_then(Value::as_str) {
            Some("deny") => return Err(Refused::Denied { hook, code: 422, message }),
            Some("fail") => return Err(Refused::Failed { hook, message }),
            _ => {}
        }
        let mut object = object.clone();
        object["metadata"]["annotations"] = json!({"marked": "yes"});
        let warnings = vec!["it is marked".to_owned()];
        Ok(Admitted { object: new.is_some().then_some(object), warnings })
    }
}

fn converted(mut object: Value, to: &str) -> Result<Value, String> {
    if object.pointer("/spec/do") == Some(&json!("refuse")) {
        return Err("told to refuse".to_owned());
    }
    let (from, into) = if to == "example.dev/v1" { ("length", "size") } else { ("size", "length") };
    object["apiVersion"] = to.into();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        && let Some(value) = spec.remove(from)
    {
        spec.insert(into.to_owned(), value);
    }
    Ok(object)
}

const V1: &str = "/apis/example.dev/v1/namespaces/n/widgets";
const V2: &str = "/apis/example.dev/v2/namespaces/n/widgets";

async fn cluster() -> (EmbeddedApi, Arc<Widgets>) {
    let api = api().await;
    let mut definition = widgets("Namespaced");
    let version = |name: &str, field: &str, is_stored: bool| {
        let spec = json!({"type": "object", "properties": {
            field: {"type": "integer"}, "do": {"type": "string"},
        }});
        let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let schema = json!({"type": "object", "properties": {"spec": spec, "status": status}});
        json!({
            "name": name, "served": true, "storage": is_stored, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": schema},
        })
    };
    definition["spec"]["versions"] =
        json!([version("v1", "size", true), version("v2", "length", false)]);
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(send(&api, "POST", path, &definition).await.0, 201);
    let webhooks = Arc::<Widgets>::default();
    api.set_webhooks(Some(webhooks.clone()));
    (api, webhooks)
}

fn widget(version: &str, name: &str, spec: &Value) -> Value {
    let metadata = json!({"name": name, "namespace": "n"});
    json!({
        "apiVersion": format!("example.dev/{version}"), "kind": "Widget", "metadata": metadata,
        "spec": spec,
    })
}

fn spec((status, object): Got) -> Value {
    assert!((200..300).contains(&status), "{object}");
    object["spec"].clone()
}

fn stored(api: &EmbeddedApi) -> Value {
    api.objects().into_iter().find(|object| object["kind"] == "Widget").unwrap()
}

#[tokio::test]
async fn an_object_is_stored_in_one_version_and_shown_in_each() {
    let (api, _) = cluster().await;
    let one = format!("{V2}/a");
    let new = widget("v2", "a", &json!({"length": 3}));
    assert_eq!(spec(send(&api, "POST", V2, &new).await), json!({"length": 3}));
    assert_eq!(stored(&api)["apiVersion"], "example.dev/v1");
    assert_eq!(stored(&api)["spec"], json!({"size": 3}));
    assert_eq!(spec(get(&api, &one).await), json!({"length": 3}));
    assert_eq!(spec(get(&api, &format!("{V1}/a")).await), json!({"size": 3}));

    let patch = json!({"spec": {"length": 4}});
    assert_eq!(spec(send(&api, "PATCH", &one, &patch).await), json!({"length": 4}));
    assert_eq!(stored(&api)["spec"], json!({"size": 4}));
    assert_eq!(stored(&api)["metadata"]["generation"], 2);
    let (_, mut object) = get(&api, &one).await;
    object["spec"]["length"] = json!(5);
    assert_eq!(spec(send(&api, "PUT", &one, &object).await), json!({"length": 5}));
    let status = json!({"status": {"state": "Ready"}});
    assert_eq!(send(&api, "PATCH", &format!("{one}/status"), &status).await.0, 200);
    assert_eq!(stored(&api)["spec"], json!({"size": 5}));
    assert_eq!(stored(&api)["status"], json!({"state": "Ready"}));

    let revision = api.revision();
    let patch = json!({"spec": {"length": 5}});
    assert_eq!(spec(send(&api, "PATCH", &one, &patch).await), json!({"length": 5}));
    assert_eq!(api.revision(), revision, "a write that changes nothing is none");
    let shown = api.in_version(&stored(&api), "v2").unwrap();
    assert_eq!((&shown["apiVersion"], &shown["spec"]), (&json!("example.dev/v2"), &patch["spec"]));
}

#[tokio::test]
async fn an_object_that_is_put_in_is_stored_in_the_stored_version() {
    let (api, _) = cluster().await;
    for validate in [true, false] {
        api.load(widget("v2", "a", &json!({"length": 3})), validate).unwrap();
        assert_eq!(stored(&api)["spec"], json!({"size": 3}));
    }
}

#[tokio::test]
async fn a_list_is_one_question() {
    let (api, webhooks) = cluster().await;
    for name in ["a", "b", "c"] {
        send(&api, "POST", V1, &widget("v1", name, &json!({"size": 1}))).await;
    }
    webhooks.conversions.lock().clear();
    let (_, list) = get(&api, V2).await;
    let items = list["items"].as_array().unwrap();
    assert!(items.iter().all(|item| item["spec"] == json!({"length": 1})), "{list}");
    assert_eq!((items.len(), webhooks.conversions.lock().as_slice()), (3, &[3][..]));
    get(&api, V1).await;
    assert_eq!(webhooks.conversions.lock().len(), 1, "the stored version is not converted");
}

#[tokio::test]
async fn a_watch_shows_the_objects_in_its_version() {
    let (api, _) = cluster().await;
    send(&api, "POST", V1, &widget("v1", "a", &json!({"size": 1}))).await;
    let path = format!("{V2}?watch=true&timeoutSeconds=600");
    let request = http::Request::builder().uri(path).body(Body::empty()).unwrap();
    let response = api.router().oneshot(request).await.unwrap();
    let mut lines = response.into_body().into_data_stream();
    let mut next = async || {
        let line = futures::StreamExt::next(&mut lines).await.unwrap().unwrap();
        let event: Value = serde_json::from_slice(&line).unwrap();
        (event["type"].as_str().unwrap().to_owned(), event["object"].clone())
    };
    let (kind, object) = next().await;
    assert_eq!((kind.as_str(), &object["spec"]), ("ADDED", &json!({"length": 1})));
    send(&api, "PATCH", &format!("{V1}/a"), &json!({"spec": {"size": 2}})).await;
    let (kind, object) = next().await;
    assert_eq!((kind.as_str(), &object["spec"]), ("MODIFIED", &json!({"length": 2})));
    assert_eq!(object["apiVersion"], "example.dev/v2");
    send(&api, "PATCH", &format!("{V1}/a"), &json!({"spec": {"do": "refuse"}})).await;
    let (kind, status) = next().await;
    assert_eq!((kind.as_str(), &status["code"]), ("ERROR", &json!(500)));
}

#[tokio::test]
async fn an_apply_in_another_version_merges_in_that_version() {
    let (api, _) = cluster().await;
    let apply = async |version: &str, manager: &str, spec: Value| {
        let path = format!("/apis/example.dev/{version}/namespaces/n/widgets/a");
        let path = format!("{path}?fieldManager={manager}");
        send(&api, "PATCH", &path, &widget(version, "a", &spec)).await
    };
    let made = apply("v2", "jane", json!({"length": 3})).await;
    assert_eq!((made.0, spec(made)), (201, json!({"length": 3})));
    assert_eq!(stored(&api)["spec"], json!({"size": 3}));
    assert_eq!(spec(apply("v2", "jane", json!({"length": 4})).await), json!({"length": 4}));
    assert_eq!(stored(&api)["spec"], json!({"size": 4}));
    let (status, conflict) = apply("v2", "john", json!({"length": 5})).await;
    assert_eq!(status, 409, "{conflict}");
    // The fields of another version are not compared, not even those of one name.
    let both = json!({"length": 4, "do": "nothing"});
    assert_eq!(spec(apply("v2", "jane", both.clone()).await), both);
    let other = json!({"size": 5, "do": "more"});
    assert_eq!(spec(apply("v1", "john", other.clone()).await), other);
    let entries = stored(&api)["metadata"]["managedFields"].clone();
    let entries = entries.as_array().unwrap().iter();
    let fields: BTreeMap<&str, &Value> = entries
        .map(|entry| (entry["apiVersion"].as_str().unwrap(), &entry["fieldsV1"]["f:spec"]))
        .collect();
    let size = json!({"f:size": {}, "f:do": {}});
    let length = json!({"f:length": {}, "f:do": {}});
    let expected = [("example.dev/v1", &size), ("example.dev/v2", &length)];
    assert_eq!(fields, BTreeMap::from(expected), "the managers of both versions are kept");
}

#[tokio::test]
async fn a_refused_conversion_changes_nothing() {
    let (api, _) = cluster().await;
    let refused = widget("v2", "a", &json!({"do": "refuse"}));
    let (status, answer) = send(&api, "POST", V2, &refused).await;
    let expected = "conversion webhook for example.dev/v2, Kind=Widget failed: told to refuse";
    assert_eq!((status, &answer["message"]), (500, &json!(expected)));
    assert!(api.load(refused, true).is_err());
    assert_eq!(get(&api, &format!("{V1}/a")).await.0, 404);

    send(&api, "POST", V1, &widget("v1", "a", &json!({"do": "refuse"}))).await;
    send(&api, "POST", V1, &widget("v1", "b", &json!({"size": 1}))).await;
    let expected = "conversion webhook for example.dev/v1, Kind=Widget failed: told to refuse";
    let (one, applied) = (format!("{V2}/a"), widget("v2", "a", &json!({"length": 1})));
    let applying = format!("{one}?fieldManager=jane");
    let changed = json!({"spec": {"length": 1}});
    for (case, (status, answer)) in [
        ("get", get(&api, &one).await),
        ("list", get(&api, V2).await),
        ("patch", send(&api, "PATCH", &one, &changed).await),
        ("apply", send(&api, "PATCH", &applying, &applied).await),
        ("delete", delete(&api, &one).await),
    ] {
        assert_eq!((status, &answer["message"]), (500, &json!(expected)), "{case}");
    }
    assert_eq!(stored(&api)["spec"], json!({"do": "refuse"}));
    assert_eq!(delete(&api, &format!("{V1}/a")).await.0, 200, "through the stored version");
}

#[tokio::test]
async fn an_object_with_finalizers_is_deleted_in_each_version() {
    let (api, _) = cluster().await;
    let mut object = widget("v2", "a", &json!({"length": 3}));
    object["metadata"]["finalizers"] = json!(["example.dev/wait"]);
    send(&api, "POST", V2, &object).await;
    let one = format!("{V2}/a");
    assert_eq!(spec(delete(&api, &one).await), json!({"length": 3}));
    assert_eq!(stored(&api)["spec"], json!({"size": 3}));
    let patch = json!({"metadata": {"finalizers": null}});
    assert_eq!(send(&api, "PATCH", &one, &patch).await.0, 200);
    assert_eq!(get(&api, &one).await.0, 404);
}

#[tokio::test]
async fn without_webhooks_versions_differ_in_their_names_alone() {
    let (api, _) = cluster().await;
    api.set_webhooks(None);
    send(&api, "POST", V1, &widget("v1", "a", &json!({"do": "refuse"}))).await;
    assert_eq!(spec(get(&api, &format!("{V2}/a")).await), json!({"do": "refuse"}));
}

#[tokio::test]
async fn an_admitted_object_is_stored_as_the_webhooks_changed_it() {
    let (api, webhooks) = cluster().await;
    let object = widget("v2", "a", &json!({"length": 3}));
    let (status, warnings, made) = exchange(&api, "POST", V2, "application/json", &object).await;
    assert_eq!((status, &made["metadata"]["annotations"]["marked"]), (201, &json!("yes")));
    assert_eq!(warnings, ["299 - \"it is marked\""]);
    assert_eq!(stored(&api)["metadata"]["annotations"]["marked"], "yes");
    let manager = &stored(&api)["metadata"]["managedFields"];
    assert!(manager[0]["fieldsV1"].get("f:metadata").is_none(), "{manager}");
    let path = format!("{V2}/a");
    send(&api, "PATCH", &path, &json!({"spec": {"length": 4}})).await;
    send(&api, "PATCH", &format!("{path}/status"), &json!({"status": {"state": "Ready"}})).await;
    send(&api, "PATCH", &format!("{V1}/a"), &json!({"spec": {"size": 5}})).await;
    let (status, warnings, _) = exchange(&api, "DELETE", &path, "", &Value::Null).await;
    assert_eq!((status, warnings.len()), (200, 1));
    let admin = |new, old| ("admin".to_owned(), new, old);
    let expected = [admin(true, false), admin(true, true), admin(false, true)];
    assert_eq!(*webhooks.reviews.lock(), expected, "neither a status nor another version");
}

#[tokio::test]
async fn a_denied_request_changes_nothing() {
    let (api, _) = cluster().await;
    let denied = "admission webhook \"check\" denied the request: told to";
    let failed = "Internal error occurred: failed calling webhook \"check\": told to";
    for (word, code, message) in [("deny", 422, denied), ("fail", 500, failed)] {
        let name = format!("with-{word}");
        let object = widget("v2", &name, &json!({"do": word}));
        let expected = (code, &json!(message));
        let (status, answer) = send(&api, "POST", V2, &object).await;
        assert_eq!((status, &answer["message"]), expected);
        assert_eq!(get(&api, &format!("{V2}/{name}")).await.0, 404);
        send(&api, "POST", V1, &widget("v1", &name, &json!({"do": word}))).await;
        let revision = api.revision();
        for path in [format!("{V2}/{name}"), V2.to_owned()] {
            let (status, answer) = delete(&api, &path).await;
            assert_eq!((status, &answer["message"]), expected, "{path}");
        }
        let patch = json!({"metadata": {"labels": {"a": "b"}}});
        let (status, answer) = send(&api, "PATCH", &format!("{V2}/{name}"), &patch).await;
        assert_eq!((status, &answer["message"]), expected);
        assert_eq!(api.revision(), revision);
        assert_eq!(delete(&api, &format!("{V1}/{name}")).await.0, 200);
    }
}
