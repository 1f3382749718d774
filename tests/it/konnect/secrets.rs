//! Tokens are planted as markers, and looked for wherever the host or a guest says something.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use konnect::kind;
use konnect_fake::Fault;
use kube::{
    Api,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    },
};
use mortise_core::reconcile::{Mode, Report};
use mortise_tests::loaded;
use serde_json::{Value, json};

use super::watched::{NAMESPACE, Watched};
use crate::host::merge;

/// The token in a Secret, and the one in an object of authentication.
const OF_SECRET: &str = "kpat_marker-of-a-secret";
const OF_OBJECT: &str = "kpat_marker-of-an-object";
/// A token that the API does not take.
const REFUSED: &str = "kpat_marker-that-is-refused";
const PASSWORD: &str = "marker-of-a-password";
const PLUGIN: &str = "marker-of-a-plugin";

fn object(kind: &str, name: &str, fields: &Value) -> Value {
    let api_version = kind::find(kind).map_or("v1".to_owned(), |kind| kind.of().api_version());
    let metadata = json!({"name": name, "namespace": NAMESPACE});
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
    merge(&mut object, fields);
    object
}

/// Adds the annotation into which `kubectl apply` copies an object.
fn applied_by_kubectl(mut object: Value) -> Value {
    let copy = json!({"kubectl.kubernetes.io/last-applied-configuration": object.to_string()});
    object["metadata"]["annotations"] = copy;
    object
}

fn secret(token: &str) -> Value {
    let labels = json!({"konghq.com/credential": "konnect", "konghq.com/secret": "true"});
    let data = json!({"token": BASE64_STANDARD.encode(token)});
    let fields = json!({"metadata": {"labels": labels}, "data": data});
    applied_by_kubectl(object("Secret", "token", &fields))
}

fn auth(name: &str, spec: &Value) -> Value {
    applied_by_kubectl(object("KonnectAPIAuthConfiguration", name, &json!({"spec": spec})))
}

/// Returns the objects of authentication, each of another kind of token or server.
fn auths() -> Vec<Value> {
    let of_secret = |server: &str| json!({"type": "secretRef", "secretRef": {"name": "token"}, "serverURL": server});
    let token =
        |token: &str, server: &str| json!({"type": "token", "token": token, "serverURL": server});
    vec![
        auth("secret", &of_secret("eu.api.konghq.com")),
        auth("token", &token(OF_OBJECT, "us.api.konghq.com")),
        auth("refused", &token(REFUSED, "eu.api.konghq.com")),
        auth("elsewhere", &of_secret("eu.api.konghq.com.evil.example")),
    ]
}

fn control_plane(name: &str) -> Value {
    let spec = json!({"createControlPlaneRequest": {"name": name}, "konnect": {"authRef": {"name": name}}});
    object("KonnectGatewayControlPlane", name, &json!({"spec": spec}))
}

/// Returns the objects that become entities of the control plane `secret`.
fn entities() -> Vec<Value> {
    let plane = json!({"type": "konnectNamespacedRef", "konnectNamespacedRef": {"name": "secret"}});
    let service = json!({
        "metadata": {"annotations": {"konghq.com/plugins": "limits"}},
        "spec": {"name": "orders", "host": "orders.example", "controlPlaneRef": plane},
    });
    let credential =
        json!({"consumerRef": {"name": "somebody"}, "username": "somebody", "password": PASSWORD});
    vec![
        object("KongService", "orders", &service),
        object(
            "KongPlugin",
            "limits",
            &json!({"plugin": "rate-limiting", "config": {"key": PLUGIN}}),
        ),
        object(
            "KongConsumer",
            "somebody",
            &json!({"username": "somebody", "spec": {"controlPlaneRef": plane}}),
        ),
        object("KongCredentialBasicAuth", "password", &json!({"spec": credential})),
    ]
}

