//! A recorded cluster in memory, in which all four processors reconcile.

use std::{cell::RefCell, time::Duration};

use ingress_gateway_restart::IngressGatewayRestarts;
use istio::{
    action::{Action, ReplicaSets},
    api::{self, FINALIZER, ISTIO_NAMESPACE, IstioSpec, MODULE_NAMESPACE},
    blocking,
    cluster::{Flavour, Size},
    features::Features,
    images::{Images, PULL_SECRET},
    installed::COMPONENT_LABEL,
    kubernetes::Pod,
    last_applied::LastApplied,
    merge,
    predicate::{self, Expected, Phase},
    resource::AUTOSCALER_CRD,
};
use istio_installation::{
    Cluster, Installations, IstioVersion, Rendered, Rendering, double::Double,
};
use mortise_sdk::{
    Description, Failure, Host, ObjectRef, Outcome, Processor, Request,
    testing::{Settled, Stub},
};
use mortise_tests::goldens::group::GroupCase;
use peer_authentication::PeerAuthentications;
use serde_json::{Value, json};
use sidecar_restart::Sidecars;

use super::super::{
    context::{Surroundings, environment, list, object, text},
    istio_of,
    processors::reference,
};

/// The finalizers of the processors besides that of the original.
const OTHER_FINALIZERS: [&str; 2] = [
    "istios.operator.kyma-project.io/peer-authentication",
    "istios.operator.kyma-project.io/sidecar-restart",
];
/// The kinds of Istio's workloads.
const WORKLOADS: [&str; 2] = ["Deployment", "DaemonSet"];
/// The time at which Istio was installed, long before the case.
const INSTALLED_AT: &str = "2025-01-01T00:00:00Z";
/// The most rounds until nothing changes any more.
const MOST_ROUNDS: usize = 30;

