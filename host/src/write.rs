//! Carries out a [`Plan`]: server-side apply, one field manager per reconciled object.
//!
//! The order is: finalizers to be added; `apply`, by class; `patch`; `evict`; `delete`; `prune`; `status`; `events`; finalizers to be
//! taken away. All of one class is tried; if something failed, what comes after it is not done.
//!
//! *Guarantees*: what is so already is not sent. A plan that is carried out again, after a crash at any place too, leads to the
//! same state. What the API server answered is in the store before the next write is sent. Fields of another `mortise/` manager are
//! never taken. *Assumptions*: the plan comes from [`Plan::build`]; one key is carried out once at a time.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::Value;

use crate::{
    access::Rights,
    cluster::{Cluster, Refusal, Resource},
    contract::{self, Kind, ObjectRef, WriteFailure},
    grant::display_ref,
    outcome::{Class, Manifest, Plan, Reconciled},
    own_fields::Pair,
    queue::Key,
    store::Stores,
};

mod absent;
mod apply;
mod contention;
mod definition;
mod dispute;
mod event;
pub(crate) mod field_manager;
mod finalizer;
mod foresee;
mod leave;
mod live;
mod memory;
mod patch;
mod prune;
mod removal;
mod status;
mod take_over;

use contention::Contention;
use dispute::Disputes;
use event::Recorder;
use field_manager::FieldManagers;
use memory::{Identity, Memory, Place};

#[cfg(test)]
mod tests;

/// What the time is, for events.
pub type Clock = Arc<dyn Fn() -> jiff::Timestamp + Send + Sync>;

/// Writes for all processors.
pub struct Writer {
    stores: Stores,
    memory: Memory,
    contention: Contention,
    disputes: Disputes,
    recorder: Recorder,
}

/// On whose behalf a plan is carried out.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The key that ran.
    pub key: &'a Key,
    /// The namespace of the Processor.
    pub namespace: &'a str,
    /// The name of the Processor.
    pub processor: &'a str,
    /// The object that was reconciled.
    pub reconciled: &'a Reconciled,
    /// The field managers whose fields become ours when an object is applied the first time.
    pub take_over: &'a [String],
    /// What the processor's account may do; none: with the host's own rights.
    pub rights: Option<&'a Rights>,
}

/// What became of a plan.
#[derive(Debug, Default)]
pub struct Written {
    /// What was changed, in order.
    pub changes: Vec<Change>,
    /// How many writes were not sent because all was so already.
    pub skipped: usize,
    /// What was refused. If there is something, the processor is called once more at once with it.
    pub failures: Vec<WriteFailure>,
    /// Objects that are gone, or others by now, since they were read. Nothing later was done: the key has to read them again.
    pub stale: Vec<ObjectRef>,
    /// Namespaces that have to be gone first. That is no failure, but nothing later was done: the key has to run again.
    pub waits: Vec<String>,
    /// The kinds of objects of which fields were taken from others, one for each such write.
    pub forced: Vec<Kind>,
    /// What a person should know.
    pub warnings: Vec<String>,
    /// What was answered with 403: the kind, and the message.
    pub forbidden: Vec<(Kind, String)>,
    /// How long the API server asked to be left alone with what it refused.
    pub retry_after: Option<Duration>,
    /// What counts as read because it was written.
    pub wrote: Vec<Wrote>,
    /// What counts as read because it was pruned: the selection, and the manager of what has to go.
    pub pruned: Vec<(contract::Selection, String)>,
    /// The manager of the status, and what is its own of it now; none where there was none to write.
    pub status: Option<(String, Option<Pair>)>,
}

/// A change in the cluster.
#[derive(Clone, Debug)]
pub struct Change {
    /// What was done.
    pub action: Action,
    /// The object.
    pub of: ObjectRef,
    /// As the API server answered; of a deletion what was there last, as far as it is known.
    pub object: Arc<Value>,
}