/// Returns faults that quote what was sent.
fn quoting() -> Vec<Fault> {
    let fault = |method: &str, path: &str, quoted: String| Fault {
        method: Some(method.to_owned()),
        path: path.to_owned(),
        times: Some(-1),
        status: Some(400),
        headers: [("x-request".to_owned(), format!("authorization: Bearer {OF_SECRET}"))].into(),
        body: Some(
            json!({"message": "validation error", "details": [{"field": quoted, "reason": quoted}]}),
        ),
        ..Fault::default()
    };
    vec![
        fault("POST", "/basic-auth", format!("{PASSWORD} Bearer {OF_SECRET}")),
        fault("POST", "/plugins", format!("{PLUGIN} Bearer {OF_SECRET}")),
        fault("PUT", "/services/", format!("Bearer {OF_SECRET}")),
    ]
}

async fn patch(on: &Watched, kind: &str, name: &str, patch: &Value) {
    let params = PatchParams::default();
    client(on, kind).patch(name, &params, &Patch::Merge(patch)).await.unwrap();
}

fn client(on: &Watched, kind: &str) -> Api<DynamicObject> {
    let api_version = object(kind, "", &json!({}))["apiVersion"].as_str().unwrap().to_owned();
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let of = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(on.client().clone(), NAMESPACE, &of)
}

fn condition(on: &Watched, kind: &str, name: &str, of: &str) -> (String, String) {
    let object = on.get(kind, name).unwrap();
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.iter().find(|condition| condition["type"] == of).cloned().unwrap_or_default();
    let text = |part: &str| found[part].as_str().unwrap_or_default().to_owned();
    (text("status"), text("message"))
}

/// Fails if a token has reached another host than its own, or the fake has a request of a host that
/// is not granted.
fn each_token_has_its_host(on: &Watched) {
    let konnect = on.fake.konnect().lock();
    let mut tokens = std::collections::BTreeSet::new();
    for entry in konnect.log(0) {
        let Some(token) = &entry.token else { panic!("a call without a token: {entry:?}") };
        let host = if token == OF_OBJECT { "us.api.konghq.com" } else { "eu.api.konghq.com" };
        // Organizations are those of all regions.
        let is_global =
            entry.host == "global.api.konghq.com" && entry.path == "/v3/organizations/me";
        assert!(entry.host == host || is_global, "{entry:?}");
        let elsewhere = [&entry.path, &format!("{:?}{:?}", entry.query, entry.body)];
        assert!(elsewhere.iter().all(|text| !text.contains("kpat_")), "{entry:?}");
        tokens.insert(token.clone());
    }
    assert!(tokens.contains(OF_SECRET) && tokens.contains(OF_OBJECT), "{tokens:?}");
    assert!(tokens.contains(REFUSED), "{tokens:?}");
}

/// Everything in the life of a token and of what is kept with it.
#[tokio::test]
async fn a_planted_token_is_seen_by_konnect_alone() {
    let mut on = Watched::new(&[OF_SECRET, OF_OBJECT]).await;
    let guest = loaded("guests/konnect", "{}").await.unwrap();
    on.apply([vec![secret(OF_SECRET)], auths()].concat()).await;
    on.apply(["secret", "token", "refused", "elsewhere"].map(control_plane).into()).await;

    on.start(guest.clone(), Mode::Observe);
    assert!(!on.settle().await.is_empty());
    assert_eq!(on.fake.konnect().lock().requests(), 0, "a Processor that observes calls nothing");

    on.start(guest, Mode::Reconcile);
    on.settle().await;
    on.fake.konnect().lock().set_faults(quoting()).unwrap();
    on.apply(entities()).await;
    on.settle().await;
    patch(&on, "KongService", "orders", &json!({"spec": {"host": "other.example"}})).await;
    on.settle().await;
    let quoted = |kind: &str, name: &str| condition(&on, kind, name, "Programmed");
    for (kind, name) in [("KongService", "orders"), ("KongCredentialBasicAuth", "password")] {
        let (status, message) = quoted(kind, name);
        assert_eq!(status, "False", "{kind}: {message}");
        assert!(message.contains("***"), "the quoted token is masked: {message}");
    }
    let (status, message) =
        condition(&on, "KonnectAPIAuthConfiguration", "refused", "APIAuthValid");
    assert_eq!(status, "False", "{message}");
    assert_eq!(quoted("KonnectGatewayControlPlane", "token").0, "True");
    let sent = format!("{:?}", on.fake.konnect().lock().log(0).collect::<Vec<_>>());
    assert!(sent.contains(PASSWORD) && sent.contains(PLUGIN), "bodies are the guest's to send");

    on.fake.konnect().lock().set_faults(Vec::new()).unwrap();
    patch(&on, "Secret", "token", &json!({"data": secret(REFUSED)["data"]})).await;
    on.settle().await;
    patch(&on, "Secret", "token", &json!({"data": secret(OF_SECRET)["data"]})).await;
    on.settle().await;
    for kind in ["KongService", "KonnectGatewayControlPlane"] {
        for object in client(&on, kind).list(&ListParams::default()).await.unwrap() {
            let name = object.metadata.name.unwrap();
            client(&on, kind).delete(&name, &DeleteParams::default()).await.unwrap();
        }
        on.settle().await;
    }
    each_token_has_its_host(&on);
    let metrics = on.metrics().await;
    let denied = r#"mortise_outbound_calls_total{processor="konnect",origin="other",method="get",code="denied"}"#;
    assert!(metrics.contains(denied), "the server of a tenant is denied and counted: {metrics}");
    let encoded = [OF_SECRET, REFUSED].map(|token| BASE64_STANDARD.encode(token));
    let tokens: [&str; 5] = [OF_SECRET, OF_OBJECT, REFUSED, &encoded[0], &encoded[1]];
    on.says_nothing_of(&tokens, &[PASSWORD, PLUGIN]).await;
}

