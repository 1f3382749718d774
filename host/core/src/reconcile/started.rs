//! Starts and stops on-demand reconcilers, as the outcomes of runs ask for it.
//!
//! *Guarantees.* The outcomes of the current version alone are taken over: a run of a former one
//! changes nothing, since its key runs again on the current version. A reconciler is in the table
//! of its version before the first of its keys is queued, and until the last one is done.

#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc};

use super::{Reconciler, Removal, course::Course};
use crate::{
    contract::{Kind, Selection},
    dispatch::{Changed, Started},
    grant::{DeclaredReconciler, Selected},
    queue::{Again, Done, Key, ReconcilerId},
    store::{Known, Scope, Wanted},
};

/// An on-demand reconciler that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedReconciler {
    pub id: ReconcilerId,
    /// The watches that it needs.
    pub watches: Vec<(Kind, Scope, Wanted)>,
    /// The minimum interval between its runs, in milliseconds.
    pub min_interval: u64,
    /// The selections that it runs for, without those that end.
    pub selections: Vec<Arc<Selected>>,
}

/// A selection that outcomes have started.
#[derive(Clone, Debug)]
pub struct StartedSelection {
    pub of: Arc<Selected>,
    /// True if its objects are reconciled: not if the selection ends, or waits for its finalizers.
    pub runs: bool,
    /// The keys whose last successful outcomes ask for it, sorted.
    pub by: Vec<Key>,
}

/// The finalizers of an on-demand reconciler that outcomes ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finalizing {
    pub id: ReconcilerId,
    pub finalizers: Vec<String>,
    /// The declared selection, of the kind that the reconciler is started for.
    pub of: Selection,
    /// False if the reconciler waits for [`Reconciler::permit`].
    pub is_permitted: bool,
}

// === impl Reconciler ===

impl Reconciler {
    /// Takes over the selections that a run's outcome starts, if the run has succeeded, and those
    /// of a key that is gone. Fails the run if too much would run. Also returns whether on-demand
    /// reconcilers have changed.
    pub(super) fn take_over(&self, key: &Key, course: Course, is_last: bool) -> (Course, bool) {
        let has_none = !self.version.grant.has_on_demand() || key.reconciler().is_on_demand();
        if has_none || course.is_cancelled() {
            return (course, false);
        }
        let started = self.parts.dispatch.started(&self.version.identity.processor);
        let mut started = started.lock();
        if !started.is_of(&self.token) {
            return (course, false);
        }
        // A processor that is being released starts nothing after its last answer, whatever that is.
        let is_released = self.version.settings.removal == Some(Removal::Release);
        let is_last_ask = course.first.is_some() && !matches!(course.done, Done::Failure(_));
        let ended = (is_released && is_last_ask).then_some(&[][..]);
        let changed = match course.started().or(ended) {
            _ if is_last => started.forget(key),
            None => return (course, false),
            Some(wanted) => match started.ask(key, wanted) {
                Ok(changed) => changed,
                Err(exceeded) => {
                    let (done, failure) =
                        (Done::Failure(Again::BackOff), Some(exceeded.to_string()));
                    return (Course { done, failure, ..course }, false);
                }
            },
        };
        let has_changed = !changed.is_empty();
        self.follow(&mut started, changed);
        (course, has_changed)
    }

    /// Records that the last run of an on-demand reconciler's key has ended. Returns whether
    /// on-demand reconcilers have changed.
    pub(super) fn left(&self, key: &Key, done: &Done) -> bool {
        let is_again = !matches!(done, Done::Success { .. } | Done::Failure(Again::OnChange));
        if is_again || !key.reconciler().is_on_demand() {
            return false;
        }
        let started = self.parts.dispatch.started(&self.version.identity.processor);
        let mut started = started.lock();
        let has_changed = started.is_of(&self.token) && started.done(key);
        if has_changed {
            self.register(&started, key.reconciler(), false);
        }
        has_changed
    }

