//! Carries out a [`Plan`]: server-side apply, with field managers of their own for each reconciled
//! object.
//!
//! The order is: finalizers to be added; `apply`, by class; `patch`; `evict`; `delete`; `prune`;
//! `status`; `events`; finalizers to be removed. Every write of a step (in `apply`: of a class) is
//! tried; if one has failed, no later step is begun.
//!
//! *Guarantees*: a write that would change nothing is not sent. Carrying out a plan again, also
//! after a crash at any point, leads to the same state. The API server's answer is in the store
//! before the next write is sent. Fields of another `mortise/` manager are taken only if its key is
//! certainly gone.
//! *Assumptions*: the plan comes from [`Plan::build`]; at most one plan of a key is carried out at
//! a time.

mod absent;
mod apply;
mod conflict;
mod definition;
mod dry_run;
mod event;
mod finalizer;
mod key_conflict;
mod leave;
mod live;
mod memory;
mod patch;
mod prune;
mod removal;
mod status;
mod take_over;
#[cfg(test)]
mod tests;

pub use conflict::{MAX_TAKINGS, TAKINGS_PERIOD};

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;

use self::{
    conflict::Takings,
    event::Recorder,
    key_conflict::KeyConflicts,
    memory::{ManagedObject, Memory},
};
use crate::{
    api::{Api, Refusal},
    applied_fields::{
        Pair,
        manager::{self, FieldManagers, Home, Owner},
    },
    contract::{
        self, Kind, ObjectRef, SameObject, WriteFailure,
        bounds::{ENTRY, account_of},
        display_ref,
    },
    grant::rights::Rights,
    outcome::{Class, Manifest, Plan, Reconciled},
    queue::Key,
    resource::Resource,
    store::Stores,
};

/// The account of the answers of one run that are kept whole: four times the largest outcome.
/// Patches are small, and the objects that are answered large.
const MAX_ANSWER_BYTES: usize = 32 << 20;
/// The bytes of the texts of all failures of a run, which its processor is called with: an API
/// server elsewhere, or a webhook, chooses them.
const MAX_FAILURE_BYTES: usize = 1 << 20;
/// The message of a failure whose texts are beyond that bound.
const UNTOLD: &str = "refused; the run has too many failures to tell the reason of each";
/// The most warnings of one run.
const MAX_WARNINGS: usize = 100;
/// The most requests answered with 403 that are kept of a run, and the bytes of the message of
/// each: the rights that are checked again name kinds, so that few are different.
const MAX_FORBIDDEN: usize = 256;
const MAX_FORBIDDEN_BYTES: usize = 1024;

/// The source of the current time, for events.
pub type Clock = Arc<dyn Fn() -> jiff::Timestamp + Send + Sync>;

/// Decides whether the key of a field manager is gone.
pub trait FieldOwners: Send + Sync {
    /// Returns whether the key of one of our field managers is certainly gone: its Processor, its
    /// object or its reconciler no longer exists. Fields of such a manager have no owner.
    fn is_gone<'a>(&'a self, manager: &'a str) -> BoxFuture<'a, bool>;
}

/// Carries out the plans of all processors.
pub struct Writer {
    stores: Stores,
    /// Until this is set, no other key counts as gone.
    owners: OnceLock<Arc<dyn FieldOwners>>,
    memory: Memory,
    takings: Takings,
    key_conflicts: KeyConflicts,
    recorder: Recorder,
    home: Home,
}

/// The key, the processor and the object for which a plan is carried out.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub key: &'a Key,
    /// The namespace of the Processor.
    pub namespace: &'a str,
    /// The name of the Processor.
    pub processor: &'a str,
    pub reconciled: &'a Reconciled,
    /// The field managers whose fields the host takes over when it applies an object the first
    /// time.
    pub take_over: &'a [String],
    /// The rights of the processor's account; `None`: writes use the host's own rights.
    pub rights: Option<&'a dyn Rights>,
    /// True if the status of an outcome is the whole status of the reconciled object.
    pub whole_status: bool,
}

