//! From the original operator to the processors, and back.

use std::collections::{BTreeMap, BTreeSet};

use istio::{
    api::Istio,
    cluster::{Cluster, Flavour, Objects},
    features::Features,
    images::Images,
    installed,
    kubernetes::{Node, Service},
    last_applied::{Effect, LastApplied},
    merge,
    resource::{self, DISCLAIMER, DISCLAIMER_TEXT},
};
use mortise_core::{
    api::{Api, Method, Outgoing},
    contract::ObjectRef,
};
use serde_json::{Value, json};

use super::{super::kind, GUESTS, ISTIO, Mesh, PROCESSOR, VERSION, injected, life::Made};
use crate::istio_client::{Case, Renderer};

/// The field managers of the original: that of Istio's installer, and its own.
const MANAGERS: [&str; 2] = ["istio-operator", "manager"];
/// The field manager of what the installer updates: the name of its program.
const INSTALLER: &str = "istio_install";
const WEBHOOKS: &str = "admissionregistration.k8s.io/v1/MutatingWebhookConfiguration";
const INJECTOR: &str = "istio-sidecar-injector";
/// The webhooks of the default tag, in whose favour the installer deactivates the injector.
const TAG_WEBHOOKS: &str = "istio-revision-tag-default";
const TAG: &str = "1.31.0-distroless";
const WORKLOADS: [&str; 2] = ["apps/v1/Deployment", "apps/v1/DaemonSet"];

