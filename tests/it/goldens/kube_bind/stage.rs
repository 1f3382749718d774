//! The two clusters of a scenario, in memory with driven time, and those who act on them: the
//! processor and the provider's backend.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, anyhow, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use mortise_sdk::{
    ClusterName,
    testing::{Settled, Stub, cluster::Cluster, clusters::Clusters},
};
use serde_json::{Value, json};

use super::{
    backend,
    format::{Action, Condition, Scenario, Side},
    names::{Names, Server},
    state::{Key, State, state_of, unmet},
};
use crate::goldens::scenario::{Of, Verb, path_of, send, text};

/// The time by which the clock moves at once.
const TICK: Duration = Duration::from_millis(250);
/// How long the conditions of a wait may take.
const WAIT: Duration = Duration::from_secs(25);
/// The longest time until nothing changes any more.
const MAX_QUIET: Duration = Duration::from_mins(5);
/// The most rounds in which all who act take turns at one time.
const MAX_ROUNDS: usize = 50;
/// The label of kubeconfigs that need no binding, and their key.
const LABELLED: (&str, &str) = ("kube-bind.io~1provider-kubeconfig", "kubeconfig");
/// The kinds of the original that are defined at the consumer.
const AT_CONSUMER: [&str; 2] =
    ["apiservicebindings.kube-bind.io", "apiservicebindingbundles.kube-bind.io"];

/// Reconciles with the processor under test until nothing is due.
pub(super) type Settle = fn(&Stub) -> Settled;

/// The clusters of a scenario, and those who act on them.
pub(super) struct Stage {
    /// The consumer is the home cluster; all others are the provider under different names.
    clusters: Clusters,
    pub(super) provider: Cluster,
    pub(super) names: Names,
    settle: Settle,
    /// The processor, while it runs.
    stub: Option<Stub>,
    has_proxy: bool,
    has_namespaces: bool,
    /// The runs that failed last, by key.
    pub(super) failures: Vec<String>,
}

// === impl Stage ===

impl Stage {
    /// Sets up fresh clusters, in which the original's kinds are defined.
    pub(super) fn new(scenario: &Scenario, crds: &[Value], settle: Settle) -> anyhow::Result<Self> {
        let is_at_consumer =
            |definition: &&Value| AT_CONSUMER.contains(&text(definition, "/metadata/name"));
        let of_consumer: Vec<Value> = crds.iter().filter(is_at_consumer).cloned().collect();
        let now = "2026-01-01T00:00:00Z".parse()?;
        let consumer = Cluster::new(now, &of_consumer, &[], &[]).map_err(anyhow::Error::msg)?;
        let provider = consumer.beside("provider", crds, &[], &[]).map_err(anyhow::Error::msg)?;
        let mut clusters = Clusters::new(consumer);
        for name in cluster_names(scenario) {
            clusters.add(provider.named(&name));
        }
        Ok(Self {
            clusters,
            provider,
            names: Names::default(),
            settle,
            stub: None,
            has_proxy: false,
            has_namespaces: scenario.has_namespaces,
            failures: Vec::new(),
        })
    }

