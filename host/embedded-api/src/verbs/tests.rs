mod stored;

use serde_json::{Value, json};

use crate::{
    EmbeddedApi,
    testing::{api, exchange, get, send, send_as, widgets},
};

async fn post(api: &EmbeddedApi, path: &str, body: &Value) -> Value {
    let (code, answer) = send(api, "POST", path, body).await;
    assert_eq!(code, 201, "{answer:#}");
    answer
}

#[tokio::test]
async fn requests_that_need_a_container_are_refused_as_not_implemented() {
    let api = api().await;
    let cases = [
        ("GET", "pods/p/log", "pods \"p\": there are no logs: "),
        ("GET", "pods/p/exec", "pods \"p\": cannot run a command in a container: "),
        ("POST", "pods/p/exec", "pods \"p\": cannot run a command in a container: "),
        ("POST", "pods/p/attach", "pods \"p\": cannot attach to a container: "),
        ("POST", "pods/p/portforward", "pods \"p\": cannot forward ports to a pod: "),
        (
            "PATCH",
            "pods/p/ephemeralcontainers",
            "pods \"p\": cannot add a container for debugging: ",
        ),
        ("GET", "pods/p/proxy/healthz", "pods \"p\": cannot connect to a pod: "),
        ("GET", "services/p/proxy", "services \"p\": cannot connect to a service: "),
    ];
    for (method, path, text) in cases {
        let path = format!("/api/v1/namespaces/n/{path}");
        let (code, status) = send(&api, method, &path, &json!({})).await;
        assert_eq!((code, &status["reason"]), (501, &json!("NotImplemented")), "{method} {path}");
        let message = status["message"].as_str().unwrap();
        assert!(message.starts_with(text), "{message}");
        assert!(message.ends_with("keeps pods as objects and runs no containers"), "{message}");
    }
    let (code, _) = get(&api, "/apis/apps/v1/namespaces/n/deployments/p/log").await;
    assert_eq!(code, 404, "other kinds have no such path");
}

#[tokio::test]
async fn every_client_is_an_administrator_with_all_rights() {
    let api = api().await;
    let whoami = post(&api, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({})).await;
    assert_eq!(
        whoami["status"]["userInfo"],
        json!({"username": "admin", "groups": ["system:masters", "system:authenticated"]})
    );
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let asked = json!({"spec": {"resourceAttributes": {"verb": "delete", "resource": "nodes"}}});
    let told = post(&api, path, &asked).await;
    let reason = "the embedded API knows no users: whoever connects may do everything";
    assert_eq!(told["status"], json!({"allowed": true, "reason": reason}));
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let told = post(&api, path, &json!({"spec": {"namespace": "n"}})).await;
    let everything = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
    assert_eq!(told["status"]["resourceRules"], everything);
}

#[tokio::test]
async fn a_local_review_is_about_its_own_namespace() {
    let api = api().await;
    let path = "/apis/authorization.k8s.io/v1/namespaces/n/localsubjectaccessreviews";
    let review = |namespace: &str| {
        let attributes = json!({"verb": "get", "resource": "pods", "namespace": namespace});
        json!({"metadata": {"namespace": "n"}, "spec": {"user": "bob", "resourceAttributes": attributes}})
    };
    assert_eq!(post(&api, path, &review("n")).await["status"], json!({"allowed": false}));
    assert_eq!(send(&api, "POST", path, &review("other")).await.0, 400);
}

#[tokio::test]
async fn a_token_tells_whose_it_is_until_the_account_is_gone() {
    let api = api().await;
    let account = "/api/v1/namespaces/n/serviceaccounts/default";
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let made = post(&api, &format!("{account}/token"), &request).await;
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let review = json!({"spec": {"token": made["status"]["token"]}});
    let told = post(&api, reviews, &review).await;
    assert_eq!(told["status"]["authenticated"], true, "{told:#}");
    assert_eq!(told["status"]["user"]["username"], "system:serviceaccount:n:default");
    let foreign = post(&api, reviews, &json!({"spec": {"token": "x.y.z"}})).await;
    assert_eq!(foreign["status"].get("authenticated"), None, "{foreign:#}");
    assert_eq!(send(&api, "DELETE", account, &Value::Null).await.0, 200);
    let gone = post(&api, reviews, &review).await;
    assert_eq!(gone["status"]["error"], "the service account of the token is gone");
}

