//! `deploy/install.yaml` and `deploy/example.yaml` on a control plane: accepted unchanged;
//! sufficient for both hosts in their Pods; no right is superfluous; removed without a trace.
//! `tests/whole-run` takes the same steps with kubectl, and also swaps versions.

mod objects;
mod pod;
mod rights;

use std::collections::BTreeSet;

use k8s_openapi::{
    api::{apps::v1::Deployment, coordination::v1::Lease, policy::v1::PodDisruptionBudget},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ListParams},
    core::{ApiResource, GroupVersionKind},
    runtime::{conditions::is_crd_established, wait::await_condition},
};
use mortise_tests::{
    cluster::{self, Audit},
    definitions, guest, loaded,
};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use self::{
    objects::{All, Objects},
    pod::Pod,
};
use super::{
    ground::token,
    installed::{self, Right, documents, installation},
    program::{POLL_INTERVAL, Ports, Program, TIMEOUT, get},
};

const EXAMPLE: &str = "deploy/example.yaml";
const GUEST: &str = "guests/api-rule";
/// The APIRule of its examples that is not served.
const REFUSED: &str = "legacy";
/// The name of the host's account, and of its namespace.
const HOST: &str = "mortise";
/// The name of the example's Processor, its account and its namespace.
const PROCESSOR: &str = "api-rule";
const USER: &str = "system:serviceaccount:mortise:mortise";
const ACTS_AS: &str = "system:serviceaccount:api-rule:api-rule";
/// The finalizers that a host or the example puts on objects.
const FINALIZERS: [&str; 2] = ["mortise.dev/processor", "gateway.kyma-project.io/subresources"];

/// A control plane of the test's own, with users' objects and without ours.
struct Site {
    plane: cluster::Cluster,
    client: Client,
    objects: Objects,
}

// === impl Site ===

impl Site {
    async fn open() -> Option<Self> {
        let plane = cluster::own().await.unwrap()?;
        let istio = cluster::istio().await.unwrap()?;
        plane.install(&[istio, definitions(GUEST).unwrap()].concat()).await.unwrap();
        let client = plane.client().await.unwrap();
        let site = Self { objects: Objects::new(client.clone()), plane, client };
        for object in documents(&format!("{GUEST}/examples")) {
            site.objects.apply(&object).await;
        }
        Some(site)
    }

    fn api<K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>>(
        &self,
        namespace: &str,
    ) -> Api<K> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Applies the installation unchanged, and waits until its Pods are ready.
    async fn install(&self) {
        for object in installation() {
            self.objects.apply(&object).await;
        }
        let kinds: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        until(await_condition(kinds, "processors.mortise.dev", is_crd_established())).await;
        let ready = |found: Option<&Deployment>| {
            found.and_then(|found| found.status.as_ref()?.ready_replicas) == Some(2)
        };
        until(Box::pin(await_condition(self.api::<Deployment>(HOST), HOST, ready))).await;
        // The budget selects these Pods, and allows one of them to be evicted.
        let allows = |found: Option<&PodDisruptionBudget>| {
            found.and_then(|found| Some(found.status.as_ref()?.disruptions_allowed)) == Some(1)
        };
        until(await_condition(self.api::<PodDisruptionBudget>(HOST), HOST, allows)).await;
    }

    /// Starts a container of one of the Deployment's Pods, with the example's module in the folder
    /// that the Deployment mounts.
    async fn start_host(&self) -> (Program, Pod) {
        let deployment = self.api::<Deployment>(HOST).get(HOST).await.unwrap();
        let pod = Pod::of(&deployment);
        std::fs::copy(guest(GUEST).unwrap(), pod.volume("modules").join("api-rule.wasm")).unwrap();
        let token = token(&self.client, HOST, HOST).await;
        pod.let_be(&token, HOST, &self.plane.kubeconfig());
        let address = self.plane.config().await.unwrap().cluster_url;
        (Program::spawn(pod.command(&address)), pod)
    }

    fn kind(&self, group: &str, version: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(group, version, kind);
        Api::namespaced_with(self.client.clone(), namespace, &ApiResource::from_gvk(&kind))
    }

