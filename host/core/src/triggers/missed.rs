//! The changes during a run that the run has not seen.

use std::sync::Arc;

use foldhash::{HashMap, HashSet};

use super::{
    Registrations, cause,
    compare::{Compare, Spent, of_term},
    is_own_object, known,
    log::Logged,
    role,
};
use crate::{
    contract::Kind,
    queue::{Cause, Key, Role},
    reads::{Dependency, DependsOn, Reads},
    store::{Claim, Claimed, Event},
};

/// The most steps at the end of a run: some milliseconds. The key of a run that needs more is queued
/// again.
const MAX_STEPS: usize = 1 << 17;
/// The most bytes of JSON that are parsed at the end of a run: those of two large objects.
const MAX_PARSED_BYTES: usize = 3 << 20;

/// A run that has ended.
pub(super) struct Run<'a> {
    pub(super) key: &'a Key,
    pub(super) reads: &'a Reads,
    /// The dependencies, sorted by index term.
    pub(super) dependencies: &'a [Dependency],
    /// True if one of them is the key's own object.
    pub(super) follows_object: bool,
    pub(super) reconcilers: &'a Registrations,
}

/// The work of comparing one run with events exceeds the bound.
struct TooMuch;

// === impl Run ===

impl Run<'_> {
    /// Returns the causes that the run has not seen, given the events since it began.
    pub(super) fn missed(&self, events: &[Arc<Logged>]) -> Vec<Cause> {
        if events.is_empty() {
            return Vec::new();
        }
        let (kinds, claims) = (self.kinds(), self.claims(events));
        // Grouped by dependency, so that only the last state of a written object counts.
        let mut hits: Vec<Option<Cause>> = vec![None; self.dependencies.len()];
        let (mut causes, mut spent) = (Vec::new(), Spent::default());
        for logged in events {
            let Event::Object(change) = &logged.event else {
                causes.extend(self.missed_of_kind(&logged.event));
                continue;
            };
            if !kinds.contains(&change.kind) && !self.reconcilers.contains_key(&change.kind) {
                continue;
            }
            let claim = change.claimed().and_then(|claimed| claims.get(&claimed));
            let own = claim.map(|claim| claim.own(change));
            let mut compare = Compare::new(own.unwrap_or_else(|| change.clone()));
            let Ok(new) = self.compare(logged, &mut compare, spent, &mut hits) else {
                return vec![Cause::Overrun];
            };
            causes.extend(new);
            spent += compare.spent;
        }
        causes.extend(hits.into_iter().flatten());
        causes
    }

    /// Returns the kinds of the dependencies.
    fn kinds(&self) -> HashSet<&Arc<Kind>> {
        self.dependencies.iter().map(|of| &of.kind).collect()
    }

    /// Returns the writes of the run that a watch reported before their answers arrived.
    fn claims<'a>(&self, events: &'a [Arc<Logged>]) -> HashMap<Claimed<'a>, &'a Claim> {
        let mut claims = HashMap::default();
        for logged in events {
            if let Event::Claimed(claim) = &logged.event
                && claim.is_by(self.key)
            {
                claims.entry(claim.claimed()).or_insert(claim);
            }
        }
        claims
    }

    /// Compares a change with the dependencies. `hits` are the causes by dependency, and `before` was
    /// done before. Returns a cause that is none of a dependency.
    fn compare(
        &self,
        logged: &Logged,
        compare: &mut Compare,
        before: Spent,
        hits: &mut [Option<Cause>],
    ) -> Result<Option<Cause>, TooMuch> {
        let all = self.dependencies;
        if compare.change.has_lost_objects() {
            let concerns = |of: &Dependency| of.kind == compare.change.kind && compare.is_open(of);
            return if all.iter().any(concerns) { Err(TooMuch) } else { Ok(None) };
        }
        for term in logged.terms() {
            let (first, of_term) = of_term(all, *term);
            compare.spent.steps += 1;
            for (of, hit) in of_term.iter().zip(hits.iter_mut().skip(first)) {
                check(before, compare)?;
                let is_final = hit.is_some() && !is_state(of);
                let is_asked = !self.reads.is_last() || is_own_object(of);
                if is_asked && !is_final && compare.is_about(of) {
                    let affects = compare.affects(of, all, self.key);
                    *hit = affects.then(|| cause(&compare.change, role(&of.depends_on)));
                }
            }
        }
        if self.follows_object {
            return Ok(None);
        }
        check(before, compare)?;
        let mut reconcilers = self.reconcilers.get(&compare.change.kind).into_iter().flatten();
        let is_key = reconcilers.any(|of| of.key_of(compare).as_ref() == Some(self.key));
        Ok(is_key.then(|| cause(&compare.change, Role::Reconciled)))
    }

    /// Returns the cause in an event that is no change of an object.
    fn missed_of_kind(&self, event: &Event) -> Option<Cause> {
        let (reads, mut all) = (self.reads, self.dependencies.iter());
        let waits = |kind: &Kind, itself: bool| {
            reads.waits().iter().any(|wait| *wait.kind == *kind && (!itself || wait.for_itself))
        };
        match event {
            Event::Object(_) | Event::Claimed(_) => None,
            Event::Known(kind) => waits(kind, true).then(|| known(kind, true)),
            Event::Complete(kind) => waits(kind, false).then(|| known(kind, false)),
            Event::Unknown(kind) => {
                all.any(|of| of.kind == *kind).then(|| Cause::KindUnknown(Arc::clone(kind)))
            }
            Event::Closed(kind, store) => {
                all.any(|of| of.store == Some(*store)).then(|| Cause::Moved(Arc::clone(kind)))
            }
        }
    }
}

/// Fails if the work before a change and that of comparing it are too much.
fn check(before: Spent, compare: &Compare) -> Result<(), TooMuch> {
    let mut spent = before;
    spent += compare.spent;
    let is_too_much =
        compare.is_exhausted() || spent.steps > MAX_STEPS || spent.parsed_bytes > MAX_PARSED_BYTES;
    if is_too_much { Err(TooMuch) } else { Ok(()) }
}

/// Returns whether only the last state of an object counts, not each change on the way to it.
fn is_state(of: &Dependency) -> bool {
    matches!(of.depends_on, DependsOn::Written { .. })
}