#[tokio::test]
async fn both_forms_of_an_autoscaler_are_one_object() {
    let api = api().await;
    let [old, new] = ["v1", "v2"].map(|version| {
        format!("/apis/autoscaling/{version}/namespaces/n/horizontalpodautoscalers")
    });
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let spec =
        json!({"scaleTargetRef": target, "maxReplicas": 3, "targetCPUUtilizationPercentage": 50});
    let made = post(&api, &old, &json!({"metadata": {"name": "web"}, "spec": spec})).await;
    assert_eq!(made["apiVersion"], "autoscaling/v1");
    assert_eq!(made["spec"]["targetCPUUtilizationPercentage"], 50);
    let (_, shown) = get(&api, &format!("{new}/web")).await;
    assert_eq!(shown["apiVersion"], "autoscaling/v2");
    assert_eq!(shown["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 50);
    let patch = json!({"spec": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 7}}}});
    assert_eq!(send(&api, "PATCH", &format!("{new}/web"), &patch).await.0, 200);
    let patch = json!({"spec": {"maxReplicas": 5}});
    assert_eq!(send(&api, "PATCH", &format!("{old}/web"), &patch).await.0, 200);
    let (_, shown) = get(&api, &format!("{new}/web")).await;
    assert_eq!(shown["spec"]["maxReplicas"], 5);
    assert_eq!(shown["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"], 7);
    assert_eq!(shown["metadata"].get("annotations"), None, "{shown:#}");
}

/// Returns all objects and the revision, which a dry run must not change.
fn everything(api: &EmbeddedApi) -> (u64, Vec<Value>) {
    (api.revision(), api.objects())
}

/// Returns an API with some objects.
async fn furnished() -> EmbeddedApi {
    let api = api().await;
    post(&api, "/apis/apps/v1/namespaces/n/deployments", &deployment()).await;
    for (name, finalizers) in [("free", json!([])), ("held", json!(["example.dev/hold"]))] {
        let metadata = json!({"name": name, "finalizers": finalizers});
        let pod =
            json!({"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        post(&api, "/api/v1/namespaces/n/pods", &pod).await;
    }
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    post(&api, crds, &widgets("Namespaced")).await;
    api
}

#[tokio::test]
async fn a_dry_run_of_any_verb_answers_and_changes_nothing() {
    let api = furnished().await;
    let web = "/apis/apps/v1/namespaces/n/deployments/web";
    let [status, scale] = ["status", "scale"].map(|part| format!("{web}/{part}"));
    let apply = format!("{web}?fieldManager=m&force=true");
    let pods = "/api/v1/namespaces/n/pods";
    let [held, eviction] = ["held", "held/eviction"].map(|pod| format!("{pods}/{pod}"));
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.dev";
    let map = json!({"metadata": {"name": "new"}});
    let replicas = json!({"spec": {"replicas": 7}});
    let (_, mut put) = get(&api, web).await;
    put["spec"]["replicas"] = json!(7);
    let applied = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 7}});
    let evicted =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "held"}});
    let none = Value::Null;
    let (seven, new, success) = (json!(7), json!("new"), json!("Success"));
    let (name, spec) = ("/metadata/name", "/spec/replicas");
    let (deletion, time) = ("/metadata/deletionTimestamp", json!("2024-06-01T12:00:00Z"));
    let cases = [
        ("POST", "/api/v1/namespaces/n/configmaps", &map, name, &new),
        ("POST", "/api/v1/namespaces", &map, name, &new),
        ("PUT", web, &put, spec, &seven),
        ("PATCH", web, &replicas, spec, &seven),
        ("PATCH", &apply, &applied, spec, &seven),
        ("PATCH", &status, &json!({"status": {"replicas": 7}}), "/status/replicas", &seven),
        ("PATCH", &scale, &replicas, spec, &seven),
        ("DELETE", web, &none, "/status", &success),
        ("DELETE", &held, &none, deletion, &time),
        ("DELETE", "/api/v1/namespaces/n", &none, deletion, &time),
        ("DELETE", pods, &none, "/items/0/metadata/name", &json!("free")),
        ("DELETE", crd, &none, deletion, &time),
        ("POST", &eviction, &evicted, "/status", &success),
    ];
    let before = everything(&api);
    for (method, path, body, pointer, expected) in cases {
        let separator = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{separator}dryRun=All");
        let (code, answer) = send(&api, method, &path, body).await;
        assert!((200..300).contains(&code), "{method} {path}: {answer:#}");
        assert_eq!(answer.pointer(pointer), Some(expected), "{method} {path}: {answer:#}");
        assert_eq!(everything(&api), before, "{method} {path}");
    }
}

