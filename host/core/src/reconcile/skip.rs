//! Skips the keys whose run would repeat their last one, because everything that the last run read
//! and wrote is unchanged.
//!
//! *Guarantee*: a key is skipped only if it is due without a change that the host knows of, and if
//! everything that its run record says was read and written has the same digest now. That is enough
//! because a processor is a function of its reads: a run that uses another input (the time, random
//! bytes, the network) makes a record that is not skippable.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tracing::debug;

use super::{Ended, Mode, Reconciler, Report, removal::is_paused};
use crate::{
    contract::ObjectRef,
    grant::DeclaredReconciler,
    queue::{Cause, Done, Run},
    reads::{
        View,
        record::{MustRun, NotSkippable, Own, Pruned, Record, WriteRecord, can_be_asked},
        yield_now,
    },
    store::{Entry, Known},
};

// === impl Reconciler ===

impl Reconciler {
    /// Verifies the run record of a key that is due, and returns it. If it does not hold, returns
    /// the reason to run the key; `None` if the key is not due, or has not run since the host
    /// started.
    pub(super) async fn verify_due(
        &self,
        run: &Run,
        reconciler: &DeclaredReconciler,
        reference: &ObjectRef,
    ) -> Result<Arc<Record>, Option<MustRun>> {
        if !self.parts.skips || !is_due(run) {
            return Err(None);
        }
        let record = self.parts.records.get(&run.key).ok_or(None)?;
        match self.verify(reconciler, reference, &record).await {
            Ok(()) => Ok(record),
            Err(why) => {
                debug!(key = %run.key, %why, "not skipped");
                Err(Some(why))
            }
        }
    }

    /// Verifies that a run is skippable, and that everything that it read and wrote is unchanged.
    async fn verify(
        &self,
        reconciler: &DeclaredReconciler,
        reference: &ObjectRef,
        record: &Record,
    ) -> Result<(), MustRun> {
        record.skippable()?;
        // Fields by name, so that a new one does not compile until it is verified.
        let Record {
            ran_on,
            reads,
            wrote,
            removed,
            pruned,
            // Verified with the object.
            object: _,
            finalizers: _,
            // Judged by `skippable`, or of no account.
            key: _,
            attempt: _,
            asked: _,
            calls: _,
            noted: _,
            outcome: _,
            refused: _,
            requeue: _,
            resync: _,
            memory: _,
            ending: _,
        } = record;
        let settings = &self.version.settings;
        if settings.removal.is_some() || settings.mode != Mode::Reconcile {
            return Err(MustRun::Mode);
        }
        let ran_on = ran_on.as_ref().ok_or(NotSkippable::NotCalled)?;
        if !self.basis(ran_on.now_ms).is_same_version(ran_on) {
            return Err(MustRun::Version);
        }
        let mut view = self.view();
        view.reserve(reads.len(), wrote.len());
        let object = verify_object(&mut view, reconciler, reference, record).await?;
        for read in reads {
            match view.ask_again(read.clone(), &self.answers).await {
                None => return Err(MustRun::Secret),
                Some(answer) if answer != read.answer => return Err(MustRun::Read),
                Some(_) => {}
            }
        }
        wrote.iter().try_for_each(|wrote| self.verify_written(wrote, &view))?;
        for pruned in pruned {
            // Each searches a store.
            yield_now().await;
            self.verify_pruned(pruned, record)?;
        }
        removed.iter().try_for_each(|removed| self.verify_removed(removed))?;
        verify_finalizers(record, &object)
    }

    fn verify_written(&self, wrote: &WriteRecord, view: &View) -> Result<(), MustRun> {
        let ObjectRef { kind, namespace, name, .. } = &wrote.of;
        // The object as it was just read, or as the store has it now: a change in between is found
        // at the end.
        let entry =
            view.answered(kind, namespace.as_deref(), name).cloned().or_else(|| {
                match self.parts.dispatch.stores().known_by_name(kind, namespace.as_deref(), name) {
                    Known::Present(entry) => Some(entry),
                    Known::Unwatched | Known::Absent => None,
                }
            });
        let entry = entry.ok_or(MustRun::Written)?;
        let own = || entry.own().get(&wrote.manager, &wrote.subresource);
        let is_so = wrote.own.is_none_or(|left| {
            own().is_some_and(|own| Own::of(own, left.fields.is_keyed()) == left)
        });
        let breaks = entry.breaks_absence_of(&wrote.manager);
        if is_so && !breaks { Ok(()) } else { Err(MustRun::Written) }
    }