/// The result of carrying out a plan.
#[derive(Debug, Default)]
pub struct Written {
    /// The changes that were made, in order.
    pub changes: Vec<Change>,
    /// The number of writes that were not sent because they would have changed nothing.
    pub skipped: usize,
    /// The refused writes. If there are any, the processor is called once more at once with them.
    pub failures: Vec<WriteFailure>,
    /// The number of failures that are evictions which a disruption budget refuses.
    pub refused_evictions: usize,
    /// Objects that were deleted or recreated since they were read. No later step was begun: the
    /// key has to read them again.
    pub stale: Vec<ObjectRef>,
    /// Terminating namespaces that the writes wait for. Not a failure, but no later step was begun:
    /// the key has to run again.
    pub waits: Vec<String>,
    /// The kind of the object of each forced apply, which took fields from other managers.
    pub forced: Vec<Arc<Kind>>,
    /// The cluster of each event that was refused, which fails nothing.
    pub refused_events: Vec<Arc<str>>,
    /// Warnings for a person.
    pub warnings: Vec<String>,
    /// The first requests that were answered with 403: the kind, and the message.
    pub forbidden: Vec<(Kind, String)>,
    /// The longest time that the API server asked to wait before a refused write is sent again, if
    /// any.
    pub retry_after: Option<Duration>,
    /// The writes that count as reads of their objects.
    pub wrote: Vec<Wrote>,
    /// The prunes that count as reads: the selection, and the manager of the objects to be deleted.
    pub pruned: Vec<(contract::Selection, String)>,
    /// The manager of the status, and the digests of its own fields now; `None` if no status was
    /// written.
    pub status: Option<(String, Option<Pair>)>,
}

/// A change in the cluster. `Debug` does not print the object, which may be a credential.
#[derive(Clone)]
pub struct Change {
    /// The action that was taken.
    pub action: Action,
    pub of: ObjectRef,
    /// The object as the API server answered; for a deletion its last state, as far as it is known.
    /// Only its name, if the answers of the run take too much memory.
    pub object: Arc<Value>,
}

/// A write that is not made, since the processor only observes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withheld {
    /// The action that would be taken.
    pub action: Action,
    /// The object that would be written.
    pub of: ObjectRef,
}

/// An action on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The object was created.
    Create,
    /// Some fields of the object were changed.
    Update,
    /// The object was deleted, or will be gone when its finalizers are.
    Delete,
    /// A pod was evicted.
    Evict,
    /// The object's status was changed.
    Status,
    /// The object's finalizers were changed.
    Finalizers,
    /// An event was created or counted.
    Event,
}

/// A write that counts as a read: if others change or delete the object, the key has to write it
/// again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrote {
    pub of: ObjectRef,
    /// The field manager.
    pub manager: String,
    /// The digests of the manager's own fields now. `None`: only the existence of the object
    /// counts.
    pub own: Option<Pair>,
}

/// The reason why a write was not done.
#[derive(Debug)]
enum Stop {
    Failed {
        refusal: Refusal,
        managers: Vec<String>,
    },
    /// The object is no longer the one that was read.
    Stale,
    Terminating(String),
}

/// The state of a plan that is being carried out.
struct Run<'a> {
    writer: &'a Writer,
    api: &'a dyn Api,
    context: &'a Context<'a>,
    /// The managers of the fields of objects at home, whose identity is that of the key.
    managers: FieldManagers,
    /// The managers of the fields of objects in other clusters, from the first such object on.
    elsewhere: OnceLock<FieldManagers>,
    written: Written,
    /// Kinds that this plan has defined.
    defined: HashMap<Kind, Arc<Resource>>,
    /// The uids of the objects that this plan has applied.
    uids: HashMap<SameObject<ObjectRef>, String>,
    touched: HashSet<ManagedObject>,
    /// The answers of [`FieldOwners::is_gone`], by the identity of the field manager.
    gone: HashMap<String, bool>,
    /// The reconciled object as the API server answered last.
    latest: Option<Value>,
    /// The account of the answers that are kept, and the number of those that are not.
    answer_bytes: usize,
    more_answers: usize,
    /// The bytes of the texts of the failures.
    failure_bytes: usize,
    forbidden: Mutex<Vec<(Kind, String)>>,
    /// True if a write has failed, other than a refused eviction.
    failed: bool,
}

// === impl Change ===

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { action, of, object: _ } = self;
        f.debug_struct("Change").field("action", action).field("of", of).finish_non_exhaustive()
    }
}

