//! Another version of Istio: another library, on a running host.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
    time::Duration,
};

use serde_json::{Value, json};

use super::{INSTALLATION, INTERFACE, Mesh, PROCESSOR, life::Made};
use crate::istio_client::second;

/// The interval of changes by others while the versions are exchanged.
const CHANGE_INTERVAL: Duration = Duration::from_secs(1);
const DEPLOYMENTS: [&str; 2] = ["istiod", "istio-ingressgateway"];

impl Mesh {
    /// Makes the processor use another library.
    async fn use_library(&self, path: &str) {
        let libraries = json!([{
            "interface": INTERFACE, "module": {"path": path},
            "limits": {"memory": "256Mi", "deadline": "60s"},
        }]);
        let change = json!({"spec": {"libraries": libraries}});
        self.patch(PROCESSOR, &self.ground.namespace, INSTALLATION, &change).await;
    }

    /// Returns the release that the annotation of the Istio resource records.
    async fn recorded(&self) -> String {
        let istio = self.get(super::ISTIO, "kyma-system", "default").await.unwrap();
        let annotation = "operator.kyma-project.io/lastAppliedConfiguration";
        let text = istio["metadata"]["annotations"][annotation].as_str().unwrap();
        let applied: Value = serde_json::from_str(text).unwrap();
        applied["IstioTag"].as_str().unwrap().to_owned()
    }

    /// Returns the number of roll-outs of each Deployment of Istio.
    async fn roll_outs(&self) -> BTreeMap<&'static str, String> {
        let mut all = BTreeMap::new();
        for name in DEPLOYMENTS {
            let found = self.get("apps/v1/Deployment", "istio-system", name).await.unwrap();
            let revision = &found["metadata"]["annotations"]["deployment.kubernetes.io/revision"];
            all.insert(name, revision.as_str().unwrap().to_owned());
        }
        all
    }

    /// Changes one object of Istio after the other, each so seldom that it is taken back.
    async fn disturb(&self, made: &BTreeSet<Made>) {
        for one in iter::repeat_n(made, 4).flatten() {
            // An update of Istio may delete it.
            if self.get(one.kind, &one.namespace, &one.name).await.is_some() {
                self.drift(one).await;
            }
            tokio::time::sleep(CHANGE_INTERVAL).await;
        }
        std::future::pending::<()>().await;
    }

    async fn upgraded(&self) {
        self.until(&format!("{} is recorded", second::RELEASE), async || {
            self.recorded().await.starts_with(second::RELEASE)
        })
        .await;
        self.until_state("Ready").await;
    }
}

#[tokio::test]
#[ignore = "a second version takes minutes to build and to compile"]
async fn another_library_updates_istio_while_others_change_it() {
    let Some(mut mesh) = Mesh::prepare(&[]).await else { return };
    let next = tokio::task::spawn_blocking(|| {
        mortise_tests::istio_client::component(second::version()).unwrap().unwrap()
    });
    let next = next.await.unwrap();
    mesh.start().await;
    mesh.processors().await;
    mesh.istio(json!({})).await;
    mesh.until_state("Ready").await;
    assert_eq!(mesh.recorded().await, "1.31.0-distroless");
    let made = mesh.made().await;
    let (states, before) = (mesh.states().await, mesh.roll_outs().await);
    let service = |ports: &Value| {
        ports["spec"]["ports"].as_array().unwrap().iter().any(|port| port["port"] == 15009)
    };
    let istiod = mesh.get("v1/Service", "istio-system", "istiod").await.unwrap();
    assert!(!service(&istiod) && before.values().all(|revision| revision == "1"), "{before:?}");

    super::link(&next, &mesh.modules_dir().join("istio-next.wasm"));
    mesh.use_library("istio-next.wasm").await;
    tokio::select! {
        () = mesh.disturb(&made) => unreachable!("it goes on for ever"),
        () = mesh.upgraded() => {}
    }
    // An object more, one less, and a field of one is another.
    let more = mesh.get("v1/ConfigMap", "istio-system", "second").await;
    assert!(more.is_some());
    let less = "istio-reader-service-account";
    assert_eq!(mesh.get("v1/ServiceAccount", "istio-system", less).await, None);
    let istiod = mesh.get("v1/Service", "istio-system", "istiod").await.unwrap();
    assert!(service(&istiod), "{istiod:#}");
    let after = mesh.roll_outs().await;
    assert!(after.values().all(|revision| revision == "2"), "rolled out once: {after:?}");
    assert_eq!(states.seen(), ["Ready", "Processing", "Ready"]);
    let failures: u64 = mesh
        .metric("mortise_reconciles_total")
        .await
        .iter()
        .filter(|(labels, _)| labels.contains("failure"))
        .map(|(_, count)| count)
        .sum();
    assert_eq!(failures, 0);

    // And not back: Istio knows no downgrade.
    mesh.use_library("istio.wasm").await;
    mesh.until("the downgrade is refused", async || {
        let said = mesh.status().await;
        let description = said["description"].as_str().unwrap_or_default();
        said["state"] == "Warning" && description.contains("downgrade not supported")
    })
    .await;
    assert_eq!(mesh.roll_outs().await, after, "nothing is touched");
    assert_eq!(mesh.forbidden().await, Vec::<String>::new());
}
