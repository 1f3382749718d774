//! The two clusters of a scenario, and those who act on them: the processor and the provider's
//! backend. Where the clusters are, how time passes and how the processor runs is a [`World`].

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context as _, anyhow, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use mortise_sdk::ClusterName;
use serde_json::{Value, json};

use super::{
    backend,
    format::{Action, Condition, Scenario, Side},
    names::{Names, Server},
    state::{Key, State, state_of, unmet},
};
use crate::goldens::scenario::{Of, Requests, Verb, path_of, send, text};

/// The time that passes at once.
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

/// Two clusters, their time, and the processor.
pub(super) trait World {
    type Api: Requests;

    /// True if all that is due happens within [`World::work`].
    const IS_DRIVEN: bool;

    fn cluster(&self, side: Side) -> &Self::Api;

    /// Returns a number that changes with each change of the clusters, as far as it is known.
    fn revision(&self) -> u64;

    /// Lets the processor do what is due.
    fn work(&mut self);

    fn pass(&mut self, time: Duration);

    /// Starts or stops the processor.
    ///
    /// # Errors
    ///
    /// Fails if it does not start, or does not stop as it should.
    fn switch(&mut self, is_started: bool) -> anyhow::Result<()>;

    fn is_running(&self) -> bool;

    /// Opens or closes the way to each cluster, by its name.
    fn connect(&mut self, clusters: &[(String, bool)]);

    /// Opens or closes the proxy to the provider.
    fn set_proxy(&mut self, _is_up: bool) {}

    /// Returns how long conditions may take that took so long at most for the original.
    fn patience(&self, within: Duration) -> Duration {
        within
    }

    /// Returns what has gone wrong with the processor itself.
    fn failures(&mut self) -> Vec<String>;
}

/// What a comparison with the record looks at.
pub(super) struct Sight {
    pub(super) state: State,
    pub(super) is_running: bool,
    /// The clusters with a good kubeconfig that cannot be reached, by name, and since when.
    pub(super) unreachable: BTreeMap<String, Duration>,
}

/// What an action has made of an object.
pub(super) struct Acted {
    pub(super) key: Key,
    pub(super) before: Option<Value>,
    /// Absent if the object does not count.
    pub(super) after: Option<Value>,
}

/// The clusters of a scenario, and those who act on them.
pub(super) struct Stage<W> {
    pub(super) world: W,
    pub(super) names: Names,
    /// The names of the clusters that kubeconfigs of the scenario can lead to.
    clusters: BTreeSet<String>,
    /// For how long each cluster that cannot be reached has been so.
    away: BTreeMap<String, Duration>,
    has_proxy: bool,
    has_namespaces: bool,
    /// The objects of P and of C at the last look.
    seen: [Vec<Value>; 2],
}

/// Returns the definitions of the original's kinds that are there at the consumer.
pub(super) fn of_consumer(crds: &[Value]) -> Vec<Value> {
    let is_at_consumer =
        |definition: &&Value| AT_CONSUMER.contains(&text(definition, "/metadata/name"));
    crds.iter().filter(is_at_consumer).cloned().collect()
}

// === impl Stage ===

impl<W: World> Stage<W> {
    /// Sets the stage in clusters where the original's kinds are defined.
    ///
    /// # Errors
    ///
    /// Fails if the clusters cannot be read.
    pub(super) fn new(scenario: &Scenario, world: W, names: Names) -> anyhow::Result<Self> {
        let mut stage = Self {
            world,
            names,
            clusters: cluster_names(scenario),
            away: BTreeMap::new(),
            has_proxy: false,
            has_namespaces: scenario.has_namespaces,
            seen: <[Vec<Value>; 2]>::default(),
        };
        stage.learn()?;
        Ok(stage)
    }

    /// Returns what there is to see, as of the last look.
    pub(super) fn sight(&self) -> Sight {
        let of = |side, objects: &[Value]| state_of(side, objects, &self.names);
        let [provider, consumer] = &self.seen;
        Sight {
            state: of(Side::P, provider).into_iter().chain(of(Side::C, consumer)).collect(),
            is_running: self.world.is_running(),
            unreachable: self.away.clone(),
        }
    }