    /// Returns whether the object of an on-demand reconciler's key is not its own any more after a
    /// run that has removed the finalizer: the key runs once more, since own writes do not trigger.
    pub(super) fn has_left(&self, key: &Key) -> bool {
        let of = key.reconciler().is_on_demand().then(|| self.reconcilers.of(key.reconciler()));
        let Some(of) = of.flatten() else { return false };
        let (stores, kind) = (self.parts.dispatch.stores(), &of.spec.of.kind);
        match stores.known_by_name(kind, key.namespace(), key.name()) {
            Known::Present(entry) => !of.selects(&entry) && !of.holds_finalizer(&entry),
            Known::Unwatched | Known::Absent => false,
        }
    }

    /// Takes over what a former version has started, as far as this one declares it. Returns the
    /// reconcilers of which selections are not declared any more: [`Reconciler::follow`] must
    /// follow once the version is active.
    pub(super) fn adopt(&self, started: &mut Started) -> Changed {
        let grant = &self.version.grant;
        let is_declared = |id: &ReconcilerId| grant.on_demand(id).is_some();
        let changed = started.adopt(&self.token, is_declared, |of| grant.may_start(of));
        self.reconcilers.clear();
        for id in started.reconcilers() {
            self.reconcilers.set(id, self.started_reconciler(started, id));
        }
        changed
    }

    /// Fills the table of a version that is not active yet with what the active one has started, so
    /// that it is tried with these objects and its watches are open from the swap on.
    pub(super) fn preview(&self) {
        let grant = &self.version.grant;
        let started = self.parts.dispatch.started(&self.version.identity.processor);
        let started = started.lock();
        for id in started.reconcilers() {
            let (selections, ending) = started.selections(id);
            let may_run = started.is_permitted(id) || self.needs_permit(id).is_none();
            let (selections, mut ended): (Vec<_>, Vec<_>) =
                selections.into_iter().filter(|_| may_run).partition(|of| grant.may_start(of));
            ended.extend(ending);
            self.reconcilers.set(id, grant.started(id, selections.into(), ended.into()));
        }
    }

    /// Makes the on-demand reconcilers run for the selections that are started.
    pub(super) fn follow(&self, started: &mut Started, changed: Changed) {
        for (id, has_lost) in changed {
            let left = self.register(started, &id, has_lost);
            if has_lost && started.set_left(&id, &left) {
                self.register(started, &id, false);
            }
        }
    }

    /// Registers an on-demand reconciler as it is started now, or removes it. Returns the keys of
    /// the objects that it has lost.
    fn register(&self, started: &Started, id: &ReconcilerId, has_lost: bool) -> Vec<Key> {
        let dispatch = &self.parts.dispatch;
        self.reconcilers.set(id, self.started_reconciler(started, id));
        if let Some(of) = self.reconcilers.of(id) {
            return dispatch.change(&self.registration(&of), has_lost);
        }
        dispatch.end_reconciler(&self.version.identity.processor, id);
        Vec::new()
    }

    fn started_reconciler(
        &self,
        started: &Started,
        id: &ReconcilerId,
    ) -> Option<DeclaredReconciler> {
        let (mut selections, ending) = started.selections(id);
        if !started.is_permitted(id) && self.needs_permit(id).is_some() {
            selections = Box::default();
        }
        self.version.grant.started(id, selections, ending)
    }

    /// Returns the declaration of an on-demand reconciler that must not run before its finalizers
    /// are claimed. Without a Processor resource there are no claims, nor are there any on objects
    /// of other clusters.
    fn needs_permit(&self, id: &ReconcilerId) -> Option<(&Arc<DeclaredReconciler>, Kind)> {
        self.version.settings.name.as_ref()?;
        let declared = self.version.grant.on_demand(id)?;
        let kind = id.kind().filter(|kind| kind.cluster.is_empty())?;
        (!declared.spec.finalizers.is_empty()).then_some((declared, kind))
    }

