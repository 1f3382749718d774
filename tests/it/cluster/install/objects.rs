//! Objects of all kinds, as an administrator applies, deletes and lists them.

use std::collections::{BTreeMap, BTreeSet};

use kube::{
    Api, Client, Discovery, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams},
    client::Body,
    core::{ApiResource, GroupVersionKind},
    discovery::{Scope, pinned_kind, verbs},
};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use crate::cluster::{
    program::{POLL_INTERVAL, TIMEOUT},
    strict::lacks,
};

/// Kinds whose objects Kubernetes creates and deletes at any time.
const OF_KUBERNETES: [&str; 6] =
    ["APIService", "ComponentStatus", "Endpoints", "EndpointSlice", "Event", "Lease"];
/// Objects that Kubernetes creates in every namespace.
const OF_NAMESPACES: [(&str, &str); 2] =
    [("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")];

/// Objects by kind, namespace and name, each with its finalizers.
pub(super) type All = BTreeMap<String, BTreeSet<String>>;

pub(super) struct Objects {
    client: Client,
}

// === impl Objects ===

impl Objects {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    /// Returns the API of an object's kind, which may have been added a moment ago.
    async fn api(&self, object: &Value) -> Api<DynamicObject> {
        let types = serde_json::from_value(object.clone()).unwrap();
        let kind = GroupVersionKind::try_from(&types).unwrap();
        let (resource, capabilities) = pinned_kind(&self.client, &kind).await.unwrap();
        let namespace = object["metadata"]["namespace"].as_str();
        match (capabilities.scope, namespace) {
            (Scope::Namespaced, Some(namespace)) => {
                Api::namespaced_with(self.client.clone(), namespace, &resource)
            }
            (Scope::Cluster, None) => Api::all_with(self.client.clone(), &resource),
            (scope, _) => panic!("a namespace is wrong or missing ({scope:?}): {object}"),
        }
    }

    /// Applies an object, which must be accepted without warnings and without a change.
    pub(super) async fn apply(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let folder = self.api(object).await.resource_url().to_owned();
        let path = format!("{folder}/{name}?fieldManager=install&fieldValidation=Strict");
        let request = http::Request::patch(path)
            .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
            .body(Body::from(object.to_string().into_bytes()))
            .unwrap();
        let (head, body) = self.client.send(request).await.unwrap().into_parts();
        let body = body.collect_bytes().await.unwrap();
        let said = String::from_utf8_lossy(&body);
        assert!(head.status.is_success(), "{}: {said}\n{object:#}", head.status);
        let warnings: Vec<_> = head.headers.get_all(http::header::WARNING).iter().collect();
        assert!(warnings.is_empty(), "{warnings:?}\n{object:#}");
        let mut lost = Vec::new();
        lacks(object, &serde_json::from_slice(&body).unwrap(), "", &mut lost);
        assert!(lost.is_empty(), "not kept: {lost:?}\n{object:#}");
    }

    /// Deletes the objects of the selected kinds in order, and waits until they are gone; returns
    /// their number.
    pub(super) async fn delete(&self, objects: &[Value], of: impl Fn(&str) -> bool) -> usize {
        let mut deleted = Vec::new();
        for object in objects.iter().filter(|object| of(object["kind"].as_str().unwrap())) {
            let (api, name) = (self.api(object).await, object["metadata"]["name"].as_str());
            let name = name.unwrap().to_owned();
            match api.delete(&name, &DeleteParams::background()).await {
                // The object was deleted with its namespace.
                Err(kube::Error::Api(status)) if status.code == 404 => continue,
                answer => drop(answer.unwrap()),
            }
            deleted.push((api, name));
        }
        for (api, name) in &deleted {
            let gone = async {
                while api.get_opt(name).await.unwrap().is_some() {
                    sleep(POLL_INTERVAL).await;
                }
            };
            let is_gone = timeout(TIMEOUT, gone).await.is_ok();
            assert!(is_gone, "{name} stays: {:?}", api.get_opt(name).await);
        }
        deleted.len()
    }

    /// Returns all objects in the cluster.
    pub(super) async fn all(&self) -> All {
        let discovery = Discovery::new(self.client.clone()).run_aggregated().await.unwrap();
        let mut all = BTreeMap::new();
        for group in discovery.groups() {
            for (resource, capabilities) in group.recommended_resources() {
                let is_listed = capabilities.supports_operation(verbs::LIST);
                if is_listed && !OF_KUBERNETES.contains(&&*resource.kind) {
                    self.add(&resource, &mut all).await;
                }
            }
        }
        all
    }

    async fn add(&self, resource: &ApiResource, to: &mut All) {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), resource);
        let found = match api.list(&ListParams::default()).await {
            // The kind was removed after the discovery.
            Err(kube::Error::Api(status)) if status.code == 404 => return,
            found => found.unwrap(),
        };
        for object in found {
            let (kind, name) = (&resource.kind, object.name_any());
            if OF_NAMESPACES.contains(&(&**kind, &*name)) {
                continue;
            }
            let namespace = object.namespace().unwrap_or_default();
            let title = format!("{kind}.{} {namespace}/{name}", resource.group);
            to.insert(title, object.finalizers().iter().cloned().collect());
        }
    }
}
