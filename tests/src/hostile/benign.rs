//! The neighbour that does no harm: ten changes a second, and how soon each of them is answered.

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
use mortise_host::{cluster::Cluster, desk};
use mortise_sdk::{
    Description, Manifest, Outcome, Reconciler, Selection, Verbs,
    kubernetes::{ConfigMap, Secret},
};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

use super::{GLANCE, attack::Rights};

/// The Processor, its account and its namespace.
pub(super) const NAME: &str = "benign";
/// What it holds on its objects.
pub(super) const FINALIZER: &str = "benign.mortise.dev/held";
pub(super) const RIGHTS: Rights = &[
    ("configmaps", "get list watch create patch"),
    ("secrets", "get list watch"),
    ("events", "create patch"),
];
/// How soon one change follows the other.
const PACE: Duration = Duration::from_millis(100);
/// How many objects are changed in turn.
const OBJECTS: u64 = 10;
/// What the answers are selected by.
const MADE: &str = "benign=made";

/// The changes, while they are made.
pub(super) struct Load {
    noted: Arc<Mutex<Notes>>,
    stopped: Arc<AtomicBool>,
    tasks: JoinSet<Result<()>>,
}

#[derive(Default)]
struct Notes {
    /// The last change of each object, by its number in all.
    seen: BTreeMap<u64, u64>,
    /// When each change was made that is not answered yet, by its number.
    sent: BTreeMap<u64, Instant>,
    answered: Vec<Duration>,
}

/// How the changes were answered.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// How long each took, in ascending order.
    pub times: Vec<Duration>,
    /// The changes that had no answer.
    pub lost: usize,
}

// === impl Answers ===

impl Answers {
    /// The time that this share of all stays below.
    pub fn at(&self, percent: usize) -> Duration {
        let last = self.times.len().saturating_sub(1);
        self.times.get(last * percent / 100).copied().unwrap_or_default()
    }
}

// === impl Load ===

impl Load {
    /// Begins to change the objects; numbers go on from that of a former load.
    pub(super) fn start(admin: &Cluster, first: u64) -> Self {
        let (noted, stopped) = (Arc::<Mutex<Notes>>::default(), Arc::<AtomicBool>::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(listen(admin.clone(), Arc::clone(&noted)));
        tasks.spawn(change(admin.clone(), first, Arc::clone(&noted), Arc::clone(&stopped)));
        Self { noted, stopped, tasks }
    }

    /// How many changes have been answered.
    pub(super) fn answered(&self) -> usize {
        lock(&self.noted).answered.len()
    }

    /// Forgets what was answered until now.
    pub(super) fn forget(&self) {
        lock(&self.noted).answered.clear();
    }

    /// Ends the changes, and waits so long for the answers.
    pub(super) async fn stop(mut self, patience: Duration) -> Result<Answers> {
        self.stopped.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        while !lock(&self.noted).sent.is_empty() && begun.elapsed() < patience {
            if let Some(ended) = self.tasks.try_join_next() {
                ended??;
            }
            tokio::time::sleep(GLANCE).await;
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
    let mut due = interval(PACE);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in first.. {
        due.tick().await;
        if stopped.load(Ordering::Relaxed) {
            break;
        }
        lock(&noted).sent.insert(number, Instant::now());
        desk::apply(&admin, vec![object(number)]).await.context("a change is not accepted")?;
    }
    Ok(())
}

/// Notes what is made for the objects.
async fn listen(admin: Cluster, noted: Arc<Mutex<Notes>>) -> Result<()> {
    let api: Api<Made> = Api::namespaced(admin.client().clone(), NAME);
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
    /// An answer to a change is one to the earlier ones of its object as well.
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

/// The object that a change is of, as it is then.
fn object(number: u64) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "namespace": NAME, "name": format!("b-{}", number % OBJECTS), "labels": {"benign": "yes"},
        },
        "data": {"sequence": number.to_string()},
    })
}

/// It applies, for each object, one that says the same number.
pub(super) fn processor() -> Value {
    let all = || Selection::of::<ConfigMap>().namespace(NAME);
    let reconciler = Reconciler::new("objects", all().labels("benign=yes")).finalizer(FINALIZER);
    let description = Description::new(NAME, "1.0.0")
        .reconciles(reconciler)
        // What it reads is kept for all who may read it.
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
