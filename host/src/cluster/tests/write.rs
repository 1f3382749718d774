//! Tests each sentence of the design's section on writing, against the embedded API.

mod conflict;
mod crash;
mod event;
mod failure;
mod finalizer;
mod leave;
mod order;
mod patch;
mod prune;
mod removal;
mod skip;
mod status;
mod take_over;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kube::client::Body;
use mortise_core::{
    api::{Method, Outgoing},
    applied_fields::manager::FieldManagers,
    contract::{
        self, Deletion, Description, EventType, Kind, Manifest as Given, Mode, ObjectRef, Outcome,
        Propagation, Reconciler, Selection, Verbs,
    },
    fixture::{given, object_ref, outcome, v1, whole, write_rule},
    grant::Grant,
    key::Key,
    outcome::{Against, Limits, Plan, Reconciled, kinds},
    path::Fields,
    resource::Kinds,
    store::{Scope, Stores, Wanted},
    write::{Action, Clock, Context, Writer, Written},
};
use mortise_embedded_api::{EmbeddedApi, Options, Verb};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::cluster::{Cluster, Policy};

/// The number of further changes that reach the API server; `None`: no limit.
type Gate = Arc<parking_lot::Mutex<Option<usize>>>;

/// Returns a connection that breaks when the gate is closed.
fn gated<S, B>(
    api: S,
    gate: Gate,
) -> impl tower::Service<
    http::Request<Body>,
    Response = http::Response<B>,
    Error = std::io::Error,
    Future: Send,
> + Clone
+ Send
+ 'static
where
    S: tower::Service<
            http::Request<Body>,
            Response = http::Response<B>,
            Error = std::convert::Infallible,
            Future: Send,
        > + Clone
        + Send
        + 'static,
{
    tower::service_fn(move |request: http::Request<Body>| {
        let api = api.clone();
        let is_open = match &mut *gate.lock() {
            Some(left) if request.method() != http::Method::GET => {
                let is_open = *left > 0;
                *left = left.saturating_sub(1);
                is_open
            }
            _ => true,
        };
        async move {
            if !is_open {
                return Err(std::io::Error::other("crashed"));
            }
            Ok(api.oneshot(request).await.unwrap_or_else(|never| match never {}))
        }
    })
}

/// Kubernetes with a writer in front. Its store is as new as the last call of [`Bed::catch_up`].
struct Bed {
    api: EmbeddedApi,
    cluster: Cluster,
    stores: Stores,
    writer: Writer,
    watched: Vec<Kind>,
    gate: Gate,
    /// True if statuses are written as whole ones.
    whole_status: bool,
}

impl Bed {
    /// Returns a cluster with the namespaces `a` and `b`, and the rules `r` and `s` in `a`.
    async fn new() -> Self {
        let time: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let api = EmbeddedApi::new(Options { now: Arc::new(move || time), ..Options::default() });
        let gate = Gate::default();
        let client = kube::Client::new(gated(api.router(), gate.clone()), "default");
        let cluster = Cluster::with_policy(
            client,
            Policy { first_wait: Duration::from_millis(10), ..Policy::default() },
        );
        let (stores, writer) = fresh();
        let mut watched = vec![rule_kind()];
        watched.extend(
            ["ConfigMap", "Secret", "Service", "Pod", "Namespace"].map(|name| v1("", name)),
        );
        watched.push(v1("apps", "Deployment"));
        let bed = Self { api, cluster, stores, writer, watched, gate, whole_status: false };
        for namespace in ["a", "b"] {
            bed.make(
                &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
            )
            .await;
        }
        bed.make(&definition("Rule", "rules")).await;
        for name in ["r", "s"] {
            bed.make(&rule(name)).await;
        }
        bed.catch_up().await;
        bed.writes();
        bed
    }

    /// Restarts the host: its memory is empty, and it lists everything again.
    async fn restart(&mut self) {
        (self.stores, self.writer) = fresh();
        self.catch_up().await;
    }