    fn verify_pruned(&self, pruned: &Pruned, record: &Record) -> Result<(), MustRun> {
        if !can_be_asked(&pruned.of) {
            return Err(MustRun::Secret);
        }
        let of = &pruned.of;
        let stores = self.parts.dispatch.stores();
        if stores.is_unknown(&of.kind) {
            return Ok(());
        }
        let left = stores.applied(of, &pruned.manager).ok().flatten().ok_or(MustRun::Pruned)?;
        let is_of = |wrote: &&WriteRecord| {
            wrote.manager == pruned.manager && wrote.of.kind.is_same(&of.kind)
        };
        let wrote = record.wrote.iter().filter(is_of).map(|wrote| &wrote.of);
        let wrote: HashSet<_> =
            wrote.map(|of| (of.namespace.as_deref(), of.name.as_str())).collect();
        let is_written = |entry: &Arc<Entry>| wrote.contains(&(entry.namespace(), entry.name()));
        if left.iter().all(is_written) { Ok(()) } else { Err(MustRun::Pruned) }
    }

    fn verify_removed(&self, removed: &ObjectRef) -> Result<(), MustRun> {
        let (stores, of) = (self.parts.dispatch.stores(), removed);
        let is_gone = stores.is_unknown(&of.kind) || matches!(stores.known(of), Known::Absent);
        if is_gone { Ok(()) } else { Err(MustRun::Removed) }
    }

    /// Skips a key whose record holds.
    pub(super) fn skip(
        &self,
        run: &Run,
        reconciler: &DeclaredReconciler,
        reference: &ObjectRef,
        record: Arc<Record>,
    ) -> (Report, Ended) {
        let resync = reconciler.spec.resync;
        let again = (record.resync && resync > 0).then(|| Duration::from_millis(resync));
        let done = Done::Success { requeue: again.map(|after| (after, Cause::Resync)) };
        debug!("skipped");
        let report = Report {
            version: Some(Arc::clone(&self.version.identity)),
            kind: reference.kind.clone(),
            again,
            skipped: true,
            record,
            ..Report::new(run)
        };
        (report, Ended { done, ..Ended::nothing() })
    }
}

/// Returns whether a key is due without a change that the host knows of.
fn is_due(run: &Run) -> bool {
    let is_no_change = |cause: &Cause| matches!(cause, Cause::Start | Cause::Resync);
    let are_all = run.more_causes == 0 && !run.causes.is_empty();
    run.attempt == 0 && are_all && run.causes.iter().all(is_no_change)
}

async fn verify_object(
    view: &mut View,
    reconciler: &DeclaredReconciler,
    reference: &ObjectRef,
    record: &Record,
) -> Result<Arc<Entry>, MustRun> {
    // The run reports why the object cannot be read.
    view.check_reconciled(reference).await.map_err(|_| MustRun::Unreadable)?;
    let known = view.reconciled(reference, reconciler);
    let known = known.map_err(|_| MustRun::Unreadable)?;
    let is_its = known.selected || known.held;
    let entry = known.entry.filter(|_| is_its).ok_or(MustRun::Object)?;
    if is_paused(&entry) {
        return Err(MustRun::Unreadable);
    }
    if view.object_digest() == record.object { Ok(entry) } else { Err(MustRun::Object) }
}

fn verify_finalizers(record: &Record, object: &Entry) -> Result<(), MustRun> {
    let Some(finalizers) = &record.finalizers else { return Ok(()) };
    let holds = |name: &String| object.holds_finalizer(name);
    let is_so = finalizers.held.iter().all(holds) && !finalizers.released.iter().any(holds);
    if is_so { Ok(()) } else { Err(MustRun::Finalizers) }
}