    fn cluster(&self, side: Side) -> &Cluster {
        match side {
            Side::P => &self.provider,
            Side::C => self.clusters.home(),
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.stub.is_some()
    }

    /// Returns the state of both clusters.
    pub(super) fn state(&self) -> State {
        let of = |side| state_of(side, &self.cluster(side).api().objects(), &self.names);
        of(Side::P).into_iter().chain(of(Side::C)).collect()
    }

    /// Does an action. Returns the object that it has created or changed.
    ///
    /// # Errors
    ///
    /// Fails if an API refuses it, or if it waits for something that does not come.
    pub(super) fn act(&mut self, action: &Action) -> anyhow::Result<Option<Key>> {
        let acted = match action {
            Action::Create(side, object) => Some(self.create(*side, object)?),
            Action::Patch(side, of, merge) => {
                let merge = self.names.filled(merge)?;
                Some(self.patch(*side, of, "", &merge)?)
            }
            Action::Status(side, of, merge) => {
                let merge = json!({"status": self.names.filled(merge)?});
                Some(self.patch(*side, of, "/status", &merge)?)
            }
            Action::Delete(side, of) => {
                let path = path_of(self.cluster(*side), of)?;
                let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
                send(self.cluster(*side), Verb::Delete, &path, &options)?;
                None
            }
            Action::Wait(conditions) => {
                let unmet = self.reach(conditions, WAIT)?;
                ensure!(unmet.is_empty(), "waited in vain: {}", unmet.join("; "));
                None
            }
            Action::Sleep(time) => self.pass(*time).map(|()| None)?,
            Action::Konnector(is_started) => {
                let start = || Stub::over(self.clusters.clone());
                self.stub = is_started.then(start);
                None
            }
            Action::Proxy(is_up) => {
                self.has_proxy = *is_up;
                None
            }
        };
        self.learn();
        Ok(acted)
    }

    fn create(&mut self, side: Side, object: &Value) -> anyhow::Result<Key> {
        let object = self.names.filled(object)?;
        let of = Of::object(&object)?;
        let path = path_of(self.cluster(side), &of)?;
        let (collection, _) = path.rsplit_once('/').context("a path")?;
        send(self.cluster(side), Verb::Create, collection, &object)?;
        if let Some(status) = object.get("status") {
            self.patch(side, &of, "/status", &json!({"status": status}))?;
        }
        Ok(Key::of(side, &object))
    }

    fn patch(&self, side: Side, of: &Of, subresource: &str, merge: &Value) -> anyhow::Result<Key> {
        let path = path_of(self.cluster(side), of)? + subresource;
        let answer = send(self.cluster(side), Verb::Merge, &path, merge)?;
        Ok(Key::of(side, &answer))
    }

    /// Waits until conditions hold. Returns those that do not after the time.
    pub(super) fn reach(
        &mut self,
        conditions: &[Condition],
        within: Duration,
    ) -> anyhow::Result<Vec<String>> {
        let mut passed = Duration::ZERO;
        loop {
            self.rest()?;
            let state = self.state();
            let unmet: Vec<String> =
                conditions.iter().filter_map(|condition| unmet(condition, &state)).collect();
            if unmet.is_empty() || passed >= within {
                return Ok(unmet);
            }
            self.clusters.home().advance(TICK);
            passed += TICK;
        }
    }

    /// Lets time pass until nothing has changed for `quiet`.
    pub(super) fn calm_down(&mut self, quiet: Duration) -> anyhow::Result<()> {
        let (mut passed, mut unchanged) = (Duration::ZERO, Duration::ZERO);
        while unchanged < quiet {
            ensure!(passed < MAX_QUIET, "no rest within {MAX_QUIET:?}");
            let before = self.revisions();
            self.clusters.home().advance(TICK);
            self.rest()?;
            passed += TICK;
            unchanged = if before == self.revisions() { unchanged + TICK } else { Duration::ZERO };
        }
        Ok(())
    }

    fn pass(&mut self, time: Duration) -> anyhow::Result<()> {
        let mut left = time;
        while !left.is_zero() {
            self.rest()?;
            let tick = left.min(TICK);
            self.clusters.home().advance(tick);
            left -= tick;
        }
        self.rest()
    }

    /// Lets all act until nothing changes any more at this time.
    fn rest(&mut self) -> anyhow::Result<()> {
        for _ in 0..MAX_ROUNDS {
            let before = self.revisions();
            self.connect();
            if let Some(stub) = &self.stub {
                let settled = (self.settle)(stub);
                let failures = settled.failures.iter();
                self.failures = failures.map(|(key, why)| format!("{key}: {why}")).collect();
            }
            self.learn();
            if self.has_namespaces {
                backend::act(&self.provider)?;
                self.learn();
            }
            if before == self.revisions() {
                return Ok(());
            }
        }
        Err(anyhow!("no rest after {MAX_ROUNDS} rounds"))
    }

    fn revisions(&self) -> [u64; 2] {
        [Side::P, Side::C].map(|side| self.cluster(side).api().revision())
    }

    fn learn(&mut self) {
        for side in [Side::P, Side::C] {
            let objects = self.cluster(side).api().objects();
            self.names.learn(side, &objects);
        }
    }

    /// Makes each cluster reachable or not, by the kubeconfig that its Secret holds now.
    fn connect(&self) {
        for cluster in self.clusters.iter().filter(|cluster| !cluster.name().is_empty()) {
            let server = self.server_of(cluster.name());
            let is_reachable = match server {
                Some(Server::Provider) => true,
                Some(Server::Proxy) => self.has_proxy,
                Some(Server::Dead | Server::Consumer) | None => false,
            };
            self.clusters.set_reachable(cluster.name(), is_reachable);
        }
    }

    /// Returns the names of the clusters with a good kubeconfig that cannot be reached.
    pub(super) fn unreachable(&self) -> BTreeSet<String> {
        let is_unreachable = |cluster: &&Cluster| match self.server_of(cluster.name()) {
            Some(Server::Proxy) => !self.has_proxy,
            Some(Server::Dead) => true,
            _ => false,
        };
        let others = self.clusters.iter().filter(|cluster| !cluster.name().is_empty());
        others.filter(is_unreachable).map(|cluster| cluster.name().to_string()).collect()
    }

    fn server_of(&self, cluster: &str) -> Option<Server> {
        let [namespace, name, key] = cluster.splitn(3, '/').collect::<Vec<_>>().try_into().ok()?;
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        let secret = send(self.clusters.home(), Verb::Get, &path, &Value::Null).ok()?;
        let data = BASE64_STANDARD.decode(secret["data"][key].as_str()?).ok()?;
        self.names.server_of(std::str::from_utf8(&data).ok()?)
    }
}

/// Returns the names of all clusters that Secrets of the scenario can stand for.
fn cluster_names(scenario: &Scenario) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let actions = scenario.steps.iter().flat_map(|step| &step.actions);
    for action in actions {
        let Action::Create(Side::C, object) = action else { continue };
        let of = |pointer: &str| text(object, pointer);
        let (label, key) = LABELLED;
        let mut add = |namespace: &str, name: &str, key: &str| {
            names.insert(ClusterName::secret(namespace, name, key).to_string());
        };
        if text(object, &format!("/metadata/labels/{label}")) == "true" {
            add(of("/metadata/namespace"), of("/metadata/name"), key);
        }
        if !of("/spec/kubeconfigSecretRef/namespace").is_empty() {
            let [namespace, name, key] = ["namespace", "name", "key"]
                .map(|field| text(object, &format!("/spec/kubeconfigSecretRef/{field}")));
            add(namespace, name, key);
        }
    }
    names
}
