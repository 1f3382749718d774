//! A namespace of a control plane, with an account for a host, which has the rights that the
//! installation states, and accounts for processors.

use std::time::Duration;

use k8s_openapi::api::{
    authentication::v1::TokenRequest, authorization::v1::SubjectAccessReview,
    core::v1::ServiceAccount,
};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, DynamicObject, ListParams, PostParams},
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use mortise::local;
use mortise_core::contract::Kind;
use mortise_host::cluster::Cluster;
use mortise_tests::cluster::{self, Audit, Event};
use serde_json::{Value, json};

use super::installed::{self, Right};

/// The host's own account, in the namespace of the test.
const HOST: &str = "mortise";
/// Timeout that only a fault reaches.
pub(super) const TIMEOUT: Duration = Duration::from_mins(3);
/// Interval of polling where no notification exists.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
pub(super) const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// A namespace of a test.
pub(super) struct Ground {
    pub(super) namespace: String,
    /// The cluster with an administrator's rights.
    pub(super) cluster: Cluster,
    audit: Audit,
}

/// Rights by resource (with its group and subresource, as `processors.mortise.dev/status`) and
/// verbs, both separated by blanks.
pub(super) type Rights<'a> = &'a [(&'a str, &'a str)];

// === impl Ground ===

impl Ground {
    /// Creates a namespace on this control plane, with a host's account that may not impersonate
    /// any account yet.
    pub(super) async fn on(plane: &cluster::Cluster, prefix: &str) -> Self {
        let namespace = plane.namespace(prefix).await.unwrap();
        let audit = plane.audit().await.unwrap();
        let cluster = Cluster::new(plane.client().await.unwrap());
        let ground = Self { namespace, cluster, audit };
        ground.account_of_host().await;
        ground
    }