    /// Returns the on-demand reconcilers that need a permit, sorted by identity, and whether these
    /// are all: false until each object that may start one has run.
    pub fn finalizing(&self) -> (Vec<Finalizing>, bool) {
        let declared = &self.version.grant.reconcilers();
        let mut on_demand = declared.iter().filter(|of| of.spec.on_demand);
        if on_demand.all(|of| of.spec.finalizers.is_empty()) {
            return (Vec::new(), true);
        }
        let are_all = self.have_all_asked();
        let started = self.parts.dispatch.started(&self.version.identity.processor);
        let started = started.lock();
        let finalizing = |id: &ReconcilerId| {
            let (declared, kind) = self.needs_permit(id)?;
            let of = Selection { kind: kind.into(), ..declared.spec.of.clone() };
            let (id, finalizers) = (id.clone(), declared.spec.finalizers.clone());
            let is_permitted = started.is_permitted(&id);
            Some(Finalizing { id, finalizers, of, is_permitted })
        };
        let mut all: Vec<_> = started.reconcilers().filter_map(finalizing).collect();
        all.sort_by(|one, other| one.id.cmp(&other.id));
        (all, are_all)
    }

    /// Lets on-demand reconcilers run whose finalizers are claimed. Returns whether some of them
    /// are started by that.
    pub fn permit(&self, ids: &[ReconcilerId]) -> bool {
        let started = self.parts.dispatch.started(&self.version.identity.processor);
        let mut started = started.lock();
        let mut changed = Changed::new();
        if started.is_of(&self.token) {
            let new = ids.iter().filter(|id| started.permit(id));
            changed.extend(new.map(|id| (id.clone(), false)));
        }
        let has_changed = !changed.is_empty();
        self.follow(&mut started, changed);
        has_changed
    }

    /// Returns the selections that outcomes have started, those that end included.
    pub fn started_selections(&self) -> Vec<StartedSelection> {
        let started = self.parts.dispatch.started(&self.version.identity.processor);
        let started = started.lock();
        let mut askers: HashMap<&Arc<Selected>, Vec<Key>> = HashMap::new();
        for (key, of) in started.asked().flat_map(|(key, all)| all.iter().map(move |of| (key, of)))
        {
            askers.entry(of).or_default().push(key.clone());
        }
        let selection = |id: &ReconcilerId| {
            let running = self.reconcilers.of(id);
            let running = running.as_ref().map_or(&[][..], |of| of.selections());
            let (asked, ending) = started.selections(id);
            let all = asked.into_iter().chain(ending).map(|of| {
                let mut by = askers.get(&of).cloned().unwrap_or_default();
                by.sort();
                StartedSelection { runs: running.contains(&of), of, by }
            });
            all.collect::<Vec<_>>()
        };
        let mut ids: Vec<&ReconcilerId> = started.reconcilers().collect();
        ids.sort();
        ids.into_iter().flat_map(selection).collect()
    }

    /// Returns whether it is known what all objects ask for: each object of a reconciler that may
    /// start others has run to its end.
    pub(super) fn have_all_asked(&self) -> bool {
        if !self.version.grant.has_on_demand() {
            return true;
        }
        let dispatch = &self.parts.dispatch;
        let started = dispatch.started(&self.version.identity.processor);
        let started = started.lock();
        let mut askers = self.reconcilers.declared().iter().map(|of| self.registration(of));
        askers.all(|of| of.all_keys(dispatch.stores(), |key| started.has_asked(key)))
    }

    /// Returns the on-demand reconcilers that are started, sorted by identity.
    pub fn started(&self) -> Vec<StartedReconciler> {
        let started = self.reconcilers.started();
        let started = started.iter().map(|of| StartedReconciler {
            id: of.id.clone(),
            watches: self.version.grant.watches(of),
            min_interval: of.spec.min_interval,
            selections: of.selections().to_vec(),
        });
        started.collect()
    }
}
