//! Reconciles against clusters in memory by the host's own rules: one run, or all due keys.
//!
//! A [`Driver`] replaces the watches, tasks and runtime of `mortise-host`: it feeds the stores with
//! the events of a watch, runs one key after the other in the order of the keys, and moves the
//! queue's clock with that of the cluster.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap, fmt::Write as _, marker::PhantomData, pin::pin, sync::Arc,
    time::Duration,
};

use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use mortise_core::{
    contract,
    dispatch::Dispatch,
    grant::{DeclaredReconciler, Grant, Selected},
    outbound::Outbound,
    queue::{Cause, Key, Priority, ReconcilerId},
    reconcile::{self, Call as _, Parts, Reconciler, Settings, Setup, StartedReconciler},
    store::{Scope, Stores, Wanted},
    write::Clock,
};
use mortise_embedded_api::{Change as Seen, News};
use parking_lot::Mutex;
use serde_json::Value;

use super::{
    Line, Read, Stub,
    cluster::Cluster,
    clusters::Clusters,
    identity::{Identity, Pattern},
    native::{Journal, Native},
    outbound::{Client, granted},
};
use crate::{
    Description, Failure, Kind, ObjectRef, Outcome, Processor, Selection, Start,
    selection::display_kind,
};

/// The most runs of a key until nothing is due: a key that is due more often does not come to rest.
pub const MAX_RUNS: usize = 50;
/// The most polls of a run, each of which ends at a pause of its reads.
const MAX_POLLS: usize = 1 << 20;

/// The namespace in the names of field managers, as in `mortise dev` and `mortise test`.
const NAMESPACE: &str = "default";

/// The result of one reconcile.
#[derive(Debug, Clone)]
pub struct Run {
    /// The answer of the processor; `None` if it was not called.
    pub outcome: Option<Result<Outcome, Failure>>,
    /// The changes that were made, in order.
    pub changes: Vec<Change>,
    /// The reads of the processor.
    pub reads: Vec<Read>,
    /// The log of the processor.
    pub log: Vec<Line>,
    /// The reason of the failure, if the run failed: the processor said so, its outcome is not
    /// valid, or a write was refused.
    pub failure: Option<String>,
    /// The requeue delay of the key, if any; `None` after a failure that is retried with back-off.
    pub again: Option<Duration>,
}

/// A change of a cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// `create`, `update`, `status`, `finalizers`, `delete`, `evict` or `event`.
    pub action: &'static str,
    /// The name of the cluster; empty for the home cluster.
    pub cluster: String,
    /// The object as the API answered; of a deleted object, its last state.
    pub object: Value,
}

/// The result of reconciles until nothing was due any more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settled {
    /// The requeue delays of the keys, counted from their last run.
    pub requeues: BTreeMap<String, SignedDuration>,
    /// The keys whose last run failed, and the reason.
    pub failures: BTreeMap<String, String>,
    /// The number of runs.
    pub runs: usize,
}

/// Whether the next run of an object has the note of the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notes {
    Kept,
    /// All notes are forgotten before each run.
    Forgotten,
}

/// The host's rules over clusters in memory.
pub(super) struct Driver {
    clusters: Clusters,
    parts: Parts,
    journal: Arc<Mutex<Journal>>,
    /// The most objects of a page.
    page: u32,
    notes: Notes,
    client: Arc<Client>,
    /// The grants of calls to the outside; `None`: all that is declared.
    granted: Option<Vec<contract::OutboundRule>>,
    /// The former field managers whose fields are taken over.
    take_over: Arc<[String]>,
    watches: Vec<Watch>,
    /// The processor that was called last.
    version: Option<Version>,
    /// The time to which the queue's clock was moved.
    now: Timestamp,
    settled: Settled,
}

/// A kind that is watched within a scope.
struct Watch {
    kind: contract::Kind,
    scope: Scope,
    wanted: Wanted,
    /// True if only a started reconciler needs it, and it is closed when that is stopped.
    is_started: bool,
    /// The revision up to which the store has the changes; `None` before the list.
    revision: Option<u64>,
}

/// A processor with its configuration.
struct Version {
    /// The name of the Rust type.
    processor: &'static str,
    config: String,
    reconciler: Reconciler,
    description: contract::Description,
}