    /// Brings the store up to date.
    async fn catch_up(&self) {
        let wanted = Wanted {
            fields: Fields::whole(),
            matching: std::collections::BTreeSet::default(),
            written: true,
        };
        for kind in &self.watched {
            let resource = self.cluster.resolve(kind).await.unwrap().unwrap();
            let list = self.cluster.send(&Outgoing::get(resource.path(None))).await.unwrap().body;
            self.stores.open(kind, &Scope::default(), &wanted);
            self.stores.feed(kind, &Scope::default()).unwrap().begin_list();
            for item in list["items"].as_array().unwrap() {
                let mut item = item.clone();
                item["apiVersion"] = json!(if kind.group.is_empty() {
                    kind.version.clone()
                } else {
                    format!("{}/{}", kind.group, kind.version)
                });
                item["kind"] = json!(kind.kind);
                self.stores.feed(kind, &Scope::default()).unwrap().list_item(&item);
            }
            self.stores.feed(kind, &Scope::default()).unwrap().end_list();
            self.tell_deletions(kind, &list);
        }
    }

    /// Reports deletions to the store: a list may be older than a write of ours, so the store keeps
    /// a write that the list lacks; deletions are reported by the watch.
    fn tell_deletions(&self, kind: &Kind, list: &Value) {
        let items = list["items"].as_array().unwrap();
        for (namespace, name, _) in self.stores.resource_versions(kind, &Scope::default()) {
            let is_it = |item: &&Value| {
                let metadata = &item["metadata"];
                metadata["name"] == json!(name) && metadata["namespace"] == json!(namespace)
            };
            if !items.iter().any(|item| is_it(&item)) {
                let version = &list["metadata"]["resourceVersion"];
                let metadata =
                    json!({"name": name, "namespace": namespace, "resourceVersion": version});
                self.stores
                    .feed(kind, &Scope::default())
                    .unwrap()
                    .delete(&json!({"metadata": metadata}));
            }
        }
    }

    /// Runs an outcome for the rule `r`, with a store that is up to date.
    async fn run(&self, outcome: Outcome) -> Written {
        self.catch_up().await;
        self.run_for("r", outcome).await
    }

    /// Runs an outcome for a rule, with the store as it is.
    async fn run_for(&self, rule: &str, outcome: Outcome) -> Written {
        let object = self.get(&rule_ref(rule)).await;
        self.run_with(Reconciled { reference: rule_ref(rule), object }, outcome).await
    }

    async fn run_with(&self, reconciled: Reconciled, outcome: Outcome) -> Written {
        let plan = self.plan(&reconciled, &outcome).await;
        self.carry_out(&reconciled, &plan).await
    }

    async fn plan(&self, reconciled: &Reconciled, outcome: &Outcome) -> Plan {
        self.plan_having_read(reconciled, outcome, &|_| None).await
    }

    async fn plan_having_read(
        &self,
        reconciled: &Reconciled,
        outcome: &Outcome,
        read: &dyn Fn(&ObjectRef) -> Option<String>,
    ) -> Plan {
        let known: Kinds =
            self.cluster.resolve_all(&kinds(outcome, &reconciled.reference)).await.unwrap();
        let grant = grant();
        let against = Against {
            grant: &grant,
            reconciler: &grant.reconciler("rule").unwrap().spec,
            reconciled,
            kinds: &known,
            read,
            limits: Limits::default(),
        };
        Plan::build(outcome, &against).unwrap()
    }

    async fn carry_out(&self, reconciled: &Reconciled, plan: &Plan) -> Written {
        self.carry_out_taking(reconciled, plan, &[]).await
    }

    async fn carry_out_taking(
        &self,
        reconciled: &Reconciled,
        plan: &Plan,
        take_over: &[String],
    ) -> Written {
        let key = Key::new(&"p".into(), &"rule".into(), Some("a"), &reconciled.reference.name);
        let (namespace, processor) = ("system", "p");
        let context = Context {
            key: &key,
            namespace,
            processor,
            reconciled,
            take_over,
            rights: None,
            whole_status: self.whole_status,
        };
        self.writer.carry_out(plan, &self.cluster, &context).await
    }

