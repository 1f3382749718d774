//! Carries out a checked outcome in the order of the contract.
//!
//! The host's rules, written small: what is so already is not sent, and nothing is asked again. What an apply, a default, a schema
//! or a deletion means is decided by the API.

mod apply;
mod event;
mod memory;
mod removal;

pub(super) use memory::Memory;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{Hash as _, Hasher as _},
};

use serde_json::{Value, json};

use super::{
    check::{Check, Finalizers, Plan, Reconciled, shown},
    cluster::{Answer, Cluster, Method, Refusal, encoded},
    identity::{Identity, named, text},
    path::Path,
    place,
};
use crate::{Action, ObjectRef, Selection, WriteFailure};

/// How the names of its field managers begin.
const OWNER: &str = "mortise/default";

/// One change of the cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// `create`, `update`, `status`, `finalizers`, `delete`, `evict` or `event`.
    pub action: &'static str,
    /// The object as it was answered; of what is gone, as it was.
    pub object: Value,
}

/// The field managers of one reconciled object.
pub(super) struct Managers {
    pub(super) apply: String,
    pub(super) initial: String,
    pub(super) patch: String,
    pub(super) status: String,
    pub(super) edit: String,
    /// What the names of no other key hold.
    mark: String,
    /// The marks of the keys that have run, and their names.
    others: BTreeMap<String, String>,
}

/// What counts as read because it was written.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wrote {
    pub(super) of: ObjectRef,
    pub(super) manager: String,
    /// None: only whether the object is there counts.
    pub(super) own: Option<place::Own>,
    /// What must not come back.
    pub(super) absent: Vec<Path>,
}

/// What was done to an object, to be laid over what was read of it.
#[derive(Debug, Clone)]
pub(super) enum Sent {
    Manifest(ObjectRef, Value),
    Deleted(ObjectRef),
}

/// What became of a plan.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) changes: Vec<Change>,
    pub(super) failures: Vec<WriteFailure>,
    /// Namespaces that have to be gone first.
    pub(super) waits: BTreeSet<String>,
    pub(super) wrote: Vec<Wrote>,
    pub(super) pruned: Vec<Selection>,
    pub(super) sent: Vec<Sent>,
}

/// Why a write was not done.
enum Stop {
    Failed(Refusal),
    Terminating(String),
}

/// A plan that is being carried out.
pub(super) struct Run<'a> {
    cluster: &'a Cluster,
    check: &'a Check<'a>,
    managers: &'a Managers,
    written: Written,
    uids: BTreeMap<Identity, String>,
    /// The reconciled object as it was answered last.
    latest: Option<Value>,
    /// Something failed that is not only a refused eviction.
    failed: bool,
    memory: &'a mut Memory,
    touched: BTreeSet<memory::Place>,
}

// === impl Managers ===

impl Managers {
    pub(super) fn new(processor: &str, reconciler: &str, of: &ObjectRef) -> Self {
        let identity = Identity::of_ref(of);
        // Two halves make as many digits as the host's own names have.
        let half = |half: u8| {
            let mut hasher = std::hash::DefaultHasher::new();
            (half, processor, reconciler, &identity).hash(&mut hasher);
            hasher.finish()
        };
        let mark = format!("{:016x}{:016x}", half(0), half(1));
        let name = |letter: char| format!("{OWNER}/{processor}/{letter}{mark}");
        Self {
            apply: name('a'),
            initial: format!("{}/initial", name('a')),
            patch: name('p'),
            status: name('s'),
            edit: name('e'),
            mark,
            others: BTreeMap::new(),
        }
    }

    /// The same, knowing how the keys of other marks are called; notes its own.
    pub(super) fn known(mut self, marks: &mut BTreeMap<String, String>, key: String) -> Self {
        marks.insert(self.mark.clone(), key);
        self.others.clone_from(marks);
        self
    }

    fn is_other(&self, manager: &str) -> bool {
        manager.starts_with("mortise/") && !manager.contains(&self.mark)
    }

    /// Whether another has applied, not only patched, what it manages.
    fn is_other_apply(&self, manager: &str) -> bool {
        let last = manager.trim_end_matches("/initial").rsplit('/').next().unwrap_or_default();
        self.is_other(manager) && last.starts_with('a')
    }
}

// === impl Run ===

