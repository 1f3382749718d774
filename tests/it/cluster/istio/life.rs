//! From nothing to Ready, drift, and to nothing again.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{GUESTS, ISTIO, Mesh, injected};

/// The label that each object of the library and each object of the module carries.
const MODULE: &str = "kyma-project.io/module";
/// The kinds of the objects that the processors make.
const KINDS: [&str; 18] = [
    "apps/v1/Deployment",
    "apps/v1/DaemonSet",
    "v1/Service",
    "v1/ConfigMap",
    "v1/ServiceAccount",
    "rbac.authorization.k8s.io/v1/RoleBinding",
    "rbac.authorization.k8s.io/v1/Role",
    "policy/v1/PodDisruptionBudget",
    "autoscaling/v2/HorizontalPodAutoscaler",
    "admissionregistration.k8s.io/v1/MutatingWebhookConfiguration",
    "admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration",
    "rbac.authorization.k8s.io/v1/ClusterRoleBinding",
    "rbac.authorization.k8s.io/v1/ClusterRole",
    "apiextensions.k8s.io/v1/CustomResourceDefinition",
    "networking.k8s.io/v1/NetworkPolicy",
    "security.istio.io/v1/PeerAuthentication",
    "networking.istio.io/v1alpha3/EnvoyFilter",
    "autoscaling.k8s.io/v1/VerticalPodAutoscaler",
];

/// An object that a processor made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Made {
    pub(super) kind: &'static str,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
}

impl Mesh {
    /// Returns all objects that the processors made, but for Pods.
    pub(super) async fn made(&self) -> BTreeSet<Made> {
        let mut made = BTreeSet::new();
        for kind in KINDS {
            for object in self.list(kind).await {
                let metadata = &object["metadata"];
                let text = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
                if metadata["labels"][MODULE] == "istio" {
                    let (namespace, name, uid) = (text("namespace"), text("name"), text("uid"));
                    made.insert(Made { kind, namespace, name, uid });
                }
            }
        }
        made
    }

    /// Changes a field of an object: the label of the module, which each has.
    pub(super) async fn drift(&self, of: &Made) {
        let patch = json!({"metadata": {"labels": {MODULE: "drifted"}}});
        self.patch(of.kind, &of.namespace, &of.name, &patch).await;
    }

    /// Returns the patches that were sent on behalf of the processors.
    async fn patches(&self) -> Vec<String> {
        let requests = self.ground.requests().await;
        let patches = requests.iter().filter(|event| event.verb == "patch");
        patches.map(|event| format!("{} as {}", event.request_uri, event.account())).collect()
    }

    async fn has_drifted(&self, of: &Made) -> bool {
        let object = self.get(of.kind, &of.namespace, &of.name).await;
        object.is_none_or(|object| object["metadata"]["labels"][MODULE] != "istio")
    }
}

#[tokio::test]
async fn an_installation_gets_ready_with_the_printed_rights_repairs_itself_and_goes() {
    let Some(mut mesh) = Mesh::prepare(&[]).await else { return };
    let old = injected("docker.io/istio/proxyv2:1.29.0-distroless", &json!({}));
    mesh.ground.apply(vec![old]).await;
    mesh.start().await;
    mesh.processors().await;
    let egress = json!({"egressGateway": {"enabled": true}});
    mesh.istio(json!({"networkPoliciesEnabled": true, "components": egress})).await;
    let took = mesh.until_state("Ready").await;
    mesh.until("the old sidecar is replaced", async || mesh.restarted_at().await.is_some()).await;
    let restarted_at = mesh.restarted_at().await;
    mesh.until_idle().await;
    println!("ready after {took:?}, runs and renderings: {:?}", mesh.work().await);

    let [printed, held] = mesh.grants().await;
    assert_eq!(printed, held, "the granted rights (left) are those of Istio's roles (right)");

    // Whatever is changed is repaired, from what was rendered before.
    let made = mesh.made().await;
    assert!(made.len() >= 55, "{made:#?}");
    let (_, rendered) = mesh.work().await;
    for one in &made {
        mesh.drift(one).await;
    }
    for one in &made {
        mesh.until(&format!("{one:?} is repaired"), async || !mesh.has_drifted(one).await).await;
    }
    mesh.until_idle().await;
    println!("repaired {} objects, runs and renderings: {:?}", made.len(), mesh.work().await);
    assert_eq!(mesh.work().await.1, rendered, "nothing is rendered again");
    assert_eq!(mesh.made().await, made, "nothing is made anew");

    // A new host runs all keys, and finds all objects as they should be.
    mesh.kill();
    let before = mesh.patches().await;
    mesh.start().await;
    mesh.until("each processor has run", async || {
        mesh.metric("mortise_reconciles_total").await.len() >= GUESTS.len()
    })
    .await;
    mesh.until_idle().await;
    let skipped = mesh.total("mortise_writes_skipped_total").await;
    let sent: Vec<String> = mesh.patches().await.split_off(before.len());
    println!("a new host: {skipped} writes are skipped, sent: {sent:#?}");
    assert!(sent.len() as u64 * 100 <= skipped, "{sent:#?}");

    // People's objects keep Istio, and nothing else does.
    let service = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
        "metadata": {"name": "outside", "namespace": "default"},
        "spec": {"hosts": ["outside.example"], "resolution": "NONE"},
    });
    mesh.ground.apply(vec![service]).await;
    mesh.delete(ISTIO, "kyma-system", "default").await;
    mesh.until("the deletion is blocked", async || {
        let status = mesh.status().await;
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let is_dangling = |one: &Value| one["reason"] == "IstioCustomResourcesDangling";
        status["state"] == "Warning" && conditions.iter().any(is_dangling)
    })
    .await;
    assert_eq!(mesh.made().await, made, "nothing is deleted");
    assert_eq!(mesh.restarted_at().await, restarted_at, "no sidecar is removed");
    mesh.delete("networking.istio.io/v1/ServiceEntry", "default", "outside").await;
    mesh.until("the resource is gone", async || {
        mesh.get(ISTIO, "kyma-system", "default").await.is_none()
    })
    .await;
    assert_ne!(mesh.restarted_at().await, restarted_at, "the sidecar is removed");
    mesh.until("all of it is gone", async || mesh.made().await.is_empty()).await;
    mesh.until("its namespace is gone", async || {
        mesh.get("v1/Namespace", "", "istio-system").await.is_none()
    })
    .await;
    assert_eq!(mesh.forbidden().await, Vec::<String>::new());
}
