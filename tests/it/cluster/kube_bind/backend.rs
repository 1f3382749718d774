//! The provider's backend, as far as a consumer needs it: places with accounts, exports, and the
//! namespaces that consumers ask for. The accounts have the rules that the original's backend gives,
//! each bound to one account, so that no consumer has those of another.

use mortise_core::api::{Method, Outgoing};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{Side, kubeconfig_of, named};
use crate::cluster::program::POLL_INTERVAL;

pub(super) const GROUP: &str = "example.com";
/// The account of a consumer, and the role in its place.
const ACCOUNT: &str = "kube-binder";
/// The verbs on what is exported or claimed.
const ALL: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];
const READ: [&str; 3] = ["get", "list", "watch"];
/// The label of claimed Secrets.
pub(super) const SHARED: &str = "shared";

/// The way in which a kind is offered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Export {
    pub(super) plural: &'static str,
    pub(super) kind: &'static str,
    /// The scope at home, and at the provider.
    pub(super) scopes: (&'static str, &'static str),
    pub(super) informer_scope: &'static str,
    pub(super) isolation: &'static str,
}

/// The ways of the original's tests: kinds with namespaces that are watched in these or everywhere,
/// and kinds without, that are kept apart in three ways.
pub(super) const EXPORTS: [Export; 5] = [
    Export::new("rockets", "Rocket", (NAMESPACED, NAMESPACED), NAMESPACED, "Prefixed"),
    Export::new("probes", "Probe", (NAMESPACED, NAMESPACED), CLUSTER, "Prefixed"),
    Export::new("moons", "Moon", (CLUSTER, CLUSTER), CLUSTER, "Prefixed"),
    Export::new("stars", "Star", (CLUSTER, CLUSTER), CLUSTER, "None"),
    Export::new("comets", "Comet", (CLUSTER, NAMESPACED), CLUSTER, "Namespaced"),
];

pub(super) const NAMESPACED: &str = "Namespaced";
const CLUSTER: &str = "Cluster";

// === impl Export ===

impl Export {
    pub(super) const fn new(
        plural: &'static str,
        kind: &'static str,
        scopes: (&'static str, &'static str),
        informer_scope: &'static str,
        isolation: &'static str,
    ) -> Self {
        Self { plural, kind, scopes, informer_scope, isolation }
    }

    /// Returns the name of the definition.
    pub(super) fn title(&self) -> String {
        format!("{}.{GROUP}", self.plural)
    }

    pub(super) fn is_namespaced(&self) -> bool {
        self.scopes.0 == NAMESPACED
    }

    /// Returns an object at home; `namespace` counts for kinds with namespaces.
    pub(super) fn here(&self, namespace: &str, name: &str) -> Value {
        let namespace = self.is_namespaced().then_some(namespace);
        self.object(namespace, name)
    }

    /// Returns the object at the provider for one at home.
    pub(super) fn there(&self, place: &str, namespace: &str, name: &str) -> Value {
        match (self.is_namespaced(), self.isolation) {
            (true, _) => self.object(Some(&format!("{place}-{namespace}")), name),
            (false, "Prefixed") => self.object(None, &format!("{place}-{name}")),
            (false, "Namespaced") => self.object(Some(place), name),
            (false, _) => self.object(None, name),
        }
    }

    fn object(&self, namespace: Option<&str>, name: &str) -> Value {
        let mut object = named(&format!("{GROUP}/v1"), self.kind, name);
        if let Some(namespace) = namespace {
            object["metadata"]["namespace"] = namespace.into();
        }
        object
    }

    /// Returns the fields that the definition and the schema have in common.
    fn definition(&self, scope: &str) -> Value {
        let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
        let fields = |number: &str, text: &str| {
            json!({
                "type": "object", "properties": {
                    number: {"type": "integer"}, text: {"type": "string"}, "parts": texts,
                },
            })
        };
        let schema = json!({
            "type": "object",
            "properties": {"spec": fields("stages", "secretName"), "status": fields("height", "result")},
        });
        json!({
            "group": GROUP, "scope": scope,
            "names": {
                "kind": self.kind, "listKind": format!("{}List", self.kind),
                "plural": self.plural, "singular": self.kind.to_lowercase(),
            },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": schema,
            }],
        })
    }
}

