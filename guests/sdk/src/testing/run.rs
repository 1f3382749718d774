//! Reconciles against a cluster in memory: one run, or all that is due.

mod key;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::SignedDuration;
use serde_json::Value;

use super::{
    Line, Read, State, Stub,
    check::{Check, Plan, Reconciled},
    cluster::Cluster,
    identity::{Identity, Pattern},
    known::{Known, Query, answer, is_of, without_any},
    place::{self, lay_over},
    write::{self, Change, Managers, Sent, Written},
};
use crate::{
    Description, Event, Failure, Kind, ObjectRef, Outcome, Processor, Reconciler, Request, Requeue,
    Retry, processor,
};

pub use key::title;
use key::{Answer, Asked, Done, fields, prunable};
pub(super) use key::{Key, Ran};

/// A key that is due so often in one go does not come to rest.
pub const MOST_RUNS: usize = 50;
/// Stops the reconciles of an object while it is `true`.
const PAUSED: &str = "mortise.dev/paused";
/// When a key comes back that waits for a namespace to go, in milliseconds.
const TERMINATING: Option<u64> = Some(1000);
/// How much of a message the event of a failed processor holds.
const EVENT_MESSAGE: usize = 1000;

/// What came of one reconcile.
#[derive(Debug, Clone)]
pub struct Run {
    /// What the processor returned; none if it was not called.
    pub outcome: Option<Result<Outcome, Failure>>,
    /// What was changed, in order.
    pub changes: Vec<Change>,
    /// What was read.
    pub reads: Vec<Read>,
    /// What was logged.
    pub log: Vec<Line>,
    /// Why it failed: the processor said so, its outcome is not valid, or a write was refused.
    pub failure: Option<String>,
    /// When it runs again though nothing changes. After a failure whose retry is a back-off: none.
    pub again: Option<Duration>,
}

/// What came of reconciles until nothing was due any more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settled {
    /// The keys that run again though nothing changes, and when after their last run.
    pub requeues: BTreeMap<String, SignedDuration>,
    /// The keys whose last run failed, and why.
    pub failures: BTreeMap<String, String>,
    /// How many runs there were.
    pub runs: usize,
}

/// One run on its way.
struct Turn<'a> {
    stub: &'a Stub,
    cluster: &'a Cluster,
    check: Check<'a>,
    managers: Managers,
    ran: Ran,
    run: Run,
    sent: Vec<Sent>,
}

// === impl Stub ===

impl Stub {
    /// Reconciles one object once, whether it is due or not. The objects, the CRDs and the time of the stub are put into a cluster
    /// in memory with the first call; from then on that is what is read and written.
    ///
    /// # Panics
    ///
    /// If the configuration does not suit the processor, no reconciler is for the object's kind, or the API refuses the stub's own
    /// objects.
    pub fn reconcile<P: Processor>(&self, object: &ObjectRef, config: &str) -> Run {
        let description = self.begin::<P>(config).unwrap_or_else(|error| panic!("{error}"));
        let reconcilers = &description.reconcilers;
        let reconciler =
            reconcilers.iter().find(|reconciler| is_of(&reconciler.of.kind, &object.kind));
        let reconciler = reconciler.unwrap_or_else(|| {
            panic!("no reconciler of `{}` is for the kind `{}`", description.name, object.kind.kind)
        });
        let key = Key {
            reconciler: reconciler.name.clone(),
            namespace: object.namespace.clone().unwrap_or_default(),
            name: object.name.clone(),
        };
        self.run::<P>(&description, &key, config)
    }

