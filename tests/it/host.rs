//! The whole host against the embedded API: watches, stores, triggers, queue, real components,
//! writes.
//!
//! The tests run in one thread under tokio's paused clock: a wait ends when nothing else can
//! happen, so no test takes real time to wait, and the timeout of a wait is reached only if the
//! awaited event can never happen.

mod clusters;
mod counted;
mod faults;
mod history;
mod killed;
mod kinds;
mod lifecycle;
mod metrics;
mod misbehave;
mod outside;
mod play;
mod processors;
mod records;
mod relabel;
mod restart;
mod rights;
mod skipped;
mod swap;
mod tap;
pub(crate) mod webhooks;
mod writes;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
};
use mortise::local;
use mortise_core::{
    contract::Kind,
    queue::Run,
    reconcile::Report,
    write::{Action, Clock},
};
use mortise_embedded_api::{EmbeddedApi, Verb};
use mortise_host::{
    cluster::Cluster,
    host::{Drive, Host, Loaded, Options},
};
use mortise_tests::{definitions, loaded};
use serde_json::{Value, json};
use tokio::time::timeout;

use self::{
    play::{Play, manifest, outcome},
    tap::Tap,
};

const API_RULE: &str = "guests/api-rule";
const PUPPET: &str = "tests/guests/puppet";
const RULE: &str = "gateway.kyma-project.io/v2/APIRule";
const VIRTUAL_SERVICE: &str = "networking.istio.io/v1beta1/VirtualService";
const POLICY: &str = "security.istio.io/v1beta1/AuthorizationPolicy";
const CONFIG_MAP: &str = "v1/ConfigMap";
const NAMESPACE: &str = "a";
/// Timeout of a wait; with a paused clock it passes only when nothing else can happen.
const TIMEOUT: Duration = Duration::from_mins(5);
/// More rounds than any of these tests needs, so that a host which writes for ever fails a test.
const MAX_ROUNDS: usize = 50;

/// A host and the API before it.
struct Stage {
    api: EmbeddedApi,
    /// The cluster as other users see it.
    cluster: Cluster,
    loaded: Vec<Loaded>,
    drive: Drive,
    /// True if the host skips keys of which nothing has changed.
    skips: bool,
    /// Records and blocks the requests between host and API.
    tap: Tap,
    host: Host,
}

/// An API with a processor's kinds and its namespaces, before a host is started.
struct Scene {
    api: EmbeddedApi,
    cluster: Cluster,
    loaded: Vec<Loaded>,
}

/// Parses `apiVersion/Kind`.
fn kind(text: &str) -> Kind {
    let (api_version, kind) = text.rsplit_once('/').unwrap();
    local::kind_of(&json!({"apiVersion": api_version, "kind": kind}))
}

fn object(kind: &str, name: &str, rest: &Value) -> Value {
    let (api_version, kind) = kind.rsplit_once('/').unwrap();
    let mut object = json!({
        "apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE},
    });
    merge(&mut object, rest);
    object
}

/// Merges an object into another.
pub(crate) fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn cluster(api: &EmbeddedApi) -> Cluster {
    Cluster::new(kube::Client::new(api.router(), "default"))
}

fn now() -> Clock {
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    Arc::new(move || now)
}

/// Returns the names of the keys' objects.
fn names<'a>(runs: impl IntoIterator<Item = &'a Run>) -> BTreeSet<String> {
    runs.into_iter().map(|run| run.key.name().to_owned()).collect()
}

fn actions(report: &Report) -> Vec<(Action, String)> {
    report.changes.iter().map(|change| (change.action, change.of.name.clone())).collect()
}

// === impl Scene ===

impl Scene {
    fn new(loaded: Vec<Loaded>) -> Self {
        let api = EmbeddedApi::new(mortise_embedded_api::Options {
            now: now(),
            namespaces: vec!["default".into(), NAMESPACE.into(), "kyma-system".into()],
            ..Default::default()
        });
        let cluster = cluster(&api);
        Self { api, cluster, loaded }
    }

    /// Sets up the CRDs of `api-rule`, a Gateway, and the other kinds without a schema.
    async fn of_rules() -> Self {
        let scene = Self::new(vec![loaded(API_RULE, "{}").await.unwrap()]);
        local::apply(&scene.cluster, definitions(API_RULE).unwrap()).await.unwrap();
        local::serve_untyped(&scene.api, &scene.loaded[0].description, |_| false);
        scene.load(&gateway());
        scene
    }

    /// Sets up a puppet that reconciles objects of a kind and may do everything with `ConfigMaps`.
    async fn of_puppet(reconciled: &str) -> Self {
        let play = Play::new("puppet")
            .reconciles_with(
                "objects",
                &selection(reconciled, "play=yes"),
                &json!({"finalizers": ["example.com/held"]}),
            )
            .writes(&selection(CONFIG_MAP, ""), &["create", "update", "delete"]);
        Self::of_play(&play).await
    }