/// Returns the definition of a kind at the provider.
pub(super) fn definition(export: &Export) -> Value {
    let mut spec = export.definition(export.scopes.1);
    let schema = spec["versions"][0]["schema"].take();
    spec["versions"][0]["schema"] = json!({"openAPIV3Schema": schema});
    let mut definition =
        named("apiextensions.k8s.io/v1", "CustomResourceDefinition", &export.title());
    definition["metadata"]["labels"] = json!({"kube-bind.io/exported": "true"});
    definition["spec"] = spec;
    definition
}

/// Makes the place of a consumer, with its account and exports. Returns the kubeconfig of the
/// account.
pub(super) async fn make_place(provider: &Side, place: &str, exports: &[Export]) -> Value {
    provider.apply(&named("v1", "Namespace", place)).await;
    provider.apply(&within(named("v1", "ServiceAccount", ACCOUNT), place)).await;
    for object in rights(place, exports) {
        provider.apply(&object).await;
    }
    let kubeconfig = kubeconfig_of_account(provider, place).await;
    let mut secret = within(named("v1", "Secret", "kubeconfig"), place);
    secret["stringData"] = json!({"kubeconfig": kubeconfig.to_string()});
    provider.apply(&secret).await;
    let mut binding = within(kube_bind("ClusterBinding", "cluster"), place);
    binding["spec"] = json!({
        "kubeconfigSecretRef": {"name": "kubeconfig", "key": "kubeconfig"},
        "providerPrettyName": "Example Provider",
    });
    provider.apply(&binding).await;
    for export in exports {
        offer(provider, place, export).await;
    }
    kubeconfig
}

/// Makes an export, and its schema, which belongs to it.
pub(super) async fn offer(provider: &Side, place: &str, of: &Export) {
    let mut export = within(kube_bind("APIServiceExport", of.plural), place);
    export["spec"] = json!({
        "informerScope": of.informer_scope, "isolation": of.isolation,
        "resources": [{"group": GROUP, "resource": of.plural, "versions": ["v1"]}],
        "permissionClaims": claims(of),
    });
    provider.apply(&export).await;
    let uid = provider.get(&export).await.unwrap()["metadata"]["uid"].clone();
    let mut schema = within(kube_bind("BoundSchema", &of.title()), place);
    schema["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceExport", "name": of.plural,
        "uid": uid, "controller": true,
    }]);
    schema["spec"] = of.definition(of.scopes.0);
    schema["spec"]["informerScope"] = of.informer_scope.into();
    provider.apply(&schema).await;
}

/// Returns the claims of an export: kinds with namespaces claim the Secrets that are labelled, and
/// those that their objects name.
fn claims(export: &Export) -> Value {
    if !export.is_namespaced() {
        return json!([]);
    }
    let reference = json!({
        "group": GROUP, "resource": export.plural, "versions": ["v1"],
        "jsonPath": {"name": "spec.secretName"},
    });
    json!([{
        "group": "", "resource": "secrets",
        "selector": {
            "labelSelector": {"matchLabels": {SHARED: export.plural}}, "references": [reference],
        },
    }])
}