    fn processors(&self) -> Api<DynamicObject> {
        self.kind("mortise.dev", "v1alpha1", "Processor", PROCESSOR)
    }

    /// Waits until the Processor runs, and every APIRule is ready and has its `VirtualService`, but
    /// for the one in version v1beta1, which the configuration does not allow.
    async fn settled(&self) {
        let runs = |found: Option<&DynamicObject>| found.is_some_and(is_ready);
        until(await_condition(self.processors(), PROCESSOR, runs)).await;
        let rules = self.kind("gateway.kyma-project.io", "v2", "APIRule", "shop");
        let names: Vec<String> = names(&rules).await;
        assert!(!names.is_empty(), "the examples of {GUEST} have rules");
        for name in &names {
            let state = if name == REFUSED { "Error" } else { "Ready" };
            let ready = |found: Option<&DynamicObject>| {
                found.is_some_and(|found| found.data["status"]["state"] == state)
            };
            until(await_condition(rules.clone(), name, ready)).await;
        }
        let made = self.kind("networking.istio.io", "v1", "VirtualService", "shop");
        assert_eq!(self::names(&made).await.len(), names.len() - 1);
    }

    /// Terminates the leading host, as draining its node would: the other host takes the lead, and
    /// restores a deleted object.
    async fn is_taken_over(&self, mut first: Program, second: &mut Program) {
        first.terminate();
        let (status, said) = first.ended().await;
        assert_eq!(status.code(), Some(0), "{said}");
        second.event("leading").await;
        let made = self.kind("networking.istio.io", "v1", "VirtualService", "shop");
        let uids = async || -> BTreeSet<Option<String>> {
            let found = made.list(&ListParams::default()).await.unwrap();
            found.into_iter().map(|object| object.metadata.uid).collect()
        };
        let (before, names) = (uids().await, names(&made).await);
        made.delete(&names[0], &DeleteParams::default()).await.unwrap();
        let is_made = async {
            loop {
                let now = uids().await;
                if now.len() == before.len() && now != before {
                    return;
                }
                sleep(POLL_INTERVAL).await;
            }
        };
        timeout(TIMEOUT, is_made).await.expect("the second host makes it again");
    }

    /// Waits until the host has renewed its Lease, which is the last of its requests to happen for
    /// the first time.
    async fn lease_is_renewed(&self) {
        let renewed = |found: Option<&Lease>| {
            let spec = found.and_then(|found| found.spec.as_ref());
            spec.is_some_and(|spec| spec.renew_time > spec.acquire_time)
        };
        until(await_condition(self.api::<Lease>(HOST), HOST, renewed)).await;
    }

    /// Uninstalls as deploy/README.md says: the Processors, each of which releases its objects; the
    /// example; the host.
    async fn uninstall(&self, mut host: Program) {
        let processors = self.objects.delete(&documents(EXAMPLE), |kind| kind == "Processor").await;
        assert_eq!(processors, 1);
        self.objects.delete(&documents(EXAMPLE), |kind| kind != "Processor").await;
        host.terminate();
        let (status, said) = host.ended().await;
        assert_eq!(status.code(), Some(0), "{said}");
        let lease = self.api::<Lease>(HOST).get(HOST).await.unwrap().spec.unwrap();
        assert_eq!(lease.holder_identity, None, "it was given back");
        self.objects.delete(&installation(), |_| true).await;
    }
}

async fn until<T, E: std::fmt::Debug>(what: impl Future<Output = Result<T, E>>) -> T {
    timeout(TIMEOUT, what).await.expect("only a fault takes longer").unwrap()
}

/// Waits until a Pod's probes have the answers of a ready Pod.
async fn are_probed(pod: &Pod, ports: &Ports) {
    for path in pod.probes() {
        let is_well = async {
            while get(&ports.public, &path).await != (200, "ok\n".to_owned()) {
                sleep(POLL_INTERVAL).await;
            }
        };
        timeout(TIMEOUT, is_well).await.unwrap_or_else(|_| panic!("{path} is not well"));
    }
}

async fn names(api: &Api<DynamicObject>) -> Vec<String> {
    let found = api.list(&ListParams::default()).await.unwrap();
    found.into_iter().filter_map(|object| object.metadata.name).collect()
}

