//! An installation that nobody changes, and one that somebody changes field by field.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{GUESTS, Mesh, life::Made};

/// The time for which nothing is changed.
const QUIET_PERIOD: Duration = Duration::from_mins(10);
/// The most resyncs of a processor in that time.
const MAX_RESYNCS: u64 = 2;

/// Returns a change of a field that the processors own, other than the label of the module.
fn change(kind: &str, object: &Value) -> Option<Value> {
    Some(match kind.rsplit_once('/').unwrap().1 {
        "Deployment" | "DaemonSet" => {
            let labels = json!({"sidecar.istio.io/inject": "true"});
            json!({"spec": {"template": {"metadata": {"labels": labels}}}})
        }
        "Service" => json!({"spec": {"selector": {"app": "other"}}}),
        "ConfigMap" => {
            let key = object["data"].as_object()?.keys().next()?;
            json!({"data": {key: "other"}})
        }
        "Role" | "ClusterRole" => json!({"rules": []}),
        "RoleBinding" | "ClusterRoleBinding" => json!({"subjects": []}),
        "HorizontalPodAutoscaler" => json!({"spec": {"maxReplicas": 17}}),
        "PeerAuthentication" => json!({"spec": {"mtls": {"mode": "DISABLE"}}}),
        "NetworkPolicy" => json!({"spec": {"podSelector": {"matchLabels": {"other": "yes"}}}}),
        "EnvoyFilter" => {
            json!({"spec": {"workloadSelector": {"labels": {"istio": "egressgateway"}}}})
        }
        "VerticalPodAutoscaler" => json!({"spec": {"updatePolicy": {"updateMode": "Off"}}}),
        "PodDisruptionBudget" => {
            // A budget has one of both.
            let fields = ["minAvailable", "maxUnavailable"];
            let field = fields.into_iter().find(|field| object["spec"].get(field).is_some())?;
            json!({"spec": {field: 17}})
        }
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
            // A merge patch replaces a list as a whole.
            let mut webhooks = object["webhooks"].clone();
            webhooks[0]["objectSelector"] = json!({"matchLabels": {"other": "yes"}});
            json!({"webhooks": webhooks})
        }
        "Namespace" => {
            let labels = json!({"namespaces.warden.kyma-project.io/validate": "other"});
            json!({"metadata": {"labels": labels}})
        }
        "CustomResourceDefinition" => json!({"spec": {"names": {"categories": ["other"]}}}),
        _ => return None,
    })
}

/// Returns the part of an object that people write.
fn content(mut object: Value) -> Value {
    let metadata = object["metadata"].take();
    object.as_object_mut().unwrap().remove("status");
    object["labels"] = metadata["labels"].clone();
    object
}

impl Mesh {
    async fn content(&self, of: &Made) -> Value {
        content(self.get(of.kind, &of.namespace, &of.name).await.unwrap())
    }

    /// Waits until nothing has run for a while: autoscalers have set their replicas by then.
    async fn until_quiet(&self) {
        let last = Mutex::new((self.work().await, Instant::now()));
        self.until("nothing runs any more", async || {
            let now = self.work().await;
            let mut last = last.lock().unwrap();
            if last.0 != now {
                *last = (now, Instant::now());
            }
            last.1.elapsed() > Duration::from_secs(30)
        })
        .await;
    }

    /// Changes an object, and returns the time until it is as it was.
    async fn repaired(&self, of: &Made, change: &Value) -> Duration {
        let before = self.content(of).await;
        let begun = Instant::now();
        self.patch(of.kind, &of.namespace, &of.name, change).await;
        self.until(&format!("{of:?} is repaired"), async || self.content(of).await == before).await;
        begun.elapsed()
    }
}

#[tokio::test]
#[ignore = "it takes minutes"]
async fn idle_processors_only_resync_and_drift_is_repaired_without_rendering() {
    let Some(mut mesh) = Mesh::prepare(&[]).await else { return };
    // With it the cluster is one of OpenStack, whose load balancers speak the PROXY protocol.
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "a-node"},
        "spec": {"providerID": "openstack:///a-node"},
    });
    mesh.ground.apply(vec![node]).await;
    mesh.start().await;
    mesh.processors().await;
    mesh.istio(json!({"networkPoliciesEnabled": true})).await;
    mesh.until_state("Ready").await;
    mesh.until_quiet().await;
    let writes = async || mesh.total("mortise_writes_total").await;
    let resyncs = async || mesh.total("mortise_reconciles_not_skipped_total").await;
    let before = (mesh.work().await, writes().await, resyncs().await);
    tokio::time::sleep(QUIET_PERIOD).await;
    let after = (mesh.work().await, writes().await, resyncs().await);
    println!("before and after ten minutes: {before:?}, {after:?}");
    let ((runs, renderings), written, resynced) = before;
    assert_eq!((after.0.1, after.1), (renderings, written), "nothing is rendered or written");
    // A processor that has asked for the time runs at a resync.
    assert_eq!(after.0.0 - runs, after.2 - resynced, "nothing runs but resyncs");
    assert!(after.0.0 - runs <= MAX_RESYNCS * GUESTS.len() as u64, "no more often than that");

    let mut times = Vec::new();
    // The namespace does not carry the label of the module.
    let namespace = Made {
        kind: "v1/Namespace",
        namespace: String::new(),
        name: "istio-system".to_owned(),
        uid: String::new(),
    };
    let made = mesh.made().await;
    assert!(made.iter().any(|one| one.kind.ends_with("/EnvoyFilter")), "{made:#?}");
    for one in made.iter().chain([&namespace]) {
        let object = mesh.content(one).await;
        let label = json!({"metadata": {"labels": {"kyma-project.io/module": "drifted"}}});
        let label = (*one != namespace).then_some(label);
        for change in [label, change(one.kind, &object)].into_iter().flatten() {
            times.push((mesh.repaired(one, &change).await, one.clone()));
        }
    }
    times.sort();
    for (time, Made { kind, namespace, name, .. }) in &times {
        println!("{time:.1?} {kind} {namespace}/{name}");
    }
    let (median, (longest, of)) = (times[times.len() / 2].0, times.last().unwrap());
    println!(
        "{} changes, repaired in {median:.1?} at the median, {longest:.1?} {of:?}",
        times.len()
    );
    assert_eq!(mesh.work().await.1, renderings, "nothing is rendered again");
}