    /// Does an action. Returns the object that it has created or changed.
    ///
    /// # Errors
    ///
    /// Fails if an API refuses it, or if it waits for something that does not come.
    pub(super) fn act(&mut self, action: &Action) -> anyhow::Result<Option<Acted>> {
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
                let path = path_of(self.world.cluster(*side), of)?;
                let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
                send(self.world.cluster(*side), Verb::Delete, &path, &options)?;
                None
            }
            Action::Wait(conditions) => {
                let unmet = self.reach(conditions, WAIT, None)?;
                ensure!(unmet.is_empty(), "waited in vain: {}", unmet.join("; "));
                None
            }
            Action::Sleep(time) => self.pass(*time).map(|()| None)?,
            Action::Konnector(is_started) => self.world.switch(*is_started).map(|()| None)?,
            Action::Proxy(is_up) => {
                self.has_proxy = *is_up;
                self.world.set_proxy(*is_up);
                None
            }
        };
        self.learn()?;
        Ok(acted)
    }

    fn create(&mut self, side: Side, object: &Value) -> anyhow::Result<Acted> {
        let object = self.names.filled(object)?;
        let of = Of::object(&object)?;
        let path = path_of(self.world.cluster(side), &of)?;
        let (collection, _) = path.rsplit_once('/').context("a path")?;
        let mut made = send(self.world.cluster(side), Verb::Create, collection, &object)?;
        if let Some(status) = object.get("status") {
            let status = json!({"status": status});
            made = send(self.world.cluster(side), Verb::Merge, &(path + "/status"), &status)?;
        } else if of.kind == "CustomResourceDefinition" {
            made = self.established(side, &path)?;
        }
        self.acted(side, None, &made)
    }

    /// Returns a definition when it is established.
    fn established(&mut self, side: Side, path: &str) -> anyhow::Result<Value> {
        let mut passed = Duration::ZERO;
        loop {
            let definition = send(self.world.cluster(side), Verb::Get, path, &Value::Null)?;
            let conditions = definition["status"]["conditions"].as_array();
            if conditions
                .into_iter()
                .flatten()
                .any(|of| of["type"] == "Established" && of["status"] == "True")
            {
                return Ok(definition);
            }
            ensure!(passed < WAIT, "{path} is not established");
            self.world.pass(TICK);
            passed += TICK;
        }
    }

    fn patch(
        &mut self,
        side: Side,
        of: &Of,
        subresource: &str,
        merge: &Value,
    ) -> anyhow::Result<Acted> {
        let cluster = self.world.cluster(side);
        let path = path_of(cluster, of)?;
        let before = self.as_seen(side, send(cluster, Verb::Get, &path, &Value::Null)?);
        let after = send(cluster, Verb::Merge, &(path + subresource), merge)?;
        self.acted(side, Some(&before), &after)
    }

    /// Returns an object as the state shows it: in the version in which it is stored, and without
    /// the defaults that only answers have.
    fn as_seen(&self, side: Side, object: Value) -> Value {
        let [provider, consumer] = &self.seen;
        let seen = if side == Side::P { provider } else { consumer };
        let version = |of: &Value| text(of, "/metadata/resourceVersion").to_owned();
        let is_same = |of: &&Value| {
            version(of) == version(&object) && Key::of(side, of) == Key::of(side, &object)
        };
        seen.iter().find(is_same).cloned().unwrap_or(object)
    }

    fn acted(
        &mut self,
        side: Side,
        before: Option<&Value>,
        after: &Value,
    ) -> anyhow::Result<Acted> {
        self.learn()?;
        let after = &self.as_seen(side, after.clone());
        self.names.learn(side, std::slice::from_ref(after));
        let key = Key::of(side, after);
        let shown = |object: &Value| {
            let [provider, consumer] = &self.seen;
            let seen = if side == Side::P { provider } else { consumer };
            let is_definition = |of: &&Value| text(of, "/kind") == "CustomResourceDefinition";
            let definitions = seen.iter().filter(is_definition).cloned();
            // The object comes last, and so in the place of what was seen of it.
            let objects: Vec<Value> = definitions.chain([object.clone()]).collect();
            state_of(side, &objects, &self.names).remove(&key)
        };
        Ok(Acted { before: before.and_then(shown), after: shown(after), key: key.clone() })
    }

    /// Waits until conditions hold. Returns those that do not after the time. Where time passes by
    /// itself, waits until all `is_as_expected` instead, if that is given.
    pub(super) fn reach(
        &mut self,
        conditions: &[Condition],
        within: Duration,
        is_as_expected: Option<&dyn Fn(&Sight) -> bool>,
    ) -> anyhow::Result<Vec<String>> {
        let (mut passed, within) = (Duration::ZERO, self.world.patience(within));
        loop {
            self.rest()?;
            let sight = self.sight();
            let unmet = conditions.iter().filter_map(|condition| unmet(condition, &sight.state));
            let unmet: Vec<String> = unmet.collect();
            let is_done = match is_as_expected.filter(|_| !W::IS_DRIVEN) {
                Some(is_as_expected) => is_as_expected(&sight),
                None => unmet.is_empty(),
            };
            if is_done || passed >= within {
                return Ok(unmet);
            }
            self.tick(TICK);
            passed += TICK;
        }
    }

    /// Lets time pass until nothing has changed for `quiet`.
    pub(super) fn calm_down(&mut self, quiet: Duration) -> anyhow::Result<()> {
        let (mut passed, mut unchanged) = (Duration::ZERO, Duration::ZERO);
        while unchanged < quiet {
            ensure!(passed < MAX_QUIET, "no rest within {MAX_QUIET:?}");
            let before = self.world.revision();
            self.tick(TICK);
            self.rest()?;
            passed += TICK;
            unchanged =
                if before == self.world.revision() { unchanged + TICK } else { Duration::ZERO };
        }
        Ok(())
    }

    fn pass(&mut self, time: Duration) -> anyhow::Result<()> {
        let mut left = time;
        while !left.is_zero() {
            self.rest()?;
            let tick = left.min(TICK);
            self.tick(tick);
            left -= tick;
        }
        self.rest()
    }

    /// Lets all act until nothing changes any more at this time; once where time passes by itself.
    pub(super) fn rest(&mut self) -> anyhow::Result<()> {
        for _ in 0..MAX_ROUNDS {
            let before = self.world.revision();
            self.connect();
            self.world.work();
            self.learn()?;
            let [provider, _] = &self.seen;
            if self.has_namespaces && backend::act(self.world.cluster(Side::P), provider)? {
                self.learn()?;
            }
            if !W::IS_DRIVEN || before == self.world.revision() {
                return Ok(());
            }
        }
        Err(anyhow!("no rest after {MAX_ROUNDS} rounds"))
    }

    pub(super) fn learn(&mut self) -> anyhow::Result<()> {
        for (side, seen) in [Side::P, Side::C].into_iter().zip(&mut self.seen) {
            *seen = self.world.cluster(side).objects()?;
            self.names.learn(side, seen);
        }
        Ok(())
    }

    /// Makes each cluster reachable or not, by the kubeconfig that its Secret holds now.
    fn connect(&mut self) {
        let is_reachable = |name: &String| match self.server_of(name) {
            Some(Server::Provider) => true,
            Some(Server::Proxy) => self.has_proxy,
            Some(Server::Dead | Server::Consumer) | None => false,
        };
        let clusters: Vec<(String, bool)> =
            self.clusters.iter().map(|name| (name.clone(), is_reachable(name))).collect();
        self.world.connect(&clusters);
        let away = self.clusters.iter().filter(|cluster| self.is_away(cluster));
        let since = |cluster: &String| self.away.get(cluster).copied().unwrap_or_default();
        self.away = away.map(|cluster| (cluster.clone(), since(cluster))).collect();
    }

    fn is_away(&self, cluster: &str) -> bool {
        match self.server_of(cluster) {
            Some(Server::Proxy) => !self.has_proxy,
            Some(Server::Dead) => true,
            _ => false,
        }
    }

    /// Lets time pass, and counts it for the clusters that cannot be reached.
    fn tick(&mut self, time: Duration) {
        self.world.pass(time);
        self.away.values_mut().for_each(|since| *since += time);
    }

    fn server_of(&self, cluster: &str) -> Option<Server> {
        let [namespace, name, key] = cluster.splitn(3, '/').collect::<Vec<_>>().try_into().ok()?;
        let [_, consumer] = &self.seen;
        let secret = consumer.iter().find(|object| {
            (text(object, "/kind"), text(object, "/metadata/namespace")) == ("Secret", namespace)
                && text(object, "/metadata/name") == name
        })?;
        let data = BASE64_STANDARD.decode(secret["data"][key].as_str()?).ok()?;
        self.names.server_of(std::str::from_utf8(&data).ok()?)
    }
}

/// Returns the names of all clusters that Secrets of the scenario can stand for.
pub(super) fn cluster_names(scenario: &Scenario) -> BTreeSet<String> {
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
