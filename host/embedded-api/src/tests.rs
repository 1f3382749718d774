use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    EmbeddedApi, Options,
    testing::{api, delete, get, send, widgets},
};

fn widget(spec: &Value) -> Value {
    json!({
        "apiVersion": "example.dev/v1", "kind": "Widget",
        "metadata": {
            "name": "a", "namespace": "n", "uid": "given", "resourceVersion": "7", "generation": 5, "finalizers": ["example.dev/hold"],
            "deletionTimestamp": "2024-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
        },
        "spec": spec,
        "status": {"phase": "Old"},
    })
}

fn typed_widgets() -> Value {
    let mut crd = widgets("Namespaced");
    let spec = json!({"type": "object", "properties": {"x": {"type": "string"}, "y": {"type": "integer", "default": 3}}});
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = spec;
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"] =
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    crd
}

#[tokio::test]
async fn an_object_loaded_without_validation_keeps_its_fields() {
    let api = api().await;
    assert!(!api.serves("example.dev", "v1", "Widget"));
    let refused = api.load(widget(&json!({})), false).unwrap_err();
    assert!(refused.to_string().contains("no matches for kind \"Widget\""), "{refused}");
    api.load(typed_widgets(), true).unwrap();
    assert!(api.serves("example.dev", "v1", "Widget"));

    api.load(widget(&json!({"x": 5})), false).unwrap();
    let (_, loaded) = get(&api, "/apis/example.dev/v1/namespaces/n/widgets/a").await;
    assert_eq!(loaded["spec"]["x"], 5, "loaded past validation");
    assert_eq!(loaded["status"]["phase"], "Old");
    let kept = ["uid", "generation", "finalizers", "deletionTimestamp"]
        .map(|key| loaded["metadata"][key].clone());
    assert_eq!(
        kept,
        [json!("given"), json!(5), json!(["example.dev/hold"]), json!("2024-01-01T00:00:00Z")]
    );
    assert!(
        api.objects()
            .iter()
            .any(|object| object["metadata"]["uid"] == "given" && object["kind"] == "Widget")
    );
}

#[tokio::test]
async fn an_object_loaded_with_validation_must_match_its_schema() {
    let api = api().await;
    api.load(typed_widgets(), true).unwrap();
    let refused = api.load(widget(&json!({"x": 5})), true).unwrap_err();
    let text = "Widget.example.dev \"a\" is invalid: spec.x: Invalid value: \"integer\": spec.x in body must be of type string: \"integer\"";
    assert_eq!(refused.to_string(), text);
    api.load(widget(&json!({"x": "5"})), true).unwrap();
    let (_, loaded) = get(&api, "/apis/example.dev/v1/namespaces/n/widgets/a").await;
    assert_eq!(loaded["spec"], json!({"x": "5", "y": 3}));
}

#[tokio::test]
async fn a_kind_without_a_schema_keeps_everything() {
    let api = api().await;
    api.serve_untyped("example.dev", "v1", "Gadget", "gadgets", true);
    let path = "/apis/example.dev/v1/namespaces/n/gadgets";
    let gadget = json!({"apiVersion": "example.dev/v1", "kind": "Gadget", "metadata": {"name": "a"}, "anything": [{"x": 1.5}]});
    assert_eq!(send(&api, "POST", path, &gadget).await.0, 201);
    assert_eq!(get(&api, &format!("{path}/a")).await.1["anything"], gadget["anything"]);
    let before = api.latest("example.dev", "gadgets");
    assert_eq!(before, api.revision());
    assert_eq!(delete(&api, &format!("{path}/a")).await.0, 200);
    assert_eq!(api.latest("example.dev", "gadgets"), before + 1);
}

#[tokio::test]
async fn a_namespace_that_was_loaded_can_go() {
    let api = api().await;
    api.load(
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "loaded"}}),
        false,
    )
    .unwrap();
    assert_eq!(delete(&api, "/api/v1/namespaces/loaded").await.0, 200);
    assert_eq!(get(&api, "/api/v1/namespaces/loaded").await.0, 404);
}

#[tokio::test]
async fn objects_take_the_time_of_the_clock_that_is_given() {
    let api = api().await;
    api.set_clock(Arc::new(|| "2030-01-01T00:00:00Z".parse().unwrap()));
    let map = json!({"metadata": {"name": "a"}});
    let (_, made) = send(&api, "POST", "/api/v1/namespaces/n/configmaps", &map).await;
    assert_eq!(made["metadata"]["creationTimestamp"], "2030-01-01T00:00:00Z");
}

#[tokio::test]
async fn a_crd_takes_the_place_of_the_same_kind_without_a_schema_and_its_objects_stay() {
    let api = api().await;
    api.serve_untyped("example.dev", "v1", "Widget", "widgets", true);
    api.load(widget(&json!({"x": "kept"})), false).unwrap();
    let (code, _) = send(
        &api,
        "POST",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        &typed_widgets(),
    )
    .await;
    assert_eq!(code, 201);
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.dev";
    let (_, crd) = get(&api, path).await;
    let conditions = crd["status"]["conditions"].as_array().unwrap();
    assert!(
        conditions.iter().any(|it| it["type"] == "Established" && it["status"] == "True"),
        "{crd:#}"
    );
    let (code, there) = get(&api, "/apis/example.dev/v1/namespaces/n/widgets/a").await;
    assert_eq!((code, &there["spec"]["x"]), (200, &json!("kept")));
}

#[tokio::test]
async fn uids_and_generated_names_follow_from_a_seed() {
    let made = async |seed| {
        let api = EmbeddedApi::new(Options { seed, ..Options::default() });
        let pod = json!({
            "metadata": {"generateName": "a-"},
            "spec": {"containers": [{"name": "a", "image": "a"}]},
        });
        let (code, pod) = send(&api, "POST", "/api/v1/namespaces/default/pods", &pod).await;
        assert_eq!(code, 201, "{pod:#}");
        [&pod["metadata"]["uid"], &pod["metadata"]["name"], &pod["spec"]["volumes"]]
            .map(Value::clone)
    };
    assert_eq!(made(Some(1)).await, made(Some(1)).await);
    for ((one, other), none) in
        made(Some(1)).await.iter().zip(made(Some(2)).await).zip(made(None).await)
    {
        assert_ne!(*one, other);
        assert_ne!(*one, none);
    }
}

#[tokio::test]
async fn the_preferred_version_is_the_first_that_serves_the_kind() {
    let api = api().await;
    api.serve_untyped("example.dev", "v1beta1", "Gadget", "gadgets", true);
    api.serve_untyped("example.dev", "v2alpha1", "Gadget", "gadgets", true);
    let preferred = |group, kind| api.preferred_version(group, kind);
    assert_eq!(preferred("example.dev", "Gadget").as_deref(), Some("v1beta1"));
    assert_eq!(preferred("", "Event").as_deref(), Some("v1"));
    assert_eq!(preferred("example.dev", "Absent"), None);
}

#[tokio::test]
async fn an_object_is_had_as_it_was_before_a_write() {
    let api = api().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let object = |value: &str| json!({"metadata": {"name": "a"}, "data": {"k": value}});
    let (_, made) = send(&api, "POST", path, &object("1")).await;
    let (_, changed) = send(&api, "PUT", &format!("{path}/a"), &object("2")).await;
    assert_eq!(api.before(&changed).as_ref(), Some(&made));
    assert_eq!(api.before(&made), None, "it was not there");
    delete(&api, &format!("{path}/a")).await;
    assert_eq!(api.before(&changed), Some(made), "what comes later does not count");
    api.compact();
    assert_eq!(api.before(&changed), None, "forgotten");
}