// === impl Writer ===

impl Writer {
    /// Returns a writer that puts the API server's answers into the stores.
    pub fn new(stores: Stores, clock: Clock) -> Self {
        Self {
            stores,
            owners: OnceLock::new(),
            memory: Memory::default(),
            takings: Takings::default(),
            key_conflicts: KeyConflicts::default(),
            recorder: Recorder::new(clock),
            home: Home::default(),
        }
    }

    /// Returns the identity of the home cluster, which has to be set before the first write to
    /// another cluster.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Sets the source of answers about field managers of other keys. Only the first call has an
    /// effect.
    pub fn ask(&self, owners: Arc<dyn FieldOwners>) {
        _ = self.owners.set(owners);
    }

    /// Carries out a plan with the rights of the account that `api` acts as. Never fails as a
    /// whole: refused writes are in the result.
    pub async fn carry_out(&self, plan: &Plan, api: &dyn Api, context: &Context<'_>) -> Written {
        let mut run = Run {
            writer: self,
            api,
            context,
            managers: FieldManagers::new(&context.owner("")),
            elsewhere: OnceLock::new(),
            written: Written::default(),
            defined: HashMap::new(),
            uids: HashMap::new(),
            touched: HashSet::new(),
            gone: HashMap::new(),
            latest: context.reconciled.object.clone(),
            answer_bytes: 0,
            more_answers: 0,
            failure_bytes: 0,
            forbidden: Mutex::default(),
            failed: false,
        };
        if plan.is_report {
            self.key_conflicts.know(run.managers.identity(), context.key);
        } else {
            self.key_conflicts.begin(run.managers.identity(), context.key);
        }
        run.all(plan).await;
        run.written.forbidden = std::mem::take(run.forbidden.get_mut());
        let managers = [Some(&run.managers), run.elsewhere.get()].into_iter().flatten();
        let told = managers.flat_map(|of| self.key_conflicts.warnings_for(of.identity()));
        told.collect::<Vec<_>>().into_iter().for_each(|warning| run.warn(warning));
        if run.more_answers > 0 {
            run.warn(format!("{} written objects are shown by name only", run.more_answers));
        }
        run.written
    }

    /// Returns the open conflicts between keys of a processor and other keys of this host, in
    /// words.
    pub fn conflicts_of(&self, processor: &str) -> Vec<String> {
        self.key_conflicts.of(processor)
    }

    /// Returns the key with this identity of field managers, if it has run since the host started.
    pub fn key_behind(&self, identity: &str) -> Option<Key> {
        self.key_conflicts.key_behind(identity)
    }

    /// Returns the approximate bytes that are kept of the writes of a reconciled object.
    pub fn kept_bytes(&self, context: &Context<'_>) -> usize {
        self.memory.bytes(&manager::identity(&context.owner("")))
    }

    /// Forgets the writes of a reconciled object: they are compared with the API server's answers
    /// again, and no field counts as one that must be absent.
    pub fn forget_writes(&self, context: &Context<'_>) {
        self.forget_identity(&manager::identity(&context.owner("")));
    }

    /// Forgets the writes and conflicts of keys that are dropped without a last run.
    pub fn forget_keys(&self, which: impl Fn(&Key) -> bool) {
        for identity in self.key_conflicts.forget_all(which) {
            self.forget_identity(&identity);
        }
    }

    fn forget_identity(&self, identity: &str) {
        for (of, manager) in self.memory.forget(identity) {
            self.stores.must_be_absent(&of, &manager, &[]);
        }
    }

    /// Forgets the writes and conflicts of a reconciled object that is gone.
    pub fn forget(&self, context: &Context<'_>) {
        let identity = manager::identity(&context.owner(""));
        self.forget_identity(&identity);
        self.key_conflicts.forget(&identity);
        if let Some(home) = self.home.get() {
            self.key_conflicts.forget(&manager::identity(&context.owner(home)));
        }
    }
}

// === impl Context ===

impl Context<'_> {
    /// Returns the owner of the fields that the plan writes: of objects at home if `home` is empty,
    /// else of objects in other clusters.
    pub fn owner<'a>(&'a self, home: &'a str) -> Owner<'a> {
        let Self { key, namespace, processor, reconciled, .. } = self;
        let (reconciler, object) = (key.reconciler().name(), &reconciled.reference);
        Owner { namespace, processor, reconciler, object, home }
    }
}

