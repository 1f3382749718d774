//! The cluster and the fake of Konnect of a scenario, with driven time, and the operator between
//! them.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, ensure};
use konnect_fake::{Answer, Config, End, Konnect, Reply, log::Entry};
use mortise_sdk::{
    outbound,
    testing::{
        OutboundRequest, Reply as Replied, Settled, Stub, cluster::Cluster, clusters::Clusters,
    },
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    format::{self, Data, Operator, Refusal, Scenario, Step},
    names::Names,
    state::counts,
};
use crate::goldens::scenario::{Of, Refused, Verb, path_of, send, text};

/// The time by which the clock moves at once.
const TICK: Duration = Duration::from_millis(250);
/// How long nothing may change after a step that does not say how long it takes, at most.
const QUIET: Duration = Duration::from_secs(8);
/// The part of a sync period in which nothing may change: less than a period passes.
const QUIET_PART: f64 = 3.0 / 8.0;
/// The longest time until nothing changes any more.
const MAX_QUIET: Duration = Duration::from_mins(5);
/// How long the operator waits for an answer, in milliseconds.
pub(super) const TIMEOUT: u64 = 3_000;
/// How long after a request an operator is killed, in milliseconds.
const KILLED_AFTER: u64 = 700;

/// Reconciles with the processor under test until nothing is due.
pub(super) type Settle = fn(&Running) -> Settled;

/// An operator that runs.
pub(super) struct Running {
    pub(super) stub: Stub,
    pub(super) api: Api,
    pub(super) sync_period: Duration,
}

/// The Konnect API. Clones share it.
#[derive(Clone)]
pub(super) struct Api {
    konnect: Arc<Mutex<Konnect>>,
    /// True if the operator ends with the next request whose answer is delayed.
    is_armed: Arc<AtomicBool>,
    /// The cluster whose time it has.
    cluster: Cluster,
}

/// The payload of the unwinding that ends an operator in the middle of a call.
struct Killed;

/// The cluster and the API of a scenario, and the operator.
pub(super) struct Stage<'a> {
    scenario: &'a Scenario,
    clusters: Clusters,
    pub(super) api: Api,
    pub(super) names: Names,
    settle: Settle,
    /// Starts an operator over a cluster.
    start: fn(Stub, &Api) -> Stub,
    operator: Option<Running>,
    /// The number of the last request that was looked at.
    seen: u64,
    /// The runs that failed last, by key.
    pub(super) failures: Vec<String>,
}

// === impl Api ===

impl Api {
    /// Replies to a call of the operator. Does not return if the operator is killed meanwhile.
    pub(super) fn reply(&self, call: &OutboundRequest) -> Replied {
        let rest = call.url.strip_prefix("https://").unwrap_or(&call.url);
        let (host, rest) = rest.split_once('/').unwrap_or((rest, ""));
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let Reply { delay, end } = self.answer(&konnect_fake::Request {
            method: call.method.name().to_owned(),
            host: host.to_owned(),
            path: format!("/{path}"),
            query: query.to_owned(),
            token: call.token.clone(),
            headers: call.headers.clone(),
            body: call.body.clone().unwrap_or_default(),
        });
        match end {
            _ if delay >= TIMEOUT => Replied::NoAnswer("no answer in time".to_owned()),
            End::Answer(Answer { status, headers, body }) => {
                let lower = |(name, value): (String, String)| (name.to_lowercase(), value);
                let headers = headers.into_iter().map(lower).collect();
                Replied::Answer(outbound::Answer { status, headers, body })
            }
            End::Closed { .. } => Replied::NoAnswer("the connection was closed".to_owned()),
        }
    }

    /// Answers a request of the operator. Does not return if the operator is killed meanwhile.
    pub(super) fn answer(&self, request: &konnect_fake::Request) -> Reply {
        let now = u64::try_from(self.cluster.now().as_millisecond()).unwrap_or_default();
        let reply = self.konnect.lock().answer(now, request);
        if reply.delay > KILLED_AFTER && self.is_armed.swap(false, Ordering::Relaxed) {
            resume_unwind(Box::new(Killed));
        }
        reply
    }
}