#[tokio::test]
async fn without_egress_nothing_is_called_and_conditions_say_so() {
    let mut on = Watched::new(&[OF_SECRET, OF_OBJECT]).await;
    on.apply([vec![secret(OF_SECRET)], auths()].concat()).await;
    on.apply(["secret", "token"].map(control_plane).into()).await;
    on.start_as_it_is(loaded("guests/konnect", "{}").await.unwrap(), Mode::Reconcile);
    on.settle().await;
    for name in ["secret", "token"] {
        let told = condition(&on, "KonnectAPIAuthConfiguration", name, "APIAuthValid");
        let expected = "the Processor does not grant calls to `https://global.api.konghq.com`; `spec.egress` grants none";
        assert_eq!(told, ("False".to_owned(), expected.to_owned()), "{name}");
        assert_eq!(condition(&on, "KonnectGatewayControlPlane", name, "Programmed").0, "False");
    }
    assert_eq!(on.fake.konnect().lock().requests(), 0);
    on.says_nothing_of(&[OF_SECRET, OF_OBJECT], &[]).await;
}

// === the memory of a guest ===

/// Returns a call of the puppet with a credential.
fn call(path: &str, kind: &str, at: &str, scheme: &Value) -> Value {
    let group = if kind == "Secret" { "" } else { "konnect.konghq.com" };
    let version = if kind == "Secret" { "v1" } else { "v1alpha1" };
    let of = json!({
        "cluster": "", "kind": {"group": group, "version": version, "kind": kind},
        "namespace": NAMESPACE, "name": "token",
    });
    json!({
        "method": "Get", "url": format!("https://eu.api.konghq.com/visible-part/{path}"), "headers": [], "body": null, "timeout": 5000,
        "credential": {"of": of, "at": at, "scheme": scheme},
    })
}

/// Returns a puppet's description that declares both kinds of credentials.
fn described() -> Value {
    let selection = |group: &str, version: &str, kind: &str, labels: &str, fields: &[&str]| {
        json!({
            "cluster": "", "kind": {"group": group, "version": version, "kind": kind},
            "namespace": null, "name": null, "labels": labels, "matching": [], "fields": fields,
        })
    };
    let auth = |fields| {
        selection("konnect.konghq.com", "v1alpha1", "KonnectAPIAuthConfiguration", "", fields)
    };
    let secrets = |fields| selection("", "v1", "Secret", "konghq.com/secret=true", fields);
    let reconciler = json!({
        "name": "maps", "of": selection("", "v1", "ConfigMap", "", &[]), "finalizers": [], "resync": 0,
        "triggered_by_status": false, "min_interval": 0, "on_demand": false, "whole_status": false,
    });
    let rule = json!({
        "origin": "https://*.api.konghq.com", "methods": ["get"], "pause": 0,
        "credentials": [secrets(&["data.token"]), auth(&["spec.token"])],
    });
    json!({
        "name": "puppet", "version": "1.0.0", "grants": [], "outbound": [rule], "config_schema": null,
        "reconcilers": [reconciler], "writes": [],
        "reads": [secrets(&["metadata.labels", "type"]), auth(&["spec.serverURL"])],
    })
}