/// The generation and the Pod template of each workload.
type Workloads = BTreeMap<(&'static str, String), (Value, Value)>;

/// The objects that the original operator leaves.
struct Original {
    /// The objects that Istio's installer renders.
    of_istio: Vec<Value>,
    /// The objects that the installer makes for the default tag.
    of_tag: Vec<Value>,
    /// The module's own objects.
    own: Vec<Value>,
}

impl Original {
    /// Returns whether an object is one that the installer renders.
    fn renders(&self, made: &Made) -> bool {
        let (_, kind) = made.kind.rsplit_once('/').unwrap();
        self.of_istio.iter().any(|object| {
            object["kind"] == kind && object["metadata"]["name"] == made.name.as_str()
        })
    }
}

impl Mesh {
    /// Sends a write of the original operator.
    async fn write_as(&self, manager: &str, method: Method, object: &Value) {
        let cluster = &self.ground.cluster;
        let kind = mortise::local::kind_of(object);
        let resource = cluster.resolve(&kind).await.unwrap();
        let resource = resource.unwrap_or_else(|| panic!("not served: {object}"));
        let text = |key: &str| object["metadata"][key].as_str();
        let namespace = text("namespace").filter(|_| resource.namespaced);
        let name = text("name").unwrap_or_else(|| panic!("without a name: {object}"));
        let at = resource.path_of(namespace, name);
        let force = if method == Method::Apply { "&force=true" } else { "" };
        let at = format!("{at}?fieldManager={manager}{force}");
        let answer = cluster.send(&Outgoing::new(method, at, Some(object.clone()))).await;
        let answer = answer.unwrap_or_else(|refusal| panic!("{object:#}: {}", refusal.message));
        if kind.kind == "CustomResourceDefinition" {
            let of = ObjectRef { kind: kind.into(), namespace: None, name: name.to_owned() };
            Api::established(cluster, &of).await.unwrap();
            cluster.forget(answer.body["spec"]["group"].as_str().unwrap());
        }
    }

    /// Creates or updates an object as the original does: its fields are owned by operation
    /// `Update`.
    async fn create_or_update(&self, object: &Value) {
        let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap();
        let of = format!("{}/{}", text("/apiVersion"), text("/kind"));
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        if self.get(&of, namespace, name).await.is_some() {
            self.write_as(MANAGERS[1], Method::MergePatch, object).await;
            return;
        }
        let cluster = &self.ground.cluster;
        let at = cluster.resolve(&kind(&of)).await.unwrap().unwrap().path(Some(namespace));
        let at = format!("{at}?fieldManager={}", MANAGERS[1]);
        cluster.send(&Outgoing::new(Method::Post, at, Some(object.clone()))).await.unwrap();
    }

    /// Deactivates the injector, as the installer does for the default tag.
    async fn deactivate_injector(&self) {
        let mut injector = self.get(WEBHOOKS, "", INJECTOR).await.unwrap();
        let never = json!({"matchLabels": {"istio.io/deactivated": "never-match"}});
        for webhook in injector["webhooks"].as_array_mut().unwrap() {
            for selector in ["namespaceSelector", "objectSelector"] {
                webhook[selector] = never.clone();
            }
        }
        let change = json!({
            "apiVersion": injector["apiVersion"], "kind": injector["kind"],
            "metadata": {"name": INJECTOR}, "webhooks": injector["webhooks"],
        });
        self.write_as(INSTALLER, Method::MergePatch, &change).await;
    }

    /// Returns whether the injector is active and the webhooks of the default tag are gone.
    async fn injects_without_tag(&self) -> bool {
        let injector = self.get(WEBHOOKS, "", INJECTOR).await.unwrap();
        let is_active = !injector["webhooks"].to_string().contains("never-match");
        is_active && self.get(WEBHOOKS, "", TAG_WEBHOOKS).await.is_none()
    }

    /// Installs what the original operator installs: the rendering, with its labels, and the
    /// module's own objects.
    async fn install_as_original(&self, original: &Original) {
        let Original { of_istio, of_tag, own } = original;
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {
                "name": "istio-system",
                "labels": {"namespaces.warden.kyma-project.io/validate": "enabled"},
                "annotations": {DISCLAIMER: DISCLAIMER_TEXT},
            },
        });
        self.write_as(MANAGERS[1], Method::MergePatch, &namespace).await;
        for object in of_istio {
            self.write_as(MANAGERS[0], Method::Apply, object).await;
        }
        self.deactivate_injector().await;
        for object in of_tag {
            self.write_as(MANAGERS[0], Method::Apply, object).await;
        }
        for object in of_istio.iter().chain(of_tag) {
            let kind = object["kind"].as_str().unwrap();
            let mut patch = installed::label_patch(kind);
            for key in ["apiVersion", "kind"] {
                patch[key] = object[key].clone();
            }
            for key in ["name", "namespace"] {
                if !object["metadata"][key].is_null() {
                    patch["metadata"][key] = object["metadata"][key].clone();
                }
            }
            self.write_as(MANAGERS[1], Method::MergePatch, &patch).await;
        }
        for object in own {
            self.create_or_update(object).await;
        }
        self.until("the original has installed Istio", async || self.are_rolled_out().await).await;
    }

    async fn are_rolled_out(&self) -> bool {
        let number = |object: &Value, at: &str| object.pointer(at).and_then(Value::as_i64);
        let mut all = Vec::new();
        for of in WORKLOADS {
            all.extend(self.list(of).await);
        }
        all.len() >= 3
            && all.iter().all(|object| {
                let (wanted, ready) = if object["kind"] == "DaemonSet" {
                    ("/status/desiredNumberScheduled", "/status/numberReady")
                } else {
                    ("/spec/replicas", "/status/readyReplicas")
                };
                let observed = number(object, "/status/observedGeneration");
                observed == number(object, "/metadata/generation")
                    && number(object, ready) == number(object, wanted)
            })
    }

    /// Waits until autoscalers have set the replicas of what they scale, which makes another
    /// generation.
    async fn until_scaled(&self) {
        self.until("autoscalers have set the replicas", async || {
            let scalers = self.list("autoscaling/v2/HorizontalPodAutoscaler").await;
            let deployments = self.list("apps/v1/Deployment").await;
            scalers.iter().map(|scaler| &scaler["spec"]).all(|scaler| {
                let target = &scaler["scaleTargetRef"]["name"];
                let mut scaled = deployments.iter().filter(|of| of["metadata"]["name"] == *target);
                scaled.all(|of| of["spec"]["replicas"].as_u64() >= scaler["minReplicas"].as_u64())
            })
        })
        .await;
    }

    /// Returns the workloads of Istio as they are.
    async fn workloads(&self) -> Workloads {
        let mut all = Workloads::new();
        for of in WORKLOADS {
            for object in self.list(of).await {
                let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                let seen =
                    (object["metadata"]["generation"].clone(), object["spec"]["template"].clone());
                all.insert((of, name), seen);
            }
        }
        all
    }

    /// Writes the Istio resource as the original leaves it.
    async fn istio_as_original(&self, istio: &Istio) {
        let annotation = LastApplied::after(istio, Effect::All(TAG)).unwrap();
        let patch = json!({
            "apiVersion": "operator.kyma-project.io/v1alpha2", "kind": "Istio",
            "metadata": {
                "name": "default", "namespace": "kyma-system",
                "finalizers": ["istios.operator.kyma-project.io/istio-installation"],
                "annotations": {"operator.kyma-project.io/lastAppliedConfiguration": annotation},
            },
        });
        self.write_as(MANAGERS[1], Method::MergePatch, &patch).await;
        let cluster = &self.ground.cluster;
        let resource = cluster.resolve(&kind(ISTIO)).await.unwrap().unwrap();
        let at = resource.path_of(Some("kyma-system"), "default");
        let condition = |of: &str, status: &str, reason: &str| {
            json!({
                "type": of, "status": status, "reason": reason, "message": "as it was",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        };
        let status = json!({"status": {
            "state": "Ready", "description": "",
            "conditions": [
                condition("Ready", "True", "ReconcileSucceeded"),
                condition("ProxySidecarRestartSucceeded", "True", "ProxySidecarRestartSucceeded"),
                condition(
                    "IngressTargetingUserResourceFound",
                    "False",
                    "IngressTargetingUserResourceNotFound",
                ),
            ],
        }});
        let at = format!("{at}/status?fieldManager={}", MANAGERS[1]);
        cluster.send(&Outgoing::new(Method::MergePatch, at, Some(status))).await.unwrap();
    }

    /// Returns the managers of the objects of Istio that are not ours.
    async fn other_managers(&self, made: impl IntoIterator<Item = &Made>) -> Vec<String> {
        let mut others = Vec::new();
        for one in made {
            let object = self.get(one.kind, &one.namespace, &one.name).await.unwrap();
            let entries = object["metadata"]["managedFields"].as_array().cloned();
            let names = entries.unwrap_or_default();
            let names = names.iter().filter_map(|entry| entry["manager"].as_str());
            for name in names.filter(|name| MANAGERS.contains(name)) {
                others.push(format!("{name} of {} {}", one.kind, one.name));
            }
        }
        others
    }
}

/// Returns what the original leaves for an Istio resource, and the resources of sidecars.
async fn original(mesh: &Mesh, renderer: &Renderer, istio: &Istio) -> (Original, Value) {
    let nodes: Vec<Node> = mesh
        .list("v1/Node")
        .await
        .into_iter()
        .map(|node| serde_json::from_value(node).unwrap())
        .collect();
    let objects = Objects { nodes: &nodes, ..Objects::default() };
    let cluster = Cluster::of(&objects, Flavour::Regular).unwrap();
    let image = |name: &str| (name.to_owned(), format!("docker.io/istio/{name}:{TAG}"));
    let images = Images::read(&["pilot", "install-cni", "proxyv2", "ztunnel"].map(image).into());
    let input = merge::Input {
        spec: &istio.spec,
        cluster: &cluster,
        flavour: Flavour::Regular,
        features: Features::default(),
        images: &images.unwrap(),
        pull_secret: None,
    };
    let operator = merge::merge(&input).unwrap();
    let of_sidecars = operator.pointer("/spec/values/global/proxy/resources").unwrap().clone();
    let of_istio = rendering(renderer, &operator).await;
    let of_tag = of_tag(renderer, operator, &of_istio).await;
    let own = own(mesh, istio).await;
    (Original { of_istio, of_tag, own }, of_sidecars)
}

/// Returns what the installer renders of an `IstioOperator`.
async fn rendering(renderer: &Renderer, operator: &Value) -> Vec<Value> {
    let case = Case { name: "taken over".to_owned(), spec: operator.to_string(), cluster: None };
    let answer = renderer.render(&case).await;
    let mut all = Vec::new();
    for component in &answer.rendered().unwrap().components {
        for manifest in &component.manifests {
            let documents: Vec<Value> = serde_saphyr::from_multiple(&manifest.content).unwrap();
            for mut object in documents.into_iter().filter(|document| !document.is_null()) {
                let labels = json!({
                    "operator.istio.io/managed": "Reconcile",
                    "operator.istio.io/component": component.name,
                    "operator.istio.io/version": "1.31.0",
                    "install.operator.istio.io/owning-resource": "default-operator",
                    "install.operator.istio.io/owning-resource-namespace": "istio-system",
                    "istio.io/rev": "default",
                });
                super::super::merge(&mut object, &json!({"metadata": {"labels": labels}}));
                all.push(object);
            }
        }
    }
    all
}

/// Returns what the installer makes for the default tag after all else: the webhooks that inject,
/// those that validate, and a Service. The same charts render them.
async fn of_tag(renderer: &Renderer, mut operator: Value, of_istio: &[Value]) -> Vec<Value> {
    let values = &mut operator["spec"]["values"];
    values["revisionTags"] = json!(["default"]);
    values["defaultRevision"] = json!("default");
    let identity = |object: &Value| {
        ["/kind", "/metadata/namespace", "/metadata/name"].map(|at| object.pointer(at).cloned())
    };
    let others: Vec<_> = of_istio.iter().map(identity).collect();
    let mut of_tag = rendering(renderer, &operator).await;
    of_tag.retain(|object| !others.contains(&identity(object)));
    let labels = json!({
        "operator.istio.io/component": "Pilot",
        "install.operator.istio.io/owning-resource-not-pruned": "true",
    });
    for object in &mut of_tag {
        super::super::merge(object, &json!({"metadata": {"labels": labels}}));
    }
    let names: BTreeSet<_> =
        of_tag.iter().filter_map(|object| object["metadata"]["name"].as_str()).collect();
    let expected = [TAG_WEBHOOKS, "istiod-default-validator", "istiod-revision-tag-default"];
    assert_eq!(names, BTreeSet::from(expected));
    of_tag
}

/// Returns the module's own objects.
async fn own(mesh: &Mesh, istio: &Istio) -> Vec<Value> {
    let api_server = mesh.get("v1/Service", "default", "kubernetes").await.unwrap();
    let api_server: Service = serde_json::from_value(api_server).unwrap();
    let plan = resource::Plan::of(&resource::Input {
        istio,
        needs_proxy_protocol: false,
        control_plane_autoscalers: false,
        has_autoscaler_crd: true,
        api_server: Some(&api_server),
        version: "dev",
    });
    plan.apply
}

/// Checks that objects are there that have not been made anew.
fn check_kept(kept: &BTreeSet<Made>, now: &BTreeSet<Made>) {
    assert!(kept.is_subset(now), "{:?}", kept.difference(now).collect::<Vec<_>>());
}

#[tokio::test]
#[ignore = "it takes minutes"]
async fn istio_goes_from_the_original_to_the_processors_and_back_untouched() {
    let Some(mut mesh) = Mesh::prepare(&[]).await else { return };
    let renderer = Renderer::of(VERSION).await.unwrap();
    // Each setting for which something is restarted, and a workload with the right sidecar.
    let spec = json!({
        "config": {
            "numTrustedProxies": 2, "enableDNSProxying": true,
            "proxyStatsMatcher": {"inclusionRegexps": ["a.*b"]},
        },
        "networkPoliciesEnabled": true,
    });
    mesh.istio(spec).await;
    let istio = mesh.get(ISTIO, "kyma-system", "default").await.unwrap();
    let istio: Istio = serde_json::from_value(istio).unwrap();
    let (original, of_sidecars) = original(&mesh, &renderer, &istio).await;
    let sidecar = format!("docker.io/istio/proxyv2:{TAG}");
    mesh.ground.apply(vec![injected(&sidecar, &of_sidecars)]).await;
    mesh.install_as_original(&original).await;
    mesh.istio_as_original(&istio).await;
    mesh.until_scaled().await;
    let (made, workloads) = (mesh.made().await, mesh.workloads().await);
    let (tagged, kept): (BTreeSet<_>, BTreeSet<_>) =
        made.into_iter().partition(|one| one.name == TAG_WEBHOOKS);
    assert_eq!(tagged.len(), 1, "{kept:?}");
    let former = mesh.get(ISTIO, "kyma-system", "default").await.unwrap();
    let states = mesh.states().await;

    // To the processors.
    mesh.take_over = MANAGERS.map(str::to_owned).to_vec();
    mesh.start().await;
    mesh.processors().await;
    mesh.until_state("Ready").await;
    // Objects of the tag, and objects that another processor writes, are owned as they were.
    let of_installer = || kept.iter().filter(|one| original.renders(one));
    mesh.until("what Istio's installer owned is the processor's", async || {
        mesh.other_managers(of_installer()).await.is_empty()
    })
    .await;
    mesh.until("the injector is active alone", async || mesh.injects_without_tag().await).await;
    mesh.until_idle().await;
    check_kept(&kept, &mesh.made().await);
    assert_eq!(mesh.workloads().await, workloads, "no workload is restarted");
    assert_eq!(states.seen(), ["Ready"], "the state stays");
    let now = mesh.get(ISTIO, "kyma-system", "default").await.unwrap();
    assert_eq!(now["metadata"]["uid"], former["metadata"]["uid"]);
    assert_eq!(now["metadata"]["generation"], former["metadata"]["generation"]);
    assert_eq!(mesh.restarted_at().await, None);

    assert_eq!(mesh.forbidden().await, Vec::<String>::new());

    // And back: the Processors let go, and the original reconciles again.
    for guest in GUESTS {
        let namespace = mesh.ground.namespace.clone();
        let release = json!({"spec": {"onDelete": "Release"}});
        mesh.patch(PROCESSOR, &namespace, guest, &release).await;
        mesh.delete(PROCESSOR, &namespace, guest).await;
    }
    mesh.until("the Processors are gone", async || mesh.list(PROCESSOR).await.is_empty()).await;
    let let_go = mesh.get(ISTIO, "kyma-system", "default").await.unwrap();
    let finalizers = let_go["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let ours = finalizers
        .iter()
        .filter(|finalizer| !finalizer.as_str().unwrap().ends_with("/istio-installation"));
    assert_eq!(ours.count(), 0, "{finalizers:?}");
    mesh.install_as_original(&original).await;
    mesh.istio_as_original(&istio).await;
    check_kept(&kept, &mesh.made().await);
    assert!(mesh.get(WEBHOOKS, "", TAG_WEBHOOKS).await.is_some(), "the tag is there again");
    // The original sets the number of replicas each time: the generations are others.
    let templates = |of: Workloads| -> Vec<_> {
        of.into_iter().map(|(name, (_, template))| (name, template)).collect()
    };
    let back = templates(mesh.workloads().await);
    assert_eq!(back, templates(workloads), "no workload is restarted");
    assert_eq!(states.seen(), ["Ready"], "the state stays");
}