    /// Runs an outcome for the rule `r` that takes over the fields of these managers.
    async fn run_taking(&self, outcome: Outcome, take_over: &[String]) -> Written {
        self.catch_up().await;
        let reference = rule_ref("r");
        let object = self.get(&reference).await;
        let reconciled = Reconciled { reference, object };
        let plan = self.plan(&reconciled, &outcome).await;
        self.carry_out_taking(&reconciled, &plan, take_over).await
    }

    async fn get(&self, of: &ObjectRef) -> Option<Value> {
        let resource = self.cluster.resolve(&of.kind).await.unwrap().unwrap();
        let path = resource.path_of(of.namespace.as_deref(), &of.name);
        self.cluster.send(&Outgoing::get(path)).await.ok().map(|answer| answer.body)
    }

    /// Returns the object, which must exist.
    async fn object(&self, of: &ObjectRef) -> Value {
        self.get(of).await.unwrap_or_else(|| panic!("{of:?} is not there"))
    }

    /// Creates an object as another client does.
    async fn make(&self, object: &Value) {
        let of = mortise_core::outcome::reference(object).unwrap();
        self.foreign(Method::Post, &of, "", object.clone()).await;
    }

    /// Changes an object as another client does.
    async fn foreign(&self, method: Method, of: &ObjectRef, query: &str, body: Value) -> Value {
        let resource = self.cluster.resolve(&of.kind).await.unwrap().unwrap();
        let path = match method {
            Method::Post => format!("{}{query}", resource.path(of.namespace.as_deref())),
            _ => format!("{}{query}", resource.path_of(of.namespace.as_deref(), &of.name)),
        };
        self.cluster
            .send(&Outgoing::new(method, path, Some(body)))
            .await
            .unwrap_or_else(|refusal| panic!("{refusal}"))
            .body
    }

    /// Changes fields of an object as a person does.
    async fn edit(&self, of: &ObjectRef, body: Value) -> Value {
        self.foreign(Method::MergePatch, of, "?fieldManager=kubectl-edit", body).await
    }

    /// Returns the number of changes requested from the API server since the last call.
    fn writes(&self) -> u64 {
        let writing =
            [Verb::Create, Verb::Update, Verb::Patch, Verb::Delete, Verb::DeleteCollection];
        let writes = self
            .api
            .requests()
            .iter()
            .filter(|(request, _)| writing.contains(&request.verb))
            .map(|(_, count)| count)
            .sum();
        self.api.reset_requests();
        writes
    }
}

fn managers(rule: &str) -> FieldManagers {
    let reconciled = Reconciled { reference: rule_ref(rule), object: None };
    let key = Key::new(&"p".into(), &"rule".into(), Some("a"), rule);
    FieldManagers::new(
        &Context {
            key: &key,
            namespace: "system",
            processor: "p",
            reconciled: &reconciled,
            take_over: &[],
            rights: None,
            whole_status: false,
        }
        .owner(""),
    )
}

fn fresh() -> (Stores, Writer) {
    let stores = Stores::new();
    let clock: Clock = Arc::new(|| "2026-01-01T00:00:00Z".parse().unwrap());
    (stores.clone(), Writer::new(stores, clock))
}

/// Returns a grant that allows every write.
fn grant() -> Grant {
    let any = Kind::home("*", "*", "*");
    let verbs = Verbs::CREATE | Verbs::UPDATE | Verbs::DELETE | Verbs::EVICT;
    let reconciler = Reconciler {
        name: "rule".into(),
        of: whole(rule_kind()),
        finalizers: vec!["x.dev/f".into(), "x.dev/g".into()],
        resync: 0,
        triggered_by_status: false,
        min_interval: 0,
        on_demand: false,
        whole_status: false,
    };
    let description = Description {
        name: "p".into(),
        version: "1".into(),
        reconcilers: vec![reconciler],
        reads: vec![],
        writes: vec![write_rule(whole(any), verbs, &[])],
        grants: Vec::new(),
        outbound: Vec::new(),
        config_schema: None,
    };
    Grant::new(&description).unwrap()
}

