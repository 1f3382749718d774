//! The rights of the host's own account: no more than the installation states, and none that the
//! host could do without.

use std::{collections::BTreeSet, time::Duration};

use futures::{StreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{
    SelfSubjectRulesReview, SelfSubjectRulesReviewSpec, SubjectRulesReviewStatus,
};
use kube::{Api, Client, api::PostParams, runtime::wait::await_condition};
use mortise::local;
use mortise_host::{
    cluster::Cluster,
    operator::api::{Processor, definition},
};
use mortise_tests::{cluster, guest};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{HOST, PROCESSOR, Site};
use crate::cluster::{
    ground::{RBAC, client_with, kubeconfig_of},
    installed::{Right, rules, stated},
    program::Program,
};

/// A processor with an account that makes no writes.
const IDLE: &str = "tests/guests/idle";
/// Timeout that only a fault reaches.
const TIMEOUT: Duration = Duration::from_mins(1);
/// Number of hosts that are tried at the same time.
const MAX_CONCURRENT_HOSTS: usize = 3;

/// Returns whether a right is needed only if another client writes a Processor at the same moment.
pub(super) fn is_for_the_unusual(right: &Right) -> bool {
    *right == Right::new("get", "mortise.dev", "processors", "")
}

/// Returns whether a host works without a right, but notices changes late.
fn is_for_haste(right: &Right) -> bool {
    right.group == "rbac.authorization.k8s.io"
}

/// Returns the rights of an account in a namespace according to the API server, and as JSON those
/// for paths without resources.
async fn may(client: &Client, namespace: &str) -> (BTreeSet<Right>, BTreeSet<String>) {
    let spec = SelfSubjectRulesReviewSpec { namespace: Some(namespace.to_owned()) };
    let review = SelfSubjectRulesReview { spec, ..SelfSubjectRulesReview::default() };
    let reviews: Api<SelfSubjectRulesReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap();
    let SubjectRulesReviewStatus { incomplete, resource_rules, non_resource_rules, .. } = answer;
    assert!(!incomplete, "the server knows all rights");
    let rights = resource_rules.iter().flat_map(|rule| Right::of_rule(&json!(rule))).collect();
    (rights, non_resource_rules.iter().map(|rule| json!(rule).to_string()).collect())
}

/// Compares the host's account with an account without rights: the difference is what is stated,
/// and the impersonation of the example's account in its namespace.
pub(super) async fn are_no_more_than_stated(site: &Site) {
    let host = client_with(kubeconfig_of(&site.plane, HOST, HOST).await).await;
    let nobody = client_with(kubeconfig_of(&site.plane, "default", "default").await).await;
    let everywhere: BTreeSet<Right> = rules("ClusterRole").into_iter().collect();
    let acts = Right::new("impersonate", "", "serviceaccounts", PROCESSOR);
    let cases = [("default", vec![]), (HOST, rules("Role")), (PROCESSOR, vec![acts])];
    for (namespace, here) in cases {
        let (own, others) = (may(&host, namespace).await, may(&nobody, namespace).await);
        let more: BTreeSet<Right> = own.0.difference(&others.0).cloned().collect();
        let expected: BTreeSet<Right> = everywhere.iter().cloned().chain(here).collect();
        assert_eq!(more, expected, "in {namespace}");
        assert_eq!(own.1, others.1, "in {namespace}");
    }
}

/// Creates an account that has all stated rights except one, and returns a kubeconfig with its
/// credentials.
async fn without(
    plane: &cluster::Cluster,
    namespace: &str,
    right: &Right,
    number: usize,
) -> String {
    let left = |kind: &str| -> Vec<Value> {
        let left = rules(kind).into_iter().filter(|of| of != right);
        left.map(|of| of.as_rule()).collect()
    };
    let name = format!("without-{number}");
    with(plane, (namespace, &name), (left("ClusterRole"), left("Role"))).await
}

/// Creates an account with rules for the cluster and for its namespace, and returns a kubeconfig
/// with its credentials.
async fn with(
    plane: &cluster::Cluster,
    (namespace, name): (&str, &str),
    (of_cluster, of_namespace): (Vec<Value>, Vec<Value>),
) -> String {
    let everywhere = format!("{namespace}-{name}");
    let here = json!({"namespace": namespace, "name": name});
    let subject = json!({"kind": "ServiceAccount", "namespace": namespace, "name": name});
    let reference = |kind: &str, name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    let objects = vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": here}),
        json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": everywhere}, "rules": of_cluster}),
        json!({
            "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": everywhere},
            "roleRef": reference("ClusterRole", &everywhere), "subjects": [subject],
        }),
        json!({"apiVersion": RBAC, "kind": "Role", "metadata": here, "rules": of_namespace}),
        json!({
            "apiVersion": RBAC, "kind": "RoleBinding", "metadata": here,
            "roleRef": reference("Role", name), "subjects": [subject],
        }),
    ];
    local::apply(&Cluster::new(plane.client().await.unwrap()), objects).await.unwrap();
    let config = kubeconfig_of(plane, namespace, name).await;
    serde_json::to_string(&config).unwrap()
}

