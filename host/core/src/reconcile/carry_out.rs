//! Carries out the answer of a processor: checks it, writes it, and calls the processor once more
//! if a write was refused.

use std::time::Duration;

use super::{
    CallError, Fault, Mode, Reconciler, Report,
    done::stale,
    report::{describe, shortened},
};
use crate::{
    contract::bounds::{
        self,
        text::{cut, shortened as shortened_to},
    },
    contract::{Event, EventType, Failure, Kind, ObjectRef, Outcome, Request, Retry},
    error_chain,
    grant::rights::{Denial, Question},
    outcome::{self, Plan, Reconciled},
    queue::{Again, Cause, Done, Key},
    reads::Reads,
    reads::record,
    resource::{Kinds, Unavailable},
    write::{self, Written},
};

/// The delay after which a key runs again that waits for a namespace to go.
const TERMINATING_RETRY_DELAY: Duration = Duration::from_secs(1);
/// The reason of the event about a processor that failed.
const FAILED: &str = "ProcessorFailed";

/// A checked answer of a processor.
pub(super) struct Planned {
    pub(super) plan: Plan,
    /// The retry that a failure asks for; `None` if the processor returned an outcome.
    pub(super) retry: Option<Retry>,
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
    pub(super) reconciled: &'a Reconciled,
    pub(super) report: &'a mut Report,
    pub(super) reads: Reads,
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
        answer: Answer,
        mut request: Request,
        turn: &mut Turn<'_>,
    ) -> Done {
        let planned = match self.plan(answer, turn).await {
            Ok(planned) => planned,
            Err(error) => return self.refused(&error, turn).await,
        };
        let mut written = self.write(&planned.plan, turn).await;
        if !written.stale.is_empty() && written.failures.is_empty() {
            return stale(&written.stale, turn.report);
        }
        let waits = !written.waits.is_empty();
        turn.report.notes.append(&mut written.waits);
        if written.failures.is_empty() {
            let wait = Done::Success { requeue: Some((TERMINATING_RETRY_DELAY, Cause::Requeue)) };
            return if waits { wait } else { self.done(&planned, turn) };
        }
        let (is_failure, retry_after) = (written.is_failure(), written.retry_after);
        if is_failure {
            turn.report.failure.get_or_insert_with(|| describe(&written.failures));
        }
        turn.report.record_mut().refused += written.failures.len();
        request.failed_writes = written.failures;
        let view = self.view().after(&turn.reads);
        let (answer, reads) = self.call(view, &request, turn.report).await;
        turn.reads.merge(reads);
        let second = match self.plan(answer, turn).await {
            Ok(Planned { plan, retry }) => Planned { plan: plan.only_report(), retry },
            Err(error) => return self.refused(&error, turn).await,
        };
        let written = self.write(&second.plan, turn).await;
        if !written.failures.is_empty() {
            turn.report.failure.get_or_insert_with(|| describe(&written.failures));
        }
        if is_failure || !written.failures.is_empty() {
            return Done::Failure(again(retry_after.max(written.retry_after)));
        }
        self.done(&second, turn)
    }

    pub(super) async fn plan(
        &self,
        answer: Answer,
        turn: &mut Turn<'_>,
    ) -> Result<Planned, Refused> {
        let returned = answer?;
        let named =
            returned.as_ref().map(|outcome| outcome::kinds(outcome, &turn.reconciled.reference));
        let named = named.unwrap_or_default();
        let secret = turn.reads.saw_secret() || named.iter().any(record::is_secret);
        turn.report.record_mut().outcome = Some(record::of_returned(&returned, secret));
        match returned {
            Ok(outcome) => {
                // Only declared kinds are resolved: an outcome with another kind is refused for
                // that.
                let mut declared = named;
                declared.retain(|kind| self.grant.names(kind));
                let kinds = self.resolve_all(&declared).await?;
                let uids = turn.reads.uids();
                let read = |of: &ObjectRef| uids.of(of).map(str::to_owned);
                let plan = Plan::build(&outcome, &self.against(turn, &kinds, &read))?;
                Ok(Planned { plan, retry: None })
            }
            Err(failure) => {
                turn.report.failure.get_or_insert_with(|| failure.message.clone());
                let plan = self.plan_of_failure(&failure, turn).await?;
                Ok(Planned { plan, retry: Some(failure.retry) })
            }
        }
    }

    async fn plan_of_failure(&self, failure: &Failure, turn: &Turn<'_>) -> Result<Plan, Refused> {
        let kinds = self.resolve_all([&turn.reconciled.reference.kind]).await?;
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
            grant: &self.grant,
            reconciler: turn.key.reconciler(),
            reconciled: turn.reconciled,
            kinds,
            read,
            limits: outcome::Limits {
                outcome: self.version.call.outcome_limit(),
                ..outcome::Limits::default()
            },
        }
    }

    pub(super) async fn write(&self, plan: &Plan, turn: &mut Turn<'_>) -> Written {
        let context = self.context(turn.key, turn.reconciled);
        if self.version.settings.mode == Mode::Observe {
            turn.report.withheld.extend(self.parts.writer.dry_run(plan, &context));
            return Written::default();
        }
        let mut written = self.parts.writer.carry_out(plan, &*self.version.api, &context).await;
        self.record_forbidden(&written, turn.report);
        turn.report.changes.append(&mut written.changes);
        turn.report.unchanged += written.skipped;
        turn.report.forced.append(&mut written.forced);
        turn.report.notes.append(&mut written.warnings);
        record_written(&written, plan, turn);
        // If the kind is not served, the key runs again as soon as it is, and not when the back-off
        // is over.
        let not_found = written.failures.iter().filter(|failed| failed.code == 404);
        not_found.for_each(|failed| turn.reads.not_written(&failed.ref_.kind));
        written
    }

    /// Notes the rights that the account lacked for these writes.
    ///
    /// They are asked about again with all other rights that the processor relies on: when one is
    /// granted, all keys run again.
    fn record_forbidden(&self, written: &Written, report: &mut Report) {
        let Some(rights) = &self.version.rights else { return };
        for (kind, message) in &written.forbidden {
            if let Some(question) = Question::refused(message, rights.account()) {
                rights.relies_on(&question);
                report.denied.push(Denial::of_right(question, kind));
            }
        }
    }

    /// Writes an event which says that the reconcile of the object failed, and nothing else. A
    /// cancelled call writes nothing.
    async fn refused(&self, error: &Refused, turn: &mut Turn<'_>) -> Done {
        if let Refused::Call(error) = error
            && error.fault == Fault::Cancelled
        {
            turn.report.cancelled = true;
            turn.report.notes.push(error.to_string());
            return Done::Cancelled;
        }
        turn.report.broke = error.is_processors();
        if let Refused::Outcome(invalid) = error
            && let Some((verb, kind)) = invalid.undeclared()
        {
            let message = shortened_to(&invalid.to_string(), bounds::DENIAL);
            turn.report.deny((vec![Denial::of_declaration(verb, kind, &message)], 0));
        }
        // The message holds texts of the guest's own.
        let mut message = error_chain::whole(error);
        cut(&mut message, bounds::FAILURE);
        if let Refused::Call(CallError { backtrace: Some(trace), .. }) = error {
            message = format!("{message}\n{trace}");
        }
        turn.report.failure.get_or_insert_with(|| message.clone());
        let event = Event {
            on: None,
            event_type: EventType::Warning,
            reason: FAILED.to_owned(),
            message: shortened(&message),
        };
        let failure = Failure { message, status: None, events: vec![event], retry: Retry::BackOff };
        match self.plan_of_failure(&failure, turn).await {
            Ok(plan) => {
                let written = self.write(&plan, turn).await;
                turn.report.notes.extend(
                    written.failures.iter().map(|failed| format!("no event: {}", failed.message)),
                );
            }
            Err(error) => {
                turn.report.notes.push(format!("no event: {}", error_chain::whole(&error)));
            }
        }
        Done::Failure(Again::BackOff)
    }

    /// Looks up several kinds. The answer lacks the kinds that are not served.
    async fn resolve_all<'a>(
        &self,
        kinds: impl IntoIterator<Item = &'a Kind>,
    ) -> Result<Kinds, Unavailable> {
        let mut found = Kinds::default();
        for kind in kinds {
            if let Some(resource) = self.parts.api.resolve(kind).await? {
                found.insert(resource);
            }
        }
        Ok(found)
    }
}

/// Returns when refused writes are tried again: not before the time that the API server asked for,
/// or, if it asked for none, after the back-off.
pub(super) fn again(retry_after: Option<Duration>) -> Again {
    retry_after.map_or(Again::BackOff, Again::NotBefore)
}

/// Notes the objects that a plan wrote, pruned or removed: they count as read.
fn record_written(written: &Written, plan: &Plan, turn: &mut Turn<'_>) {
    let reads = &mut turn.reads;
    for write::Wrote { of, manager, own, absent } in &written.wrote {
        reads.wrote(of, manager, *own);
        if *absent {
            reads.must_be_absent();
        }
    }
    written.pruned.iter().for_each(|(of, manager)| reads.pruned(of, manager));
    plan.evict.iter().chain(&plan.delete).for_each(|deletion| reads.removed(&deletion.of));
    if let Some((manager, own)) = &written.status {
        reads.wrote_status(&turn.reconciled.reference, manager, *own);
    }
    if let Some(outcome::Finalizers { wanted, released }) = &plan.finalizers {
        let (held, released) = (wanted.as_slice().into(), released.as_slice().into());
        reads.finalized(record::Finalizers { held, released });
    }
}