    /// Reconciles all objects that the processor is for until nothing is due any more: what was never run, what has read or written
    /// something that is another now, and what asked to be called again by now.
    ///
    /// # Panics
    ///
    /// As [`Stub::reconcile`], and if it does not come to rest.
    pub fn settle<P: Processor>(&self, config: &str) -> Settled {
        self.try_settle::<P>(config, None).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(super) fn try_settle<P: Processor>(
        &self,
        config: &str,
        only: Option<&Pattern>,
    ) -> Result<Settled, String> {
        let description = self.begin::<P>(config)?;
        let mut runs = BTreeMap::new();
        while let Some(key) = self.next_due(&description, only) {
            let of_key: &mut usize = runs.entry(key.clone()).or_default();
            if *of_key == MOST_RUNS {
                return Err(format!("no rest: {key} is due again after {MOST_RUNS} runs"));
            }
            *of_key += 1;
            self.run::<P>(&description, &key, config);
        }
        let runs = runs.values().sum();
        Ok(Settled { runs, ..self.settled(&description) })
    }

    fn settled(&self, description: &Description) -> Settled {
        let state = self.state.borrow();
        let reconciled =
            description.reconcilers.iter().map(|reconciler| reconciler.of.kind.clone());
        let kinds: Vec<Kind> = reconciled.collect();
        let mut settled = Settled::default();
        for (key, ran) in &state.ran {
            let Some(of) = key.object(description) else { continue };
            let title = title(&Identity::of_ref(&of), &key.reconciler, &kinds);
            if let Some(again) = ran.again {
                let again = SignedDuration::try_from(again).unwrap_or(SignedDuration::MAX);
                settled.requeues.insert(title.clone(), again);
            }
            settled.failures.extend(ran.failure.clone().map(|failure| (title, failure)));
        }
        settled
    }

    /// Puts what was given into the cluster, once, and says what the processor declares.
    fn begin<P: Processor>(&self, config: &str) -> Result<Description, String> {
        let description = processor::described::<P>(config)?;
        self.state.borrow_mut().known.declared = Some(description.clone());
        self.open(&description)?;
        Ok(description)
    }

    /// The first key that is due. What has become due runs, also where a run before it has undone the reason.
    fn next_due(&self, description: &Description, only: Option<&Pattern>) -> Option<Key> {
        let due = self.become_due(description, only);
        let mut state = self.state.borrow_mut();
        state.due.extend(due);
        state.due.pop_first()
    }

    fn become_due(&self, description: &Description, only: Option<&Pattern>) -> BTreeSet<Key> {
        let known = self.known(description);
        let state = self.state.borrow();
        let Some(cluster) = &state.cluster else { return BTreeSet::new() };
        let mut keys: BTreeSet<Key> = state.ran.keys().cloned().collect();
        let mut selected: BTreeSet<Key> = BTreeSet::new();
        for reconciler in &description.reconcilers {
            let of = without_any(&reconciler.of);
            let Ok(query) = Query::new(&of) else { continue };
            let objects = known.objects.iter().filter(|object| query.matches(object));
            selected.extend(objects.map(|object| Key::of(reconciler, object)));
        }
        keys.extend(selected.iter().cloned());
        let is_meant = |key: &Key| {
            let of = key.object(description).map(|of| Identity::of_ref(&of));
            only.is_none_or(|only| of.is_some_and(|of| only.matches(&of)))
        };
        let is_due = |key: &Key| match state.ran.get(key) {
            Some(ran) if !ran.is_last => ran.is_due(&known, cluster, key, description),
            _ => selected.contains(key),
        };
        keys.into_iter().filter(is_meant).filter(is_due).collect()
    }

    /// What is known now.
    fn known(&self, description: &Description) -> Known {
        let state = self.state.borrow();
        let mut known = state.known.clone();
        let Some(cluster) = &state.cluster else { return known };
        known.objects = Vec::new();
        for object in cluster.api().objects() {
            known.set(object);
        }
        let kinds = super::cluster::declared_kinds(description);
        known.missing.clone_from(&state.without);
        let missing = kinds.iter().filter(|kind| cluster.resource(kind).is_none());
        known.missing.extend(missing.map(|kind| (kind.group.clone(), kind.kind.clone())));
        known
    }

    /// One run of a key, whether it is due or not.
    fn run<P: Processor>(&self, description: &Description, key: &Key, config: &str) -> Run {
        let before = self.known(description);
        let (first_read, first_line) = {
            let mut state = self.state.borrow_mut();
            state.known = before.clone();
            state.answered.clear();
            (state.reads.len(), state.log.len())
        };
        let (mut ran, mut run, sent) = self.turn::<P>(description, key, config, &before);
        let after = self.known(description);
        let mut state = self.state.borrow_mut();
        run.reads = state.reads.split_off(first_read);
        run.log = state.log.get(first_line..).unwrap_or_default().to_vec();
        state.reads.extend(run.reads.clone());
        ran.asked.extend(run.reads.iter().map(|read| {
            let asked = match read {
                Read::Get(of, fields) => Asked::Get(of.clone(), fields.clone()),
                Read::List(of) => Asked::List(of.clone()),
            };
            (asked, Ok(Vec::new()))
        }));
        let expected = laid_over(&before, &sent);
        for (asked, seen) in &mut ran.asked {
            *seen = asked.answer(&after);
            ran.surprised |= !ran.is_last && !same(asked.answer(&expected), seen.clone());
        }
        run.failure.clone_from(&ran.failure);
        run.again = ran.again;
        state.known = after;
        if ran.is_last {
            // Its name is forgotten with its object, as the host does it.
            let name = key.title(description);
            let State { marks, memory, .. } = &mut *state;
            marks.retain(|mark, held| {
                let is_its = *held == name;
                if is_its {
                    memory.forget(mark);
                }
                !is_its
            });
        }
        state.due.remove(key);
        state.ran.insert(key.clone(), ran);
        run
    }

    fn turn<P: Processor>(
        &self,
        description: &Description,
        key: &Key,
        config: &str,
        before: &Known,
    ) -> (Ran, Run, Vec<Sent>) {
        let mut run = Run {
            outcome: None,
            changes: Vec::new(),
            reads: Vec::new(),
            log: Vec::new(),
            failure: None,
            again: None,
        };
        let former = self.state.borrow_mut().ran.remove(key);
        let attempt = former.map_or(0, |ran| ran.failures);
        let mut ran = Ran { failures: attempt, ..Ran::default() };
        let cluster = self.state.borrow().cluster.clone();
        let (Some(of), Some(reconciler), Some(cluster)) =
            (key.object(description), key.reconciler(description), cluster)
        else {
            return (ran, run, Vec::new());
        };
        let asked = Asked::object(reconciler, &of);
        ran.asked.push((asked.clone(), Ok(Vec::new())));
        if let Err(error) = asked.answer(before) {
            ran.failures += 1;
            ran.failure = Some(format!("the object cannot be read: {error:?}"));
            return (ran, run, Vec::new());
        }
        let object = there(before, reconciler, &of);
        ran.is_last = object.is_none();
        if object.as_ref().is_some_and(is_paused) {
            return (ran, run, Vec::new());
        }
        let given = object.as_ref().map(|object| given(reconciler, object).to_string());
        let request = Request {
            reconciler: reconciler.name.clone(),
            object: given,
            config: config.to_owned(),
            attempt,
            ..super::request(of.clone())
        };
        let about = Reconciled { reference: of, object };
        let read = BTreeMap::new();
        let check =
            Check { description, reconciler, reconciled: &about, cluster: &cluster, read: &read };
        let managers = Managers::new(&description.name, &reconciler.name, &about.reference);
        let name = key.title(description);
        let managers = managers.known(&mut self.state.borrow_mut().marks, name);
        run.outcome = None;
        let mut turn =
            Turn { stub: self, cluster: &cluster, check, managers, ran, run, sent: Vec::new() };
        let done = turn.carry_out::<P>(request);
        let Turn { mut ran, run, sent, .. } = turn;
        ran.note_kinds(&cluster);
        ran.end(&done, cluster.now());
        (ran, run, sent)
    }
}

/// The reconciled object, if it is still the reconciler's: selected, or held by one of its finalizers.
fn there(known: &Known, reconciler: &Reconciler, of: &ObjectRef) -> Option<Value> {
    let object = known.find(of)?;
    let selection = without_any(&reconciler.of);
    let selected = Query::new(&selection).is_ok_and(|query| query.matches(object));
    let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    let held = finalizers.into_iter().flatten().filter_map(Value::as_str);
    let is_held = held.clone().any(|held| reconciler.finalizers.iter().any(|ours| ours == held));
    (selected || is_held).then(|| object.clone())
}

/// The object as the processor is given it.
fn given(reconciler: &Reconciler, object: &Value) -> Value {
    answer(object, &fields(&reconciler.of.fields), &reconciler.of.kind)
}

fn is_paused(object: &Value) -> bool {
    let annotations = object.pointer("/metadata/annotations");
    annotations.and_then(|annotations| annotations.get(PAUSED)) == Some(&Value::from("true"))
}

/// Whether two answers say the same: what is sent empty need not be kept so.
fn same(expected: Answer, seen: Answer) -> bool {
    let bare = |answer: Answer| {
        answer.map(|mut objects| {
            objects.iter_mut().for_each(place::drop_empty);
            objects
        })
    };
    bare(expected) == bare(seen)
}

/// What would be known if the sent manifests had led to nothing but themselves.
fn laid_over(before: &Known, sent: &[Sent]) -> Known {
    let mut laid = before.clone();
    for sent in sent {
        match sent {
            Sent::Deleted(of) => laid.remove(&Identity::of_ref(of)),
            Sent::Manifest(of, manifest) => {
                let object = lay_over(laid.find(of), manifest);
                laid.set(lay_over(Some(&super::identity::named(of, None)), &object));
            }
        }
    }
    laid
}

// === impl Turn ===

impl Turn<'_> {
    /// Calls the processor and writes what it wants. Where a write was refused, it is called once more and may say so.
    fn carry_out<P: Processor>(&mut self, mut request: Request) -> Done {
        let answer = processor::reconciled::<P>(&request, &self.stub.host());
        self.run.outcome = Some(answer.clone());
        let (plan, retry, requeue) = match self.plan(answer) {
            Ok(planned) => planned,
            Err(error) => return self.refused(&error),
        };
        let written = self.write(&plan);
        if written.failures.is_empty() {
            let is_done = written.waits.is_empty();
            return if is_done { self.done(retry, requeue) } else { Done::Success(TERMINATING) };
        }
        let is_failure = written.is_failure();
        if is_failure {
            self.ran.failure.get_or_insert_with(|| write::describe(&written.failures));
        }
        request.failed_writes = written.failures;
        let answer = processor::reconciled::<P>(&request, &self.stub.host());
        let (plan, retry, requeue) = match self.plan(answer) {
            Ok(planned) => planned,
            Err(error) => return self.refused(&error),
        };
        let second = self.write(&Plan {
            status: plan.status,
            events: plan.events,
            is_report: true,
            ..Plan::default()
        });
        if !second.failures.is_empty() {
            self.ran.failure.get_or_insert_with(|| write::describe(&second.failures));
        }
        if is_failure || !second.failures.is_empty() {
            Done::BackOff
        } else {
            self.done(retry, requeue)
        }
    }

