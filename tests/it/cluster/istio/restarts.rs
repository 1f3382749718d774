//! Restarts of many workloads: each once, few at a time, though the host is killed in the middle.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::Mesh;

const NAMESPACES: usize = 10;
/// The Deployments of a namespace, and the Pods of each: 300 workloads in all, 2,000 Pods.
const DEPLOYMENTS: usize = 28;
const REPLICAS: usize = 7;
/// The Pods of the `StatefulSet` of a namespace, which are made one after the other.
const STATEFUL: usize = 2;
/// The Pods of the `ReplicationController` of a namespace, which are evicted one after the other.
const EVICTED: usize = 2;
/// The workloads of a namespace that are rolled out: with its `StatefulSet` and its `DaemonSet`.
const ROLLED_OUT: usize = DEPLOYMENTS + 2;
/// The kinds of workloads that are rolled out.
const KINDS: [&str; 3] = ["apps/v1/Deployment", "apps/v1/StatefulSet", "apps/v1/DaemonSet"];
/// The name and label of the `ReplicationController`s and of their Pods.
const ALONE: &str = "alone";
/// The restarts that are under way at most.
const MAX_CONCURRENT_RESTARTS: usize = 30;
const OLD: &str = "docker.io/istio/proxyv2:1.29.0-distroless";
const STUCK: &str = "stuck";
const RESTARTED_AT: &str = "istio-operator.kyma-project.io/restartedAt";
/// The time in which all restarts are done; a roll-out that hangs counts for two minutes.
const RESTARTS_TIMEOUT: Duration = Duration::from_mins(20);

/// The restarts that were seen.
#[derive(Debug, Default)]
struct Seen {
    /// The times of the restarts of each workload.
    restarted: BTreeMap<String, BTreeSet<String>>,
    /// The most roll-outs and evictions that were under way at once.
    most: usize,
}

fn template(app: &str) -> Value {
    json!({
        "metadata": {
            "labels": {"app": app}, "annotations": {"sidecar.istio.io/status": "{}"},
        },
        "spec": {"containers": [
            {"name": "app", "image": "app:1"}, {"name": "istio-proxy", "image": OLD},
        ]},
    })
}

/// Returns the objects of a namespace.
fn objects(namespace: &str) -> Vec<Value> {
    let metadata = |name: &str| json!({"name": name, "namespace": namespace});
    let deployment = |name: String| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(&name),
            "spec": {
                "replicas": REPLICAS, "selector": {"matchLabels": {"app": name}},
                "template": template(&name),
            },
        })
    };
    let mut all =
        vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})];
    all.extend((0..DEPLOYMENTS).map(|number| deployment(format!("web-{number}"))));
    all.push(json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata("data"),
        "spec": {
            "serviceName": "data", "replicas": STATEFUL,
            "selector": {"matchLabels": {"app": "data"}}, "template": template("data"),
        },
    }));
    all.push(json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata("log"),
        "spec": {"selector": {"matchLabels": {"app": "log"}}, "template": template("log")},
    }));
    all.push(json!({
        "apiVersion": "v1", "kind": "ReplicationController", "metadata": metadata(ALONE),
        "spec": {"replicas": EVICTED, "selector": {"app": ALONE}, "template": template(ALONE)},
    }));
    all.push(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata(ALONE),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": ALONE}}},
    }));
    all
}

/// Returns a workload whose roll-out hangs: there is no room for another Pod.
fn stuck() -> Vec<Value> {
    let mut deployment = objects(STUCK).swap_remove(1);
    deployment["spec"]["replicas"] = json!(1);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": STUCK}});
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "full", "namespace": STUCK}, "spec": {"hard": {"pods": "1"}},
    });
    vec![namespace, deployment, quota]
}

impl Mesh {
    async fn make_shops(&self) {
        let namespaces: Vec<String> =
            (0..NAMESPACES).map(|number| format!("shop-{number}")).collect();
        let making = stream::iter(&namespaces)
            .map(async |namespace| self.ground.apply(objects(namespace)).await);
        making.buffer_unordered(4).collect::<Vec<()>>().await;
        self.ground.apply(stuck()).await;
        // There is one node.
        let expected = NAMESPACES * (DEPLOYMENTS * REPLICAS + STATEFUL + 1 + EVICTED) + 1;
        self.until("all Pods run", async || self.running().await >= expected).await;
    }

    /// Returns the number of Pods of the shops that are ready.
    async fn running(&self) -> usize {
        let pods = self.list("v1/Pod").await;
        pods.iter().filter(|pod| workload(pod).is_some() && is_ready(pod)).count()
    }