/// A write that is not made, of a processor that only observes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withheld {
    /// What would be done.
    pub action: Action,
    /// To which object.
    pub of: ObjectRef,
}

/// What was done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// It was made.
    Create,
    /// Some of its fields were changed.
    Update,
    /// It was deleted, or is going to be gone when its finalizers are.
    Delete,
    /// A pod was evicted.
    Evict,
    /// Its status was changed.
    Status,
    /// Its finalizers were changed.
    Finalizers,
    /// An event was made or counted.
    Event,
}

/// A write that counts as a read: what is changed or deleted by others is to be written again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrote {
    /// The object.
    pub of: ObjectRef,
    /// The field manager.
    pub manager: String,
    /// What is ours now. None: only whether the object is there counts.
    pub own: Option<Pair>,
    /// Whether some of its fields must be absent.
    pub absent: bool,
}

/// Why a write was not done.
#[derive(Debug)]
enum Stop {
    Failed {
        refusal: Refusal,
        managers: Vec<String>,
    },
    /// It is no longer the object that was read.
    Stale,
    Terminating(String),
}

/// One plan that is being carried out.
struct Run<'a> {
    writer: &'a Writer,
    cluster: &'a Cluster,
    context: &'a Context<'a>,
    managers: FieldManagers,
    written: Written,
    /// Kinds that this plan has defined.
    defined: HashMap<Kind, Arc<Resource>>,
    /// The uids of what this plan has applied.
    uids: HashMap<Identity, String>,
    touched: HashSet<Place>,
    /// The reconciled object as it was answered last.
    latest: Option<Value>,
    forbidden: Mutex<Vec<(Kind, String)>>,
    /// Something failed that is not only a refused eviction.
    failed: bool,
}

// === impl Writer ===

impl Writer {
    /// A writer. What the API server answers goes into the stores.
    pub fn new(stores: Stores, clock: Clock) -> Self {
        Self {
            stores,
            memory: Memory::default(),
            contention: Contention::default(),
            disputes: Disputes::default(),
            recorder: Recorder::new(clock),
        }
    }

    /// Carries out a plan, with the rights of whom the cluster is told that it acts for. Never fails as a whole: what was refused is
    /// in the answer.
    pub async fn carry_out(
        &self,
        plan: &Plan,
        cluster: &Cluster,
        context: &Context<'_>,
    ) -> Written {
        let mut run = Run {
            writer: self,
            cluster,
            context,
            managers: FieldManagers::new(context),
            written: Written::default(),
            defined: HashMap::new(),
            uids: HashMap::new(),
            touched: HashSet::new(),
            latest: context.reconciled.object.clone(),
            forbidden: Mutex::default(),
            failed: false,
        };
        if !plan.is_report {
            self.disputes.begin(run.managers.identity(), context.key);
        }
        run.all(plan).await;
        run.written.forbidden = std::mem::take(run.forbidden.get_mut());
        run.written.warnings.extend(self.disputes.told_to(run.managers.identity()));
        run.written
    }

    /// What the keys of a processor and others want of the same fields.
    pub fn disputes_of(&self, processor: &str) -> Vec<String> {
        self.disputes.of(processor)
    }

    /// Remembers whose field managers these are, of a key that has not written in this start.
    pub fn introduce(&self, context: &Context<'_>) {
        self.disputes.begin(&field_manager::identity(context), context.key);
    }

    /// Forgets what was remembered of a reconciled object that is gone.
    pub fn forget(&self, context: &Context<'_>) {
        let identity = field_manager::identity(context);
        for (of, manager) in self.memory.forget(&identity) {
            self.stores.must_be_absent(&of, &manager, &[]);
        }
        self.disputes.forget(&identity);
    }
}

// === impl Run ===