// === impl Stage ===

impl<'a> Stage<'a> {
    /// Sets up a fresh cluster in which the original's kinds are defined, and starts the operator.
    pub(super) fn new(
        scenario: &'a Scenario,
        crds: &[Value],
        start: fn(Stub, &Api) -> Stub,
        settle: Settle,
    ) -> anyhow::Result<Self> {
        let now = "2026-01-01T00:00:00Z".parse()?;
        let cluster = Cluster::new(now, crds, &[], &[]).map_err(anyhow::Error::msg)?;
        let namespaces = [Some(&scenario.namespace), scenario.second_namespace.as_ref()];
        for name in namespaces.into_iter().flatten() {
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            send(&cluster, Verb::Create, "/api/v1/namespaces", &namespace)?;
        }
        let konnect = Arc::new(Mutex::new(Konnect::new(Config::default())));
        let api = Api { konnect, is_armed: Arc::default(), cluster: cluster.clone() };
        let mut stage = Self {
            scenario,
            clusters: Clusters::new(cluster),
            api,
            names: Names::default(),
            settle,
            start,
            operator: None,
            seen: 0,
            failures: Vec::new(),
        };
        stage.start();
        Ok(stage)
    }

    fn cluster(&self) -> &Cluster {
        self.clusters.home()
    }

    /// Returns the objects of the cluster that count, as clients see them: with the defaults of what
    /// nobody has written.
    ///
    /// # Errors
    ///
    /// Fails if the API refuses a read.
    pub(super) fn objects(&self) -> anyhow::Result<Vec<Value>> {
        let stored = self.cluster().api().objects();
        let read = |object: &Value| {
            let path = path_of(self.cluster(), &Of::object(object)?)?;
            send(self.cluster(), Verb::Get, &path, &Value::Null)
        };
        stored.iter().filter(|object| counts(object)).map(read).collect()
    }

    fn start(&mut self) {
        let stub = (self.start)(Stub::over(self.clusters.clone()), &self.api);
        let sync_period = self.scenario.sync_period.time;
        self.operator = Some(Running { stub, api: self.api.clone(), sync_period });
    }

    /// Returns the requests since the last call, and learns the names in the step's consequences, of
    /// which `objects` are a part.
    pub(super) fn requests(&mut self, step: &Step, objects: &[Value]) -> Vec<Entry> {
        self.names.learn_made(objects, &step.objects, self.scenario);
        let konnect = self.api.konnect.lock();
        let log: Vec<Entry> = konnect.log(self.seen).cloned().collect();
        self.seen = konnect.requests();
        self.names.learn_ids(&konnect, &log, self.scenario);
        log
    }

    // === what is done ===

    /// Does what a step says. Returns the answers to the actions that the API server refused.
    ///
    /// # Errors
    ///
    /// Fails if an action cannot be done at all.
    pub(super) fn act(&mut self, step: &Step) -> anyhow::Result<Vec<Refusal>> {
        if let Some(faults) = &step.konnect {
            self.api.konnect.lock().set_faults(faults.clone())?;
        }
        for data in &step.konnect_data {
            self.change(data).with_context(|| format!("konnectData {}", data.0))?;
        }
        match step.operator {
            None => {}
            Some(Operator::Start) => self.start(),
            Some(Operator::Stop) => self.operator = None,
            Some(Operator::Restart) => {
                self.operator = None;
                self.start();
            }
            Some(Operator::Kill) => self.api.is_armed.store(true, Ordering::Relaxed),
        }
        let mut refused = Vec::new();
        for object in &step.apply {
            let acted = self.create(object).with_context(|| format!("apply {object}"));
            refused.extend(refusal(acted)?);
        }
        for patch in &step.patch {
            let acted = self.request(&patch.of(), Verb::Merge, &patch.merge);
            refused.extend(refusal(acted.with_context(|| format!("{patch:?}")))?);
        }
        for named in &step.delete {
            let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
            let acted = self.request(named, Verb::Delete, &options);
            refused.extend(refusal(acted.with_context(|| format!("delete {named:?}")))?);
        }
        Ok(refused)
    }