impl<'a> Run<'a> {
    /// Carries out a plan.
    pub(super) fn carry_out(
        plan: &Plan,
        cluster: &'a Cluster,
        check: &'a Check<'a>,
        managers: &'a Managers,
        memory: &'a mut Memory,
    ) -> Written {
        let mut run = Self {
            cluster,
            check,
            managers,
            written: Written { pruned: plan.prune.clone(), ..Written::default() },
            uids: BTreeMap::new(),
            latest: check.reconciled.object.clone(),
            failed: false,
            memory,
            touched: BTreeSet::new(),
        };
        // Where it stopped is told by what failed.
        if run.everything(plan).is_some() && !plan.is_report {
            run.memory.keep_only(&managers.mark, &run.touched);
        }
        run.written
    }

    fn everything(&mut self, plan: &Plan) -> Option<()> {
        self.finalizers(plan, true);
        self.go_on()?;
        for class in plan.apply.chunk_by(|one, next| one.class == next.class) {
            for planned in class {
                self.apply(planned);
            }
            self.go_on()?;
        }
        plan.patch.iter().for_each(|planned| self.patch(planned));
        self.go_on()?;
        plan.evict.iter().for_each(|eviction| self.evict(eviction));
        self.go_on()?;
        plan.delete.iter().for_each(|deletion| self.delete(deletion));
        self.go_on()?;
        plan.prune.iter().for_each(|selection| self.prune(selection, plan));
        self.go_on()?;
        self.status(plan);
        self.go_on()?;
        plan.events.iter().for_each(|event| self.event(event));
        self.finalizers(plan, false);
        self.go_on()
    }

    /// Whether the next step may be begun. An object that is being deleted itself does not wait for a namespace to go.
    fn go_on(&self) -> Option<()> {
        let waits = !self.written.waits.is_empty() && !self.reconciled().is_deleting();
        (!self.failed && !waits).then_some(())
    }

    fn reconciled(&self) -> &'a Reconciled {
        self.check.reconciled
    }

    fn stopped(&mut self, action: Action, of: &ObjectRef, stop: Stop) {
        match stop {
            Stop::Terminating(namespace) => _ = self.written.waits.insert(namespace),
            Stop::Failed(refusal) => {
                self.failed |= !(action == Action::Evict && refusal.code == 429);
                let conflicting_managers = refusal.conflicting_managers();
                let Refusal { code, reason, message, .. } = refusal;
                self.written.failures.push(WriteFailure {
                    action,
                    ref_: of.clone(),
                    code,
                    reason,
                    message,
                    conflicting_managers,
                });
            }
        }
    }

    fn changed(&mut self, action: &'static str, object: Value) {
        self.written.changes.push(Change { action, object });
    }

    /// Notes what was sent, and what was answered.
    fn answered(&mut self, of: &ObjectRef, sent: Value, answer: &Value) {
        let uid = text(answer, "/metadata/uid");
        if self.reconciled().uid() == Some(uid) {
            self.latest = Some(answer.clone());
        }
        self.uids.insert(Identity::of_ref(of), uid.to_owned());
        self.written.sent.push(Sent::Manifest(of.clone(), sent));
    }

    /// The path to an object or its subresource, with the manager of a write.
    fn path(&self, of: &ObjectRef, subresource: &str, manager: &str) -> Result<String, Stop> {
        let resource = self.cluster.resource(&of.kind).ok_or_else(|| {
            let message = format!("the cluster does not know the kind of {}", shown(of));
            Stop::unsent(404, "NotFound", message)
        })?;
        let path = resource.path_of(of);
        Ok(format!("{path}{subresource}?fieldManager={}", encoded(manager)))
    }

    fn send(
        &self,
        method: Method,
        path: &str,
        body: &Value,
        of: &ObjectRef,
    ) -> Result<Answer, Stop> {
        self.cluster.send(method, path, Some(body)).map_err(|refusal| Stop::of(refusal, of))
    }

    // === status and finalizers ===

    fn status(&mut self, plan: &Plan) {
        let Some(status) = &plan.status else { return };
        let reconciled = self.reconciled();
        let of = &reconciled.reference;
        let is_there = |run: &Self| {
            let live = run.cluster.get(of);
            live.is_some_and(|live| Some(text(&live, "/metadata/uid")) == reconciled.uid())
        };
        // There is nobody to tell when the object has gone in between.
        if !is_there(self) {
            return;
        }
        let mut object = named(of, reconciled.uid());
        if let Some(object) = object.as_object_mut() {
            object.insert("status".to_owned(), status.clone());
        }
        let before = self.cluster.get(of);
        let manager = self.managers.status.clone();
        if self.is_so(of, "/status", &manager, &object) {
            return;
        }
        match self.apply_to(of, "/status", &manager, &object) {
            Ok(answer) => {
                if is_new(before.as_ref(), &answer.body) {
                    self.changed("status", answer.body.clone());
                }
                self.remember(of, "/status", &manager, (&object, &answer.body));
                self.answered(of, object, &answer.body);
            }
            Err(stop) => self.stopped(Action::Status, of, stop),
        }
    }

    /// Adds the finalizers that are wanted, or takes away those that are not.
    fn finalizers(&mut self, plan: &Plan, adds: bool) {
        let (Some(Finalizers { wanted, released }), Some(object)) =
            (&plan.finalizers, self.latest.clone())
        else {
            return;
        };
        let held: Vec<String> = object
            .pointer("/metadata/finalizers")
            .and_then(|held| serde_json::from_value(held.clone()).ok())
            .unwrap_or_default();
        let mut next = held.clone();
        if adds {
            next.extend(wanted.iter().filter(|name| !held.contains(name)).cloned());
        } else {
            next.retain(|name| !released.contains(name));
        }
        if next != held {
            let of = &self.reconciled().reference;
            if let Err(stop) = self.write_finalizers(of, &object, &next) {
                self.stopped(Action::Finalize, of, stop);
            }
        }
    }

    fn write_finalizers(
        &mut self,
        of: &ObjectRef,
        object: &Value,
        next: &[String],
    ) -> Result<(), Stop> {
        let Some(live) = self.cluster.get(of) else { return Ok(()) };
        if text(&live, "/metadata/uid") != text(object, "/metadata/uid") {
            return Ok(());
        }
        let path = self.path(of, "", &self.managers.edit)?;
        let operations = json!([{"op": "add", "path": "/metadata/finalizers", "value": next}]);
        let answer = self.send(Method::JsonPatch, &path, &operations, of)?.body;
        self.changed("finalizers", answer.clone());
        if self.cluster.get(of).is_none() {
            self.latest = None;
            self.written.sent.push(Sent::Deleted(of.clone()));
        } else {
            self.answered(of, json!({"metadata": {"finalizers": next}}), &answer);
        }
        Ok(())
    }
}

