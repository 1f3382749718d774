//! The printed rights: each is used, and one that is missing is told.

use std::{collections::BTreeSet, fmt};

use mortise_core::api::{Method, Outgoing};
use mortise_tests::cluster::Event;
use serde_json::{Value, json};

use super::{super::installed::Right, GUESTS, INSTALLATION, ISTIO, Mesh, PROCESSOR};

/// A printed rule of one role.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    pub(super) guest: &'static str,
    /// Kind, namespace and name of the role.
    pub(super) role: (String, String, String),
    pub(super) of: Value,
}

impl Mesh {
    /// Returns the printed rules, without those that are only granted to others.
    pub(super) fn rules(&self) -> Vec<Rule> {
        let mut rules = Vec::new();
        for guest in GUESTS {
            let printed = self.printed[guest].iter().filter(|object| object["rules"].is_array());
            for role in printed {
                let text =
                    |key: &str| role["metadata"][key].as_str().unwrap_or_default().to_owned();
                if text("name").ends_with("-grants") {
                    continue;
                }
                let kind = role["kind"].as_str().unwrap().to_owned();
                let role_of = (kind, text("namespace"), text("name"));
                for rule in role["rules"].as_array().unwrap() {
                    rules.push(Rule { guest, role: role_of.clone(), of: rule.clone() });
                }
            }
        }
        rules
    }

    /// Returns the printed rules that are only granted to others.
    fn granted(&self) -> Vec<Value> {
        let is_granted =
            |object: &&Value| object["metadata"]["name"].as_str().unwrap().ends_with("-grants");
        let roles = self.printed[INSTALLATION].iter().filter(is_granted);
        roles.filter_map(|role| role["rules"].as_array()).flatten().cloned().collect()
    }

    /// Returns the rights that are granted, first as they are printed, then as Istio's roles in
    /// the cluster hold them.
    pub(super) async fn grants(&self) -> [BTreeSet<String>; 2] {
        let mut held = Vec::new();
        for kind in ["Role", "ClusterRole"] {
            for role in self.list(&format!("rbac.authorization.k8s.io/v1/{kind}")).await {
                if !role["metadata"]["labels"][istio::installed::COMPONENT_LABEL].is_null() {
                    held.extend(role["rules"].as_array().cloned().unwrap_or_default());
                }
            }
        }
        [self.granted(), held].map(|rules| {
            let rights = rules.iter().flat_map(Right::of_rule);
            rights.map(|right| format!("{} {} {}", right.verb, right.title(), right.name)).collect()
        })
    }

    /// Returns the printed rules that no request has needed. A store is shared: whichever of the
    /// accounts watches it, all of them need the right to read. Events are the host's to write, on
    /// any object that a processor reads or writes: who writes one anywhere uses all rules for them.
    async fn unused(&self) -> Vec<String> {
        const READS: [&str; 3] = ["get", "list", "watch"];
        let requests = self.ground.requests().await;
        let is_used = |of: &Rule| {
            let (user, rights) = (self.ground.user(of.guest), Right::of_rule(&of.of));
            rights.iter().all(|right| right.resource == "events")
                && (of.guest != INSTALLATION || has_told(&requests, &user))
                || requests.iter().any(|event| {
                    let Some(needed) = Right::of_request(event) else { return false };
                    let namespace = event.object_ref.as_ref().map(|object| &object.namespace);
                    let is_shared = READS.contains(&&*needed.verb);
                    let is_wide = is_shared && namespace.is_some_and(String::is_empty);
                    let is_there = is_wide || of.role.1.is_empty() || namespace == Some(&of.role.1);
                    (is_shared && event.impersonated_user.is_some() || event.account() == user)
                        && is_there
                        && rights.iter().any(|right| right.gives(&needed))
                })
        };
        let unused = self.rules().into_iter().filter(|rule| !is_used(rule));
        unused.map(|rule| rule.to_string()).collect()
    }

    /// Replaces the rules of a role that was printed.
    async fn set_rules(&self, of: &Rule, keep: impl Fn(&Value) -> bool) {
        let (kind, namespace, name) = &of.role;
        let is_it = |object: &&Value| {
            let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
            object["kind"] == *kind && text("namespace") == namespace && text("name") == name
        };
        let mut role = self.printed[of.guest].iter().find(is_it).unwrap().clone();
        role["rules"].as_array_mut().unwrap().retain(|rule| keep(rule));
        self.ground.apply(vec![role]).await;
    }

    /// Returns the message of a Processor's condition, if the condition is false.
    async fn complaint(&self, guest: &str, condition: &str) -> Option<String> {
        let processor = self.get(PROCESSOR, &self.ground.namespace, guest).await?;
        let conditions = processor["status"]["conditions"].as_array()?;
        let found = conditions.iter().find(|one| one["type"] == condition)?;
        (found["status"] == "False").then(|| found["message"].as_str().unwrap().to_owned())
    }

    /// Makes a Pod with an old sidecar that has to be evicted.
    async fn old_pod(&self) {
        let controller = json!({
            "apiVersion": "v1", "kind": "ReplicationController",
            "metadata": {"name": "old", "namespace": "default"},
            "spec": {
                "replicas": 1, "selector": {"app": "old"},
                "template": {
                    "metadata": {
                        "labels": {"app": "old"}, "annotations": {"sidecar.istio.io/status": "{}"},
                    },
                    "spec": {"containers": [{"name": "istio-proxy", "image": "proxyv2:1"}]},
                },
            },
        });
        self.ground.apply(vec![controller]).await;
    }