// === impl Run ===

impl Run<'_> {
    async fn all(&mut self, plan: &Plan) {
        let manager = |of: &Kind| self.managers_in(&of.cluster).apply.clone();
        let pruned = plan.prune.iter().map(|prune| (prune.of.clone(), manager(&prune.of.kind)));
        self.written.pruned = pruned.collect();
        if self.everything(plan).await.is_some() && !plan.is_report {
            for (of, manager) in
                self.writer.memory.keep_only(self.managers.identity(), &self.touched)
            {
                self.writer.stores.must_be_absent(&of, &manager, &[]);
            }
        }
    }

    /// Carries out the plan; `None` if it was stopped.
    async fn everything(&mut self, plan: &Plan) -> Option<()> {
        // Fields by name, so that a new step does not compile until it is handled here.
        let Plan {
            finalizers: _,
            apply,
            patch,
            evict,
            delete,
            prune,
            status: _,
            events: _,
            requeue: _,
            start: _,
            is_report: _,
        } = plan;
        self.add_finalizers(plan).await;
        self.go_on()?;
        for class in apply.chunk_by(|one, next| one.class == next.class) {
            for manifest in class {
                self.apply(manifest).await;
            }
            if class.first().is_some_and(|manifest| manifest.class == Class::Definition)
                && !self.failed
            {
                self.establish(class).await;
            }
            self.go_on()?;
        }
        for manifest in patch {
            self.patch(manifest).await;
        }
        self.go_on()?;
        for eviction in evict {
            self.evict(eviction).await;
        }
        self.go_on()?;
        for deletion in delete {
            self.delete(deletion).await;
        }
        self.go_on()?;
        for prune in prune {
            self.prune(prune, plan).await;
        }
        self.go_on()?;
        self.status(plan).await;
        self.go_on()?;
        self.events(plan).await;
        self.remove_finalizers(plan).await;
        self.go_on()
    }

    /// Returns `None` if the next step must not be begun. While a namespace is terminating, later
    /// writes, such as the status, would be wrong; but a reconciled object that is being deleted
    /// must not wait for a namespace that may wait for that object.
    fn go_on(&self) -> Option<()> {
        let waits = !self.written.waits.is_empty() && !self.context.reconciled.is_deleting();
        (!self.failed && !waits).then_some(())
    }

    /// Returns the managers of the fields of objects in a cluster.
    fn managers_in(&self, cluster: &str) -> &FieldManagers {
        if cluster.is_empty() {
            return &self.managers;
        }
        self.elsewhere.get_or_init(|| {
            let home = self.writer.home.of_writes_to(cluster);
            let managers = FieldManagers::new(&self.context.owner(home));
            self.writer.key_conflicts.know(managers.identity(), self.context.key);
            managers
        })
    }

    /// Returns whether the key of another of our field managers, which has fields of an object in a
    /// cluster, is certainly gone. Cached for each run. In other clusters none is: it may be that of
    /// another home.
    async fn is_gone(&mut self, manager: &str, cluster: &str) -> bool {
        if !cluster.is_empty() {
            return false;
        }
        let (Some(owners), Some(parts)) = (self.writer.owners.get(), manager::parts(manager))
        else {
            return false;
        };
        let identity = parts.identity();
        if let Some(known) = self.gone.get(&identity) {
            return *known;
        }
        let is_gone = owners.is_gone(manager).await;
        self.gone.insert(identity, is_gone);
        is_gone
    }

    fn stopped(&mut self, action: contract::Action, of: &ObjectRef, stop: Stop) {
        match stop {
            Stop::Stale => {
                self.failed = true;
                self.written.stale.push(of.clone());
            }
            Stop::Terminating(namespace) => {
                if !self.written.waits.contains(&namespace) {
                    self.written.waits.push(namespace);
                }
            }
            Stop::Failed { refusal, managers } => {
                tracing::debug!(key = %self.context.key, object = display_ref(of), refusal = refusal.outline(), "a write was refused");
                self.failed = true;
                if refusal.is_passing() {
                    self.written.retry_after = self.written.retry_after.max(refusal.retry_after);
                }
                self.failed_with(failure(action, of, refusal, managers));
            }
        }
    }

    fn failed_with(&mut self, mut failure: WriteFailure) {
        let managers = failure.conflicting_managers.iter().map(|manager| ENTRY + manager.len());
        let bytes = failure.message.len() + managers.sum::<usize>();
        if self.failure_bytes + bytes > MAX_FAILURE_BYTES {
            UNTOLD.clone_into(&mut failure.message);
            failure.conflicting_managers = Vec::new();
        } else {
            self.failure_bytes += bytes;
        }
        self.written.failures.push(failure);
    }

    /// Adds a warning, of which a report shows the first few.
    fn warn(&mut self, warning: String) {
        if self.written.warnings.len() < MAX_WARNINGS {
            self.written.warnings.push(warning);
        }
    }

    fn changed(&mut self, action: Action, of: &ObjectRef, mut object: Value) {
        let bytes = account_of(&object);
        if self.answer_bytes + bytes > MAX_ANSWER_BYTES {
            self.more_answers += 1;
            object = live::named(of, None);
        } else {
            self.answer_bytes += bytes;
        }
        self.written.changes.push(Change { action, of: of.clone(), object: Arc::new(object) });
    }

    /// Puts the API server's answer into the store.
    fn store(&mut self, of: &ObjectRef, answer: &Value, sent: &Arc<Value>) {
        // Another cluster may answer with any object.
        if live::is_of(answer, of) {
            self.writer.stores.wrote(&of.kind, answer, self.context.key, sent);
        }
        let Some(uid) = live::uid(answer) else { return };
        let reconciled = &self.context.reconciled;
        if SameObject(of) == SameObject(&reconciled.reference) && reconciled.uid() == Some(uid) {
            self.latest = Some(answer.clone());
        }
        self.uids.insert(SameObject(of.clone()), uid.to_owned());
    }

    fn wrote(&mut self, manifest: &Manifest, manager: &str, own: Option<Pair>) {
        self.written.wrote.push(Wrote {
            of: manifest.to.clone(),
            manager: manager.to_owned(),
            own,
        });
    }
}

