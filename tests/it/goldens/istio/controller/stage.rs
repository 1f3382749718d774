//! A recorded cluster in memory, in which all four processors reconcile.

use std::time::Duration;

use ingress_gateway_restart::IngressGatewayRestarts;
use istio::{
    api::{self, FINALIZER, ISTIO_NAMESPACE, MODULE_NAMESPACE},
    images::Images,
};
use mortise_sdk::{
    ObjectRef,
    testing::{Settled, Stub},
};
use mortise_tests::goldens::group::GroupCase;
use peer_authentication::PeerAuthentications;
use serde_json::{Value, json};
use sidecar_restart::Sidecars;

use super::{
    super::{
        context::{environment, text},
        istio_of,
        processors::{reference, serve_autoscalers},
    },
    given::{self, WORKLOADS},
    installation::{self, First, Installation},
};

/// The finalizers of the processors besides that of the original.
const OTHER_FINALIZERS: [&str; 2] = [
    "istios.operator.kyma-project.io/peer-authentication",
    "istios.operator.kyma-project.io/sidecar-restart",
];
/// The most rounds until nothing changes any more.
const MAX_ROUNDS: usize = 30;

/// A recorded cluster, with the configurations of the processors.
pub(super) struct Stage {
    pub(super) stub: Stub,
    pub(super) of: ObjectRef,
    /// The objects that were recorded, as they were given to the cluster.
    pub(super) objects: Vec<Value>,
    install_error: String,
    installation: String,
    sidecars: String,
    others: String,
}

impl Stage {
    pub(super) fn of(case: &GroupCase) -> Self {
        let resource = istio_of(case);
        let mut istio = case.document("istio-cr.yaml").clone();
        if let Some(finalizers) = istio["metadata"]["finalizers"].as_array_mut()
            && finalizers.contains(&FINALIZER.into())
            && resource.metadata.is_deleted()
            && resource.metadata.namespace.as_deref() == Some(MODULE_NAMESPACE)
        {
            // The processors have taken the resource over, as the original had.
            finalizers.extend(OTHER_FINALIZERS.map(Value::from));
        }
        let context = case.document("context.yaml");
        let is_experimental = text(context, "/build") == "experimental";
        let images = Images::read(&environment(case)).unwrap();
        // The original looks again after ten hours.
        let others = json!({"experimental": is_experimental, "resyncMinutes": 600});
        let with = |more: Value| {
            let mut config = others.clone();
            config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            config.to_string()
        };
        let objects = given::objects(case);
        let definitions = tempfile::tempdir().unwrap();
        let definition = given::lenient(api::definition()).to_string();
        std::fs::write(definitions.path().join("istios.yaml"), definition).unwrap();
        let stub = Stub::new()
            .unchecked()
            .crds(definitions.path())
            .objects(objects.iter().cloned().chain([istio.clone()]));
        let stub = serve_autoscalers(stub, case);
        Self {
            stub,
            of: reference(&istio),
            objects,
            install_error: text(context, "/installError").to_owned(),
            installation: with(json!({"env": environment(case)})),
            sidecars: with(
                json!({"proxyImage": images.proxy.to_string(), "missingSidecars": false}),
            ),
            others: others.to_string(),
        }
    }

    /// Reconciles until nothing changes any more, and returns what istio-installation said last
    /// about the next run.
    pub(super) fn settle(&self, case: &str) -> Settled {
        installation::fail_with(&self.install_error);
        self.stub.settle_one::<First>(&self.of, &self.installation);
        let mut before = Vec::new();
        for _ in 0..MAX_ROUNDS {
            let settled = self.round(Duration::from_mins(1));
            let after = self.stub.all();
            if before == after {
                // Nothing happens later either.
                let settled_later = self.round(Duration::from_mins(30));
                assert_eq!(self.stub.all(), after, "{case}: changes later");
                assert_eq!(settled, settled_later, "{case}");
                return settled;
            }
            before = after;
        }
        panic!("{case}: no rest after {MAX_ROUNDS} rounds");
    }

    /// Reconciles the resource with each processor, and lets workloads become ready.
    fn round(&self, by: Duration) -> Settled {
        self.stub.advance(by);
        self.stub.settle_one::<PeerAuthentications>(&self.of, &self.others);
        self.stub.settle_one::<IngressGatewayRestarts>(&self.of, &self.others);
        self.stub.settle_one::<Sidecars>(&self.of, &self.sidecars);
        self.roll_out();
        self.stub.settle_one::<Installation>(&self.of, &self.installation)
    }

    /// Plays the controllers of Istio's workloads: all become ready.
    fn roll_out(&self) {
        let is_of_istio = |object: &&Value| {
            WORKLOADS.contains(&text(object, "/kind"))
                && text(object, "/metadata/namespace") == ISTIO_NAMESPACE
        };
        for workload in self.stub.all().iter().filter(is_of_istio) {
            let generation = &workload["metadata"]["generation"];
            let replicas = workload["spec"]["replicas"].as_i64().unwrap_or(1);
            let status = match text(workload, "/kind") {
                "Deployment" => json!({
                    "observedGeneration": generation, "replicas": replicas,
                    "updatedReplicas": replicas, "readyReplicas": replicas,
                    "availableReplicas": replicas,
                }),
                _ => json!({
                    "observedGeneration": generation, "currentNumberScheduled": 1,
                    "numberMisscheduled": 0, "desiredNumberScheduled": 1,
                    "updatedNumberScheduled": 1, "numberReady": 1,
                }),
            };
            self.stub.patch(&json!({
                "apiVersion": workload["apiVersion"], "kind": workload["kind"],
                "metadata": {"name": workload["metadata"]["name"], "namespace": ISTIO_NAMESPACE},
                "status": status,
            }));
        }
    }
}
