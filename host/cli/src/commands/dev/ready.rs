//! `--ready`: replaces the kubelet and the controllers of workloads. Each workload has a Pod for
//! each of its replicas, and each workload and Pod is marked ready at once.

mod pods;
#[cfg(test)]
mod tests;

use anyhow::Context as _;
use futures::{StreamExt as _, future};
use jiff::Timestamp;
use kube::{
    Api,
    api::DynamicObject,
    runtime::{WatchStreamExt as _, watcher},
};
use mortise_core::{
    api::{Method, Outgoing},
    contract::{Kind, display_kind},
    write::Clock,
};
use mortise_host::cluster::Cluster;
use serde_json::{Map, Value, json};

use self::pods::Pods;
use super::message::{Message, Sender};
use crate::print;

/// The field manager of the status that is written.
const MANAGER: &str = "kubelet";

/// Creates the Pods of all present and future workloads, and marks both ready. Returns only with an
/// error.
///
/// # Errors
///
/// Fails if the API refuses a request or does not serve a kind; it serves all of them from its
/// start.
pub(super) async fn run(cluster: &Cluster, now: &Clock, messages: &Sender) -> anyhow::Result<()> {
    let kinds = [
        ("apps", "Deployment"),
        ("apps", "ReplicaSet"),
        ("apps", "StatefulSet"),
        ("apps", "DaemonSet"),
        ("", "Pod"),
    ];
    let pods = &Pods::new(cluster);
    let watches = kinds.map(|(group, kind)| {
        let kind = Kind::home(group, "v1", kind);
        watch(cluster, kind, now, messages, pods)
    });
    future::try_join_all(watches).await.map(|_| ())
}

async fn watch(
    cluster: &Cluster,
    kind: Kind,
    now: &Clock,
    messages: &Sender,
    pods: &Pods<'_>,
) -> anyhow::Result<()> {
    let resource = cluster.resolve(&kind).await?;
    let resource = resource
        .with_context(|| format!("--ready: the API does not serve {}", display_kind(&kind)))?;
    let api: Api<DynamicObject> =
        Api::all_with(cluster.client().clone(), &mortise_host::cluster::api_resource(&resource));
    // A closed channel means that the program ends.
    let say = |note: String| _ = messages.send(Message::Note(note));
    #[expect(clippy::disallowed_methods, reason = "the API in memory, of the developer")]
    let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
    while let Some(event) = events.next().await {
        let (object, is_there) = match event {
            Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => (object, true),
            Ok(watcher::Event::Delete(object)) => (object, false),
            Ok(watcher::Event::Init | watcher::Event::InitDone) => continue,
            Err(error) => {
                tracing::warn!(kind = display_kind(&kind), %error, "--ready: the watch is begun again");
                continue;
            }
        };
        let Ok(mut object) = serde_json::to_value(&object) else { continue };
        if let Some(fields) = object.as_object_mut() {
            // Items of a list lack `kind` and `apiVersion`.
            fields.entry("kind").or_insert_with(|| Value::from(kind.kind.as_str()));
            let version = &mortise_host::cluster::api_resource(&resource).api_version;
            fields.entry("apiVersion").or_insert_with(|| Value::from(version.as_str()));
        }
        let settled = match (kind.kind == "Pod", is_there) {
            (true, false) => pods.settle_owner_of(&object).await,
            (false, true) => pods.settle(&object).await,
            _ => Ok(()),
        };
        if let Err(error) = settled {
            say(format!("--ready: the Pods of {} are not made: {error:#}", print::title(&object)));
        }
        let Some(status) = ready(&object, now()).filter(|_| is_there) else { continue };
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let name = text("/metadata/name").unwrap_or_default();
        let path = resource.path_of(text("/metadata/namespace"), name);
        let marked = Outgoing::new(
            Method::MergePatch,
            format!("{path}/status?fieldManager={MANAGER}"),
            Some(json!({"status": status})),
        );
        if let Err(refusal) = cluster.send(&marked).await
            && refusal.code != 404
        {
            say(format!("--ready: {} is not marked: {refusal}", print::title(&object)));
        }
    }
    Ok(())
}