#[tokio::test]
async fn namespaces_that_always_are_cannot_be_deleted() {
    let api = api().await;
    let (code, status) = send(&api, "DELETE", "/api/v1/namespaces/default", &Value::Null).await;
    let text = "namespaces \"default\" is forbidden: this namespace may not be deleted";
    assert_eq!((code, &status["message"]), (403, &json!(text)));
    assert_eq!(send(&api, "DELETE", "/api/v1/namespaces/n", &Value::Null).await.0, 200);
}

fn deployment() -> Value {
    let labels = json!({"app": "web"});
    let pod = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": labels}, "template": pod}})
}

#[tokio::test]
async fn a_wrong_type_is_refused_in_the_words_of_kubernetes() {
    let api = api().await;
    let path = "/apis/apps/v1/namespaces/n/deployments";
    let mut wrong = deployment();
    wrong["spec"]["replicas"] = json!("many");
    let (code, status) = send(&api, "POST", path, &wrong).await;
    let why = "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32";
    let text = format!("Deployment in version \"v1\" cannot be handled as a Deployment: {why}");
    assert_eq!((code, &status["message"]), (400, &json!(text)));
    wrong = deployment();
    wrong["spec"]["template"]["spec"]["containers"][0]["image"] = json!(5);
    let (_, status) = send(&api, "POST", path, &wrong).await;
    let why =
        "number into Go struct field Container.spec.template.spec.containers.image of type string";
    assert!(status["message"].as_str().unwrap().ends_with(why), "{status}");
    let map = json!({"metadata": {"name": "a"}, "data": {"a": 1}});
    let (_, status) = send(&api, "POST", "/api/v1/namespaces/n/configmaps", &map).await;
    let why = "json: cannot unmarshal number into Go struct field ConfigMap.data of type string";
    assert!(status["message"].as_str().unwrap().ends_with(why), "{status}");

    post(&api, path, &deployment()).await;
    let many = json!({"spec": {"replicas": "many"}});
    let web = format!("{path}/web");
    let (code, status) = send(&api, "PATCH", &web, &many).await;
    let message = status["message"].as_str().unwrap();
    assert_eq!(code, 422);
    assert!(message.contains("patch: Invalid value: \"{\\\"apiVersion"), "{message}");
    assert!(message.ends_with("\": json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"), "{message}");
    let (code, status) =
        send_as(&api, "PATCH", &web, "application/strategic-merge-patch+json", &many).await;
    let cause = &status["details"]["causes"][0]["message"];
    assert_eq!(
        (code, cause),
        (422, &json!("Invalid value: \"map[spec:map[replicas:many]]\": unrecognized type: int32"))
    );
}