/// Whether an answer is another state than the one before it.
fn is_new(before: Option<&Value>, answer: &Value) -> bool {
    let version = |object: &Value| text(object, "/metadata/resourceVersion").to_owned();
    before.is_none_or(|before| version(before) != version(answer))
}

/// What of an object is a manager's, for what counts as read because it was written.
pub(super) fn own(cluster: &Cluster, of: &ObjectRef, manager: &str) -> Option<place::Own> {
    place::own(&cluster.get(of)?, manager, "")
}

/// What went wrong, on one line, in the host's words.
pub(super) fn describe(failures: &[WriteFailure]) -> String {
    let text = |failed: &WriteFailure| {
        let of = &failed.ref_;
        let namespace = of.namespace.as_ref().map(|namespace| format!("{namespace}/"));
        format!(
            "{} of {} {}{} failed ({}): {}",
            word(failed.action),
            of.kind.kind,
            namespace.unwrap_or_default(),
            of.name,
            failed.code,
            failed.message
        )
    };
    failures.iter().map(text).collect::<Vec<_>>().join("; ")
}

fn word(action: Action) -> &'static str {
    match action {
        Action::Apply => "apply",
        Action::Patch => "patch",
        Action::Evict => "eviction",
        Action::Delete => "deletion",
        Action::Prune => "pruning",
        Action::Finalize => "change of the finalizers",
        Action::Status => "status",
    }
}

// === impl Written ===

impl Written {
    /// Whether the run has failed. Evictions that a disruption budget refuses are an answer, not a failure.
    pub(super) fn is_failure(&self) -> bool {
        let is_answer =
            |failed: &WriteFailure| failed.action == Action::Evict && failed.code == 429;
        self.failures.iter().any(|failed| !is_answer(failed))
    }
}

// === impl Stop ===

impl Stop {
    fn of(refusal: Refusal, to: &ObjectRef) -> Self {
        match &to.namespace {
            Some(namespace) if refusal.code == 403 && refusal.has_cause("NamespaceTerminating") => {
                Self::Terminating(namespace.clone())
            }
            _ => Self::Failed(refusal),
        }
    }

    /// A fault that is found before something is sent.
    fn unsent(code: u16, reason: &str, message: String) -> Self {
        Self::Failed(Refusal { code, reason: reason.to_owned(), message, causes: Vec::new() })
    }

    fn not_found(of: &ObjectRef) -> Self {
        Self::unsent(404, "NotFound", format!("there is no {}", shown(of)))
    }
}