/// Returns a definition in group `x.dev` whose objects may have any fields.
fn definition(kind: &str, plural: &str) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("{plural}.x.dev")},
        "spec": {
            "group": "x.dev", "scope": "Namespaced", "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

fn rule_kind() -> Kind {
    v1("x.dev", "Rule")
}

fn rule(name: &str) -> Value {
    json!({"apiVersion": "x.dev/v1", "kind": "Rule", "metadata": {"name": name, "namespace": "a"}, "spec": {}})
}

fn rule_ref(name: &str) -> ObjectRef {
    object_ref(rule_kind(), Some("a"), name)
}

fn config_map_ref(name: &str) -> ObjectRef {
    object_ref(v1("", "ConfigMap"), Some("a"), name)
}

#[expect(clippy::needless_pass_by_value, reason = "values are made where they are used")]
fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "a"}, "data": data})
}

fn labelled(name: &str) -> Value {
    let mut object = config_map(name, json!({"k": "v"}));
    object["metadata"]["labels"] = json!({"app": "x"});
    object
}

fn deployment(replicas: Option<u32>) -> Value {
    let container = json!({"name": "app", "image": "i", "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}}, "ports": [{"containerPort": 80}]});
    let mut deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "a"},
        "spec": {
            "selector": {"matchLabels": {"app": "x"}},
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container]}},
        },
    });
    if let Some(replicas) = replicas {
        deployment["spec"]["replicas"] = json!(replicas);
    }
    deployment
}

fn deployment_ref() -> ObjectRef {
    object_ref(v1("apps", "Deployment"), Some("a"), "d")
}

fn apply<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Outcome {
    Outcome { apply: objects.into_iter().map(given).collect(), ..outcome() }
}

fn patch<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Outcome {
    Outcome { patch: objects.into_iter().map(given).collect(), ..outcome() }
}

fn deletion(of: ObjectRef) -> Deletion {
    Deletion { ref_: of, uid: None, propagation: Propagation::Background, grace_period: None }
}

fn pruning(labels: &str) -> Outcome {
    let of = Selection {
        labels: labels.into(),
        namespace: Some("a".into()),
        ..whole(v1("", "ConfigMap"))
    };
    Outcome { prune: vec![of], ..outcome() }
}

fn status(status: &Value) -> Outcome {
    Outcome { status: Some(status.to_string()), ..outcome() }
}

fn finalizers(names: &[&str]) -> Outcome {
    Outcome { finalizers: Some(names.iter().map(|&name| name.into()).collect()), ..outcome() }
}

fn said(reason: &str, message: &str) -> contract::Event {
    contract::Event {
        on: None,
        event_type: EventType::Normal,
        reason: reason.into(),
        message: message.into(),
    }
}

/// Returns the changes, in order: `create ConfigMap c`.
fn actions(written: &Written) -> Vec<String> {
    written
        .changes
        .iter()
        .map(|change| {
            format!(
                "{} {} {}",
                change.action,
                change.of.kind.kind,
                if change.action == Action::Event { "" } else { &change.of.name }
            )
            .trim()
            .to_owned()
        })
        .collect()
}

/// Asserts that no write was refused.
fn fine(written: &Written) {
    assert!(
        written.failures.is_empty() && written.waits.is_empty() && written.warnings.is_empty(),
        "{written:?}"
    );
}

fn codes(written: &Written) -> Vec<(contract::Action, u16)> {
    written.failures.iter().map(|failure| (failure.action, failure.code)).collect()
}

/// Returns the managers of an object, with their operations.
fn managers_of(object: &Value) -> BTreeMap<String, String> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries
        .map(|entry| {
            (
                entry["manager"].as_str().unwrap().to_owned(),
                entry["operation"].as_str().unwrap().to_owned(),
            )
        })
        .collect()
}

fn uid(object: &Value) -> Option<&str> {
    object.pointer("/metadata/uid")?.as_str()
}
