//! `mortise simulate`: objects from files, reconciled in memory until nothing changes any more. No server, no port.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use jiff::Timestamp;
use mortise_embedded_api::EmbeddedApi;
use serde::Serialize;
use serde_json::{Number, Value, json};

use crate::{
    args::{Output, SimulateArgs},
    cluster::Cluster,
    contract::{Kind, ObjectRef},
    desk, files,
    print::{self, BOLD, DIM, RED, Secrets},
    queue::Key,
    run::{Clock, Drive, Host, Loaded, Options},
    write::{self, Action},
};

/// The exit code when some reconcile failed.
const FAILED: u8 = 3;
/// How long the watches may need to see what is in the same process. Only a fault of ours takes longer.
const CATCH_UP: Duration = Duration::from_secs(30);
/// How often the watches get a turn before their stores are compared with the API again.
const COALESCED: usize = 64;

/// What is simulated.
#[derive(Debug, Clone)]
pub struct Input {
    /// The objects that exist.
    pub objects: Vec<Value>,
    /// The CRDs that are installed.
    pub crds: Vec<Value>,
    /// The time of all calls.
    pub now: Timestamp,
    /// Kinds that are unknown, as `plural.group`.
    pub missing_kinds: Vec<String>,
    /// Whether the objects must be valid.
    pub validate: bool,
    /// The one object that is reconciled; all if none.
    pub only: Option<Only>,
    /// At most this many rounds.
    pub rounds: Option<u32>,
}

/// `KIND/NAMESPACE/NAME`; the namespace is empty for cluster-scoped kinds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Only {
    kind: String,
    namespace: String,
    name: String,
}

/// Which object it is, in whatever version it is written: group, kind, namespace, name.
type Identity = [String; 4];

/// What came of it.
#[derive(Debug, Clone, Default, Serialize)]
pub struct End {
    /// All objects at the end, but for those that were not given and that the processor did not make: the API's own
    /// namespaces and the CRDs.
    pub objects: Vec<Value>,
    /// The writes, in their order.
    pub changes: Vec<Change>,
    /// The events that the processor made.
    pub events: Vec<Value>,
    /// When what is run again.
    pub requeues: Vec<Again>,
    /// The reconciles whose last run failed.
    pub failures: Vec<Failed>,
    /// How often all that waited was run.
    pub rounds: u32,
    /// Kinds that were served without a schema, as `kind.group/version`.
    #[serde(skip)]
    pub untyped: Vec<Kind>,
    /// The objects before the first round.
    #[serde(skip)]
    pub before: Vec<Value>,
}

/// One write.
#[derive(Debug, Clone, Serialize)]
pub struct Change {
    /// `create`, `update`, `delete` or `status`.
    pub action: &'static str,
    /// The object afterwards; of a deletion, what it was.
    pub object: Value,
}

/// A reconcile that is due later.
#[derive(Debug, Clone, Serialize)]
pub struct Again {
    /// The reconciled object: `apiVersion`, `kind`, `namespace`, `name`.
    pub object: Value,
    /// Seconds from the last run. What waits for the back-off after a failure is not here.
    #[serde(rename = "afterSeconds")]
    pub after_seconds: Number,
}

/// A reconcile that failed.
#[derive(Debug, Clone, Serialize)]
pub struct Failed {
    /// The reconciled object: `apiVersion`, `kind`, `namespace`, `name`.
    pub object: Value,
    /// Why.
    pub message: String,
}

