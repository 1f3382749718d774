//! api-gateway on a real control plane: the rights that `mortise inspect --rbac` prints are enough
//! for it to install the default Gateway, the network policy and Oathkeeper and to remove them, and
//! the key that signs tokens is made once.

use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
};
use mortise::commands::inspect;
use mortise_core::reconcile::Report;
use mortise_host::{
    cluster::{Cluster, only_own},
    host::{Host, Loaded, Options, Settings},
};
use mortise_tests::{cluster, definitions, loaded};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    ground::{Ground, TIMEOUT, client_with},
    strict,
};

const GUEST: &str = "guests/api-gateway";
/// The name of the Processor and of its account.
const NAME: &str = "api-gateway";
const CONFIG: &str = r#"{"v1beta1": "allowed", "images": {
    "oathkeeper": "example.com/oathkeeper:1", "oathkeeperMaester": "example.com/maester:1",
    "busybox": "example.com/busybox:1"}}"#;

const DEPLOYMENT: (&str, &str, Option<&str>, &str) =
    ("apps/v1", "Deployment", KYMA, "ory-oathkeeper");
/// The parts of the module in a small cluster that is not Gardener's.
const PARTS: [(&str, &str, Option<&str>, &str); 17] = [
    DEPLOYMENT,
    ("networking.istio.io/v1beta1", "Gateway", KYMA, "kyma-gateway"),
    ("networking.istio.io/v1beta1", "VirtualService", ISTIO, "istio-healthz"),
    ("networking.k8s.io/v1", "NetworkPolicy", KYMA, "kyma-project.io--api-gateway-allow"),
    ("v1", "Secret", ISTIO, "kyma-gateway-certs"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", None, "rules.oathkeeper.ory.sh"),
    ("policy/v1", "PodDisruptionBudget", KYMA, "ory-oathkeeper"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", None, "oathkeeper-maester-role"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", None, "oathkeeper-maester-role-binding"),
    ("security.istio.io/v1beta1", "PeerAuthentication", KYMA, "ory-oathkeeper-maester-metrics"),
    ("v1", "ConfigMap", KYMA, "ory-oathkeeper-config"),
    ("v1", "Secret", KYMA, "ory-oathkeeper-jwks-secret"),
    ("v1", "Service", KYMA, "ory-oathkeeper-api"),
    ("v1", "Service", KYMA, "ory-oathkeeper-maester-metrics"),
    ("v1", "Service", KYMA, "ory-oathkeeper-proxy"),
    ("v1", "ServiceAccount", KYMA, "oathkeeper-maester-account"),
    ("v1", "ServiceAccount", KYMA, "ory-oathkeeper"),
];
/// The parts besides them in a large cluster of Gardener, which knows vertical autoscalers.
const PARTS_OF_GARDENER: [(&str, &str, Option<&str>, &str); 6] = [
    ("autoscaling/v2", "HorizontalPodAutoscaler", KYMA, "ory-oathkeeper"),
    ("cert.gardener.cloud/v1alpha1", "Certificate", ISTIO, "kyma-tls-cert"),
    ("dns.gardener.cloud/v1alpha1", "DNSEntry", KYMA, "kyma-gateway"),
    ("autoscaling.k8s.io/v1", "VerticalPodAutoscaler", KYMA, "api-gateway-controller-manager-vpa"),
    ("networking.istio.io/v1beta1", "Gateway", KYMA, "kyma-gateway"),
    ("networking.istio.io/v1beta1", "VirtualService", ISTIO, "istio-healthz"),
];
const CHECKPOINT: (&str, &str, Option<&str>, &str) = (
    "autoscaling.k8s.io/v1",
    "VerticalPodAutoscalerCheckpoint",
    KYMA,
    "api-gateway-controller-manager-vpa-manager",
);
const KYMA: Option<&str> = Some("kyma-system");
const ISTIO: Option<&str> = Some("istio-system");
const GATEWAY: (&str, &str, Option<&str>, &str) =
    ("operator.kyma-project.io/v1alpha1", "APIGateway", None, "default");

/// A control plane of the test's own, with the account of the processor.
struct Site {
    plane: cluster::Cluster,
    client: Client,
    ground: Ground,
    loaded: Loaded,
    /// The roles that `mortise inspect --rbac` prints.
    printed: Vec<Value>,
}

// === impl Site ===

impl Site {
    /// Makes the account, without rights, in a cluster that knows more kinds, too. Returns `None`
    /// without Go.
    async fn open(more: Vec<Value>) -> Option<Self> {
        let plane = cluster::own().await.unwrap()?;
        let istio = cluster::istio().await.unwrap()?;
        let kinds = [istio, definitions(GUEST).unwrap(), more].concat();
        plane.install(&kinds).await.unwrap();
        let ground = Ground::on(&plane, NAME).await;
        ground.let_act_as(&[NAME.to_owned()]).await;
        let loaded = loaded(GUEST, CONFIG).await.unwrap();
        let settings = Settings {
            name: Some(NAME.into()),
            account: Some(format!("{}/{NAME}", ground.namespace).parse().unwrap()),
            ..Settings::in_namespace(&ground.namespace)
        };
        let loaded = Loaded::describe(loaded.processor, CONFIG, settings).await.unwrap();
        let account = loaded.settings.account.as_ref();
        let text = inspect::rbac(&loaded.description, kinds, account, None).await.unwrap();
        let printed: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        let namespaces = ["istio-system", "kyma-system"].map(
            |name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        );
        ground.apply(namespaces.into()).await;
        ground.consent(NAME).await;
        let client = plane.client().await.unwrap();
        Some(Self { plane, client, ground, loaded, printed })
    }

    /// Gives the account the rights that are printed and no others, but for those to `except`.
    async fn grant(&self, except: Option<&str>) {
        let mut roles = self.printed.clone();
        if let Some(resource) = except {
            let mut taken = 0;
            for all in roles.iter_mut().filter_map(|role| role.get_mut("rules")) {
                let all = all.as_array_mut().unwrap();
                let before = all.len();
                all.retain(|rule| rule["resources"] != json!([resource]));
                taken += before - all.len();
            }
            assert_eq!(taken, 1, "one rule is for {resource} alone");
        }
        self.ground.apply(roles).await;
    }

    /// Starts a host with the processor.
    async fn host(&self) -> Host {
        let kubeconfig = self.ground.kubeconfig_of_host(&self.plane).await;
        let own = Cluster::new(only_own(&client_with(kubeconfig).await));
        Host::start(&own, vec![self.loaded.clone()], &Options::default()).unwrap()
    }

    fn api(
        &self,
        (version, kind, namespace, _): (&str, &str, Option<&str>, &str),
    ) -> Api<DynamicObject> {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    async fn get(&self, of: (&str, &str, Option<&str>, &str)) -> Option<Value> {
        let found = self.api(of).get_opt(of.3).await.unwrap();
        found.map(|object| serde_json::to_value(object).unwrap())
    }

    async fn key(&self) -> Option<Value> {
        let secret = self.get(("v1", "Secret", KYMA, "ory-oathkeeper-jwks-secret")).await?;
        Some(json!([secret["metadata"]["uid"], secret["data"]]))
    }

    /// Scales Oathkeeper to no Pods: there are no nodes for them. The number of Pods is not the
    /// processor's, so it stays at none.
    async fn run_no_pods(&self) {
        let none = Patch::Merge(json!({"spec": {"replicas": 0}}));
        self.api(DEPLOYMENT).patch(DEPLOYMENT.3, &PatchParams::default(), &none).await.unwrap();
    }

    /// Deletes the APIGateway, and waits until it and these parts are gone.
    async fn remove(&self, parts: &[(&str, &str, Option<&str>, &str)]) {
        self.api(GATEWAY).delete(GATEWAY.3, &DeleteParams::default()).await.unwrap();
        for part in [GATEWAY].iter().chain(parts) {
            let what = format!("{part:?} is gone");
            self.ground.until(&what, async || self.get(*part).await.is_none()).await;
        }
    }

    async fn until_state(&self, state: &str) {
        let what = format!("the APIGateway is {state}");
        let holds = async || {
            self.get(GATEWAY).await.is_some_and(|gateway| gateway["status"]["state"] == state)
        };
        self.ground.until(&what, holds).await;
    }
}

/// Waits for a run in which nothing failed and nothing was denied: rights are known after a while.
async fn until_whole(host: &Host) {
    let is_whole = |report: &Report| report.failure.is_none() && report.denied.is_empty();
    let runs = async { while !is_whole(&host.next_report().await.unwrap()) {} };
    timeout(TIMEOUT, runs).await.expect("a run that is whole");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_module_is_installed_with_the_rights_that_are_printed() {
    let Some(site) = Site::open(Vec::new()).await else { return };
    site.grant(Some("apigateways/status")).await;
    let host = site.host().await;
    let gateway = json!({
        "apiVersion": GATEWAY.0, "kind": GATEWAY.1, "metadata": {"name": GATEWAY.3},
        "spec": {"enableKymaGateway": true, "networkPoliciesEnabled": true},
    });
    site.ground.apply(vec![gateway]).await;
    // The host goes away when there is a key, and no status: it may not write one yet.
    site.ground.until("there is a key", async || site.key().await.is_some()).await;
    drop(host);
    let key = site.key().await.unwrap();
    assert_eq!(site.get(GATEWAY).await.unwrap()["status"], Value::Null);

    site.grant(None).await;
    let host = site.host().await;
    site.until_state("Processing").await;
    until_whole(&host).await;
    for part in PARTS {
        assert!(site.get(part).await.is_some(), "{part:?}");
    }
    site.run_no_pods().await;
    site.until_state("Ready").await;
    assert_eq!(site.get(DEPLOYMENT).await.unwrap()["spec"]["replicas"], 0);
    assert_eq!(site.key().await, Some(key));

    site.remove(&PARTS).await;
    let requests = site.ground.requests().await;
    assert_eq!(site.ground.beyond_installed(&requests), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_cluster_of_gardener_needs_no_more_rights_than_are_printed() {
    let Some(site) = Site::open(strict::foreign()).await else { return };
    site.grant(None).await;
    let address = ("v1", "Service", ISTIO, "istio-ingressgateway");
    let objects = vec![
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "large"},
            "status": {"capacity": {"cpu": "16", "memory": "64Gi"}},
        }),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "shoot-info", "namespace": "kube-system"},
            "data": {"domain": "a.example.com"},
        }),
        json!({
            "apiVersion": address.0, "kind": address.1,
            "metadata": {"name": address.3, "namespace": address.2},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 443}]},
        }),
        json!({
            "apiVersion": CHECKPOINT.0, "kind": CHECKPOINT.1,
            "metadata": {"name": CHECKPOINT.3, "namespace": CHECKPOINT.2},
        }),
        json!({
            "apiVersion": GATEWAY.0, "kind": GATEWAY.1, "metadata": {"name": GATEWAY.3},
            "spec": {"enableKymaGateway": true},
        }),
    ];
    site.ground.apply(objects).await;
    let balancer = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.10"}]}});
    let status = Patch::Merge(json!({"status": balancer}));
    site.api(address).patch_status(address.3, &PatchParams::default(), &status).await.unwrap();
    let host = site.host().await;
    site.ground.until("Oathkeeper is there", async || site.get(DEPLOYMENT).await.is_some()).await;
    site.run_no_pods().await;
    site.until_state("Ready").await;
    until_whole(&host).await;
    for part in PARTS_OF_GARDENER {
        assert!(site.get(part).await.is_some(), "{part:?}");
    }
    let labels = site.get(CHECKPOINT).await.unwrap()["metadata"]["labels"].take();
    assert_eq!(labels["kyma-project.io/module"], "api-gateway");
    site.remove(&PARTS_OF_GARDENER).await;
    let requests = site.ground.requests().await;
    assert_eq!(site.ground.beyond_installed(&requests), Vec::<String>::new());
}
