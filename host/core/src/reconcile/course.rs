//! The course of one run: its calls and writes, as the steps of the run return them.

use std::sync::Arc;

use super::{
    CallError, Fault, Usage,
    carry_out::{Planned, Refused},
    done::gone_meanwhile,
    mask::Mask,
    report::describe,
};
use crate::{
    contract::{Action, Note, ObjectRef, WriteFailure},
    grant::{Selected, rights::Denial},
    outbound::Made,
    queue::{Cause, Done, Run},
    reads::{
        Reads,
        record::{Asked, Basis, Digest, Ending, Record},
    },
    write::{Withheld, Written},
};

/// The course of a run that was not skipped. A run that called the processor has a first round, and
/// a second one if writes of the first were refused.
pub(super) struct Course {
    /// The result for the queue: when the key runs again.
    pub(super) done: Done,
    /// The reason why the object was left as it is, if it was.
    pub(super) left: Option<String>,
    /// The reason of a failure outside of the rounds.
    pub(super) failure: Option<String>,
    pub(super) first: Option<Round>,
    /// The round that reports refused writes of the first one. Refused writes of this one are not
    /// counted.
    pub(super) second: Option<Round>,
}

/// The result of one call, and of carrying out its answer.
pub(super) struct Round {
    /// The basis of the call, and its usage; `None` if the processor was not called.
    pub(super) call: Option<(Basis, Usage)>,
    /// The digest of the processor's return value, if it returned.
    pub(super) returned: Option<Digest>,
    /// The message of the failure that the processor returned, if it returned one.
    pub(super) message: Option<String>,
    pub(super) answer: Result<Planned, Refused>,
    /// The writes of the plan; if the answer was refused, those of an event which says so.
    pub(super) carried: Carried,
    /// The notes about a refused answer.
    pub(super) notes: Vec<String>,
}

/// What a run leaves for the next run of its key.
pub(super) enum Left {
    /// Nothing: the former note stays. The processor was not called, or the call was cancelled.
    Nothing,
    /// This note in place of the former one, or none.
    Note(Option<Note>),
}

/// The writes of one plan.
#[derive(Default)]
pub(super) struct Carried {
    pub(super) written: Written,
    /// The writes that were not made, because the processor only observes.
    pub(super) withheld: Vec<Withheld>,
    /// The rights that the account lacked for the writes.
    pub(super) denied: Vec<Denial>,
}

// === impl Course ===

impl Course {
    /// Returns the course of a run without rounds.
    pub(super) fn ended(done: Done) -> Self {
        Self { done, left: None, failure: None, first: None, second: None }
    }

    pub(super) fn rounds(&self) -> impl Iterator<Item = &Round> {
        self.first.iter().chain(&self.second)
    }

    /// Returns the selections that the outcome starts, if there is one and its finalizers are
    /// written. They do not wait for other writes, which may fail for as long as the API server
    /// refuses an object.
    pub(super) fn started(&self) -> Option<&[Arc<Selected>]> {
        let first = self.first.as_ref().filter(|first| first.call.is_some())?;
        let planned = first.answer.as_ref().ok().filter(|planned| planned.retry.is_none())?;
        let is_finalizer = |failed: &WriteFailure| failed.action == Action::Finalize;
        let is_held = first.stale().is_empty() && !first.failures().iter().any(is_finalizer);
        is_held.then_some(&planned.plan.start)
    }

    /// Returns what becomes of the key's note. A call without a valid answer leaves none.
    pub(super) fn note(&self) -> Left {
        let called = self.rounds().filter(|round| round.call.is_some());
        match called.last().map(|round| &round.answer) {
            Some(Ok(planned)) => Left::Note(planned.note.clone()),
            Some(Err(refused)) if !refused.is_cancelled() => Left::Note(None),
            Some(Err(_)) | None => Left::Nothing,
        }
    }

    fn calls(&self) -> impl Iterator<Item = &Made> {
        let usage = self.rounds().filter_map(|round| round.call.as_ref());
        usage.flat_map(|(_, usage)| &usage.calls)
    }

    /// Returns the bytes that the records of calls to the outside take.
    pub(super) fn call_bytes(&self) -> usize {
        self.calls().map(|made| size_of::<Made>() + made.url.len()).sum()
    }