fn managed(manager: &str, of: &ObjectRef) -> ManagedObject {
    ManagedObject { manager: manager.to_owned(), of: SameObject(of.clone()) }
}

fn failure(
    action: contract::Action,
    of: &ObjectRef,
    refusal: Refusal,
    conflicting_managers: Vec<String>,
) -> WriteFailure {
    let Refusal { code, reason, message, .. } = refusal;
    WriteFailure { action, ref_: of.clone(), code, reason, message, conflicting_managers }
}

// === impl Written ===

impl Written {
    /// Returns whether the run has failed. An eviction that a disruption budget refuses is an
    /// answer, not a failure.
    pub fn is_failure(&self) -> bool {
        self.failures.len() > self.refused_evictions
    }
}

// === impl Stop ===

impl Stop {
    /// Returns the stop for a refused write: a wait if the object's namespace is terminating, else
    /// a failure.
    fn of(refusal: Refusal, to: &ObjectRef) -> Self {
        match &to.namespace {
            Some(namespace) if refusal.code == 403 && refusal.has_cause("NamespaceTerminating") => {
                Self::Terminating(namespace.clone())
            }
            _ => Self::Failed { refusal, managers: Vec::new() },
        }
    }

    /// Returns a failure that was found before a request was sent.
    fn unsent(code: u16, reason: &str, message: String) -> Self {
        Self::Failed {
            refusal: Refusal { code, reason: reason.to_owned(), message, ..Refusal::default() },
            managers: Vec::new(),
        }
    }

    fn not_found(of: &ObjectRef) -> Self {
        Self::unsent(404, "NotFound", format!("there is no {}", display_ref(of)))
    }
}

// === impl Action ===

impl Action {
    /// Returns the action as metrics, logs and reports name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Evict => "evict",
            Self::Status => "status",
            Self::Finalizers => "finalizers",
            Self::Event => "event",
        }
    }

    /// Returns whether the object is gone afterwards, or will be.
    pub fn is_removal(self) -> bool {
        match self {
            Self::Delete | Self::Evict => true,
            Self::Create | Self::Update | Self::Status | Self::Finalizers | Self::Event => false,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