    fn change(&self, Data(data): &Data) -> anyhow::Result<()> {
        let change = serde_json::from_value(self.names.filled(data)?)?;
        let now = u64::try_from(self.cluster().now().as_millisecond())?;
        Ok(self.api.konnect.lock().change(now, &change)?)
    }

    fn create(&mut self, object: &Value) -> anyhow::Result<()> {
        let mut object = object.clone();
        let field = |at: &str| text(&object, at).to_owned();
        let [kind, namespace, name] =
            [field("/kind"), field("/metadata/namespace"), field("/metadata/name")];
        let of = self.scenario.of(&kind, &namespace, &name)?;
        if object.get("apiVersion").is_none() {
            object["apiVersion"] = format::api_version(&kind)?.into();
        }
        if !of.namespace.is_empty() {
            object["metadata"]["namespace"] = of.namespace.clone().into();
        }
        let path = path_of(self.cluster(), &of)?;
        let (collection, _) = path.rsplit_once('/').context("a path")?;
        let made = send(self.cluster(), Verb::Create, collection, &object)?;
        self.names.apply(&made, self.scenario);
        Ok(())
    }

    fn request(&self, named: &format::Named, verb: Verb, body: &Value) -> anyhow::Result<()> {
        let of: Of = self.scenario.of(&named.kind, &named.namespace, &named.name)?;
        send(self.cluster(), verb, &path_of(self.cluster(), &of)?, body).map(|_| ())
    }

    // === time ===

    /// Lets the time of a step pass.
    ///
    /// # Errors
    ///
    /// Fails if nothing comes to rest, or if an operator that was to be killed lives on.
    pub(super) fn wait(&mut self, step: &Step) -> anyhow::Result<()> {
        match step.wait(&self.scenario.sync_period)? {
            Some(time) => self.pass(time),
            None => self.calm_down()?,
        }
        let is_armed = self.api.is_armed.load(Ordering::Relaxed);
        ensure!(!is_armed, "no request came in which the operator was to be killed");
        Ok(())
    }

    fn pass(&mut self, time: Duration) {
        let mut left = time;
        self.rest();
        while !left.is_zero() {
            let tick = left.min(TICK);
            self.cluster().advance(tick);
            self.rest();
            left -= tick;
        }
    }

    /// Lets time pass until nothing has changed for a while.
    fn calm_down(&mut self) -> anyhow::Result<()> {
        let quiet = QUIET.min(self.scenario.sync_period.time.mul_f64(QUIET_PART));
        let (mut passed, mut unchanged) = (Duration::ZERO, Duration::ZERO);
        self.rest();
        while unchanged < quiet {
            ensure!(passed < MAX_QUIET, "no rest within {MAX_QUIET:?}");
            let before = self.moved();
            self.cluster().advance(TICK);
            self.rest();
            passed += TICK;
            unchanged = if before == self.moved() { unchanged + TICK } else { Duration::ZERO };
        }
        Ok(())
    }

    /// Returns what is another when an object has changed, or a request has come.
    fn moved(&self) -> [u64; 2] {
        [self.cluster().api().revision(), self.api.konnect.lock().requests()]
    }

    /// Lets the operator act until nothing is due at this time.
    fn rest(&mut self) {
        let Some(operator) = &self.operator else { return };
        match catch_unwind(AssertUnwindSafe(|| (self.settle)(operator))) {
            Ok(settled) => {
                let failures = settled.failures.iter();
                self.failures = failures.map(|(key, why)| format!("{key}: {why}")).collect();
            }
            Err(panic) if panic.is::<Killed>() => self.operator = None,
            Err(panic) => resume_unwind(panic),
        }
    }
}

/// Returns the answer to an action if the API server refused it.
fn refusal(acted: anyhow::Result<()>) -> anyhow::Result<Option<Refusal>> {
    let Err(error) = acted else { return Ok(None) };
    match error.downcast_ref::<Refused>() {
        Some(Refused { status, message, .. }) => {
            Ok(Some(Refusal { status: *status, message: message.clone() }))
        }
        None => Err(error),
    }
}