/// Returns the fields of the status of a ready object; `None` if the object has them already.
fn ready(object: &Value, now: Timestamp) -> Option<Value> {
    let status = match object.get("kind")?.as_str()? {
        "Deployment" => deployment(object, now),
        "ReplicaSet" => replica_set(object),
        "StatefulSet" => stateful_set(object),
        "DaemonSet" => daemon_set(object),
        "Pod" => pod(object, now),
        _ => return None,
    };
    let is_so = |(field, value): (&String, &Value)| {
        object.get("status").and_then(|status| status.get(field)) == Some(value)
    };
    (!status.iter().all(is_so)).then_some(Value::Object(status))
}

fn deployment(object: &Value, now: Timestamp) -> Map<String, Value> {
    let replicas = replicas(object);
    let mut status = counted(
        object,
        &["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"],
        replicas,
    );
    let available =
        [("Available", "MinimumReplicasAvailable"), ("Progressing", "NewReplicaSetAvailable")];
    status.insert("conditions".to_owned(), conditions(object, &available, now));
    status
}

fn replica_set(object: &Value) -> Map<String, Value> {
    let counts = ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
    counted(object, &counts, replicas(object))
}

fn stateful_set(object: &Value) -> Map<String, Value> {
    let counts =
        ["replicas", "currentReplicas", "updatedReplicas", "readyReplicas", "availableReplicas"];
    counted(object, &counts, replicas(object))
}

/// Returns the status of a ready `DaemonSet`, for a cluster of one node.
fn daemon_set(object: &Value) -> Map<String, Value> {
    let counts = [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "updatedNumberScheduled",
        "numberReady",
        "numberAvailable",
    ];
    let mut status = counted(object, &counts, 1);
    status.insert("numberMisscheduled".to_owned(), Value::from(0));
    status
}

fn pod(object: &Value, now: Timestamp) -> Map<String, Value> {
    let true_ones =
        ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(|kind| (kind, ""));
    let containers = object.pointer("/spec/containers").and_then(Value::as_array);
    let present = object.pointer("/status/containerStatuses").and_then(Value::as_array);
    let started = |container: &Value| {
        let name = container.get("name").cloned().unwrap_or_default();
        let image = container.get("image").cloned().unwrap_or_default();
        let known = present.into_iter().flatten().find(|status| status.get("name") == Some(&name));
        let running = known
            .and_then(|status| status.pointer("/state/running"))
            .cloned()
            .unwrap_or_else(|| json!({"startedAt": time(now)}));
        json!({
            "name": name, "image": image, "imageID": "", "ready": true, "started": true, "restartCount": 0,
            "state": {"running": running}, "lastState": {},
        })
    };
    let containers: Vec<Value> = containers.into_iter().flatten().map(started).collect();
    let since = object.pointer("/status/startTime").cloned().unwrap_or_else(|| time(now));
    let fields = [
        ("phase", Value::from("Running")),
        ("startTime", since),
        ("conditions", conditions(object, &true_ones, now)),
        ("containerStatuses", Value::from(containers)),
    ];
    fields.map(|(field, value)| (field.to_owned(), value)).into_iter().collect()
}

fn replicas(object: &Value) -> u64 {
    object.pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or(1)
}

/// Returns a status in which all `counts` have one value, observed at the current generation.
fn counted(object: &Value, counts: &[&str], value: u64) -> Map<String, Value> {
    let mut status: Map<String, Value> =
        counts.iter().map(|count| ((*count).to_owned(), Value::from(value))).collect();
    if let Some(generation) = object.pointer("/metadata/generation") {
        status.insert("observedGeneration".to_owned(), generation.clone());
    }
    status
}

/// Returns the conditions with those of `types` true. Other conditions stay unchanged, and so do
/// the times of conditions that were already true.
fn conditions(object: &Value, types: &[(&str, &str)], now: Timestamp) -> Value {
    let present = object.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = present.cloned().unwrap_or_default();
    for (kind, reason) in types {
        let is_it = |condition: &&mut Value| condition.get("type").is_some_and(|of| of == kind);
        let held = conditions.iter_mut().find(is_it);
        if held
            .as_ref()
            .is_some_and(|held| held.get("status").is_some_and(|status| status == "True"))
        {
            continue;
        }
        let mut condition =
            json!({"type": kind, "status": "True", "lastTransitionTime": time(now)});
        if let Some(fields) = condition.as_object_mut().filter(|_| !reason.is_empty()) {
            fields.insert("reason".to_owned(), Value::from(*reason));
        }
        match held {
            Some(held) => *held = condition,
            None => conditions.push(condition),
        }
    }
    Value::from(conditions)
}

/// Formats a time as Kubernetes does.
fn time(now: Timestamp) -> Value {
    Value::from(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}
