//! Carries out the answer of a processor: checks it, writes it, and calls the processor once more
//! if a write was refused.

use std::{collections::HashSet, sync::Arc, time::Duration};

use super::{
    CallError, Fault, Mode, Occasion, Outside, Reconciler, Usage,
    course::{Carried, Course, Round},
    report::shortened,
};
use crate::{
    api::{Api, MOVED, Unavailable},
    contract::{
        Event, EventType, Failure, Kind, Note, ObjectRef, Outcome, Request, Retry,
        bounds::{
            self,
            text::{cut, shortened as shortened_to},
        },
    },
    error_chain,
    grant::{
        DeclaredReconciler,
        rights::{Denial, Question},
    },
    outbound::Sending,
    outcome::{self, Plan, Reconciled},
    queue::{Again, Cause, Done, Key},
    reads::{
        Reads,
        record::{self, Basis, Digest},
    },
    resource::Kinds,
    write::{self, Written},
};

/// The requeue delay of a key that waits for a terminating namespace.
const TERMINATING_RETRY_DELAY: Duration = Duration::from_secs(1);
/// The reason why the call with failed writes sends nothing.
const REPORTS: &str = "the call that reports failed writes calls nothing outside of the cluster";
/// The bytes of an outcome's objects that are checked in about a millisecond.
const SMALL_OUTCOME_BYTES: usize = 256 << 10;
/// The reason of the event about a processor that failed.
const FAILED: &str = "ProcessorFailed";

/// A checked answer of a processor.
pub(super) struct Planned {
    pub(super) plan: Plan,
    /// The retry that a failure asks for; `None` if the processor returned an outcome.
    pub(super) retry: Option<Retry>,
    /// The note for the next call.
    pub(super) note: Option<Note>,
}

