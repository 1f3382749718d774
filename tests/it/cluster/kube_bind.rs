//! `kube-bind` between two real control planes: the example of its README, with no rights at home but
//! those that `mortise inspect --rbac` prints.

use std::{fs, path::Path, time::Duration};

use mortise::{commands::inspect, local};
use mortise_core::api::{Method, Outgoing};
use mortise_host::{cluster::Cluster, operator::api::definition};
use mortise_tests::{
    cluster::{self, Event},
    definitions, guest, loaded,
};
use serde_json::{Value, json};

use super::program::{POLL_INTERVAL, Program, TIMEOUT};

const GUEST: &str = "guests/kube-bind";
const NAME: &str = "kube-bind";
const GROUPS: &str = r#"{"groups":["example.com"]}"#;
/// The place of the consumer at the provider.
const PLACE: &str = "kube-bind-example";

/// A control plane, and requests of an administrator.
struct Side {
    cluster: Cluster,
    // Dropped last: it ends the control plane.
    plane: cluster::Cluster,
}

impl Side {
    async fn open(definitions: &[Value]) -> Option<Self> {
        let plane = cluster::own_bare().await.unwrap()?;
        let cluster = Cluster::new(plane.client().await.unwrap());
        plane.install(definitions).await.unwrap();
        Some(Self { cluster, plane })
    }

    async fn path(&self, object: &Value) -> String {
        let resource = self.cluster.resolve(&local::kind_of(object)).await.unwrap().unwrap();
        let metadata = &object["metadata"];
        resource.path_of(metadata["namespace"].as_str(), metadata["name"].as_str().unwrap())
    }

    /// Applies an object, and its status if it has one.
    async fn apply(&self, object: &Value) {
        let mut paths = vec![self.path(object).await];
        if object.get("status").is_some() {
            paths.push(format!("{}/status", paths[0]));
        }
        for path in paths {
            let path = format!("{path}?fieldManager=somebody&force=true");
            let apply = Outgoing::new(Method::Apply, path, Some(object.clone()));
            self.cluster.send(&apply).await.unwrap_or_else(|refusal| panic!("{refusal}: {object}"));
        }
    }

    async fn apply_all(&self, file: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guests/kube-bind").join(file);
        let objects: Vec<Value> =
            serde_saphyr::from_multiple(&fs::read_to_string(path).unwrap()).unwrap();
        for object in &objects {
            if object["kind"] == "CustomResourceDefinition" {
                self.plane.install(std::slice::from_ref(object)).await.unwrap();
            } else {
                self.apply(object).await;
            }
        }
    }

    async fn get(&self, object: &Value) -> Option<Value> {
        let resource = self.cluster.resolve(&local::kind_of(object)).await.unwrap()?;
        let metadata = &object["metadata"];
        let path =
            resource.path_of(metadata["namespace"].as_str(), metadata["name"].as_str().unwrap());
        self.cluster.send(&Outgoing::get(path)).await.ok().map(|answer| answer.body)
    }

    async fn delete(&self, object: &Value) {
        let delete = Outgoing::new(Method::Delete, self.path(object).await, None);
        self.cluster.send(&delete).await.unwrap();
    }

    /// Waits until an object, which may be absent, is as it should be.
    async fn until(&self, object: &Value, what: &str, holds: impl Fn(Option<&Value>) -> bool) {
        let wait = async {
            while !holds(self.get(object).await.as_ref()) {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let waited = tokio::time::timeout(TIMEOUT.min(Duration::from_mins(2)), wait).await;
        assert!(waited.is_ok(), "{what}: {:#?}", self.get(object).await);
    }
}

fn rocket(namespace: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Rocket",
        "metadata": {"name": "saturn", "namespace": namespace}, "spec": {"stages": 3},
    })
}

fn named(api_version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}})
}

/// Returns the kubeconfig of the provider's administrator for the place of the consumer, and the
/// server that it names.
fn kubeconfig(provider: &Side) -> (Value, String) {
    let text = fs::read_to_string(provider.plane.kubeconfig()).unwrap();
    let mut kubeconfig: Value = serde_saphyr::from_str(&text).unwrap();
    kubeconfig["contexts"][0]["context"]["namespace"] = json!(PLACE);
    let server = kubeconfig["clusters"][0]["cluster"]["server"].as_str().unwrap().to_owned();
    (kubeconfig, server)
}

/// Makes the processor at home, with its account, its rights and the kubeconfig of the provider.
async fn set_up(home: &Side, kubeconfig: &Value, server: &str) {
    home.apply(&named("v1", "Namespace", NAME)).await;
    home.apply(&json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": NAME, "namespace": NAME, "labels": {"mortise.dev/processor": NAME}},
    }))
    .await;
    let description = loaded(GUEST, GROUPS).await.unwrap().description;
    let account = format!("{NAME}/{NAME}").parse().unwrap();
    let kinds = definitions(GUEST).unwrap();
    let text = inspect::rbac(&description, kinds, Some(&account), None).await.unwrap();
    let rights: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    for object in rights.iter().filter(|object| object.is_object()) {
        home.apply(object).await;
    }
    home.apply_all("examples/1-home.yaml").await;
    home.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "provider", "namespace": NAME},
        "stringData": {"kubeconfig": kubeconfig.to_string()},
    }))
    .await;
    home.apply(&json!({
        "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor",
        "metadata": {"name": NAME, "namespace": NAME},
        "spec": {
            "module": {"path": "kube-bind.wasm"}, "serviceAccountName": NAME,
            "config": {"groups": ["example.com"]}, "clusters": [{"servers": [server]}],
        },
    }))
    .await;
}

#[tokio::test]
#[ignore = "starts two control planes"]
async fn an_object_goes_to_the_provider_and_its_status_comes_back() {
    let kinds = definitions(GUEST).unwrap();
    let Some(provider) = Side::open(&kinds).await else { return };
    let of_home = kinds.iter().filter(|of| {
        let kind = of["spec"]["names"]["kind"].as_str().unwrap();
        ["APIServiceBinding", "APIServiceBindingBundle"].contains(&kind)
    });
    let of_home: Vec<Value> = of_home.cloned().chain([definition::processors()]).collect();
    let home = Side::open(&of_home).await.unwrap();
    provider.apply_all("provider/objects.yaml").await;
    let (kubeconfig, server) = kubeconfig(&provider);
    set_up(&home, &kubeconfig, &server).await;
    let (modules, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let module = tokio::task::spawn_blocking(|| guest(GUEST)).await.unwrap().unwrap();
    fs::copy(module, modules.path().join("kube-bind.wasm")).unwrap();
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
    let account = format!("system:serviceaccount:{NAME}:{NAME}");
    let is_refused = |event: &&Event| {
        event.impersonated_user.as_ref().is_some_and(|user| user.username == account)
            && event.response_status.as_ref().is_some_and(|status| status.code == 403)
    };
    let events = audit.events().await.unwrap();
    let refused: Vec<&Event> = events.iter().filter(is_refused).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}