/// Runs the command.
///
/// # Errors
///
/// Bad input: files that do not parse, a module that does not load, objects that the API refuses.
pub async fn run(args: &SimulateArgs, cache: Option<&Path>) -> anyhow::Result<ExitCode> {
    let only = args.only.as_deref().map(Only::from_str).transpose()?;
    let loaded = desk::load(&args.module, desk::config(args.config.as_deref())?, cache).await?;
    let input = Input {
        objects: load_all(&args.objects)?,
        crds: load_all(&args.crds)?,
        now: args.now.unwrap_or_else(Timestamp::now),
        missing_kinds: args.missing_kind.clone(),
        validate: !args.no_validate,
        only,
        rounds: args.rounds,
    };
    let end = simulate(loaded, input).await?;
    end.untyped.iter().for_each(desk::warn_untyped);
    let secrets = Secrets::from(args.show_secrets);
    let text = match args.output {
        Some(Output::Json) => {
            serde_json::to_string_pretty(&end.printable(secrets)).context("the end is no JSON")?
                + "\n"
        }
        None => end.for_people(secrets),
    };
    anstream::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
    Ok(if end.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

fn load_all(paths: &[PathBuf]) -> Result<Vec<Value>, files::Error> {
    let objects: Result<Vec<Vec<Value>>, _> = paths.iter().map(|path| files::load(path)).collect();
    Ok(objects?.concat())
}

/// Loads the objects and reconciles until nothing changes any more.
///
/// # Errors
///
/// Objects that the API refuses, or an `only` that names no object.
pub async fn simulate(loaded: Loaded, input: Input) -> anyhow::Result<End> {
    let now = input.now;
    let clock: Clock = Arc::new(move || now);
    let api = EmbeddedApi::new(mortise_embedded_api::Options {
        now: Arc::clone(&clock),
        ..Default::default()
    });
    let cluster = Cluster::new(kube::Client::new(api.router(), "default"));
    let untyped = load(&api, &cluster, &loaded, &input).await?;
    let given: BTreeSet<Identity> = input.objects.iter().map(identity).collect();
    // What the API and this function have made themselves: nobody asked for it.
    let hidden = api.objects().iter().map(identity).filter(|made| !given.contains(made)).collect();
    let before = visible(&api, &hidden);
    if let Some(only) = &input.only {
        anyhow::ensure!(
            before.iter().any(|object| only.is(object)),
            "`--only {only}` names no object that was given"
        );
    }
    let host = Host::start(
        &cluster,
        vec![loaded],
        &Options { now: clock, drive: Drive::Caller, ..Options::default() },
    )?;
    let mut end = End { untyped, before, ..End::default() };
    reconcile(&host, &api, &input, &mut end).await?;
    end.objects = visible(&api, &hidden);
    let made = |object: &&Value| is_event(object) && !given.contains(&identity(object));
    end.events = end.objects.iter().filter(made).cloned().collect();
    Ok(end)
}

/// Runs rounds until one has nothing to run.
async fn reconcile(
    host: &Host,
    api: &EmbeddedApi,
    input: &Input,
    end: &mut End,
) -> anyhow::Result<()> {
    let mut failures: BTreeMap<Key, Failed> = BTreeMap::new();
    let mut requeues: BTreeMap<Key, Again> = BTreeMap::new();
    while input.rounds.is_none_or(|most| end.rounds < most) {
        caught_up(host, api).await?;
        let mut ran = false;
        for run in host.take_ready() {
            let object = host.object_of(&run.key);
            if input
                .only
                .as_ref()
                .is_some_and(|only| object.as_ref().is_none_or(|object| !only.is_of(object)))
            {
                host.leave(&run);
                continue;
            }
            ran = true;
            let report = host.run(run).await;
            end.changes.extend(report.changes.iter().filter_map(Change::of));
            failures.remove(&report.key);
            requeues.remove(&report.key);
            let Some(object) = object.as_ref().map(reference) else { continue };
            if let Some(after) = report.again {
                requeues.insert(
                    report.key.clone(),
                    Again { object: object.clone(), after_seconds: seconds(after) },
                );
            }
            if let Some(message) = report.failure {
                failures.insert(report.key, Failed { object, message });
            }
        }
        if !ran {
            break;
        }
        end.rounds += 1;
    }
    end.failures = failures.into_values().collect();
    end.requeues = requeues.into_values().collect();
    Ok(())
}

/// Loads CRDs, namespaces and objects. Returns the kinds that are served without a schema.
async fn load(
    api: &EmbeddedApi,
    cluster: &Cluster,
    loaded: &Loaded,
    input: &Input,
) -> anyhow::Result<Vec<Kind>> {
    let mut objects: Vec<Value> = input.crds.iter().chain(&input.objects).cloned().collect();
    objects.sort_by_key(desk::rank);
    let split = objects.partition_point(|object| desk::rank(object) < 2);
    let rest = objects.split_off(split);
    let put = |object: Value, validate| {
        let title = print::title(&object);
        api.load(object, validate).with_context(|| format!("{title} is refused"))
    };
    desk::apply(cluster, objects).await?;
    let untyped = desk::serve_untyped(api, &loaded.description, &input.missing_kinds);
    // Who simulates need not write namespaces down.
    let there: BTreeSet<String> = api.objects().iter().filter_map(namespace).collect();
    let named = |object: &Value| {
        object.pointer("/metadata/namespace").and_then(Value::as_str).map(str::to_owned)
    };
    let needed: BTreeSet<String> = rest.iter().filter_map(named).collect();
    for name in needed.difference(&there) {
        put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}), true)?;
    }
    for object in rest {
        put(object, input.validate)?;
    }
    Ok(untyped)
}

/// The name of a Namespace.
fn namespace(object: &Value) -> Option<String> {
    let is_one = object.get("kind").and_then(Value::as_str) == Some("Namespace");
    object.pointer("/metadata/name").filter(|_| is_one).and_then(Value::as_str).map(str::to_owned)
}

/// Waits until the stores hold what the API holds.
///
/// # Errors
///
/// They do not for a long time, which is a fault of ours.
pub async fn caught_up(host: &Host, api: &EmbeddedApi) -> anyhow::Result<()> {
    let wait = async {
        let mut progress = host.progress();
        while !host.holds(&api.objects()) {
            if progress.changed().await.is_err() {
                break;
            }
            // To compare costs by all objects: what comes at once is waited for at once.
            for _ in 0..COALESCED {
                tokio::task::yield_now().await;
            }
        }
    };
    tokio::time::timeout(CATCH_UP, wait).await.context("the watches did not catch up with the API")
}

