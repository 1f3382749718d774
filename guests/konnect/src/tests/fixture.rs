//! A cluster in memory with the fake of the Konnect API beside it.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use konnect_fake::{Change, Fault, Konnect as Fake, message};
use mortise_sdk::{
    Kind, ObjectRef,
    outbound::Answer,
    testing::{OutboundRequest, Reply, Settled, Stub, cluster::Cluster, clusters::Clusters},
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::watch::Watch;
use crate::{Konnect, kind};

pub(super) const NAMESPACE: &str = "ns";
/// The milliseconds after which a call is given up.
const TIMEOUT: u64 = 10_000;

pub(super) struct World {
    pub(super) stub: Stub,
    pub(super) fake: Arc<Mutex<Fake>>,
    pub(super) config: String,
    clusters: Clusters,
    watch: Arc<Mutex<Watch>>,
    /// True while the region takes no connections.
    is_down: Arc<AtomicBool>,
    seen: RefCell<u64>,
}

/// Returns the reply of the fake to a call.
fn reply(fake: &mut Fake, call: &OutboundRequest) -> Reply {
    let rest = call.url.strip_prefix("https://").unwrap();
    let (host, rest) = rest.split_once('/').unwrap();
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let request = message::Request {
        method: call.method.name().to_owned(),
        host: host.to_owned(),
        path: format!("/{path}"),
        query: query.to_owned(),
        token: call.token.clone(),
        headers: Vec::new(),
        body: call.body.clone().unwrap_or_default(),
    };
    let message::Reply { delay, end } = fake.answer(call.now, &request);
    match end {
        _ if delay >= TIMEOUT => Reply::NoAnswer("timed out".to_owned()),
        message::End::Answer(message::Answer { status, headers, body }) => {
            Reply::Answer(Answer { status, headers, body })
        }
        message::End::Closed { .. } => Reply::NoAnswer("EOF".to_owned()),
    }
}

pub(super) fn merge(object: &mut Value, fields: Value) {
    match (object, fields) {
        (Value::Object(object), Value::Object(fields)) => {
            for (key, value) in fields {
                merge(object.entry(key).or_insert(Value::Null), value);
            }
        }
        (object, fields) => *object = fields,
    }
}

pub(super) fn object(kind: &str, name: &str, fields: Value) -> Value {
    let api_version = match kind {
        "Secret" => "v1".to_owned(),
        kind => kind::find(kind).unwrap().of().api_version(),
    };
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    if kind != "KongVault" {
        object["metadata"]["namespace"] = NAMESPACE.into();
    }
    merge(&mut object, fields);
    object
}

pub(super) fn auth() -> Value {
    let spec = json!({"type": "token", "token": "kpat_t", "serverURL": "eu.api.konghq.com"});
    object("KonnectAPIAuthConfiguration", "auth", json!({"spec": spec}))
}

pub(super) fn control_plane() -> Value {
    let spec = json!({"createControlPlaneRequest": {"name": "cp"}, "konnect": {"authRef": {"name": "auth"}}});
    object("KonnectGatewayControlPlane", "cp", json!({"spec": spec}))
}

/// Returns a mirror of the control plane with this ID.
pub(super) fn mirror(name: &str, id: &str) -> Value {
    let spec = json!({"source": "Mirror", "mirror": {"konnect": {"id": id}}, "konnect": {"authRef": {"name": "auth"}}});
    object("KonnectGatewayControlPlane", name, json!({"spec": spec}))
}

pub(super) fn in_cp(kind: &str, name: &str, spec: Value) -> Value {
    let mut object = object(
        kind,
        name,
        json!({"spec": {"controlPlaneRef": {
        "type": "konnectNamespacedRef", "konnectNamespacedRef": {"name": "cp"}}}}),
    );
    merge(&mut object["spec"], spec);
    object
}

pub(super) fn service(name: &str) -> Value {
    in_cp("KongService", name, json!({"name": name, "host": "example.com"}))
}

impl World {
    pub(super) fn new(config: &Value) -> Self {
        let fake = Fake::new(konnect_fake::Config::default());
        Self::with(Arc::new(Mutex::new(fake)), config.to_string())
    }

    /// Another cluster with the same API.
    pub(super) fn beside(&self) -> Self {
        Self::with(Arc::clone(&self.fake), self.config.clone())
    }

    fn with(fake: Arc<Mutex<Fake>>, config: String) -> Self {
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        let cluster = Cluster::new(start, &crate::crds(), &[], &[]).unwrap();
        let watch = Arc::new(Mutex::new(Watch::new(cluster.clone())));
        let clusters = Clusters::new(cluster);
        let (is_down, seen) = (Arc::default(), RefCell::default());
        let mut world = Self { stub: Stub::new(), fake, config, clusters, watch, is_down, seen };
        world.start_host();
        world
    }

    /// Starts a host: nothing is known but what the cluster holds.
    pub(super) fn start_host(&mut self) {
        let (api, watch) = (Arc::clone(&self.fake), Arc::clone(&self.watch));
        let is_down = Arc::clone(&self.is_down);
        self.stub = Stub::over(self.clusters.clone()).outbound(move |call| {
            let mut fake = api.lock();
            watch.lock().see(call, &fake);
            if is_down.load(Ordering::Relaxed) && !call.url.starts_with("https://global.") {
                return Reply::NotSent("connection refused".to_owned());
            }
            reply(&mut fake, call)
        });
        self.stub.settle::<Konnect>(&self.config);
    }

    /// Refuses connections from now on, or takes them again.
    pub(super) fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::Relaxed);
    }

    /// Returns the time in milliseconds since 1970.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.clusters.home().now().as_millisecond()).unwrap()
    }

    /// Returns the cluster, to refuse writes to it.
    pub(super) fn cluster(&self) -> &Cluster {
        self.clusters.home()
    }

    /// A world with a token and a control plane.
    pub(super) fn with_control_plane() -> Self {
        Self::with_period(3_600)
    }

    /// A world with a token and a control plane, and another sync period.
    pub(super) fn with_period(seconds: u32) -> Self {
        let world = Self::new(&json!({"syncPeriodSeconds": seconds}));
        world.apply(&auth());
        world.apply(&control_plane());
        world.settle();
        world.requests();
        world
    }

    pub(super) fn apply(&self, object: &Value) {
        let mut object = object.clone();
        if let Some(data) = object.as_object_mut().unwrap().remove("stringData") {
            for (key, value) in data.as_object().unwrap() {
                object["data"][key] = STANDARD.encode(value.as_str().unwrap()).into();
            }
        }
        self.stub.apply(&object);
    }

    pub(super) fn patch(&self, kind: &str, name: &str, patch: Value) {
        let mut patch = patch;
        if let Some(data) = patch.as_object_mut().unwrap().remove("stringData") {
            for (key, value) in data.as_object().unwrap() {
                patch["data"][key] = STANDARD.encode(value.as_str().unwrap()).into();
            }
        }
        let mut whole = object(kind, name, json!({}));
        merge(&mut whole, patch);
        self.stub.patch(&whole);
    }

    /// Lets time pass, in steps that are short beside it: a key that is due runs at most that late.
    pub(super) fn settle_for(&self, mut rest: Duration) {
        let longest = (rest / 100).max(Duration::from_millis(100));
        loop {
            let settled = self.settle();
            let next =
                settled.requeues.values().filter_map(|after| Duration::try_from(*after).ok()).min();
            let step = next.unwrap_or(longest).clamp(Duration::from_millis(1), longest);
            if step > rest {
                self.stub.advance(rest);
                self.settle();
                return;
            }
            rest -= step;
            self.stub.advance(step);
        }
    }

    pub(super) fn delete(&self, kind: &str, name: &str) {
        self.stub.delete(&format!("{kind}/*/{name}"));
    }

    /// Runs everything that is due within a second, and returns what is due later.
    pub(super) fn settle(&self) -> Settled {
        self.settle_within(Duration::from_secs(1))
    }

    /// Runs each key that is due, once its finalizer is stored.
    pub(super) fn pass(&self) -> Settled {
        self.settle_within(Duration::from_millis(1))
    }

    fn settle_within(&self, mut soon: Duration) -> Settled {
        loop {
            let settled = self.stub.settle::<Konnect>(&self.config);
            assert_eq!(self.watch.lock().broken, [""; 0]);
            let next =
                settled.requeues.values().filter_map(|after| Duration::try_from(*after).ok()).min();
            match next {
                Some(next) if next <= soon => {
                    soon -= next;
                    self.stub.advance(next.max(Duration::from_millis(1)));
                }
                _ => return settled,
            }
        }
    }

    pub(super) fn advance(&self, seconds: u64) {
        self.stub.advance(Duration::from_secs(seconds));
        self.settle();
    }

    pub(super) fn faults(&self, faults: Value) {
        let faults: Vec<Fault> = serde_json::from_value(faults).unwrap();
        self.fake.lock().set_faults(faults).unwrap();
    }

    pub(super) fn change(&self, change: Value) {
        let change: Change = serde_json::from_value(change).unwrap();
        self.fake.lock().change(0, &change).unwrap();
    }

    /// Returns the requests since the last call, as `METHOD path`, without those for the organization.
    pub(super) fn requests(&self) -> Vec<String> {
        let fake = self.fake.lock();
        let since = self.seen.replace(fake.requests());
        let of_tenant = |path: &str| path.contains("organizations");
        let log = fake.log(since).filter(|entry| !of_tenant(&entry.path));
        log.map(|entry| format!("{} {}", entry.method, entry.path)).collect()
    }

    pub(super) fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let namespace = (kind != "KongVault").then_some(NAMESPACE);
        let of = match kind {
            "Secret" => Kind::new("", "v1", "Secret"),
            kind => kind::find(kind).unwrap().of(),
        };
        self.stub.object(&ObjectRef::new(of, namespace, name))
    }

    /// Returns a condition as `status/reason message`.
    pub(super) fn condition(&self, kind: &str, name: &str, of: &str) -> String {
        let object = self.get(kind, name).unwrap();
        let list = object.pointer("/status/conditions").and_then(Value::as_array).cloned();
        let found = list.unwrap_or_default().into_iter().find(|one| one["type"] == of);
        found.map_or_else(String::new, |one| {
            format!(
                "{}/{} {}",
                one["status"].as_str().unwrap(),
                one["reason"].as_str().unwrap(),
                one["message"].as_str().unwrap()
            )
        })
    }
}