fn is_ready(processor: &DynamicObject) -> bool {
    let conditions = processor.data["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|of| of["type"] == "Ready" && of["status"] == "True")
}

/// Checks that the host's requests were allowed, that those made as itself are stated, and that
/// every stated right was used.
async fn requests_are_as_stated(audit: &Audit) {
    let mut events = audit.events().await.unwrap();
    events.retain(|event| event.user.username == USER);
    let refused: Vec<_> = events
        .iter()
        .filter(|event| matches!(event.code(), 401 | 403))
        .map(|event| (event.account(), &event.verb, event.resource()))
        .collect();
    assert_eq!(refused, [], "nothing more is needed");
    let (own, acting): (Vec<_>, Vec<_>) =
        events.into_iter().partition(|event| event.impersonated_user.is_none());
    let accounts: BTreeSet<&str> = acting.iter().map(cluster::Event::account).collect();
    assert_eq!(accounts, [ACTS_AS].into());

    let more: Vec<_> = installed::beyond(&own, HOST).into_iter().map(Right::of_request).collect();
    assert_eq!(more, [], "asked for, and not stated");
    let of_all = |rights: Vec<Right>| -> BTreeSet<Right> {
        rights.into_iter().map(Right::whatever_the_name).collect()
    };
    let used = of_all(own.iter().filter_map(Right::of_request).collect());
    let stated = of_all(installed::stated().into_iter().collect());
    let less: Vec<_> =
        stated.difference(&used).filter(|of| !rights::is_for_the_unusual(of)).collect();
    assert_eq!(less, Vec::<&Right>::new(), "stated, and not asked for");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_installed_objects_suffice_and_uninstalling_removes_them_all() {
    if !pod::is_possible() {
        return;
    }
    let Some(site) = Site::open().await else { return };
    let before = site.objects.all().await;
    site.install().await;
    for object in documents(EXAMPLE) {
        site.objects.apply(&object).await;
    }
    let audit = site.plane.audit().await.unwrap();
    let (mut host, pod) = site.start_host().await;
    let ports = host.ports().await;
    let (_, about) = get(&ports.admin, "/host").await;
    assert!(about.contains(&format!("\"{USER}\"")), "{about}");
    site.settled().await;
    let (mut second, second_pod) = site.start_host().await;
    let second_ports = second.ports().await;
    second.event("another host leads").await;
    are_probed(&pod, &ports).await;
    are_probed(&second_pod, &second_ports).await;
    site.is_taken_over(host, &mut second).await;
    site.lease_is_renewed().await;
    requests_are_as_stated(&audit).await;
    rights::are_no_more_than_stated(&site).await;

    site.uninstall(second).await;
    let gone = async {
        while !left(&before, &site.objects.all().await).is_empty() {
            sleep(POLL_INTERVAL).await;
        }
    };
    let is_gone = timeout(TIMEOUT, gone).await.is_ok();
    assert!(is_gone, "left over: {:?}", left(&before, &site.objects.all().await));
}

/// Returns the objects that did not exist before, and those with a finalizer of ours.
fn left(before: &All, after: &All) -> Vec<String> {
    let is_ours = |held: &BTreeSet<String>| FINALIZERS.iter().any(|ours| held.contains(*ours));
    let left = after.iter().filter(|(title, held)| !before.contains_key(*title) || is_ours(held));
    left.map(|(title, held)| format!("{title} {held:?}")).collect()
}

#[tokio::test]
async fn the_example_s_roles_are_those_that_inspect_prints() {
    let loaded = loaded(GUEST, "{}").await.unwrap();
    let account = format!("{PROCESSOR}/{PROCESSOR}").parse().unwrap();
    let crds = definitions(GUEST).unwrap();
    let printed = mortise::commands::inspect::rbac(&loaded.description, crds, Some(&account), None);
    let printed: Vec<Value> = serde_saphyr::from_multiple(&printed.await.unwrap()).unwrap();
    let mut example = documents(EXAMPLE);
    example.retain(|object| object["metadata"]["name"] == printed[0]["metadata"]["name"]);
    assert_eq!(json!(example), json!(printed), "put what `mortise inspect` prints into {EXAMPLE}");
}