/// Returns the name of a key in a case: that of its object, with the cluster unless it is the home
/// cluster, and with the reconciler if several of the processor are for that kind.
pub fn title(
    of: &contract::ObjectRef,
    reconciler: &str,
    description: &contract::Description,
) -> String {
    let mut title = Identity::of_ref(&of.clone().into()).to_string();
    if !of.kind.cluster.is_empty() {
        let _ = write!(title, " in {}", of.kind.cluster);
    }
    if reconcilers_of(&of.kind, description).count() > 1 {
        let _ = write!(title, " ({reconciler})");
    }
    title
}

/// Returns the reconcilers that may be for a kind.
fn reconcilers_of<'a>(
    kind: &'a contract::Kind,
    description: &'a contract::Description,
) -> impl Iterator<Item = &'a contract::Reconciler> {
    let is = |declared: &str, text: &str| declared == "*" || declared == text;
    let fits = move |of: &contract::Kind| {
        is(&of.kind, &kind.kind) && is(&of.group, &kind.group) && is(&of.cluster, &kind.cluster)
    };
    description.reconcilers.iter().filter(move |one| fits(&one.of.kind))
}

// === impl Stub ===

impl Stub {
    /// Reconciles one object once, whether it is due or not. With the first call, the objects, the
    /// CRDs and the time of the stub are put into a cluster in memory, which is read and written
    /// from then on.
    ///
    /// # Panics
    ///
    /// If the processor refuses the configuration, if no reconciler is for the object's kind, or if
    /// the API refuses the stub's own objects.
    pub fn reconcile<P: Processor>(&self, object: &ObjectRef, config: &str) -> Run {
        let mut state = self.state.lock();
        state
            .driver::<P>(config)
            .and_then(|driver| driver.reconcile(object))
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Reconciles all objects of the processor until none is due. Due are objects that were never
    /// reconciled, those whose reconcile has read or written objects that have changed since, and
    /// those whose requeue delay is over.
    ///
    /// # Panics
    ///
    /// In the same cases as [`Stub::reconcile`], and if the reconciles do not come to rest.
    pub fn settle<P: Processor>(&self, config: &str) -> Settled {
        self.try_settle::<P>(config, None).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Reconciles one object until it is not due any more, as [`Stub::settle`] does with all.
    ///
    /// # Panics
    ///
    /// In the same cases as [`Stub::settle`].
    pub fn settle_one<P: Processor>(&self, object: &ObjectRef, config: &str) -> Settled {
        let Identity { kind, group, namespace, name } = Identity::of_ref(object);
        let only = Pattern { kind, group: Some(group), namespace, name };
        self.try_settle::<P>(config, Some(&only)).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Returns what runs on demand: the selections that the last outcomes ask for, ordered by
    /// reconciler, kind and cluster.
    pub fn started(&self) -> Vec<Start> {
        let state = self.state.lock();
        let version = state.driver.as_ref().and_then(|driver| driver.version.as_ref());
        let started = version.map(|version| version.reconciler.started()).unwrap_or_default();
        let start = |id: &ReconcilerId, of: &Selected| Start {
            reconciler: id.name().to_owned(),
            of: of.of.clone().into(),
        };
        let of = |of: &StartedReconciler| -> Vec<Start> {
            of.selections.iter().map(|selected| start(&of.id, selected)).collect()
        };
        let mut started: Vec<Start> = started.iter().flat_map(of).collect();
        let place = |start: &Start| {
            let Selection { namespace, name, labels, .. } = &start.of;
            (namespace.clone(), name.clone(), labels.clone())
        };
        // Those of one reconciler and kind are in no order.
        started.sort_by_cached_key(place);
        let of_kind = |start: &Start| {
            let Kind { group, version, kind } = &start.of.kind;
            let key = [&start.reconciler, &start.of.cluster, group, version, kind];
            key.map(String::clone)
        };
        started.sort_by_cached_key(of_kind);
        started
    }

    pub(super) fn try_settle<P: Processor>(
        &self,
        config: &str,
        only: Option<&Pattern>,
    ) -> Result<Settled, String> {
        self.state.lock().driver::<P>(config)?.settle(only)
    }
}

// === impl Driver ===

impl Driver {
    pub(super) fn new(
        clusters: Clusters,
        (client, granted): (Arc<Client>, Option<Vec<contract::OutboundRule>>),
        journal: &Arc<Mutex<Journal>>,
        (page, notes): (u32, Notes),
        take_over: Arc<[String]>,
    ) -> Self {
        let dispatch = Arc::new(Dispatch::new(&Stores::new()));
        dispatch.queue().stand_still();
        let (now, clock) = (clusters.home().now(), clusters.home().clone());
        let clock: Clock = Arc::new(move || clock.now());
        let parts = Parts::new(&dispatch, Arc::new(clusters.clone()), &clock);
        parts.writer.home().set(&clusters.home().uid());
        let journal = Arc::clone(journal);
        Self {
            clusters,
            parts,
            journal,
            page,
            notes,
            client,
            granted,
            take_over,
            watches: Vec::new(),
            version: None,
            now,
            settled: Settled::default(),
        }
    }

    /// Returns whether this processor was loaded last, with this configuration.
    pub(super) fn has_loaded<P: Processor>(&self, config: &str) -> bool {
        let name = std::any::type_name::<P>();
        self.version.as_ref().is_some_and(|it| it.processor == name && it.config == config)
    }

    /// Loads a processor with its configuration, in place of the one before. All its keys are due.
    pub(super) fn load<P: Processor>(
        &mut self,
        description: &Description,
        config: &str,
    ) -> Result<(), String> {
        let description = contract::Description::from(description.clone());
        let grant = Grant::new(&description).map_err(|error| error.to_string())?;
        let wanted = grant.wanted().to_vec();
        let call = Native::<P> {
            journal: Arc::clone(&self.journal),
            client: Arc::clone(&self.client),
            page: self.page,
            processor: PhantomData,
        };
        let identity = reconcile::Version {
            processor: name_of(&description),
            version: description.version.clone(),
            digest: call.digest(),
            libraries: Arc::default(),
        };
        let setup = Setup {
            identity: Arc::new(identity),
            call: Arc::new(call),
            description: Arc::new(description.clone()),
            config: config.into(),
            settings: Settings {
                take_over: Arc::clone(&self.take_over),
                ..Settings::in_namespace(NAMESPACE)
            },
            grant: Arc::new(grant),
            api: Arc::new(self.clusters.clone()),
            rights: None,
            outbound: Some(Arc::clone(&self.client) as Arc<dyn Outbound>),
            egress: granted(self.granted.as_ref().unwrap_or(&description.outbound))?,
        };
        let reconciler = Reconciler::new(setup, self.parts.clone());
        for (kind, scope, wanted) in wanted {
            self.watch(kind, scope, &wanted, false);
        }
        self.see();
        self.put(&reconciler, &description.name);
        let (processor, config) = (std::any::type_name::<P>(), config.to_owned());
        self.version = Some(Version { processor, config, reconciler, description });
        self.follow();
        self.see();
        Ok(())
    }

    fn watch(&mut self, kind: contract::Kind, scope: Scope, wanted: &Wanted, is_started: bool) {
        let must_list = self.parts.dispatch.stores().open(&kind, &scope, wanted).is_some();
        if let Some(watch) = self.watches.iter_mut().find(|watch| watch.is(&kind, &scope)) {
            watch.is_started &= is_started;
            watch.wanted = watch.wanted.union(wanted);
            watch.revision = watch.revision.filter(|_| !must_list);
            return;
        }
        let (wanted, revision) = (wanted.clone(), None);
        self.watches.push(Watch { kind, scope, wanted, is_started, revision });
    }

    /// Opens the watches of the reconcilers that are started, and closes those of stopped ones.
    fn follow(&mut self) {
        let Some(version) = &self.version else { return };
        let started = version.reconciler.started().into_iter().flat_map(|started| started.watches);
        let started: Vec<_> = started.collect();
        for (kind, scope, wanted) in &started {
            self.watch(kind.clone(), scope.clone(), wanted, true);
        }
        let stores = self.parts.dispatch.stores();
        self.watches.retain(|watch| {
            let stays =
                !watch.is_started || started.iter().any(|(kind, scope, _)| watch.is(kind, scope));
            if !stays {
                stores.close(&watch.kind, &watch.scope);
            }
            stays
        });
    }

    /// Feeds the stores with all changes in the clusters, and queues the triggered keys.
    pub(super) fn see(&mut self) {
        let stores = self.parts.dispatch.stores();
        for watch in &mut self.watches {
            match self.clusters.readable(&watch.kind) {
                Ok(cluster) => watch.see(cluster, stores),
                Err(why) => watch.break_off(&why, stores),
            }
        }
        self.parts.dispatch.feed();
    }

    /// Queues a key for every object of the reconcilers. The keys of another processor are dropped;
    /// keys of another configuration forget their failures, as at a swap.
    fn put(&self, reconciler: &Reconciler, name: &str) {
        let former = self.version.as_ref().map(|former| (name_of(&former.description), former));
        if let Some((other, _)) = former.as_ref().filter(|(former, _)| **former != *name) {
            self.parts.dispatch.remove(other);
        }
        let former = former.filter(|(former, _)| **former == *name);
        let former = former.map(|(_, former)| &former.reconciler);
        reconciler.put(former, || ());
    }

    fn reconcile(&mut self, object: &ObjectRef) -> Result<Run, String> {
        let Some(version) = &self.version else { return Err("no processor is loaded".to_owned()) };
        let description = &version.description;
        let of = contract::ObjectRef::from(object.clone());
        let mut reconcilers = version.reconciler.reconcilers();
        let is_its = |one: &Arc<DeclaredReconciler>| one.spec.of.kind.is_same(&of.kind);
        let reconciler = reconcilers.find(is_its).ok_or_else(|| {
            let (processor, kind) = (&description.name, display_kind(&object.kind));
            format!("no reconciler of `{processor}` is for the kind {kind}, or started for it")
        })?;
        let (name, namespace) = (name_of(description), object.namespace.as_deref());
        let key = Key::new(&name, &reconciler.id, namespace, &object.name);
        drop(reconcilers);
        self.catch_up();
        self.parts.dispatch.queue().add(&key, Cause::Start, Priority::Change);
        self.run(&key).ok_or_else(|| format!("{key} is not ready"))
    }

    fn settle(&mut self, only: Option<&Pattern>) -> Result<Settled, String> {
        let mut runs: BTreeMap<Key, usize> = BTreeMap::new();
        self.catch_up();
        while let Some(key) = self.next(only) {
            let of_key = runs.entry(key.clone()).or_default();
            if *of_key == MAX_RUNS {
                return Err(format!("no rest: {key} is due again after {MAX_RUNS} runs"));
            }
            *of_key += 1;
            self.run(&key);
        }
        self.settled.runs = runs.values().sum();
        Ok(self.settled.clone())
    }

    /// Catches up with the changes, and with the time that has passed, since the last run.
    fn catch_up(&mut self) {
        let now = self.clusters.home().now();
        let passed = Duration::try_from(now.duration_since(self.now)).unwrap_or_default();
        self.now = now;
        self.parts.dispatch.queue().advance(passed);
        self.see();
    }

    /// Returns the first key that is due, in the order of the keys.
    fn next(&self, only: Option<&Pattern>) -> Option<Key> {
        let is_meant = |key: &Key| {
            let of = |key| Some(Identity::of_ref(&self.object(key)?.into()));
            only.is_none_or(|only| of(key).is_some_and(|of| only.matches(&of)))
        };
        self.parts.dispatch.queue().ready().into_iter().find(is_meant)
    }

    fn object(&self, key: &Key) -> Option<contract::ObjectRef> {
        self.version.as_ref()?.reconciler.object_of(key)
    }

    pub(super) fn forget_notes(&self) {
        self.parts.dispatch.queue().forget_notes();
    }

    /// Runs a key that is due.
    fn run(&mut self, key: &Key) -> Option<Run> {
        let version = self.version.as_ref()?;
        let dispatch = Arc::clone(&self.parts.dispatch);
        if self.notes == Notes::Forgotten {
            self.forget_notes();
        }
        let mut run = dispatch.queue().take_key(key)?;
        let (first_read, first_line) = {
            let mut journal = self.journal.lock();
            journal.outcome = None;
            (journal.reads.len(), journal.lines.len())
        };
        // With its last run, a reconciler may be stopped, which tells nothing of its objects then.
        let of = version.reconciler.object_of(key);
        let (report, ended) = finished(version.reconciler.run(&mut run));
        dispatch.done(key, ended.done, ended.causes);
        if let Some(of) = of {
            let title = title(&of, key.reconciler().name(), &version.description);
            self.settled.ran(&title, report.again, report.failure.clone());
        }
        for demand in ended.demands {
            // The first scope is the widest that is declared.
            if let Some(scope) = demand.scopes.into_iter().next() {
                self.watch(demand.kind, scope, &demand.wanted, false);
            }
        }
        if ended.starts {
            self.follow();
        }
        self.see();
        let journal = self.journal.lock();
        let change = |change: &mortise_core::write::Change| Change {
            action: change.action.name(),
            cluster: change.of.kind.cluster.to_string(),
            object: Value::clone(&change.object),
        };
        Some(Run {
            outcome: journal.outcome.clone(),
            changes: report.changes.iter().map(change).collect(),
            reads: journal.reads.get(first_read..).unwrap_or_default().to_vec(),
            log: journal.lines.get(first_line..).unwrap_or_default().to_vec(),
            failure: report.failure,
            again: report.again,
        })
    }
}

/// Runs a future to its end, which pauses, but waits for nothing.
pub(super) fn finished<T>(run: impl Future<Output = T>) -> T {
    let mut run = pin!(run);
    let done = (0..MAX_POLLS).find_map(|_| run.as_mut().now_or_never());
    done.expect("a native call and an API in memory never wait")
}

/// Returns the name of a processor in its keys.
fn name_of(description: &contract::Description) -> Arc<str> {
    description.name.as_str().into()
}

// === impl Watch ===

impl Watch {
    fn is(&self, kind: &contract::Kind, scope: &Scope) -> bool {
        (&self.kind, &self.scope) == (kind, scope)
    }

    /// Ends the watch until the kind can be read again: reads have no answer meanwhile.
    fn break_off(&mut self, why: &str, stores: &Stores) {
        if self.revision.take().is_some() {
            stores.close(&self.kind, &self.scope);
            stores.open(&self.kind, &self.scope, &self.wanted);
        }
        stores.set_unavailable(&self.kind, why);
    }

    /// Feeds the store with the watch events since the last call.
    fn see(&mut self, cluster: &Cluster, stores: &Stores) {
        let contract::Kind { cluster: _, group, version, kind } = &self.kind;
        let update = match cluster.api().changes_since(group, version, kind, self.revision) {
            Ok(Some(update)) => update,
            Ok(None) => {
                stores.set_unknown(&self.kind, &self.scope);
                self.revision = None;
                return;
            }
            Err(failure) => return stores.set_unavailable(&self.kind, failure.message()),
        };
        let Some(feed) = stores.feed(&self.kind, &self.scope) else { return };
        self.revision = Some(update.revision);
        match update.news {
            News::List(objects) => {
                feed.begin_list();
                for object in objects.iter().filter(|object| self.scope.holds(object)) {
                    feed.list_item(object);
                }
                feed.end_list();
            }
            News::Changes(changes) => {
                for change in changes {
                    match change {
                        Seen::Stored(object) if self.scope.holds(&object) => feed.upsert(&object),
                        Seen::Stored(object) | Seen::Deleted(object) => feed.delete(&object),
                    }
                }
            }
        }
    }
}

// === impl Settled ===

impl Settled {
    /// Records the end of a run of a key.
    pub fn ran(&mut self, title: &str, again: Option<Duration>, failure: Option<String>) {
        let again = again.and_then(|again| SignedDuration::try_from(again).ok());
        set(&mut self.requeues, title, again);
        set(&mut self.failures, title, failure);
    }
}

fn set<T>(map: &mut BTreeMap<String, T>, key: &str, value: Option<T>) {
    match value {
        Some(value) => _ = map.insert(key.to_owned(), value),
        None => _ = map.remove(key),
    }
}