    async fn of_play(play: &Play) -> Self {
        Self::new(vec![play.load().await])
    }

    fn load(&self, object: &Value) {
        self.api.load(object.clone(), true).unwrap();
    }

    fn start(self, drive: Drive) -> Stage {
        self.start_with(drive, false)
    }

    /// Starts a host that skips keys of which nothing has changed.
    fn start_skipping(self, drive: Drive) -> Stage {
        self.start_with(drive, true)
    }

    fn start_with(self, drive: Drive, skips: bool) -> Stage {
        let Self { api, cluster, loaded } = self;
        let tap = Tap::default();
        let host = start_with(&tap.cluster(&api), &loaded, drive, skips);
        Stage { api, cluster, loaded, drive, skips, tap, host }
    }
}

/// Starts a host. A host learns about the cluster through its `Cluster`, so `cluster` must be a new
/// one.
fn start(cluster: &Cluster, loaded: &[Loaded], drive: Drive) -> Host {
    start_with(cluster, loaded, drive, false)
}

fn start_with(cluster: &Cluster, loaded: &[Loaded], drive: Drive, skips: bool) -> Host {
    let options = Options { now: now(), drive, skips, ..Options::default() };
    Host::start(cluster, loaded.to_vec(), &options).unwrap()
}

// === objects ===

/// Starts a host with these APIRules, one Service and one Pod, and settles.
async fn with_rules(rules: &[&str]) -> Stage {
    let scene = Scene::of_rules().await;
    scene.load(&service("shop"));
    scene.load(&pod("shop-1", "shop"));
    for name in rules {
        scene.load(&rule(name, "shop"));
    }
    let stage = scene.start(Drive::Caller);
    stage.settle().await;
    assert!(rules.iter().all(|rule| stage.is_ready(rule)));
    stage
}

/// Returns the objects of a stage with one APIRule, including the rule.
pub(crate) fn shop() -> Vec<Value> {
    vec![gateway(), service("shop"), pod("shop-1", "shop"), rule("one", "shop")]
}

fn gateway() -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1beta1", "kind": "Gateway",
        "metadata": {"name": "gateway", "namespace": "kyma-system"},
        "spec": {"servers": [{"port": {"number": 443, "name": "https", "protocol": "HTTPS"}, "hosts": ["*.example.com"]}]},
    })
}

fn service(name: &str) -> Value {
    let spec = json!({"selector": {"app": name}, "ports": [{"name": "http", "port": 80}]});
    object("v1/Service", name, &json!({"spec": spec}))
}

fn pod(name: &str, app: &str) -> Value {
    let containers = json!([
        {"name": "main", "image": "example.com/main:1"}, {"name": "istio-proxy", "image": "example.com/proxy:1"},
    ]);
    object(
        "v1/Pod",
        name,
        &json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": containers}}),
    )
}

fn rule(name: &str, service: &str) -> Value {
    let spec = json!({
        "hosts": [format!("{name}.example.com")], "gateway": "kyma-system/gateway", "service": {"name": service, "port": 80},
        "rules": [{"path": "/*", "methods": ["GET"], "noAuth": true}],
    });
    object(RULE, name, &json!({"spec": spec}))
}

/// Returns a puppet's selection of a kind.
fn selection(of: &str, labels: &str) -> Value {
    let Kind { cluster: _, group, version, kind } = kind(of);
    json!({
        "cluster": "", "kind": {"group": group, "version": version, "kind": kind}, "namespace": null, "name": null,
        "labels": labels, "matching": [], "fields": [],
    })
}

/// Returns a puppet's script that applies these objects.
fn applies(objects: &[Value]) -> String {
    let manifests: Vec<Value> = objects.iter().map(manifest).collect();
    json!({"returns": outcome(&json!({"apply": manifests}))}).to_string()
}

/// Returns a `ConfigMap` with a script for the puppet.
fn scripted(name: &str, script: &str) -> Value {
    let rest = json!({"metadata": {"labels": {"play": "yes"}}, "data": {"script": script}});
    object(CONFIG_MAP, name, &rest)
}

// === impl Stage ===

impl Stage {
    /// Returns another user's client for the objects of a kind.
    async fn client(&self, of: &str, namespace: &str) -> Api<DynamicObject> {
        let resource = self.cluster.resolve(&kind(of)).await.unwrap().unwrap();
        let client = self.cluster.client().clone();
        if resource.namespaced {
            Api::namespaced_with(client, namespace, &mortise_host::cluster::api_resource(&resource))
        } else {
            Api::all_with(client, &mortise_host::cluster::api_resource(&resource))
        }
    }

    /// Applies objects as another user.
    async fn apply(&self, objects: &[Value]) {
        local::apply(&self.cluster, objects.to_vec()).await.unwrap();
    }