    /// Returns the refusal of the answer that ended the run, if one was refused.
    pub(super) fn refused(&self) -> Option<&Refused> {
        self.rounds().find_map(|round| round.answer.as_ref().err())
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.refused().is_some_and(Refused::is_cancelled)
    }

    /// Returns the first reason of a failure.
    pub(super) fn failure(&self) -> Option<String> {
        let stale = self.first.as_ref().map(Round::stale).unwrap_or_default();
        let stale = (!stale.is_empty()).then(|| gone_meanwhile(stale));
        let first = self.first.as_ref().and_then(Round::failure);
        let second = || self.second.as_ref().and_then(Round::failure);
        first.or(stale).or_else(second).or_else(|| self.failure.clone())
    }

    /// Returns the notes for people: those of the run, then those of each round.
    pub(super) fn notes(&self) -> Vec<String> {
        let first = self.first.iter().flat_map(|round| [round.about(), round.waits()].concat());
        let second = self.second.iter().flat_map(Round::about);
        self.left.iter().cloned().chain(first).chain(second).collect()
    }

    /// Returns the record of the run with its reads; without reads if the run was cancelled.
    pub(super) fn record(&self, run: &Run, reads: &mut Reads) -> Record {
        let calls = || self.rounds().filter_map(|round| round.call.as_ref());
        let refused = |round: &Round| round.stale().len().max(round.failures().len());
        let asked = calls().map(|(_, usage)| usage.asked);
        let is_requeued = |of: &Cause| match &self.done {
            Done::Success { requeue: Some((_, cause)) } => cause == of,
            _ => false,
        };
        let mut record = Record {
            ran_on: calls().last().map(|(basis, _)| basis.clone()),
            asked: asked.fold(Asked::default(), Asked::or),
            calls: masked(self.calls().cloned().collect(), reads),
            outcome: self.rounds().filter_map(|round| round.returned).last(),
            refused: self.first.as_ref().map_or(0, refused),
            requeue: is_requeued(&Cause::Requeue),
            resync: is_requeued(&Cause::Resync),
            memory: calls().map(|(_, usage)| usage.memory).max().unwrap_or_default(),
            // A cancelled run has no ending; its record is not kept.
            ending: match self.done {
                Done::Success { .. } | Done::Cancelled => Ending::Success,
                Done::Failure(_) => Ending::Failure,
            },
            ..Record::new(&run.key, run.attempt)
        };
        if !self.is_cancelled() {
            reads.hand_over(&mut record);
        }
        record
    }
}

/// Masks the values of Secrets in the URLs of calls.
fn masked(mut calls: Box<[Made]>, reads: &Reads) -> Box<[Made]> {
    let urls = calls.iter().map(|made| made.url.as_str());
    let mask = Mask::new(reads.secrets(), reads.credentials(), urls);
    for made in &mut calls {
        made.url = mask.masked(&made.url).unwrap_or_else(|| std::mem::take(&mut made.url));
    }
    calls
}

// === impl Round ===

impl Round {
    /// Returns the refused writes of the answer; empty if the answer was refused.
    pub(super) fn failures(&self) -> &[WriteFailure] {
        if self.answer.is_ok() { &self.carried.written.failures } else { &[] }
    }

    /// Returns the objects that were deleted or recreated since they were read, if nothing else
    /// failed.
    pub(super) fn stale(&self) -> &[ObjectRef] {
        let is_all = self.answer.is_ok() && self.carried.written.failures.is_empty();
        if is_all { &self.carried.written.stale } else { &[] }
    }

    /// Returns the terminating namespaces that the writes wait for.
    fn waits(&self) -> Vec<String> {
        let is_noted = self.answer.is_ok() && self.stale().is_empty();
        if is_noted { self.carried.written.waits.clone() } else { Vec::new() }
    }

    /// Returns the notes of the call, of the writes, and of a refused answer.
    fn about(&self) -> Vec<String> {
        let dropped = self.call.as_ref().map_or(0, |(_, usage)| usage.log_dropped);
        let dropped = (dropped > 0).then(|| format!("{dropped} lines of log were over the limit"));
        let warnings = self.carried.written.warnings.iter().chain(&self.notes).cloned();
        dropped.into_iter().chain(warnings).collect()
    }

    fn failure(&self) -> Option<String> {
        self.message.clone().or_else(|| match &self.answer {
            Ok(_) if self.carried.written.is_failure() => Some(describe(self.failures())),
            Ok(_) => None,
            Err(refused) if refused.is_cancelled() => None,
            Err(refused) => Some(refused.message()),
        })
    }