/// Objects without a namespace are loaded into `default`, where the kind has namespaces.
fn identity(object: &Value) -> Identity {
    let text = |pointer: &str| {
        object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let kind = desk::kind_of(object);
    let namespace = match text("/metadata/namespace") {
        none if none.is_empty() => "default".to_owned(),
        namespace => namespace,
    };
    [kind.group, kind.kind, namespace, text("/metadata/name")]
}

/// The objects that a user cares for, without the bookkeeping of server-side apply.
fn visible(api: &EmbeddedApi, hidden: &BTreeSet<Identity>) -> Vec<Value> {
    let mut objects = api.objects();
    objects.retain(|object| !hidden.contains(&identity(object)));
    objects.iter_mut().for_each(drop_managed_fields);
    objects
}

fn drop_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

fn is_event(object: &Value) -> bool {
    object.get("kind").and_then(Value::as_str) == Some("Event")
}

/// How a reconciled object is named in the output.
fn reference(of: &ObjectRef) -> Value {
    let version = match of.kind.group.as_str() {
        "" => of.kind.version.clone(),
        group => format!("{group}/{}", of.kind.version),
    };
    let mut object = json!({"apiVersion": version, "kind": of.kind.kind, "name": of.name});
    if let (Some(object), Some(namespace)) = (object.as_object_mut(), &of.namespace) {
        object.insert("namespace".to_owned(), Value::from(namespace.as_str()));
    }
    object
}

/// Seconds as a number without a point, where they are whole.
fn seconds(time: Duration) -> Number {
    let whole = || Number::from(time.as_secs());
    if time.subsec_nanos() == 0 {
        whole()
    } else {
        Number::from_f64(time.as_secs_f64()).unwrap_or_else(whole)
    }
}

/// A [`reference`] for people.
fn short(object: &Value) -> String {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    match text("namespace") {
        "" => format!("{} {}", text("kind"), text("name")),
        namespace => format!("{} {namespace}/{}", text("kind"), text("name")),
    }
}

// === impl Change ===

impl Change {
    /// A write as the output names it; none for events, which have a list of their own, and evictions, which are deletions.
    fn of(change: &write::Change) -> Option<Self> {
        let action = match change.action {
            Action::Create => "create",
            Action::Update | Action::Finalizers => "update",
            Action::Delete | Action::Evict => "delete",
            Action::Status => "status",
            Action::Event => return None,
        };
        let mut object = Value::clone(&change.object);
        drop_managed_fields(&mut object);
        Some(Self { action, object })
    }
}

// === impl Only ===

impl FromStr for Only {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let parts: Vec<&str> = text.split('/').collect();
        match parts.as_slice() {
            [kind, namespace, name] if !kind.is_empty() && !name.is_empty() => Ok(Self {
                kind: (*kind).to_owned(),
                namespace: (*namespace).to_owned(),
                name: (*name).to_owned(),
            }),
            _ => anyhow::bail!(
                "`--only {text}`: KIND/NAMESPACE/NAME is expected (KIND//NAME for cluster-scoped kinds)"
            ),
        }
    }
}

impl std::fmt::Display for Only {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.kind, self.namespace, self.name)
    }
}

impl Only {
    fn is_of(&self, object: &ObjectRef) -> bool {
        let namespace = object.namespace.as_deref().unwrap_or_default();
        self.kind == object.kind.kind && self.namespace == namespace && self.name == object.name
    }

    fn is(&self, object: &Value) -> bool {
        let text =
            |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        self.kind == text("/kind")
            && self.namespace == text("/metadata/namespace")
            && self.name == text("/metadata/name")
    }
}

// === impl End ===

impl End {
    /// The end with the values of Secrets masked, unless they are asked for.
    #[must_use]
    pub fn printable(&self, secrets: Secrets) -> Self {
        let mut end = self.clone();
        for object in
            end.objects.iter_mut().chain(end.changes.iter_mut().map(|change| &mut change.object))
        {
            *object = print::printable(object, secrets);
        }
        end
    }

    fn for_people(&self, secrets: Secrets) -> String {
        use std::fmt::Write as _;
        let keyed = |objects: &[Value]| {
            objects
                .iter()
                .filter(|object| !is_event(object))
                .map(|object| (print::title(object), object.clone()))
                .collect()
        };
        let mut text = print::difference(&keyed(&self.before), &keyed(&self.objects), secrets);
        for event in &self.events {
            let _ = writeln!(text, "{DIM}event{DIM:#} {}", print::event(event));
        }
        for again in &self.requeues {
            let _ = writeln!(
                text,
                "{DIM}again after {} s: {}{DIM:#}",
                again.after_seconds,
                short(&again.object)
            );
        }
        for failed in &self.failures {
            let _ =
                writeln!(text, "{RED}failed{RED:#} {}: {}", short(&failed.object), failed.message);
        }
        let _ = writeln!(
            text,
            "{BOLD}{} written, {} failed, {} {}{BOLD:#}",
            self.changes.len(),
            self.failures.len(),
            self.rounds,
            if self.rounds == 1 { "round" } else { "rounds" }
        );
        text
    }
}