/// The reason why an answer is not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error(transparent)]
    Call(#[from] CallError),

    #[error("the outcome is not valid")]
    Outcome(#[from] outcome::Invalid),

    #[error(transparent)]
    Cluster(#[from] Unavailable),
}

/// The state that all steps of a run need.
pub(super) struct Turn<'a> {
    pub(super) key: &'a Key,
    /// The reconciler of the key.
    pub(super) declared: &'a DeclaredReconciler,
    pub(super) reconciled: &'a Reconciled,
    pub(super) reads: Reads,
    /// The API servers, pinned to the begin of the run.
    pub(super) api: Arc<dyn Api>,
}

/// A call that has ended.
pub(super) struct Answered {
    pub(super) answer: Answer,
    pub(super) basis: Basis,
    pub(super) usage: Usage,
}

/// The result of a call: an outcome, a failure that the processor returned, or an error of the
/// call.
pub(super) type Answer = Result<Result<Outcome, Failure>, CallError>;

// === impl Reconciler ===

impl Reconciler {
    /// Writes the outcome of a processor.
    ///
    /// If a write was refused, the processor is called once more at once with the refused writes.
    /// Of its second outcome only the status, the events and the requeue are used.
    pub(super) async fn carry_out(
        &self,
        answered: Answered,
        mut request: Request,
        turn: &mut Turn<'_>,
    ) -> Course {
        let first = self.round(answered, turn, |plan| plan).await;
        let written = &first.carried.written;
        let done = match &first.answer {
            Err(refused) => Some(refused.done()),
            // The key reads anew at once, in the cluster of the present kubeconfig.
            Ok(_) if written.failures.iter().any(|failed| failed.reason == MOVED) => {
                Some(Done::Failure(Again::After(Duration::ZERO)))
            }
            Ok(_) if !written.failures.is_empty() => None,
            // Stale objects are not reported to the processor: the key runs again and reads anew.
            Ok(_) if !written.stale.is_empty() => Some(Done::Failure(Again::BackOff)),
            Ok(_) if !written.waits.is_empty() => {
                Some(Done::Success { requeue: Some((TERMINATING_RETRY_DELAY, Cause::Requeue)) })
            }
            Ok(planned) => Some(planned.done(turn)),
        };
        if let Some(done) = done {
            return Course { first: Some(first), ..Course::ended(done) };
        }
        request.failed_writes.clone_from(&written.failures);
        request.note = first.answer.as_ref().ok().and_then(|planned| planned.note.clone());
        let view = self.view().after(&turn.reads);
        let sending = Sending::closed(REPORTS);
        let outside = Outside { view, sending };
        let (answered, reads) = self.call(outside, &request, Occasion::FailedWrites).await;
        turn.reads.merge(reads);
        let second = self.round(answered, turn, Plan::only_report).await;
        let done = match &second.answer {
            Err(refused) => refused.done(),
            Ok(_) if written.is_failure() || second.carried.written.is_failure() => {
                Done::Failure(again(written.retry_after.max(second.carried.written.retry_after)))
            }
            Ok(planned) => planned.done(turn),
        };
        Course { first: Some(first), second: Some(second), ..Course::ended(done) }
    }

    /// Checks an answer, and writes the part of its plan that `part` returns.
    pub(super) async fn round(
        &self,
        Answered { answer, basis, usage }: Answered,
        turn: &mut Turn<'_>,
        part: fn(Plan) -> Plan,
    ) -> Round {
        let message = answer.as_ref().ok().and_then(|returned| returned.as_ref().err());
        let message = message.map(|failure| failure.message.clone());
        let (returned, answer) = self.plan(answer, turn).await;
        let answer = answer.map(|planned| Planned { plan: part(planned.plan), ..planned });
        let (carried, notes) = match &answer {
            Ok(planned) => (self.write(&planned.plan, turn).await, Vec::new()),
            Err(refused) => self.refused(refused, turn).await,
        };
        Round { call: Some((basis, usage)), returned, message, answer, carried, notes }
    }

    /// Checks an answer. Also returns the digest of the processor's return value, if it returned.
    pub(super) async fn plan(
        &self,
        answer: Answer,
        turn: &Turn<'_>,
    ) -> (Option<Digest>, Result<Planned, Refused>) {
        let returned = match answer {
            Ok(returned) => returned,
            Err(error) => return (None, Err(error.into())),
        };
        let named =
            returned.as_ref().map(|outcome| outcome::kinds(outcome, &turn.reconciled.reference));
        let named = named.unwrap_or_default();
        let secret = turn.reads.saw_secret() || named.iter().any(record::is_secret);
        let digest = record::of_returned(&returned, secret);
        let planned = match returned {
            Ok(outcome) => self.plan_of_outcome(&outcome, named, turn).await,
            Err(failure) => {
                let plan = self.plan_of_failure(&failure, turn).await;
                plan.map(|plan| Planned { plan, retry: Some(failure.retry), note: failure.note })
            }
        };
        (Some(digest), planned)
    }

    async fn plan_of_outcome(
        &self,
        outcome: &Outcome,
        mut named: HashSet<Kind>,
        turn: &Turn<'_>,
    ) -> Result<Planned, Refused> {
        // Only declared kinds are resolved: an outcome with another kind is refused for that.
        named.retain(|kind| self.version.grant.names(kind));
        let kinds = self.resolve_all(&named).await?;
        let uids = turn.reads.uids();
        let read = |of: &ObjectRef| uids.of(of).map(str::to_owned);
        let against = self.against(turn, &kinds, &read);
        let mut plan = Ok(Plan::default());
        let mut build = || plan = Plan::build(outcome, &against);
        if outcome::object_bytes(outcome) > SMALL_OUTCOME_BYTES {
            self.version.call.work(&mut build);
        } else {
            build();
        }
        Ok(Planned { plan: plan?, retry: None, note: outcome.note.clone() })
    }

    async fn plan_of_failure(&self, failure: &Failure, turn: &Turn<'_>) -> Result<Plan, Refused> {
        let kinds = self.resolve_all([&*turn.reconciled.reference.kind]).await?;
        let uids = turn.reads.uids();
        let read = |of: &ObjectRef| uids.of(of).map(str::to_owned);
        Ok(Plan::build_of_failure(failure, &self.against(turn, &kinds, &read))?)
    }

    fn against<'a>(
        &'a self,
        turn: &'a Turn<'_>,
        kinds: &'a Kinds,
        read: &'a dyn Fn(&ObjectRef) -> Option<String>,
    ) -> outcome::Against<'a> {
        outcome::Against {
            grant: &self.version.grant,
            reconciler: &turn.declared.spec,
            reconciled: turn.reconciled,
            kinds,
            read,
            limits: outcome::Limits {
                outcome: self.version.call.outcome_limit(),
                ..outcome::Limits::default()
            },
        }
    }

    pub(super) async fn write(&self, plan: &Plan, turn: &mut Turn<'_>) -> Carried {
        let whole_status = turn.declared.spec.whole_status;
        let context = write::Context { whole_status, ..self.context(turn.key, turn.reconciled) };
        if self.version.settings.mode == Mode::Observe {
            let withheld = self.parts.writer.dry_run(plan, &context);
            return Carried { withheld, ..Carried::default() };
        }
        let written = self.parts.writer.carry_out(plan, &*turn.api, &context).await;
        let denied = self.forbidden(&written);
        record_written(&written, plan, turn);
        // A key whose kind is not served runs again as soon as it is served, not after the
        // back-off.
        let not_found = written.failures.iter().filter(|failed| failed.code == 404);
        not_found.for_each(|failed| turn.reads.not_written(&failed.ref_.kind));
        Carried { written, withheld: Vec::new(), denied }
    }

    /// Returns the rights that the account lacked for these writes.
    ///
    /// They are checked again with all other rights that the processor relies on: when one is
    /// granted, all keys run again.
    fn forbidden(&self, written: &Written) -> Vec<Denial> {
        let Some(rights) = &self.version.rights else { return Vec::new() };
        let denied = written.forbidden.iter().filter_map(|(kind, message)| {
            let question = Question::refused(message, rights.account(), &kind.cluster)?;
            rights.relies_on(&question);
            Some(Denial::of_right(question, kind))
        });
        denied.collect()
    }

    /// Writes an event which says that the reconcile of the object failed, and nothing else. A
    /// cancelled call writes nothing.
    async fn refused(&self, refused: &Refused, turn: &mut Turn<'_>) -> (Carried, Vec<String>) {
        if refused.is_cancelled() {
            return (Carried::default(), vec![refused.to_string()]);
        }
        let message = refused.message();
        let event = Event {
            on: None,
            event_type: EventType::Warning,
            reason: FAILED.to_owned(),
            message: shortened(&message),
        };
        let failure = Failure {
            message,
            status: None,
            events: vec![event],
            retry: Retry::BackOff,
            note: None,
        };
        let (mut carried, no_event) = match self.plan_of_failure(&failure, turn).await {
            Ok(plan) => {
                let carried = self.write(&plan, turn).await;
                let failures = carried.written.failures.iter();
                let no_event = failures.map(|failed| failed.message.clone()).collect();
                (carried, no_event)
            }
            Err(error) => (Carried::default(), vec![error_chain::whole(&error)]),
        };
        carried.denied.splice(..0, refused.denial());
        let notes = no_event.iter().map(|why| format!("no event: {why}")).collect();
        (carried, notes)
    }

    /// Resolves several kinds. The result lacks the kinds that are not served, and those of another
    /// cluster that does not answer: its writes fail then, and the processor is told why.
    async fn resolve_all<'a>(
        &self,
        kinds: impl IntoIterator<Item = &'a Kind>,
    ) -> Result<Kinds, Unavailable> {
        let mut found = Kinds::default();
        for kind in kinds {
            // At home, discovery is the host's own; elsewhere it has the rights of the kubeconfig.
            let is_home = kind.cluster.is_empty();
            let api = if is_home { &self.parts.api } else { &self.version.api };
            match api.resolve(kind).await {
                Ok(resource) => resource.into_iter().for_each(|resource| found.insert(resource)),
                Err(unavailable) if is_home => return Err(unavailable),
                Err(unavailable) => tracing::debug!(%unavailable, "a kind is not resolved"),
            }
        }
        Ok(found)
    }
}