    /// Returns the reason in one word, if the call returned neither an outcome nor a failure.
    pub(super) fn trapped(&self) -> Option<&'static str> {
        match &self.answer {
            Err(Refused::Call(CallError { fault, reason, .. })) => {
                (*fault != Fault::Cancelled).then_some(*reason)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        contract::Action,
        fixture::{key, kind, object, reference},
        outcome::Plan,
        queue::Again,
        reconcile::Report,
        store::Entry,
    };

    fn refused_write() -> WriteFailure {
        WriteFailure {
            action: Action::Apply,
            ref_: reference("Thing", "a"),
            code: 403,
            reason: String::new(),
            message: "no".to_owned(),
            conflicting_managers: Vec::new(),
        }
    }

    fn cancelled() -> Refused {
        let message = "the host ends".to_owned();
        CallError { fault: Fault::Cancelled, reason: "cancelled", message, backtrace: None }.into()
    }

    fn basis() -> Basis {
        let digest = Digest::of(false, [&b"a"[..]]);
        let (config, grant, settings) = (digest, digest, digest);
        Basis { module: "m".into(), config, grant, settings, now_ms: 0, seed: 0 }
    }

    /// Returns a round whose call dropped a line of its log, and whose writes gave this warning.
    fn round(warning: &str) -> Round {
        let written = Written { warnings: vec![warning.to_owned()], ..Written::default() };
        Round {
            call: Some((basis(), Usage { log_dropped: 1, memory: 7, ..Usage::default() })),
            returned: None,
            message: None,
            answer: Ok(Planned { plan: Plan::default(), retry: None, note: None }),
            carried: Carried { written, ..Carried::default() },
            notes: Vec::new(),
        }
    }

    fn course(first: Round, second: Option<Round>) -> Course {
        let done = Done::Failure(Again::BackOff);
        Course { first: Some(first), second, ..Course::ended(done) }
    }

    #[test]
    fn a_report_tells_of_both_rounds_in_their_order() {
        let (mut first, mut second) = (round("first"), round("second"));
        first.carried.written.waits.push("waits".to_owned());
        first.carried.written.failures.push(refused_write());
        first.carried.written.forced.push(kind("Thing").into());
        second.carried.written.skipped = 2;
        let run = Run { key: key("a"), causes: Vec::new(), more_causes: 0, attempt: 3 };
        let course = course(first, Some(second));
        let mut reads = Reads::having_read(kind("Thing"), Entry::alone(&object("Thing", "a", 1)));
        let record = course.record(&run, &mut reads);
        assert_eq!((record.refused, record.memory, record.attempt), (1, 7, 3));
        assert_eq!(record.ending, Ending::Failure);
        let report = Report::new(&run).with_course(course, (Vec::new(), 4));
        let dropped = "1 lines of log were over the limit";
        let denied = "4 more reads or writes were denied";
        assert_eq!(report.notes, [dropped, "first", "waits", dropped, "second", denied]);
        assert_eq!((report.unchanged, report.log_dropped, report.waited.len()), (2, 2, 2));
        assert_eq!(report.forced.len(), 1);
    }

    #[test]
    fn the_first_reason_of_a_failure_is_told() {
        let mut refused = round("");
        refused.carried.written.failures.push(refused_write());
        let mut said = round("");
        said.message = Some("said".to_owned());
        let mut stale = round("");
        stale.carried.written.stale.push(reference("Thing", "b"));
        let mut later = round("");
        later.message = Some("later".to_owned());
        let cases = [
            (said, None, "said"),
            (refused, Some(later), "apply of Thing g/v1 `default/a` failed (403): no"),
            (stale, None, "`default/b` was deleted or created again since it was read"),
            (round(""), None, "too much"),
        ];
        for (first, second, expected) in cases {
            let failure = Some("too much".to_owned());
            let course = Course { failure, ..course(first, second) };
            let told = course.failure().unwrap();
            assert!(told.ends_with(expected), "{told}");
        }
    }

    #[test]
    fn a_cancelled_call_is_neither_a_failure_nor_a_trap() {
        let round = Round { answer: Err(cancelled()), ..round("") };
        assert_eq!(round.trapped(), None);
        let course = course(round, None);
        assert!(course.is_cancelled());
        assert_eq!(course.failure(), None);
    }
}
