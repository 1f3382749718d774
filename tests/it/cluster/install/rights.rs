//! What the host's own account may do: no more than the installation states, and nothing that it could do without.

use std::collections::BTreeSet;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{
    SelfSubjectRulesReview, SelfSubjectRulesReviewSpec, SubjectRulesReviewStatus,
};
use kube::{
    Api, Client,
    api::PostParams,
    config::{AuthInfo, Kubeconfig},
};
use mortise_host::{api::definition, cluster::Cluster, desk};
use mortise_tests::{
    cluster::{self, Event},
    guest,
};
use serde_json::{Value, json};

use super::{HOST, INSTALLATION, PROCESSOR, Site, documents, token};
use crate::cluster::{program::Program, stage::RBAC};

/// A processor that does nothing, but has an account.
const IDLE: &str = "tests/guests/idle";
/// How many hosts are tried at once.
const PARALLEL: usize = 3;

/// One verb on one resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Right {
    verb: String,
    group: String,
    /// The plural, with a subresource behind a slash.
    resource: String,
    /// Empty: whatever its name.
    name: String,
}

// === impl Right ===

impl Right {
    fn new(verb: &str, group: &str, resource: &str, name: &str) -> Self {
        let [verb, group, resource, name] = [verb, group, resource, name].map(str::to_owned);
        Self { verb, group, resource, name }
    }

    /// What a request needs; nothing for what is no resource.
    pub(super) fn of_request(request: &Event) -> Option<Self> {
        let of = request.object_ref.as_ref()?;
        Some(Self::new(&request.verb, &of.api_group, &request.resource(), &of.name))
    }

    /// The rights that a rule gives.
    fn of_rule(rule: &Value) -> Vec<Self> {
        let words = |key: &str| -> Vec<String> {
            serde_json::from_value(rule[key].clone()).unwrap_or_default()
        };
        let mut names = words("resourceNames");
        if names.is_empty() {
            names.push(String::new());
        }
        let mut rights = Vec::new();
        for group in &words("apiGroups") {
            for resource in &words("resources") {
                for verb in &words("verbs") {
                    rights.extend(names.iter().map(|name| Self::new(verb, group, resource, name)));
                }
            }
        }
        rights
    }

    fn as_rule(&self) -> Value {
        let names: Vec<&str> = [&*self.name].into_iter().filter(|name| !name.is_empty()).collect();
        json!({"apiGroups": [self.group], "resources": [self.resource], "verbs": [self.verb], "resourceNames": names})
    }

    /// `processors.mortise.dev/status`.
    fn title(&self) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        match self.resource.split_once('/') {
            Some((plural, subresource)) => format!("{plural}{dot}{}/{subresource}", self.group),
            None => format!("{}{dot}{}", self.resource, self.group),
        }
    }

    /// The same on all objects.
    pub(super) fn whatever_the_name(self) -> Self {
        Self { name: String::new(), ..self }
    }

    /// Needed only where somebody else writes a Processor at the same moment.
    pub(super) fn is_for_the_unusual(&self) -> bool {
        *self == Self::new("get", "mortise.dev", "processors", "")
    }

    /// A host can go on without it, only that it hears late of what changes.
    fn is_for_haste(&self) -> bool {
        self.group == "rbac.authorization.k8s.io"
    }
}

/// The rules of a role of the installation.
fn rules(kind: &str) -> Vec<Right> {
    let mut roles = documents(INSTALLATION);
    roles.retain(|object| object["kind"] == kind);
    let [role] = roles.as_slice() else { panic!("one {kind}") };
    role["rules"].as_array().unwrap().iter().flat_map(Right::of_rule).collect()
}

/// What the installation states.
pub(super) fn stated() -> BTreeSet<Right> {
    rules("ClusterRole").into_iter().chain(rules("Role")).collect()
}

/// What a host asks that every account may: `system:basic-user`.
pub(super) fn of_every_account() -> [Right; 2] {
    [("authentication", "selfsubjectreviews"), ("authorization", "selfsubjectaccessreviews")]
        .map(|(group, resource)| Right::new("create", &format!("{group}.k8s.io"), resource, ""))
}

/// A client with a token of an account.
async fn client_of(plane: &cluster::Cluster, namespace: &str, account: &str) -> Client {
    let token = token(&plane.client().await.unwrap(), namespace, account).await;
    let mut config = plane.config().await.unwrap();
    config.auth_info = AuthInfo { token: Some(token.into()), ..AuthInfo::default() };
    Client::try_from(config).unwrap()
}

/// What an account may do in a namespace, as the API server says, and as JSON what is no resource.
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

/// Beside another account that nothing was given: the host's may do what is stated, and act as the example's account where that is.
pub(super) async fn are_no_more_than_stated(site: &Site) {
    let host = client_of(&site.plane, HOST, HOST).await;
    let nobody = client_of(&site.plane, "default", "default").await;
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

/// An account that may do what is stated but for one right, with credentials in a kubeconfig.
async fn without(
    plane: &cluster::Cluster,
    namespace: &str,
    right: &Right,
    number: usize,
) -> String {
    let name = format!("without-{number}");
    let everywhere = format!("{namespace}-{number}");
    let left = |kind: &str| -> Vec<Value> {
        let left = rules(kind).into_iter().filter(|of| of != right);
        left.map(|of| of.as_rule()).collect()
    };
    let here = json!({"namespace": namespace, "name": name});
    let subject = json!({"kind": "ServiceAccount", "namespace": namespace, "name": name});
    let reference = |kind: &str, name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    let objects = vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": here}),
        json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": everywhere}, "rules": left("ClusterRole")}),
        json!({
            "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": everywhere},
            "roleRef": reference("ClusterRole", &everywhere), "subjects": [subject],
        }),
        json!({"apiVersion": RBAC, "kind": "Role", "metadata": here, "rules": left("Role")}),
        json!({
            "apiVersion": RBAC, "kind": "RoleBinding", "metadata": here,
            "roleRef": reference("Role", &name), "subjects": [subject],
        }),
    ];
    let admin = plane.client().await.unwrap();
    desk::apply(&Cluster::new(admin.clone()), objects).await.unwrap();
    let mut config = Kubeconfig::read_from(plane.kubeconfig()).unwrap();
    let token = token(&admin, namespace, &name).await;
    for user in &mut config.auth_infos {
        let token = Some(token.clone().into());
        user.auth_info = Some(AuthInfo { token, ..AuthInfo::default() });
    }
    for context in &mut config.contexts {
        context.context.as_mut().unwrap().namespace = Some(namespace.to_owned());
    }
    serde_json::to_string(&config).unwrap()
}

/// What a host that lacks a right does, where that is not to fail.
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
    let mut host = Program::start(&kubeconfig, modules, &cache, arguments);
    if right.is_for_haste() {
        // Of which kind, and that it is refused, is in the event.
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
    // What is told of rights is asked for as soon as there is an account that it matters to.
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
    desk::apply(&Cluster::new(plane.client().await.unwrap()), objects).await.unwrap();
    let stated = stated();
    assert!(stated.len() > 20, "{stated:?}");
    let faults: Vec<String> = stream::iter(stated.iter().enumerate())
        .map(|(number, right)| fault(plane, &namespace, right, number))
        .buffer_unordered(PARALLEL)
        .filter_map(async |fault| fault)
        .collect()
        .await;
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
