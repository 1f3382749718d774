//! A control plane of its own for a guest, with requests of an administrator, and an account that has
//! no rights but those that `mortise inspect --rbac` prints.

use std::{fs, os::unix::fs::DirBuilderExt as _};

use mortise::{commands::inspect, local};
use mortise_core::{
    api::{Method, Outgoing},
    contract::Kind,
};
use mortise_host::cluster::Cluster;
use mortise_tests::{
    cluster::{self, Audit, Event},
    code_cache, definitions, guest, loaded, objects_in,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::program::{POLL_INTERVAL, TIMEOUT};

/// A control plane, and requests of an administrator.
pub(crate) struct Side {
    pub(crate) cluster: Cluster,
    // Dropped last: it ends the control plane.
    pub(crate) plane: cluster::Cluster,
}

/// Returns an object without a namespace, with nothing but its name.
pub(super) fn named(api_version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}})
}

/// Returns a folder with the component of a guest, as `NAME.wasm`, and one for the cache of a host that
/// has its compiled code already: compiling takes most of the time of a host's start.
pub(super) async fn folders(folder: &'static str, name: &str) -> [TempDir; 2] {
    loaded(folder, "{}").await.unwrap();
    let module = tokio::task::spawn_blocking(|| guest(folder)).await.unwrap().unwrap();
    let [modules, cache] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    fs::copy(&module, modules.path().join(format!("{name}.wasm"))).unwrap();
    let [from, to] = [code_cache(), cache.path().to_owned()].map(|cache| cache.join("code"));
    fs::DirBuilder::new().mode(0o700).create(&to).unwrap();
    let digest = format!("sha256-{:x}", Sha256::digest(fs::read(&module).unwrap()));
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        if entry.file_name().to_string_lossy().starts_with(&digest) {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
    [modules, cache]
}

/// Returns the requests of the account of [`Side::set_up`] that were refused for want of a right.
pub(super) async fn refused(audit: &Audit, name: &str) -> Vec<Event> {
    let account = format!("system:serviceaccount:{name}:{name}");
    let mut events = audit.events().await.unwrap();
    events.retain(|event| event.account() == account && event.code() == 403);
    events
}

/// Returns the objects of a kind in all namespaces, as the API server stores them now.
pub(super) async fn list(
    cluster: &Cluster,
    (group, version, kind): (&str, &str, &str),
) -> Vec<Value> {
    let resource = cluster.resolve(&Kind::home(group, version, kind)).await.unwrap().unwrap();
    let list = cluster.send(&Outgoing::get(resource.path(None))).await.unwrap();
    list.body["items"].as_array().cloned().unwrap_or_default()
}

// === impl Side ===

impl Side {
    /// Starts a control plane with these definitions; `None` without Go.
    pub(crate) async fn open(definitions: &[Value]) -> Option<Self> {
        let plane = cluster::own_bare().await.unwrap()?;
        let cluster = Cluster::new(plane.client().await.unwrap());
        plane.install(definitions).await.unwrap();
        Some(Self { cluster, plane })
    }

    /// Makes the account of a guest in a namespace, with its rights, which are returned.
    pub(super) async fn set_up(
        &self,
        folder: &str,
        (namespace, name): (&str, &str),
        config: &str,
    ) -> Vec<Value> {
        self.apply(&named("v1", "Namespace", namespace)).await;
        self.apply(&json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {
                "name": name, "namespace": namespace, "labels": {"mortise.dev/processor": name},
            },
        }))
        .await;
        let description = loaded(folder, config).await.unwrap().description;
        let account = format!("{namespace}/{name}").parse().unwrap();
        let kinds = definitions(folder).unwrap();
        let text = inspect::rbac(&description, kinds, Some(&account), None).await.unwrap();
        let mut rights: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        rights.retain(Value::is_object);
        for object in &rights {
            self.apply(object).await;
        }
        rights
    }

    /// Returns the path of an object, once its kind is served.
    pub(super) async fn path(&self, object: &Value) -> String {
        let kind = local::kind_of(object);
        let resolve = async {
            loop {
                if let Some(resource) = self.cluster.resolve(&kind).await.unwrap() {
                    return resource;
                }
                self.cluster.forget(&kind.group);
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let resource = tokio::time::timeout(TIMEOUT, resolve).await.expect("the kind is served");
        let metadata = &object["metadata"];
        resource.path_of(metadata["namespace"].as_str(), metadata["name"].as_str().unwrap())
    }

    /// Applies an object, and its status if it has one.
    pub(super) async fn apply(&self, object: &Value) {
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

    pub(super) async fn apply_all(&self, file: &str) {
        for object in objects_in(file).unwrap() {
            if object["kind"] == "CustomResourceDefinition" {
                self.plane.install(std::slice::from_ref(&object)).await.unwrap();
            } else {
                self.apply(&object).await;
            }
        }
    }

    /// Returns an object; `None` also if its kind is not served.
    pub(super) async fn get(&self, object: &Value) -> Option<Value> {
        let resource = self.cluster.resolve(&local::kind_of(object)).await.unwrap()?;
        let metadata = &object["metadata"];
        let path =
            resource.path_of(metadata["namespace"].as_str(), metadata["name"].as_str().unwrap());
        self.cluster.send(&Outgoing::get(path)).await.ok().map(|answer| answer.body)
    }

    pub(super) async fn delete(&self, object: &Value) {
        let delete = Outgoing::new(Method::Delete, self.path(object).await, None);
        self.cluster.send(&delete).await.unwrap();
    }

    /// Waits until an object, which may be absent, is as it should be.
    pub(super) async fn until(
        &self,
        object: &Value,
        what: &str,
        holds: impl Fn(Option<&Value>) -> bool,
    ) {
        let wait = async {
            while !holds(self.get(object).await.as_ref()) {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let waited = tokio::time::timeout(TIMEOUT, wait).await;
        assert!(waited.is_ok(), "{what}: {:#?}", self.get(object).await);
    }
}