#[tokio::test]
async fn every_write_warns_of_unknown_fields_or_refuses_them() {
    const MERGE: &str = "application/merge-patch+json";
    const STRATEGIC: &str = "application/strategic-merge-patch+json";
    const JSON: &str = "application/json";
    let api = furnished().await;
    let web = "/apis/apps/v1/namespaces/n/deployments/web";
    let widgets = "/apis/example.dev/v1/namespaces/n/widgets";
    let widget =
        json!({"apiVersion": "example.dev/v1", "kind": "Widget", "metadata": {"name": "w"}});
    post(&api, widgets, &widget).await;
    let with = |mut object: Value| {
        object["unknown"] = json!(1);
        object
    };
    let (_, live) = get(&api, web).await;
    let (_, live_widget) = get(&api, &format!("{widgets}/w")).await;
    let named = |kind: &str, name: &str| json!({"kind": kind, "metadata": {"name": name}});
    let other =
        json!({"apiVersion": "example.dev/v1", "kind": "Widget", "metadata": {"name": "x"}});
    let account = "/api/v1/namespaces/n/serviceaccounts/default/token";
    let reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let cases = [
        (
            "POST",
            "/api/v1/namespaces/n/configmaps".to_owned(),
            JSON,
            json!({"metadata": {"name": "c"}}),
        ),
        ("POST", widgets.to_owned(), JSON, other),
        ("PUT", web.to_owned(), JSON, live.clone()),
        ("PUT", format!("{web}/status"), JSON, live),
        ("PUT", format!("{web}/scale"), JSON, named("Scale", "web")),
        ("PUT", format!("{widgets}/w"), JSON, live_widget),
        ("PATCH", web.to_owned(), MERGE, json!({})),
        ("PATCH", web.to_owned(), STRATEGIC, json!({})),
        ("PATCH", format!("{web}/scale"), MERGE, json!({})),
        ("PATCH", format!("{widgets}/w"), MERGE, json!({})),
        (
            "POST",
            "/api/v1/namespaces/n/pods/held/eviction".to_owned(),
            JSON,
            named("Eviction", "held"),
        ),
        ("POST", account.to_owned(), JSON, json!({})),
        ("POST", reviews.to_owned(), JSON, json!({})),
    ];
    for (method, path, content_type, body) in cases {
        let body = with(body);
        let ask = |validation: &str| {
            let path = format!("{path}?dryRun=All&fieldValidation={validation}");
            let (api, body) = (api.clone(), body.clone());
            async move { exchange(&api, method, &path, content_type, &body).await }
        };
        let (code, warnings, answer) = ask("Warn").await;
        assert!(code < 300, "{method} {path}: {answer:#}");
        assert_eq!(warnings, ["299 - \"unknown field \\\"unknown\\\"\""], "{method} {path}");
        let (code, warnings, _) = ask("Ignore").await;
        assert!(code < 300 && warnings.is_empty(), "{method} {path}: {warnings:?}");
        let (code, _, answer) = ask("Strict").await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(code >= 400, "{method} {path}: {answer:#}");
        assert!(
            message.contains("strict decoding error: unknown field \"unknown\""),
            "{method} {path}: {message}"
        );
    }
}

#[tokio::test]
async fn a_strict_error_shows_the_patched_object_or_a_strategic_patch() {
    let api = furnished().await;
    let web = "/apis/apps/v1/namespaces/n/deployments/web?fieldValidation=Strict";
    let cases = [
        ("application/merge-patch+json", r#"\"unknown\":1}": strict"#),
        ("application/strategic-merge-patch+json", r#""map[unknown:1]": strict"#),
    ];
    for (content_type, shown) in cases {
        let (_, status) = send_as(&api, "PATCH", web, content_type, &json!({"unknown": 1})).await;
        let message = status["message"].as_str().unwrap();
        assert!(message.contains(shown), "{message}");
    }
}