    /// Creates the host's account, with the roles of the installation.
    async fn account_of_host(&self) {
        let everywhere = format!("{HOST}-{}", self.namespace);
        let rules = |kind: &str| -> Vec<Value> {
            installed::rules(kind).iter().map(Right::as_rule).collect()
        };
        let at_home = "installed";
        self.apply(vec![
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": self.named(HOST)}),
            json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": everywhere}, "rules": rules("ClusterRole")}),
            json!({
                "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": everywhere},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": everywhere},
                "subjects": [self.subject(HOST)],
            }),
            json!({"apiVersion": RBAC, "kind": "Role", "metadata": self.named(at_home), "rules": rules("Role")}),
            self.binding(at_home, "Role", at_home, &self.subject(HOST)),
        ])
        .await;
    }

    /// Returns a kubeconfig with credentials of the host's account.
    pub(super) async fn kubeconfig_of_host(&self, plane: &cluster::Cluster) -> Kubeconfig {
        kubeconfig_of(plane, &self.namespace, HOST).await
    }

    /// Lets the host's account impersonate these accounts.
    pub(super) async fn let_act_as(&self, accounts: &[String]) {
        let rule = json!({
            "apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": accounts, "verbs": ["impersonate"],
        });
        self.apply(vec![
            json!({"apiVersion": RBAC, "kind": "Role", "metadata": self.named(HOST), "rules": [rule]}),
            self.binding(HOST, "Role", HOST, &self.subject(HOST)),
        ])
        .await;
    }

    /// Creates an account that has these rights in the namespace.
    pub(super) async fn account(&self, name: &str, rights: Rights<'_>) {
        self.apply(vec![
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": self.named(name)}),
            self.binding(name, "Role", name, &self.subject(name)),
        ])
        .await;
        self.grant(name, rights).await;
    }

    /// Makes an account consent to every Processor of the namespace.
    pub(super) async fn consent(&self, name: &str) {
        let mut metadata = self.named(name);
        super::merge(&mut metadata, &json!({"annotations": {"mortise.dev/processor": "*"}}));
        self.apply(vec![
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
        ])
        .await;
    }

    /// Replaces the rights of the account's own role in the namespace; other roles stay.
    pub(super) async fn grant(&self, name: &str, rights: Rights<'_>) {
        self.apply(vec![json!({
            "apiVersion": RBAC, "kind": "Role", "metadata": self.named(name), "rules": rules(rights),
        })])
        .await;
    }

    /// Returns a `RoleBinding` of this name.
    pub(super) fn binding(&self, name: &str, kind: &str, role: &str, subject: &Value) -> Value {
        json!({
            "apiVersion": RBAC, "kind": "RoleBinding", "metadata": self.named(name),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [subject],
        })
    }

    pub(super) fn subject(&self, account: &str) -> Value {
        json!({"kind": "ServiceAccount", "namespace": self.namespace, "name": account})
    }

    pub(super) fn named(&self, name: &str) -> Value {
        json!({"namespace": self.namespace, "name": name})
    }

    /// Applies objects as an administrator.
    pub(super) async fn apply(&self, objects: Vec<Value>) {
        local::apply(&self.cluster, objects).await.unwrap();
    }

    /// Deletes an object, namespaced or not, as an administrator.
    pub(super) async fn delete(&self, kind: &Kind, name: &str) {
        let resource = self.cluster.resolve(kind).await.unwrap().unwrap();
        let client = self.cluster.client().clone();
        let api: Api<DynamicObject> = if resource.namespaced {
            Api::namespaced_with(
                client,
                &self.namespace,
                &mortise_host::cluster::api_resource(&resource),
            )
        } else {
            Api::all_with(client, &mortise_host::cluster::api_resource(&resource))
        };
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Returns an object, read as an administrator.
    pub(super) async fn get(&self, kind: &Kind, name: &str) -> Option<Value> {
        let found = self.api(kind).await.get_opt(name).await.unwrap();
        found.map(|object| serde_json::to_value(object).unwrap())
    }

    pub(super) async fn list(&self, kind: &Kind) -> Vec<Value> {
        let found = self.api(kind).await.list(&ListParams::default()).await.unwrap();
        found.items.iter().map(|object| serde_json::to_value(object).unwrap()).collect()
    }

    async fn api(&self, kind: &Kind) -> Api<DynamicObject> {
        let resource = self.cluster.resolve(kind).await.unwrap().unwrap();
        let client = self.cluster.client().clone();
        Api::namespaced_with(
            client,
            &self.namespace,
            &mortise_host::cluster::api_resource(&resource),
        )
    }

    /// Waits until `holds` is true; returns the time that took.
    pub(super) async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) -> Duration {
        let begun = tokio::time::Instant::now();
        while !holds().await {
            assert!(begun.elapsed() < TIMEOUT, "in vain: {what}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        begun.elapsed()
    }

    /// Returns the requests of the host's account since this `Ground` was made, as itself or on
    /// behalf of others.
    pub(super) async fn requests(&self) -> Vec<Event> {
        let own = self.user(HOST);
        let mut events = self.audit.events().await.unwrap();
        events.retain(|event| event.user.username == own);
        events
    }

    /// Returns those of the requests that the host's account made as itself and the installation
    /// does not state.
    pub(super) fn beyond_installed(&self, requests: &[Event]) -> Vec<String> {
        let own = requests.iter().filter(|event| event.impersonated_user.is_none());
        let beyond = installed::beyond(own, &self.namespace);
        beyond.iter().map(|event| format!("{} {}", event.verb, event.request_uri)).collect()
    }

    /// Waits until the API server knows the roles of accounts: each of them may watch `ConfigMaps`.
    pub(super) async fn until_granted(&self, accounts: &[String]) {
        for account in accounts {
            self.until("the role of an account holds", async || {
                self.may(account, "watch", "configmaps").await
            })
            .await;
        }
    }

    /// Returns whether an account has a right in the namespace, according to the API server.
    pub(super) async fn may(&self, account: &str, verb: &str, resource: &str) -> bool {
        let review = json!({"spec": {
            "user": self.user(account),
            "groups": ["system:serviceaccounts", format!("system:serviceaccounts:{}", self.namespace)],
            "resourceAttributes": {"namespace": self.namespace, "verb": verb, "resource": resource},
        }});
        let reviews: Api<SubjectAccessReview> = Api::all(self.cluster.client().clone());
        let review = serde_json::from_value(review).unwrap();
        let answer = reviews.create(&PostParams::default(), &review).await.unwrap();
        answer.status.unwrap().allowed
    }

    /// Waits until the API server knows that an account may patch all objects of a resource of the
    /// group of roles.
    pub(super) async fn until_granted_in_all(&self, resource: &str, account: &str) {
        self.until("the role of an account holds everywhere", async || {
            let review = json!({"spec": {
                "user": self.user(account),
                "groups": ["system:serviceaccounts", format!("system:serviceaccounts:{}", self.namespace)],
                "resourceAttributes": {
                    "group": "rbac.authorization.k8s.io", "verb": "patch", "resource": resource,
                    "name": format!("{account}-{}", self.namespace),
                },
            }});
            let reviews: Api<SubjectAccessReview> = Api::all(self.cluster.client().clone());
            let review = serde_json::from_value(review).unwrap();
            let answer = reviews.create(&PostParams::default(), &review).await.unwrap();
            answer.status.unwrap().allowed
        })
        .await;
    }

    pub(super) fn user(&self, account: &str) -> String {
        format!("system:serviceaccount:{}:{account}", self.namespace)
    }
}

/// Returns the rules of a role.
fn rules(rights: Rights<'_>) -> Vec<Value> {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let rule = |(resource, verbs): (String, &str)| {
        let (resource, subresource) = match resource.split_once('/') {
            Some((resource, subresource)) => (resource.to_owned(), format!("/{subresource}")),
            None => (resource, String::new()),
        };
        let (plural, group) = resource.split_once('.').unwrap_or((&resource, ""));
        json!({"apiGroups": [group], "resources": [format!("{plural}{subresource}")], "verbs": words(verbs)})
    };
    let each = |(resources, verbs): &(&str, &'_ str)| -> Vec<Value> {
        words(resources).into_iter().map(|resource| rule((resource, verbs))).collect()
    };
    rights.iter().flat_map(each).collect()
}

/// Returns a token of an account.
pub(super) async fn token(admin: &Client, namespace: &str, account: &str) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), namespace);
    let (asked, params) = (TokenRequest::default(), PostParams::default());
    let answer = accounts.create_token_request(account, &params, &asked).await.unwrap();
    answer.status.unwrap().token
}

/// Returns a kubeconfig with credentials of an account, in its namespace.
pub(super) async fn kubeconfig_of(
    plane: &cluster::Cluster,
    namespace: &str,
    account: &str,
) -> Kubeconfig {
    let mut config = Kubeconfig::read_from(plane.kubeconfig()).unwrap();
    let token = token(&plane.client().await.unwrap(), namespace, account).await;
    for user in &mut config.auth_infos {
        let token = Some(token.clone().into());
        user.auth_info = Some(AuthInfo { token, ..AuthInfo::default() });
    }
    for context in &mut config.contexts {
        context.context.as_mut().unwrap().namespace = Some(namespace.to_owned());
    }
    config
}

/// Returns a client for a kubeconfig.
pub(super) async fn client_with(kubeconfig: Kubeconfig) -> Client {
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    Client::try_from(config).unwrap()
}