    /// Changes an object as another user.
    async fn edit(&self, of: &str, name: &str, patch: Value) {
        let params = PatchParams { field_manager: Some("somebody".into()), ..Default::default() };
        let api = self.client(of, NAMESPACE).await;
        api.patch(name, &params, &Patch::Merge(patch)).await.unwrap();
    }

    /// Deletes an object as another user.
    async fn delete(&self, of: &str, name: &str) {
        self.client(of, NAMESPACE).await.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Returns the stored objects of a kind, by name.
    fn all(&self, of: &str) -> BTreeMap<String, Value> {
        let (_, kind) = of.rsplit_once('/').unwrap();
        let mut objects = self.api.objects();
        objects.retain(|object| text(object, "/kind") == kind);
        let named = |object: Value| (text(&object, "/metadata/name").to_owned(), object);
        objects.into_iter().map(named).collect()
    }

    fn get(&self, of: &str, name: &str) -> Option<Value> {
        self.all(of).remove(name)
    }

    /// Returns the only object of a kind whose name begins with `prefix`.
    fn only(&self, of: &str, prefix: &str) -> Value {
        let mut all = self.all(of);
        all.retain(|name, _| name.starts_with(prefix));
        assert_eq!(all.len(), 1, "{of} {prefix}…: {:?}", all.keys());
        all.into_values().next().unwrap()
    }

    /// Returns all objects except events, without fields that differ in each run, to compare two
    /// ways to the same state.
    fn state(&self) -> BTreeMap<String, Value> {
        let mut state = BTreeMap::new();
        for mut object in self.api.objects() {
            let place =
                ["/kind", "/metadata/namespace", "/metadata/name"].map(|part| text(&object, part));
            let place = place.join("/");
            if let Some(metadata) = object["metadata"].as_object_mut() {
                for field in
                    ["resourceVersion", "uid", "creationTimestamp", "managedFields", "generation"]
                {
                    metadata.remove(field);
                }
            }
            if object["kind"] != "Event" {
                state.insert(place, object);
            }
        }
        state
    }

    /// Returns the messages of the events about the object of this name.
    fn events(&self, name: &str) -> Vec<String> {
        let mut events = self.all("v1/Event");
        events.retain(|_, event| text(event, "/involvedObject/name") == name);
        events.values().map(|event| text(event, "/message").to_owned()).collect()
    }

    /// Returns the number of writing requests, whether accepted or not, without those for events.
    fn writes(&self) -> u64 {
        let reads = [Verb::Get, Verb::List, Verb::Watch];
        let requests = self.api.requests();
        let writes = requests
            .iter()
            .filter(|(kind, _)| !reads.contains(&kind.verb) && kind.resource != "events");
        writes.map(|(_, count)| count).sum()
    }

    /// Waits until the host knows the cluster's state.
    async fn caught_up(&self) {
        self.host.drive().caught_up(|| self.api.objects()).await.unwrap();
    }

    /// Waits until the host knows the cluster's state, and returns the keys to run. For
    /// `Drive::Caller`.
    async fn ready(&self) -> Vec<Run> {
        self.caught_up().await;
        self.host.drive().take_ready()
    }

    async fn run(&self, runs: Vec<Run>) -> Vec<Report> {
        let mut reports = Vec::new();
        for run in runs {
            reports.push(self.host.drive().run(run).await);
        }
        reports
    }

    /// Runs keys until none is left to run. For `Drive::Caller`.
    async fn settle(&self) -> Vec<Report> {
        let mut reports = Vec::new();
        for _ in 0..MAX_ROUNDS {
            let ready = self.ready().await;
            if ready.is_empty() {
                return reports;
            }
            reports.extend(self.run(ready).await);
        }
        panic!("the host does not come to rest: {:#?}", reports.last());
    }

    /// Reads reports until `holds` does. For `Drive::Host`.
    async fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) -> Vec<Report> {
        let mut reports = Vec::new();
        while !holds(self) {
            match timeout(TIMEOUT, self.host.next_report()).await {
                Ok(report) => reports.push(report.unwrap()),
                Err(elapsed) => {
                    panic!("not reached, {elapsed}: {what}; last: {:#?}", reports.last())
                }
            }
        }
        reports
    }

    /// Stops the host and starts another one.
    async fn restart(self) -> Self {
        self.host.stop().await.unwrap();
        self.kill()
    }

    /// Drops the host with all its tasks, and starts another one.
    fn kill(self) -> Self {
        let Self { api, cluster, loaded, drive, skips, tap, host } = self;
        drop(host);
        let host = start_with(&tap.cluster(&api), &loaded, drive, skips);
        Self { api, cluster, loaded, drive, skips, tap, host }
    }

    /// Returns whether a rule's status is Ready.
    fn is_ready(&self, rule: &str) -> bool {
        let rule = self.get(RULE, rule);
        rule.is_some_and(|rule| text(&rule, "/status/state") == "Ready")
    }
}
