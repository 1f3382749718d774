//! `kube-bind` between real control planes: with no rights at home but those that `mortise inspect
//! --rbac` prints, and none at the provider but those that its backend gives.

mod backend;
mod both;
mod consumer;
mod hand_over;
mod isolations;
mod killed;
mod schemas;

use std::fs;

use mortise_host::operator::api::definition;
use mortise_tests::{cluster::Event, definitions};
use serde_json::{Value, json};

pub(crate) use super::side::Side;
use super::{
    program::Program,
    side::{folders, named},
};

pub(crate) const GUEST: &str = "guests/kube-bind";
/// The name of the module in the folder of modules.
pub(crate) const MODULE: &str = "kube-bind.wasm";
const NAME: &str = "kube-bind";
const GROUPS: &str = r#"{"groups":["example.com"]}"#;
/// The place of the consumer at the provider.
const PLACE: &str = "kube-bind-example";

fn rocket(namespace: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Rocket",
        "metadata": {"name": "saturn", "namespace": namespace}, "spec": {"stages": 3},
    })
}

/// Returns the kubeconfig of the provider's administrator for the place of the consumer, and the
/// server that it names.
fn kubeconfig(provider: &Side) -> (Value, String) {
    kubeconfig_of(provider, PLACE)
}

fn kubeconfig_of(provider: &Side, place: &str) -> (Value, String) {
    let text = fs::read_to_string(provider.plane.kubeconfig()).unwrap();
    let mut kubeconfig: Value = serde_saphyr::from_str(&text).unwrap();
    kubeconfig["contexts"][0]["context"]["namespace"] = json!(place);
    let server = kubeconfig["clusters"][0]["cluster"]["server"].as_str().unwrap().to_owned();
    (kubeconfig, server)
}

/// Makes the processor at home, with its account, its rights and the kubeconfig of the provider.
async fn set_up(home: &Side, kubeconfig: &Value, server: &str) {
    install(home, NAME, GROUPS, &[server.to_owned()]).await;
    home.apply_all("guests/kube-bind/examples/1-home.yaml").await;
    home.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "provider", "namespace": NAME},
        "stringData": {"kubeconfig": kubeconfig.to_string()},
    }))
    .await;
}

/// Makes the processor in a namespace at home, with its account and the rights that `mortise inspect
/// --rbac` prints for it.
pub(crate) async fn install(home: &Side, namespace: &str, config: &str, servers: &[String]) {
    home.set_up(GUEST, (namespace, NAME), config).await;
    let config: Value = serde_json::from_str(config).unwrap();
    home.apply(&json!({
        "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor",
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {
            "module": {"path": MODULE}, "serviceAccountName": NAME,
            "config": config, "clusters": [{"servers": servers}],
        },
    }))
    .await;
}

/// Returns the account of the processor in a namespace at home.
pub(crate) fn account(namespace: &str) -> String {
    format!("system:serviceaccount:{namespace}:{NAME}")
}

/// Returns the requests of an account that were refused for want of a right, but for that by which
/// the host asks whether a cluster is another one than home.
pub(crate) fn refusals(events: &[Event], account: &str) -> Vec<String> {
    let is_refused = |event: &&Event| {
        event.account() == account
            && event.code() == 403
            && event.request_uri != "/api/v1/namespaces/kube-system"
    };
    let refused = events.iter().filter(is_refused);
    refused.map(|event| format!("{} {}", event.verb, event.request_uri)).collect()
}

/// Returns the definitions of the processor's kinds that are there at home, and those of the host.
fn of_home(kinds: &[Value]) -> Vec<Value> {
    let of_home = kinds.iter().filter(|of| {
        let kind = of["spec"]["names"]["kind"].as_str().unwrap();
        ["APIServiceBinding", "APIServiceBindingBundle"].contains(&kind)
    });
    of_home.cloned().chain([definition::processors()]).collect()
}

#[tokio::test]
#[ignore = "starts two control planes"]
async fn an_object_goes_to_the_provider_and_its_status_comes_back() {
    let kinds = definitions(GUEST).unwrap();
    let Some(provider) = Side::open(&kinds).await else { return };
    let home = Side::open(&of_home(&kinds)).await.unwrap();
    provider.apply_all("guests/kube-bind/provider/objects.yaml").await;
    let (kubeconfig, server) = kubeconfig(&provider);
    set_up(&home, &kubeconfig, &server).await;
    let [modules, cache] = folders(GUEST, NAME).await;
    let audit = home.plane.audit().await.unwrap();
    let arguments = ["--clusters", &server];
    let _host = Program::start(&home.plane.kubeconfig(), modules.path(), cache.path(), arguments);

    let crd = named("apiextensions.k8s.io/v1", "CustomResourceDefinition", "rockets.example.com");
    let binding = named("kube-bind.io/v1alpha2", "APIServiceBinding", "rockets");
    let is_ready = |binding: Option<&Value>| {
        let conditions = binding.and_then(|of| of["status"]["conditions"].as_array());
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|of| of["type"] == "Ready" && of["status"] == "True")
    };
    home.until(&crd, "the schema is a definition at home", |crd| crd.is_some()).await;
    home.until(&binding, "the binding is ready", is_ready).await;

    let (here, there) = (rocket("team"), rocket("kube-bind-example-team"));
    home.apply(&here).await;
    provider.until(&there, "the object goes up", |of| of.is_some()).await;
    let mut flown = there.clone();
    flown["status"] = json!({"height": 7});
    provider.apply(&flown).await;
    let is_back = |of: Option<&Value>| of.is_some_and(|of| of["status"] == json!({"height": 7}));
    home.until(&here, "the status comes back", is_back).await;

    home.delete(&here).await;
    home.until(&here, "the object goes at home", |of| of.is_none()).await;
    assert_eq!(provider.get(&there).await, None, "it has gone at the provider before");
    home.delete(&binding).await;
    home.until(&binding, "the binding goes", |of| of.is_none()).await;
    home.until(&crd, "its definition goes", |of| of.is_none()).await;
    let events = audit.events().await.unwrap();
    assert_eq!(refusals(&events, &account(NAME)), Vec::<String>::new());
}