/// Runs a host without one right. Returns its output if it does not fail as expected.
async fn fault(
    plane: &cluster::Cluster,
    namespace: &str,
    right: &Right,
    number: usize,
) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(guest(IDLE).unwrap(), folder.path().join("idle.wasm")).unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, without(plane, namespace, right, number).await).unwrap();
    let (modules, cache) = (folder.path(), folder.path().join("cache"));
    let arguments = ["--leader-elect", "--namespace", namespace];
    // A host of one namespace does without it.
    let is_of_all = right.resource == "subjectaccessreviews";
    let arguments = if is_of_all { &arguments[..1] } else { &arguments };
    let mut host = Program::start(&kubeconfig, modules, &cache, arguments);
    if is_for_haste(right) {
        // The event names the kind, and contains the refusal.
        let event = host.event("changes of rights are noticed late, after a minute").await;
        let refused = format!("cannot {} resource \"{}\"", right.verb, right.resource);
        host.kill();
        return (!event["error"].as_str().unwrap().contains(&refused)).then(|| event.to_string());
    }
    let (status, said) = host.ended().await;
    let last: Value = serde_json::from_str(said.lines().last().unwrap_or_default()).unwrap();
    let message = last["message"].as_str().unwrap_or_default();
    let refused = format!("may not {} {}", right.verb, right.title());
    let is_said = message.split_once(&refused);
    let is_said = is_said.is_some_and(|(_, rest)| rest.starts_with([' ', ':']));
    (status.code() != Some(1) || !is_said).then(|| format!("{right:?}: {status}, {said}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_any_right_of_the_installation_something_fails() {
    let Some(plane) = cluster::shared().await.unwrap() else { return };
    let namespace = plane.namespace("least").await.unwrap();
    plane.install(&[definition::processors()]).await.unwrap();
    // The host requests roles as soon as there is an account for which they matter.
    let idle = json!({"namespace": namespace, "name": "idle"});
    let consents = json!({"mortise.dev/processor": "idle"});
    let account = json!({"namespace": namespace, "name": "idle", "annotations": consents});
    let objects = vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}),
        json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor", "metadata": idle,
            "spec": {"module": {"path": "idle.wasm"}, "serviceAccountName": "idle"},
        }),
    ];
    local::apply(&Cluster::new(plane.client().await.unwrap()), objects).await.unwrap();
    let stated = stated();
    assert!(stated.len() > 20, "{stated:?}");
    let faults: Vec<String> = stream::iter(stated.iter().enumerate())
        .map(|(number, right)| fault(plane, &namespace, right, number))
        .buffer_unordered(MAX_CONCURRENT_HOSTS)
        .filter_map(async |fault| fault)
        .collect()
        .await;
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The chart's test names the same rights (`chart::a_host_of_one_namespace_…`).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_of_one_namespace_needs_rights_in_it_and_to_watch_cluster_roles_and_definitions() {
    const OF_CLUSTER: [&str; 3] =
        ["customresourcedefinitions", "clusterroles", "clusterrolebindings"];
    let Some(plane) = cluster::shared().await.unwrap() else { return };
    let namespace = plane.namespace("lone").await.unwrap();
    plane.install(&[definition::processors()]).await.unwrap();
    let (of_cluster, here): (Vec<Right>, Vec<Right>) = stated()
        .into_iter()
        .filter(|right| right.resource != "subjectaccessreviews")
        .partition(|right| OF_CLUSTER.contains(&right.resource.as_str()));
    let as_rules = |of: Vec<Right>| of.iter().map(Right::as_rule).collect::<Vec<_>>();
    let mut here = as_rules(here);
    here.push(
        json!({"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]}),
    );
    let config = with(plane, (&namespace, "lone"), (as_rules(of_cluster), here)).await;
    let reads =
        json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]});
    let reports = json!({"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]});
    with(plane, (&namespace, "idle"), (vec![reads, reports], Vec::new())).await;
    let consents = json!({"mortise.dev/processor": "idle"});
    let account = json!({"namespace": namespace, "name": "idle", "annotations": consents});
    let idle = json!({"namespace": namespace, "name": "idle"});
    let objects = vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}),
        json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor", "metadata": idle,
            "spec": {"module": {"path": "idle.wasm"}, "serviceAccountName": "idle"},
        }),
    ];
    let client = plane.client().await.unwrap();
    local::apply(&Cluster::new(client.clone()), objects).await.unwrap();

    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(guest(IDLE).unwrap(), folder.path().join("idle.wasm")).unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, config).unwrap();
    let (modules, cache) = (folder.path(), folder.path().join("cache"));
    let arguments = ["--leader-elect", "--namespace", &namespace];
    let mut host = Program::start(&kubeconfig, modules, &cache, arguments);
    let runs = |processor: Option<&Processor>| {
        let status = processor.and_then(|processor| processor.status.as_ref());
        let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
        conditions.any(|condition| condition.type_ == "Ready" && condition.reason == "Runs")
    };
    let processors: Api<Processor> = Api::namespaced(client, &namespace);
    let ran = timeout(TIMEOUT, await_condition(processors, "idle", runs)).await;
    let said = host.said();
    assert!(ran.is_ok_and(|ran| ran.is_ok()), "{said:#?}");
    let is_late = |event: &Value| event["message"].as_str().unwrap().contains("noticed late");
    assert!(!said.iter().any(is_late), "{said:#?}");
    host.kill();
}