thread_local! {
    /// The error with which the library fails.
    static ERROR: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The double of the library, which fails if the original's installer failed.
#[derive(Debug, Clone, Copy)]
struct Recorded;

impl Rendering for Recorded {
    fn version() -> IstioVersion {
        Double::version()
    }

    fn render(spec: &str, cluster: Option<&Cluster>) -> Result<Rendered, String> {
        let error = ERROR.with_borrow(Clone::clone);
        if error.is_empty() { Double::render(spec, cluster) } else { Err(error) }
    }
}

/// istio-installation over that double. The rules that it hands on come from a library that works.
struct Installation;

impl Processor for Installation {
    type Config = istio_installation::Config;

    fn describe(config: &Self::Config) -> Result<Description, String> {
        Installations::<Double>::describe(config)
    }

    fn reconcile(
        request: &Request,
        config: &Self::Config,
        host: &Host,
    ) -> Result<Outcome, Failure> {
        Installations::<Recorded>::reconcile(request, config, host)
    }
}

/// istio-installation, which declares all kinds that the others read, so that a cluster which it
/// reconciles first knows them.
struct First;

impl Processor for First {
    type Config = istio_installation::Config;

    fn describe(config: &Self::Config) -> Result<Description, String> {
        let description = Installation::describe(config)?;
        let others = [
            PeerAuthentications::describe(&<_>::default())?,
            IngressGatewayRestarts::describe(&<_>::default())?,
            Sidecars::describe(&<_>::default())?,
        ];
        Ok(others.into_iter().flat_map(|other| other.reads).fold(description, Description::reads))
    }

    fn reconcile(
        request: &Request,
        config: &Self::Config,
        host: &Host,
    ) -> Result<Outcome, Failure> {
        Installation::reconcile(request, config, host)
    }
}

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
        let objects = objects(case);
        let definitions = tempfile::tempdir().unwrap();
        let definition = lenient(api::definition()).to_string();
        std::fs::write(definitions.path().join("istios.yaml"), definition).unwrap();
        let stub = Stub::new()
            .crds(definitions.path())
            .objects(objects.iter().cloned().chain([istio.clone()]));
        let has_autoscalers =
            object(case.documents("cluster.yaml"), "CustomResourceDefinition", "", AUTOSCALER_CRD);
        let stub = match has_autoscalers {
            Some(_) => stub,
            None => stub.without_kind("autoscaling.k8s.io", "VerticalPodAutoscaler"),
        };
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
        ERROR.set(self.install_error.clone());
        self.stub.settle_one::<First>(&self.of, &self.installation);
        let mut before = Vec::new();
        for _ in 0..MOST_ROUNDS {
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
        panic!("{case}: no rest after {MOST_ROUNDS} rounds");
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

/// Returns the objects around the resource. Of Istio, only outlines of the workloads were recorded:
/// they get what the installer has written for the last applied configuration, and so does the
/// `ConfigMap` of the mesh.
fn objects(case: &GroupCase) -> Vec<Value> {
    let recorded = case.documents("cluster.yaml");
    let last = LastApplied::read(&istio_of(case)).ok().flatten();
    let rendered = rendered(case, &last.as_ref().map(|last| last.spec.clone()).unwrap_or_default());
    let find = |kind: &str, name: &str| object(&rendered, kind, ISTIO_NAMESPACE, name).cloned();
    let mut objects: Vec<Value> =
        recorded.iter().filter(|one| one["kind"] != "CustomResourceDefinition").cloned().collect();
    for object in &mut objects {
        let is_outline = WORKLOADS.contains(&text(object, "/kind"))
            && object
                .pointer("/metadata/labels")
                .and_then(|labels| labels.get(COMPONENT_LABEL))
                .is_some()
            && text(object, "/metadata/namespace") == ISTIO_NAMESPACE;
        let Some(installed) =
            find(text(object, "/kind"), text(object, "/metadata/name")).filter(|_| is_outline)
        else {
            continue;
        };
        object["spec"] = installed["spec"].clone();
        object["metadata"]["creationTimestamp"] = INSTALLED_AT.into();
        let labels = object["metadata"]["labels"].as_object_mut().unwrap();
        for (key, value) in OWNED {
            labels.insert(key.to_owned(), value.into());
        }
    }
    let is_installed = last.is_some_and(|last| !last.tag.is_empty());
    if is_installed && object(recorded, "ConfigMap", ISTIO_NAMESPACE, "istio").is_none() {
        objects.extend(find("ConfigMap", "istio"));
    }
    objects
}

/// The labels by which Istio's installer tells its objects.
const OWNED: [(&str, &str); 4] = [
    ("operator.istio.io/managed", "Reconcile"),
    ("install.operator.istio.io/owning-resource", "default-operator"),
    ("install.operator.istio.io/owning-resource-namespace", ISTIO_NAMESPACE),
    ("istio.io/rev", "default"),
];

/// Returns the objects of an Istio with this spec; those of the default one if it cannot be merged,
/// and none if the cluster cannot be told.
fn rendered(case: &GroupCase, spec: &IstioSpec) -> Vec<Value> {
    let (surroundings, environment) = (Surroundings::of(case), environment(case));
    let Ok(cluster) = surroundings.cluster() else { return Vec::new() };
    let merged = |spec: &IstioSpec| {
        merge::merge(&merge::Input {
            spec,
            cluster: &cluster,
            flavour: Flavour::Experimental,
            features: Features::default(),
            images: &Images::read(&environment).unwrap(),
            pull_secret: environment.get(PULL_SECRET).map(String::as_str),
        })
    };
    let operator = merged(spec).or_else(|_| merged(&IstioSpec::default())).unwrap();
    let rendered = Double::render(&operator.to_string(), None).unwrap();
    let manifests = rendered.components.into_iter().flat_map(|component| component.manifests);
    manifests.map(|manifest| serde_json::from_str(&manifest.content).unwrap()).collect()
}

/// Returns a definition that lets all values in, as the API of the records did.
fn lenient(mut definition: Value) -> Value {
    fn relax(schema: &mut Value) {
        match schema {
            Value::Object(map) => {
                for limit in [
                    "enum",
                    "maxLength",
                    "maximum",
                    "minLength",
                    "minimum",
                    "pattern",
                    "x-kubernetes-validations",
                ] {
                    // A property may have the same name.
                    if map.get(limit).is_some_and(|limit| !limit.is_object()) {
                        map.remove(limit);
                    }
                }
                map.values_mut().for_each(relax);
            }
            Value::Array(items) => items.iter_mut().for_each(relax),
            _ => {}
        }
    }
    for version in definition["spec"]["versions"].as_array_mut().unwrap() {
        relax(&mut version["schema"]);
    }
    definition
}

/// Adds the facts about a case on which rules depend, as the file `facts`.
pub(super) fn add_facts(case: &mut GroupCase) {
    let istio = istio_of(case);
    let kinds: Vec<&str> = blocking::KINDS.iter().map(|(_, _, kind)| *kind).collect();
    let blocks = case.documents("cluster.yaml").iter().any(|object| {
        let (kind, metadata) = (text(object, "/kind"), &object["metadata"]);
        let labels = serde_json::from_value(metadata["labels"].clone()).unwrap_or_default();
        let (namespace, name) =
            (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
        kinds.contains(&kind) && blocking::blocks(kind, namespace, name, &labels)
    });
    let facts = json!({
        "isDeleted": istio.metadata.is_deleted(),
        "hasBlockers": blocks,
        "hasForeignOwners": has_foreign_owners(case),
    });
    case.add("facts", vec![facts]);
}

/// Returns whether customers' Pods that the original selects have owners that cannot be rolled out.
fn has_foreign_owners(case: &GroupCase) -> bool {
    let (surroundings, istio) = (Surroundings::of(case), istio_of(case));
    let objects = case.documents("cluster.yaml");
    let expected = Expected::of(&predicate::Input {
        istio: &istio,
        size: Size::of(&surroundings.nodes).unwrap(),
        features: Features::read(surroundings.features.as_ref()).unwrap_or_default(),
        image: &Images::read(&environment(case)).unwrap().proxy.to_string(),
        mesh: surroundings.mesh.as_deref(),
    });
    let Ok(expected) = expected else { return false };
    let (pods, replica_sets): (Vec<Pod>, Vec<_>) =
        (list(objects, "Pod"), list(objects, "ReplicaSet"));
    let replica_sets = ReplicaSets::new(&replica_sets);
    pods.iter()
        .filter(|pod| expected.selects(pod, Phase::Customer))
        .any(|pod| matches!(Action::of(pod, &replica_sets), Action::Unsupported(_)))
}