    /// Looks at the workloads and their Pods once. A roll-out is under way while a Pod of the
    /// former template is there that is not being deleted, or one of the new is not ready; the
    /// status of workloads comes later. An eviction is under way while the Pod in its place is not
    /// ready.
    async fn look(&self, seen: &mut Seen) {
        let mut templates = BTreeMap::new();
        let mut workloads = Vec::new();
        for kind in KINDS {
            workloads.extend(self.list(kind).await);
        }
        for object in workloads {
            let annotations = &object["spec"]["template"]["metadata"]["annotations"];
            let at = annotations[RESTARTED_AT].as_str().unwrap_or_default();
            if let Some(workload) = workload(&object).filter(|_| !at.is_empty()) {
                let name = format!("{}/{}", workload.0, workload.1);
                seen.restarted.entry(name).or_default().insert(at.to_owned());
                templates.insert(workload, at.to_owned());
            }
        }
        let mut under_way = BTreeSet::new();
        for pod in self.list("v1/Pod").await {
            let app = pod["metadata"]["labels"]["app"].clone();
            let of = workload(&json!({"metadata": {
                "namespace": pod["metadata"]["namespace"], "name": app,
            }}));
            let Some(of) = of.filter(|_| pod["metadata"]["deletionTimestamp"].is_null()) else {
                continue;
            };
            if of.1 == ALONE {
                // Each of its Pods is a restart of its own.
                under_way.extend(workload(&pod).filter(|_| !is_ready(&pod)));
            } else if let Some(at) = templates.get(&of) {
                let is_new = pod["metadata"]["annotations"][RESTARTED_AT] == **at;
                if !(is_new && is_ready(&pod)) {
                    under_way.insert(of);
                }
            }
        }
        seen.most = seen.most.max(under_way.len());
    }

    /// Looks at the workloads until so many have been restarted.
    async fn until_restarted(&self, count: usize, seen: &mut Seen) {
        let begun = Instant::now();
        while seen.restarted.len() < count {
            assert!(
                begun.elapsed() < RESTARTS_TIMEOUT,
                "in vain: {} of {count}",
                seen.restarted.len()
            );
            self.look(seen).await;
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Looks at the workloads until so many Pods were evicted.
    async fn until_evicted(&self, count: usize, seen: &mut Seen) {
        let begun = Instant::now();
        while self.evicted().await < count {
            assert!(begun.elapsed() < RESTARTS_TIMEOUT, "in vain: {count} Pods to evict");
            self.look(seen).await;
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Returns the number of Pods that were evicted.
    async fn evicted(&self) -> usize {
        self.evictions(201).await
    }

    /// Returns the number of evictions with this answer.
    async fn evictions(&self, code: u16) -> usize {
        let requests = self.ground.requests().await;
        let evictions = requests.iter().filter(|event| event.resource() == "pods/eviction");
        evictions.filter(|event| event.code() == code).count()
    }
}

/// Returns namespace and name of a workload of the test; `None` for others.
fn workload(object: &Value) -> Option<(String, String)> {
    let namespace = object["metadata"]["namespace"].as_str()?;
    let is_ours = namespace.starts_with("shop-") || namespace == STUCK;
    let name = object["metadata"]["name"].as_str().filter(|_| is_ours)?;
    Some((namespace.to_owned(), name.to_owned()))
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
}

#[tokio::test]
#[ignore = "it takes minutes"]
async fn each_of_300_workloads_is_restarted_once_though_the_host_is_killed() {
    let Some(mut mesh) = Mesh::prepare(&[("sidecar-restart", json!({"patienceMinutes": 2}))]).await
    else {
        return;
    };
    mesh.make_shops().await;
    mesh.start().await;
    mesh.processors().await;
    mesh.istio(json!({})).await;
    let (all, mut seen) = (NAMESPACES * ROLLED_OUT + 1, Seen::default());
    mesh.until_restarted(all / 3, &mut seen).await;
    println!("killed after {} restarts", seen.restarted.len());
    mesh.kill();
    mesh.start().await;
    mesh.until_restarted(all, &mut seen).await;
    mesh.until_evicted(NAMESPACES * EVICTED, &mut seen).await;
    mesh.until_state("Ready").await;
    mesh.until_idle().await;
    mesh.look(&mut seen).await;
    println!("{} at once at most", seen.most);
    assert!(seen.most <= MAX_CONCURRENT_RESTARTS, "{} at once", seen.most);
    let twice: Vec<_> = seen.restarted.iter().filter(|(_, times)| times.len() > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    // Who was evicted came back with what its controller makes, and is not evicted again.
    assert_eq!(mesh.evicted().await, NAMESPACES * EVICTED);
    let refused = mesh.evictions(429).await;
    println!("{refused} evictions were refused by a budget");
    assert!(refused > 0, "a budget lets the Pods of a controller go one after the other");
    let patches = mesh.ground.requests().await;
    let patches = patches.iter().filter(|event| {
        event.verb == "patch"
            && ["deployments", "statefulsets", "daemonsets"].contains(&&*event.resource())
            && event.account() == mesh.ground.user("sidecar-restart")
            && event.code() == 200
    });
    assert_eq!(patches.count(), all, "one write for each");
}
