//! The dry run of a plan: the writes that it would send, computed from the stores without a request
//! to the API server.

use serde_json::Value;

use super::{Action, Context, Withheld, Writer, finalizer};
use crate::{
    applied_fields::{self, manager::FieldManagers},
    contract::ObjectRef,
    outcome::{Manifest, Plan, Prune},
    store::Known,
};

/// The state of the dry run of one plan.
struct DryRun<'a> {
    writer: &'a Writer,
    context: &'a Context<'a>,
    writes: Vec<Withheld>,
}

impl Writer {
    /// Returns the writes that a plan would send now, in order. Writes that would change nothing,
    /// as far as the store knows, are left out.
    pub fn dry_run(&self, plan: &Plan, context: &Context<'_>) -> Vec<Withheld> {
        let mut run = DryRun { writer: self, context, writes: Vec::new() };
        run.all(plan);
        run.writes
    }
}

impl DryRun<'_> {
    fn all(&mut self, plan: &Plan) {
        // Fields by name, so that a new step does not compile until it is handled here.
        let Plan {
            finalizers: _,
            apply,
            patch,
            evict,
            delete,
            prune,
            status: _,
            events,
            requeue: _,
            start: _,
            is_report: _,
        } = plan;
        self.finalizers(plan, finalizer::Step::Add);
        for manifest in apply {
            self.manifest(manifest, &self.managers_in(&manifest.to.kind.cluster).apply);
        }
        for manifest in patch {
            self.manifest(manifest, &self.managers_in(&manifest.to.kind.cluster).patch);
        }
        for eviction in evict {
            self.would(Action::Evict, &eviction.of);
        }
        for deletion in delete {
            if !matches!(self.writer.stores.known(&deletion.of), Known::Absent) {
                self.would(Action::Delete, &deletion.of);
            }
        }
        for prune in prune {
            self.prune(prune, plan);
        }
        self.status(plan);
        for event in events {
            let of = event.on.as_ref().unwrap_or(&self.context.reconciled.reference).clone();
            self.would(Action::Event, &of);
        }
        self.finalizers(plan, finalizer::Step::Remove);
    }

    fn managers_in(&self, cluster: &str) -> FieldManagers {
        FieldManagers::new(&self.context.owner(self.writer.home.of_writes_to(cluster)))
    }

    fn would(&mut self, action: Action, of: &ObjectRef) {
        self.writes.push(Withheld { action, of: of.clone() });
    }

    fn finalizers(&mut self, plan: &Plan, step: finalizer::Step) {
        let reconciled = self.context.reconciled;
        let (Some(finalizers), Some(object)) = (&plan.finalizers, &reconciled.object) else {
            return;
        };
        let held = finalizer::held(object);
        if finalizer::next(&held, finalizers, step) != held {
            self.would(Action::Finalizers, &reconciled.reference);
        }
    }

    fn manifest(&mut self, manifest: &Manifest, manager: &str) {
        match self.writer.stores.known(&manifest.to) {
            Known::Absent => self.would(Action::Create, &manifest.to),
            Known::Present(_) if manifest.create_only => {}
            Known::Present(entry) => {
                let own = entry.own().get(manager, "");
                if own.is_none_or(|own| own.values != applied_fields::of_manifest(&manifest.object))
                {
                    self.would(Action::Update, &manifest.to);
                }
            }
            Known::Unwatched => self.would(Action::Update, &manifest.to),
        }
    }

    fn prune(&mut self, prune: &Prune, plan: &Plan) {
        let manager = self.managers_in(&prune.of.kind.cluster).apply;
        let applied = self.writer.stores.applied(&prune.of, &manager);
        for entry in applied.ok().flatten().iter().flatten() {
            let of = entry.reference(&prune.of.kind);
            if !plan.apply.iter().any(|manifest| manifest.to.is_same(&of)) {
                self.would(Action::Delete, &of);
            }
        }
    }

    fn status(&mut self, plan: &Plan) {
        let Some(status) = &plan.status else { return };
        let of = &self.context.reconciled.reference;
        let Known::Present(entry) = self.writer.stores.known(of) else { return };
        let own = entry.own().get(&self.managers_in(&of.kind.cluster).status, "status");
        let sent = applied_fields::of_manifest(&serde_json::json!({"status": status}));
        let is_held = !self.context.whole_status && own.is_some_and(|own| own.values == sent);
        if !is_held && entry.value().get("status").unwrap_or(&Value::Null) != status {
            self.would(Action::Status, of);
        }
    }
}