/// Makes the namespace that an `APIServiceNamespace` asks for, with the rights to the claimed
/// objects in it, and tells its name.
async fn make_namespace(provider: &Side, asked: &Value, exports: &[Export]) {
    let [place, namespace] =
        ["namespace", "name"].map(|at| asked["metadata"][at].as_str().unwrap());
    let name = format!("{place}-{namespace}");
    let mut made = named("v1", "Namespace", &name);
    let title = format!("{place}/{namespace}");
    made["metadata"]["annotations"] = json!({"kube-bind.io/api-service-namespace": title});
    provider.apply(&made).await;
    for export in exports.iter().filter(|of| of.is_namespaced() && of.informer_scope == NAMESPACED)
    {
        let title = format!("kube-binder-claims-{}", export.plural);
        let mut role = within(named(RBAC, "Role", &title), &name);
        role["rules"] = json!([rule("", &["secrets"], &ALL)]);
        provider.apply(&role).await;
        let binding = within(named(RBAC, "RoleBinding", &title), &name);
        provider.apply(&bound(binding, "Role", &title, place)).await;
    }
    let mut status = asked.clone();
    status["metadata"].as_object_mut().unwrap().remove("managedFields");
    status["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    status["status"] = json!({"namespace": name});
    let path = format!("{}/status?fieldManager=backend", provider.path(asked).await);
    let merge = Outgoing::new(Method::MergePatch, path, Some(json!({"status": status["status"]})));
    provider.cluster.send(&merge).await.unwrap();
}

/// Makes namespaces from now on, until the task is ended.
pub(super) fn serve(provider: std::sync::Arc<Side>, exports: &'static [Export]) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            let path = "/apis/kube-bind.io/v1alpha2/apiservicenamespaces".to_owned();
            let list = provider.cluster.send(&Outgoing::get(path)).await.unwrap().body;
            for asked in list["items"].as_array().unwrap() {
                if asked["status"]["namespace"].is_null() {
                    make_namespace(&provider, asked, exports).await;
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    })
}

// === rights ===

const RBAC: &str = "rbac.authorization.k8s.io/v1";

fn rights(place: &str, exports: &[Export]) -> Vec<Value> {
    let mut role = named(RBAC, "ClusterRole", ACCOUNT);
    role["rules"] = json!(rules_of_place());
    let binding = within(named(RBAC, "RoleBinding", ACCOUNT), place);
    let mut objects = vec![role, bound(binding, "ClusterRole", ACCOUNT, place)];
    for export in exports {
        let mut everywhere = vec![("resources", rule(GROUP, &[export.plural], &ALL))];
        if export.is_namespaced() && export.informer_scope == CLUSTER {
            everywhere.push(("claims", rule("", &["secrets"], &ALL)));
        }
        for (what, rule) in everywhere {
            let title = format!("kube-binder-{what}-{place}-{}", export.plural);
            let mut role = named(RBAC, "ClusterRole", &title);
            role["rules"] = json!([rule]);
            let binding = named(RBAC, "ClusterRoleBinding", &title);
            objects.extend([role, bound(binding, "ClusterRole", &title, place)]);
        }
    }
    objects
}

fn rules_of_place() -> Vec<Value> {
    let group = "kube-bind.io";
    let write = ["get", "patch", "update"];
    vec![
        rule(group, &["apiserviceexportrequests", "apiservicenamespaces"], &ALL),
        rule("", &["namespaces"], &["get"]),
        rule("", &["secrets"], &READ),
        rule(group, &["clusterbindings", "apiserviceexports", "boundschemas"], &READ),
        rule(group, &["clusterbindings/status", "apiserviceexports/status"], &write),
        rule(group, &["boundschemas/status"], &["get", "list", "patch", "update"]),
    ]
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// Binds a role to the account of a place.
fn bound(mut binding: Value, kind: &str, role: &str, place: &str) -> Value {
    binding["roleRef"] =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role});
    binding["subjects"] = json!([{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": place}]);
    binding
}

/// Returns the name of the account of a place, as the audit log has it.
pub(super) fn account(place: &str) -> String {
    format!("system:serviceaccount:{place}:{ACCOUNT}")
}

async fn kubeconfig_of_account(provider: &Side, place: &str) -> Value {
    let path = format!("/api/v1/namespaces/{place}/serviceaccounts/{ACCOUNT}/token");
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": 7200},
    });
    let token = Outgoing::new(Method::Post, path, Some(request));
    let token = provider.cluster.send(&token).await.unwrap().body["status"]["token"].clone();
    let (mut kubeconfig, _) = kubeconfig_of(provider, place);
    kubeconfig["users"][0]["user"] = json!({"token": token});
    kubeconfig
}

// === objects ===

pub(super) fn kube_bind(kind: &str, name: &str) -> Value {
    named("kube-bind.io/v1alpha2", kind, name)
}

pub(super) fn within(mut object: Value, namespace: &str) -> Value {
    object["metadata"]["namespace"] = namespace.into();
    object
}