impl Run<'_> {
    async fn all(&mut self, plan: &Plan) {
        let pruned = plan.prune.iter().map(|prune| (prune.of.clone(), self.managers.apply.clone()));
        self.written.pruned = pruned.collect();
        if self.everything(plan).await.is_some() && !plan.is_report {
            for (of, manager) in
                self.writer.memory.keep_only(self.managers.identity(), &self.touched)
            {
                self.writer.stores.must_be_absent(&of, &manager, &[]);
            }
        }
    }

    /// None if it was stopped.
    async fn everything(&mut self, plan: &Plan) -> Option<()> {
        self.add_finalizers(plan).await;
        self.go_on()?;
        for class in plan.apply.chunk_by(|one, next| one.class == next.class) {
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
        for manifest in &plan.patch {
            self.patch(manifest).await;
        }
        self.go_on()?;
        for eviction in &plan.evict {
            self.evict(eviction).await;
        }
        self.go_on()?;
        for deletion in &plan.delete {
            self.delete(deletion).await;
        }
        self.go_on()?;
        for prune in &plan.prune {
            self.prune(prune, plan).await;
        }
        self.go_on()?;
        self.status(plan).await;
        self.go_on()?;
        self.events(plan).await;
        self.remove_finalizers(plan).await;
        self.go_on()
    }

    /// Whether the next class may be begun. Where a namespace is going, what comes later would tell what is not true; but an
    /// object that is being deleted itself must not wait for what its own end has to make room for.
    fn go_on(&self) -> Option<()> {
        let waits = !self.written.waits.is_empty() && !self.context.reconciled.is_deleting();
        (!self.failed && !waits).then_some(())
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
                tracing::debug!(key = %self.context.key, object = display_ref(of), %refusal, "a write was refused");
                self.failed = true;
                if refusal.is_passing() {
                    self.written.retry_after = self.written.retry_after.max(refusal.retry_after);
                }
                self.written.failures.push(failure(action, of, refusal, managers));
            }
        }
    }

    fn changed(&mut self, action: Action, of: &ObjectRef, object: Value) {
        self.written.changes.push(Change { action, of: of.clone(), object: Arc::new(object) });
    }

    /// Lays the API server's answer into the store.
    fn store(&mut self, of: &ObjectRef, answer: &Value, sent: &Arc<Value>) {
        self.writer.stores.wrote(&of.kind, answer, self.context.key, sent);
        let Some(uid) = live::uid(answer) else { return };
        if self.context.reconciled.uid() == Some(uid) {
            self.latest = Some(answer.clone());
        }
        self.uids.insert(Identity::from(of), uid.to_owned());
    }

    fn wrote(&mut self, manifest: &Manifest, manager: &str, own: Option<Pair>) {
        self.written.wrote.push(Wrote {
            of: manifest.to.clone(),
            manager: manager.to_owned(),
            own,
            absent: !manifest.absent.is_empty(),
        });
    }
}

fn place(manager: &str, of: &ObjectRef) -> Place {
    Place { manager: manager.to_owned(), of: Identity::from(of) }
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
    /// Whether the run has failed. Evictions that a disruption budget refuses are an answer, not a failure.
    pub fn is_failure(&self) -> bool {
        self.failures.iter().any(|failure| !is_refused_eviction(failure))
    }
}

fn is_refused_eviction(failure: &WriteFailure) -> bool {
    failure.action == contract::Action::Evict && failure.code == 429
}

// === impl Stop ===

impl Stop {
    /// Of an object in a namespace that is terminating: it has to wait.
    fn of(refusal: Refusal, to: &ObjectRef) -> Self {
        match &to.namespace {
            Some(namespace) if refusal.code == 403 && refusal.has_cause("NamespaceTerminating") => {
                Self::Terminating(namespace.clone())
            }
            _ => Self::Failed { refusal, managers: Vec::new() },
        }
    }

    /// A fault that is found before something is sent.
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

impl fmt::Display for Action {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Evict => "evict",
            Self::Status => "status",
            Self::Finalizers => "finalizers",
            Self::Event => "event",
        })
    }
}
