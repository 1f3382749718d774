//! The benign neighbour: changes ten objects a second, and measures how soon each change is
//! answered.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap as Made;
use kube::{
    Api,
    runtime::{WatchStreamExt as _, watcher},
};
use mortise::local;
use mortise_host::cluster::Cluster;
use mortise_sdk::{
    Description, Manifest, Outcome, Reconciler, Selection, Verbs,
    kubernetes::{ConfigMap, Secret},
};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

use super::{POLL_INTERVAL, attack::Rights, registry::TAG};

/// The name of the Processor, its account and its namespace.
pub(super) const NAME: &str = "benign";
/// The name of a Processor that pulls its module.
pub(super) const PULLER: &str = "puller";
/// The finalizer on its objects.
pub(super) const FINALIZER: &str = "benign.mortise.dev/held";
pub(super) const RIGHTS: Rights = &[
    ("configmaps", "get list watch create patch"),
    ("secrets", "get list watch"),
    ("events", "create patch"),
];
/// The interval of changes.
const CHANGE_INTERVAL: Duration = Duration::from_millis(100);
/// Number of objects, which are changed in turn.
const OBJECTS: u64 = 10;
/// The label selector of the answers.
const MADE: &str = "benign=made";

/// The tasks that make changes and watch for answers.
pub(super) struct Load {
    noted: Arc<Mutex<Notes>>,
    stopped: Arc<AtomicBool>,
    tasks: JoinSet<Result<()>>,
}

#[derive(Default)]
struct Notes {
    /// The last answered change of each object, by the object's number.
    seen: BTreeMap<u64, u64>,
    /// The time of each change that is not answered yet, by the change's number.
    sent: BTreeMap<u64, Instant>,
    answered: Vec<Duration>,
}

/// The answers to the changes.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// The time until each answer, in ascending order.
    pub times: Vec<Duration>,
    /// Number of changes without an answer.
    pub lost: usize,
}

// === impl Answers ===

impl Answers {
    /// Returns a percentile of the times.
    pub fn at(&self, percent: usize) -> Duration {
        let last = self.times.len().saturating_sub(1);
        self.times.get(last * percent / 100).copied().unwrap_or_default()
    }
}

// === impl Load ===

impl Load {
    /// Begins to change the objects; `first` continues the numbers of a former load.
    pub(super) fn start(admin: &Cluster, first: u64) -> Self {
        let (noted, stopped) = (Arc::<Mutex<Notes>>::default(), Arc::<AtomicBool>::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(listen(admin.clone(), Arc::clone(&noted)));
        tasks.spawn(change(admin.clone(), first, Arc::clone(&noted), Arc::clone(&stopped)));
        Self { noted, stopped, tasks }
    }

    /// Returns the number of answered changes.
    pub(super) fn answered(&self) -> usize {
        lock(&self.noted).answered.len()
    }

    /// Forgets the answers until now.
    pub(super) fn forget(&self) {
        lock(&self.noted).answered.clear();
    }

    /// Ends the changes, and waits at most `patience` for the missing answers.
    pub(super) async fn stop(mut self, patience: Duration) -> Result<Answers> {
        self.stopped.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        while !lock(&self.noted).sent.is_empty() && begun.elapsed() < patience {
            if let Some(ended) = self.tasks.try_join_next() {
                ended??;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let mut notes = lock(&self.noted);
        let mut times = std::mem::take(&mut notes.answered);
        times.sort();
        Ok(Answers { times, lost: notes.sent.len() })
    }
}

fn lock(notes: &Mutex<Notes>) -> MutexGuard<'_, Notes> {
    notes.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn change(
    admin: Cluster,
    first: u64,
    noted: Arc<Mutex<Notes>>,
    stopped: Arc<AtomicBool>,
) -> Result<()> {
    let mut due = interval(CHANGE_INTERVAL);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in first.. {
        due.tick().await;
        if stopped.load(Ordering::Relaxed) {
            break;
        }
        lock(&noted).sent.insert(number, Instant::now());
        local::apply(&admin, vec![object(number)]).await.context("a change is not accepted")?;
    }
    Ok(())
}

/// Watches the objects that the processor writes, and records them as answers.
async fn listen(admin: Cluster, noted: Arc<Mutex<Notes>>) -> Result<()> {
    let api: Api<Made> = Api::namespaced(admin.client().clone(), NAME);
    #[expect(clippy::disallowed_methods, reason = "a watch of the tests")]
    let events = watcher(api, watcher::Config::default().labels(MADE)).default_backoff();
    let mut made = std::pin::pin!(events.applied_objects());
    loop {
        let Ok(Some(object)) = made.try_next().await else { continue };
        let sequence = object.data.as_ref().and_then(|data| data.get("sequence")?.parse().ok());
        if let Some(sequence) = sequence {
            lock(&noted).answer(sequence);
        }
    }
}

// === impl Notes ===

impl Notes {
    /// Records an answer to a change, which also answers the earlier changes of the same object.
    fn answer(&mut self, number: u64) {
        let object = number % OBJECTS;
        let is_new = self.seen.insert(object, number).is_none_or(|last| last < number);
        if !is_new {
            return;
        }
        let answered: Vec<u64> = self
            .sent
            .range(..=number)
            .map(|(sent, _)| *sent)
            .filter(|sent| sent % OBJECTS == object)
            .collect();
        for number in answered {
            let sent = self.sent.remove(&number);
            self.answered.extend(sent.map(|sent| sent.elapsed()));
        }
    }
}

/// Returns the object of a change, in the state after the change.
fn object(number: u64) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "namespace": NAME, "name": format!("b-{}", number % OBJECTS), "labels": {"benign": "yes"},
        },
        "data": {"sequence": number.to_string()},
    })
}

/// Returns a Processor without objects, whose module is in the registry.
pub(super) fn puller(registry: &str) -> Value {
    let none = Selection::of::<ConfigMap>().namespace(NAME).labels("benign=none");
    let description =
        Description::new(PULLER, "1.0.0").reconciles(Reconciler::new("objects", none));
    json!({
        "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor",
        "metadata": {"namespace": NAME, "name": PULLER},
        "spec": {
            "module": {"image": format!("{registry}/puppet:{TAG}")}, "serviceAccountName": NAME,
            "onDelete": "Release", "config": {"description": description},
        },
    })
}

/// Returns the benign Processor. For each object it applies another one with the same number.
pub(super) fn processor() -> Value {
    let all = || Selection::of::<ConfigMap>().namespace(NAME);
    let reconciler = Reconciler::new("objects", all().labels("benign=yes")).finalizer(FINALIZER);
    let description = Description::new(NAME, "1.0.0")
        .reconciles(reconciler)
        // The host stores what the Processor reads for all that may read it.
        .reads(all())
        .reads(Selection::of::<Secret>().namespace(NAME))
        .writes(all(), Verbs::CREATE | Verbs::UPDATE);
    let made = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": NAME, "name": "made-$(name)", "labels": {"benign": "made"}},
        "data": {"sequence": "$(sequence)"},
    });
    let outcome = Outcome::new().apply(Manifest::json(&made));
    json!({
        "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor",
        "metadata": {"namespace": NAME, "name": NAME},
        "spec": {
            "module": {"path": "puppet.wasm"}, "serviceAccountName": NAME, "onDelete": "Release",
            "config": {"description": description, "script": {"returns": {"outcome": outcome}}},
        },
    })
}
