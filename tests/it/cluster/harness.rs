//! The control plane itself, on which the other tests here rely.

use std::{fs, path::Path, process::Command, time::Duration};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Secret},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, PostParams},
    runtime::wait::await_condition,
};
use mortise_tests::cluster::{self, Cluster, Part};
use serde_json::json;

/// Interval of polling for the end of processes.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"a": "1"}})).unwrap()
}

/// Returns the number of processes with a folder among their arguments.
fn processes(folder: &Path) -> usize {
    let folder = folder.to_str().unwrap();
    let arguments = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).ok();
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| arguments(entry.unwrap()))
        .filter(|arguments| arguments.split(|byte| *byte == 0).any(|one| one == folder.as_bytes()))
        .count()
}

async fn until_ended(folder: &Path) {
    while processes(folder) > 0 {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn acting_as(cluster: &Cluster, account: &str) -> Client {
    let mut config = cluster.config().await.unwrap();
    config.auth_info.impersonate = Some(account.to_owned());
    Client::try_from(config).unwrap()
}

#[tokio::test]
async fn the_pods_of_a_deployment_become_ready() {
    let Some(cluster) = cluster::shared().await.unwrap() else { return };
    let client = cluster.client().await.unwrap();
    assert_eq!(client.apiserver_version().await.unwrap().git_version, "v1.34.4");
    let namespace = cluster.namespace("pods").await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(client, &namespace);
    let labels = json!({"app": "web"});
    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "web"}]}},
        },
    });
    let deployment = serde_json::from_value(deployment).unwrap();
    deployments.create(&PostParams::default(), &deployment).await.unwrap();
    let are_ready = |deployment: Option<&Deployment>| {
        let ready = deployment.and_then(|deployment| deployment.status.as_ref()?.ready_replicas);
        ready == Some(2)
    };
    await_condition(deployments, "web", are_ready).await.unwrap();
}

#[tokio::test]
async fn accounts_are_limited_by_rbac_and_named_in_the_audit_log() {
    let Some(cluster) = cluster::shared().await.unwrap() else { return };
    let namespace = cluster.namespace("audit").await.unwrap();
    let audit = cluster.audit().await.unwrap();
    let account = format!("system:serviceaccount:{namespace}:nobody");
    let secrets: Api<Secret> = Api::namespaced(acting_as(cluster, &account).await, &namespace);
    let refused = secrets.list(&ListParams::default()).await.unwrap_err();
    let kube::Error::Api(refused) = refused else { panic!("{refused}") };
    assert_eq!(refused.code, 403);
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client().await.unwrap(), &namespace);
    maps.create(&PostParams::default(), &config_map("a")).await.unwrap();

    let events = audit.events().await.unwrap();
    let seen: Vec<_> = events
        .iter()
        .filter(|event| event.object_ref.as_ref().is_some_and(|of| of.namespace == namespace))
        .filter(|event| event.user.username == "admin" && event.verb != "watch")
        .map(|event| (event.verb.as_str(), event.resource(), event.account(), event.code()))
        .collect();
    assert_eq!(
        seen,
        [
            ("list", "secrets".to_owned(), account.as_str(), 403),
            ("create", "configmaps".to_owned(), "admin", 201),
        ]
    );
}

#[tokio::test]
async fn a_bare_control_plane_starts_neither_scheduler_nor_kwok() {
    let Some(cluster) = cluster::bare().await.unwrap() else { return };
    let log = |part: Part| cluster.folder().join(format!("{}.log", part.name()));
    assert!(log(Part::ControllerManager).exists());
    assert!(!log(Part::Scheduler).exists());
    assert!(!log(Part::Kwok).exists());
}

#[tokio::test]
async fn istios_kinds_are_served_as_istio_defines_them() {
    let Some(definitions) = cluster::istio().await.unwrap() else { return };
    let cluster = cluster::shared().await.unwrap().unwrap();
    cluster.install(&definitions).await.unwrap();
    let kinds = cluster.client().await.unwrap();
    let kinds = kinds.list_api_group_resources("networking.istio.io/v1").await.unwrap();
    assert!(kinds.resources.iter().any(|kind| kind.name == "virtualservices"));
}

#[tokio::test]
async fn objects_survive_killed_control_plane_components() {
    let Some(cluster) = cluster::own().await.unwrap() else { return };
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client().await.unwrap());
    let written = maps.create(&PostParams::default(), &config_map("kept")).await.unwrap();
    cluster.kill(Part::ApiServer).await.unwrap();
    let away = maps.get("kept").await.unwrap_err();
    assert!(!matches!(away, kube::Error::Api(_)), "{away}");
    let again = cluster.kill(Part::ApiServer).await.unwrap_err().to_string();
    assert!(again.contains("kube-apiserver of") && again.ends_with("does not run"), "{again}");
    cluster.kill(Part::Etcd).await.unwrap();
    cluster.restart(Part::Etcd).await.unwrap();
    cluster.restart(Part::ApiServer).await.unwrap();
    let kept = maps.get("kept").await.unwrap();
    assert_eq!((kept.uid(), kept.resource_version()), (written.uid(), written.resource_version()));

    let folder = cluster.folder().to_owned();
    assert_eq!(processes(&folder), 5);
    drop(cluster);
    assert_eq!(processes(&folder), 0);
    assert!(!folder.exists());
}

#[tokio::test]
async fn a_control_plane_ends_with_its_owner_process() {
    let mut parent = Command::new("sleep").arg("1000").spawn().unwrap();
    let started = cluster::own_of(parent.id()).await;
    parent.kill().unwrap();
    parent.wait().unwrap();
    let Some(cluster) = started.unwrap() else { return };
    until_ended(cluster.folder()).await;
}
