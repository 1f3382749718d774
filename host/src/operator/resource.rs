//! The host's own requests about a Processor resource: its status and its finalizer.

use mortise_core::{
    api::{Method, Outgoing, Refusal},
    key::NamespacedName,
    resource::encoded,
};
use serde_json::{Value, json};

use crate::{
    cluster::Cluster,
    operator::api::{FINALIZER, Processor, ProcessorStatus},
};

/// The field manager of the host itself.
const MANAGER: &str = "mortise";
/// The number of attempts to change the finalizers while others change the object.
const MAX_ATTEMPTS: usize = 5;

/// A Processor resource in the cluster.
#[derive(Debug, Clone)]
pub(super) struct Resource(NamespacedName);

/// The wanted state of the host's finalizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finalizer {
    There,
    Gone,
}

// === impl Resource ===

impl Resource {
    pub(super) fn new(namespace: &str, name: &str) -> Self {
        Self(NamespacedName::new(namespace, name))
    }

    pub(super) fn namespace(&self) -> &str {
        &self.0.namespace
    }

    pub(super) fn name(&self) -> &str {
        &self.0.name
    }

    fn path(&self, subresource: &str) -> String {
        let (namespace, name) = (encoded(&self.0.namespace), encoded(&self.0.name));
        format!("/apis/mortise.dev/v1alpha1/namespaces/{namespace}/processors/{name}{subresource}")
    }

    /// Applies the status. Succeeds if the resource is gone: there is no status to write.
    pub(super) async fn write_status(
        &self,
        cluster: &Cluster,
        status: &ProcessorStatus,
    ) -> Result<(), Refusal> {
        let object = json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor",
            "metadata": {"name": *self.0.name, "namespace": *self.0.namespace},
            "status": status,
        });
        let path = format!("{}?fieldManager={MANAGER}&force=true", self.path("/status"));
        match cluster.send(&Outgoing::new(Method::Apply, path, Some(object))).await {
            Err(refusal) if refusal.code != 404 => Err(refusal),
            _ => Ok(()),
        }
    }

    /// Adds the host's finalizer to the resource or removes it, unless that is done already. A
    /// resource that is gone, or has another UID by now, is left as it is.
    pub(super) async fn set_finalizer(
        &self,
        cluster: &Cluster,
        known: &Processor,
        wanted: Finalizer,
    ) -> Result<(), Refusal> {
        let metadata = &known.metadata;
        if next(metadata.finalizers.as_deref().unwrap_or_default(), wanted).is_none() {
            return Ok(());
        }
        let mut last: Option<(String, Refusal)> = None;
        for round in 1.. {
            // The finalizers of others are not kept.
            let Some(live) = self.live(cluster).await? else { return Ok(()) };
            let text =
                |pointer: &str| live.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
            if text("/metadata/uid") != metadata.uid {
                return Ok(());
            }
            let version = text("/metadata/resourceVersion").unwrap_or_default();
            if let Some((before, refusal)) = last.take()
                && before == version
            {
                return Err(refusal);
            }
            let held = texts(live.pointer("/metadata/finalizers"));
            let Some(next) = next(&held, wanted) else { return Ok(()) };
            let operations = json!([
                {"op": "test", "path": "/metadata/resourceVersion", "value": version},
                {"op": "add", "path": "/metadata/finalizers", "value": next},
            ]);
            let path = format!("{}?fieldManager={MANAGER}", self.path(""));
            let refusal = match cluster
                .send(&Outgoing::new(Method::JsonPatch, path, Some(operations)))
                .await
            {
                Ok(_) => return Ok(()),
                Err(refusal) if matches!(refusal.code, 404 | 409 | 422) && round < MAX_ATTEMPTS => {
                    refusal
                }
                Err(refusal) => return Err(refusal),
            };
            last = Some((version, refusal));
        }
        Ok(())
    }

    async fn live(&self, cluster: &Cluster) -> Result<Option<Value>, Refusal> {
        match cluster.send(&Outgoing::get(self.path(""))).await {
            Ok(answer) => Ok(Some(answer.body)),
            Err(refusal) if refusal.code == 404 => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }
}

/// Returns the finalizers to write; `None` if nothing has to change.
fn next(held: &[String], wanted: Finalizer) -> Option<Vec<String>> {
    let is_there = held.iter().any(|name| name == FINALIZER);
    match wanted {
        Finalizer::There if is_there => None,
        Finalizer::There => Some(held.iter().cloned().chain([FINALIZER.to_owned()]).collect()),
        Finalizer::Gone if !is_there => None,
        Finalizer::Gone => Some(held.iter().filter(|name| *name != FINALIZER).cloned().collect()),
    }
}

fn texts(list: Option<&Value>) -> Vec<String> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}