    /// Changes settings whose change restarts the gateway and the control plane.
    async fn restart_istio(&self) {
        self.edit(&json!({"config": {"numTrustedProxies": 2}})).await;
        let restarts = self.ground.user("ingress-gateway-restart");
        for workload in ["deployments", "daemonsets"] {
            self.until(&format!("{workload} are restarted"), async || {
                let requests = self.ground.requests().await;
                requests.iter().any(|event| {
                    let is_patch = event.verb == "patch" && event.resource() == workload;
                    is_patch && event.account() == restarts
                })
            })
            .await;
        }
    }

    /// Adds what makes processors use the rights that few clusters need: a provider whose load
    /// balancer speaks the PROXY protocol, and one whose CNI plugin lives elsewhere.
    async fn be_special(&self) {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "a-node"},
            "spec": {"providerID": "openstack:///a-node"},
        });
        self.ground.apply(vec![node]).await;
        self.until("the filter is there", async || self.has_filter().await).await;
        let status = json!({"status": {"nodeInfo": {"kubeletVersion": "v1.34.3-gke.1"}}});
        let at = "/api/v1/nodes/a-node/status".to_owned();
        let patch = Outgoing::new(Method::MergePatch, at, Some(status));
        self.ground.cluster.send(&patch).await.unwrap();
        self.until("the filter is gone", async || !self.has_filter().await).await;
        let of = "apps/v1/DaemonSet";
        self.until("the CNI plugin has moved", async || {
            self.get(of, "kube-system", "istio-cni-node").await.is_some()
                && self.get(of, "istio-system", "istio-cni-node").await.is_none()
        })
        .await;
    }

    async fn has_filter(&self) -> bool {
        let of = "networking.istio.io/v1alpha3/EnvoyFilter";
        self.get(of, "istio-system", "proxy-protocol").await.is_some()
    }
}

/// Returns whether an account has written an event. Only `istio-installation` has to: the others
/// write events of what is left behind or fails, which does not happen here.
fn has_told(requests: &[Event], user: &str) -> bool {
    let is_told = |event: &Event| {
        let of = event.resource();
        of == "events" && ["create", "patch"].contains(&&*event.verb) && event.code() < 300
    };
    requests.iter().any(|event| is_told(event) && event.account() == user)
}

/// Returns whether a rule gives all that another one gives.
fn covers(granted: &Value, rule: &Value) -> bool {
    let has = |key: &str| {
        let words = |of: &Value| of[key].as_array().cloned().unwrap_or_default();
        let granted = words(granted);
        granted.contains(&json!("*")) || words(rule).iter().all(|word| granted.contains(word))
    };
    granted["resourceNames"].as_array().is_none_or(Vec::is_empty)
        && ["apiGroups", "resources", "verbs"].into_iter().all(has)
}

impl fmt::Display for Rule {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, namespace, name) = &self.role;
        write!(to, "{}: {kind} {namespace}/{name}: {}", self.guest, self.of)
    }
}

#[tokio::test]
#[ignore = "it takes minutes"]
async fn each_printed_rule_is_used_and_a_missing_one_is_told() {
    let Some(mut mesh) = Mesh::prepare(&[]).await else { return };
    // What istiod makes at run time.
    for (kind, name) in istio::installed::NAMED {
        let object = json!({
            "apiVersion": "v1", "kind": kind,
            "metadata": {"name": name, "namespace": "istio-system"},
        });
        mesh.ground.apply(vec![object]).await;
    }
    mesh.old_pod().await;
    mesh.start().await;
    mesh.processors().await;
    mesh.istio(json!({"networkPoliciesEnabled": true})).await;
    mesh.until_state("Ready").await;

    // Ten rules, each taken away for a while. A processor that may write no events does without,
    // and some rules are held as ones that are granted to others, too.
    let mut rules = mesh.rules();
    let all_granted = mesh.granted();
    rules.retain(|rule| {
        let is_held = all_granted.iter().any(|granted| covers(granted, &rule.of));
        rule.of["resources"][0] != "events" && (rule.guest != INSTALLATION || !is_held)
    });
    let step = rules.len() / 10;
    for rule in rules.iter().step_by(step.max(1)).take(10) {
        mesh.set_rules(rule, |one| one != &rule.of).await;
        let resource = rule.of["resources"][0].as_str().unwrap();
        let resource = resource.split('/').next().unwrap();
        let took = mesh
            .until(&format!("it is told that {rule} is missing"), async || {
                let told = mesh.complaint(rule.guest, "Ready").await;
                told.is_some_and(|told| told.contains(resource))
            })
            .await;
        println!("told after {took:.1?}: {rule}");
        mesh.set_rules(rule, |_| true).await;
        mesh.until(&format!("it has {rule} again"), async || {
            mesh.complaint(rule.guest, "Ready").await.is_none()
        })
        .await;
    }
    mesh.until_state("Ready").await;

    mesh.restart_istio().await;
    mesh.be_special().await;
    mesh.until("the Pod is evicted", async || {
        let requests = mesh.ground.requests().await;
        requests.iter().any(|event| event.resource() == "pods/eviction" && event.code() == 201)
    })
    .await;
    let entry = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
        "metadata": {"name": "outside", "namespace": "default"},
        "spec": {"hosts": ["outside.example"], "resolution": "NONE"},
    });
    mesh.ground.apply(vec![entry]).await;
    mesh.delete(ISTIO, "kyma-system", "default").await;
    let installation = mesh.ground.user(INSTALLATION);
    mesh.until("an event names what blocks the deletion", async || {
        has_told(&mesh.ground.requests().await, &installation)
    })
    .await;
    mesh.delete("networking.istio.io/v1/ServiceEntry", "default", "outside").await;
    mesh.until("the resource is gone", async || {
        mesh.get(ISTIO, "kyma-system", "default").await.is_none()
    })
    .await;
    assert_eq!(mesh.unused().await, Vec::<String>::new());
}