// === impl Refused ===

impl Refused {
    /// Returns whether the processor is at fault, so that another version may help.
    pub(super) fn is_processors(&self) -> bool {
        match self {
            Self::Call(error) => error.fault == Fault::Processor,
            Self::Outcome(_) => true,
            Self::Cluster(_) => false,
        }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        matches!(self, Self::Call(error) if error.fault == Fault::Cancelled)
    }

    fn done(&self) -> Done {
        if self.is_cancelled() { Done::Cancelled } else { Done::Failure(Again::BackOff) }
    }

    /// Returns the error, its causes, and the backtrace of a trap, in words.
    pub(super) fn message(&self) -> String {
        // The guest chooses parts of the message, so its length is limited.
        let mut message = error_chain::whole(self);
        cut(&mut message, bounds::FAILURE);
        match self {
            Self::Call(CallError { backtrace: Some(trace), .. }) => format!("{message}\n{trace}"),
            _ => message,
        }
    }

    /// Returns the denial for an outcome with an undeclared write or event.
    fn denial(&self) -> Option<Denial> {
        let Self::Outcome(invalid) = self else { return None };
        let (verb, kind) = invalid.undeclared()?;
        let message = shortened_to(&invalid.to_string(), bounds::DENIAL);
        Some(Denial::of_declaration(verb, kind, &message))
    }
}

/// Returns the retry of refused writes: not before the `Retry-After` of the API server, or, without
/// one, after the back-off.
pub(super) fn again(retry_after: Option<Duration>) -> Again {
    retry_after.map_or(Again::BackOff, Again::NotBefore)
}

/// Records the objects that a plan wrote, pruned or removed: they count as read.
fn record_written(written: &Written, plan: &Plan, turn: &mut Turn<'_>) {
    let reads = &mut turn.reads;
    // Fields by name, so that a new step does not compile until its objects are dependencies.
    let Plan {
        evict,
        delete,
        finalizers,
        // These are among the writes that were made.
        apply: _,
        patch: _,
        prune: _,
        status: _,
        events: _,
        requeue: _,
        // Taken over at the end of the run.
        start: _,
        is_report: _,
    } = plan;
    for write::Wrote { of, manager, own } in &written.wrote {
        reads.wrote(of, manager, *own);
    }
    written.pruned.iter().for_each(|(of, manager)| reads.pruned(of, manager));
    evict.iter().chain(delete).for_each(|deletion| reads.removed(&deletion.of));
    if let Some((manager, own)) = &written.status {
        reads.wrote_status(&turn.reconciled.reference, manager, *own);
    }
    if let Some(outcome::Finalizers { wanted, released }) = finalizers {
        let (held, released) = (wanted.as_slice().into(), released.as_slice().into());
        reads.finalized(record::Finalizers { held, released });
    }
}