    fn plan(
        &mut self,
        answer: Result<Outcome, Failure>,
    ) -> Result<(Plan, Option<Retry>, Requeue), String> {
        let read = self.stub.state.borrow().answered.clone();
        let check = Check { read: &read, ..self.check };
        match answer {
            Ok(outcome) => Ok((check.outcome(&outcome)?, None, outcome.requeue)),
            Err(failure) => {
                self.ran.failure.get_or_insert_with(|| failure.message.clone());
                let plan = check.report(failure.status.as_deref(), &failure.events)?;
                Ok((plan, Some(failure.retry), Requeue::ByDefault))
            }
        }
    }

    fn write(&mut self, plan: &Plan) -> Written {
        let mut state = self.stub.state.borrow_mut();
        let memory = &mut state.memory;
        let mut written =
            write::Run::carry_out(plan, self.cluster, &self.check, &self.managers, memory);
        drop(state);
        self.run.changes.append(&mut written.changes);
        self.ran.wrote.append(&mut written.wrote);
        // What the run itself deletes later is not missed.
        for wrote in &mut self.ran.wrote {
            let is_it = |sent: &Sent| matches!(sent, Sent::Deleted(of) if *of == wrote.of);
            if written.sent.iter().any(is_it) {
                (wrote.own, wrote.absent) = (None, Vec::new());
            }
        }
        self.sent.append(&mut written.sent);
        let refused = written.failures.iter().map(|failed| failed.ref_.kind.clone());
        self.ran.refused.extend(refused);
        for of in &written.pruned {
            let there = prunable(self.cluster, of, &self.managers);
            self.ran.pruned.push((of.clone(), there));
        }
        written
    }

    /// Says on the object that its reconcile could not be done, and writes nothing else.
    fn refused(&mut self, error: &str) -> Done {
        self.ran.failure.get_or_insert_with(|| error.to_owned());
        let message = match error.char_indices().nth(EVENT_MESSAGE) {
            Some((end, _)) => format!("{}…", error.get(..end).unwrap_or(error)),
            None => error.to_owned(),
        };
        let event = Event::warning("ProcessorFailed", message);
        if let Ok(plan) = self.check.report(None, &[event]) {
            self.write(&plan);
        }
        Done::BackOff
    }

    fn done(&self, retry: Option<Retry>, requeue: Requeue) -> Done {
        match retry {
            Some(Retry::BackOff) => return Done::BackOff,
            Some(Retry::After(after)) => return Done::After(after),
            Some(Retry::OnChange) => return Done::OnChange,
            None => {}
        }
        let after = match requeue {
            // An object that is gone has nothing to come back for.
            Requeue::ByDefault if self.check.reconciled.object.is_none() => 0,
            Requeue::ByDefault => self.check.reconciler.resync,
            Requeue::After(milliseconds) => milliseconds.max(1),
            Requeue::Never => 0,
        };
        Done::Success((after > 0).then_some(after))
    }
}