#[tokio::test]
async fn a_description_makes_no_call() {
    let call = call("bearer", "Secret", "data.token", &json!("Bearer"));
    let config = json!({"description": described(), "call": call}).to_string();
    let error = loaded("tests/guests/puppet", &config).await.unwrap_err();
    let error = format!("{error:#}");
    assert!(error.contains("only `reconcile` may call systems outside of the cluster"), "{error}");
}

/// Returns the numbers that the guest has found.
fn found(report: &Report) -> Vec<&str> {
    let lines = report.log.iter().filter(|line| line.message == "found");
    lines.flat_map(|line| &line.fields).map(|(_, number)| number.as_str()).collect()
}

/// The guest looks for the token in its own memory, from the first byte to the last: wherever it was
/// used, read beside, quoted or freed.
#[tokio::test]
async fn the_memory_of_a_call_never_holds_a_token() {
    let mut on = Watched::new(&[OF_SECRET, OF_OBJECT]).await;
    let encoded =
        [format!("u:{OF_SECRET}"), OF_SECRET.to_owned()].map(|text| BASE64_STANDARD.encode(text));
    let quoting = |path: &str, sent: &str| Fault {
        path: format!("/{path}$"),
        times: Some(-1),
        status: Some(400),
        headers: [("x-quoted".to_owned(), sent.to_owned())].into(),
        body: Some(format!("not {sent}, nor {sent}").into()),
        ..Fault::default()
    };
    let faults = [("bearer", OF_SECRET), ("origin", OF_OBJECT), ("basic", encoded[0].as_str())];
    let faults = faults.map(|(path, sent)| quoting(path, sent));
    on.fake.konnect().lock().set_faults(faults.into()).unwrap();
    let description = described();
    let reads = description["reads"].as_array().unwrap().iter();
    let reads: Vec<Value> = reads.map(|of| json!({"list": {"of": of}})).collect();
    let seek = |text: &str| vec![text[..8].to_owned(), text[8..].to_owned()];
    let sought: [&str; 5] = ["visible-part", OF_SECRET, OF_OBJECT, &encoded[0], &encoded[1]];
    let script = json!({
        "reads": reads,
        "calls": [
            call("bearer", "Secret", "data.token", &json!("Bearer")),
            call("origin", "KonnectAPIAuthConfiguration", "spec.token", &json!({"Header": "origin"})),
            call("basic", "Secret", "data.token", &json!({"Basic": "u"})),
        ],
        "seeks": sought.map(seek),
    });
    let panicking = json!({"calls": script["calls"], "panics": "the guest gives up"});
    let token = json!({"type": "token", "token": OF_OBJECT, "serverURL": "us.api.konghq.com"});
    on.apply(vec![secret(OF_SECRET), auth("token", &token)]).await;
    let map = |name: &str, script: &Value| {
        object("ConfigMap", name, &json!({"data": {"script": script.to_string()}}))
    };
    on.apply(vec![map("seeks", &script), map("panics", &panicking)]).await;
    let config = json!({"description": description}).to_string();
    on.start(loaded("tests/guests/puppet", &config).await.unwrap(), Mode::Reconcile);
    let reports = on.settle().await;
    let report = |name: &str| reports.iter().find(|of| of.key.name() == name).unwrap();
    let numbers = found(report("seeks"));
    let [visible, hidden @ ..] = &numbers[..] else { panic!("{:#?}", report("seeks")) };
    assert_ne!(*visible, "0", "the search finds what is there");
    assert_eq!(hidden, ["0"; 4], "{:#?}", report("seeks").log);
    let failure = report("panics").failure.clone().unwrap();
    assert!(report("panics").broke && failure.contains("the guest gives up"), "{failure}");
    assert!(failure.contains("***"), "the panic quotes the answers: {failure}");
    let asked: Vec<u16> =
        report("seeks").record.calls.iter().filter_map(|made| made.status).collect();
    assert_eq!(asked, [400; 3]);
    on.says_nothing_of(&[OF_SECRET, OF_OBJECT, &encoded[0], &encoded[1]], &[]).await;
}
