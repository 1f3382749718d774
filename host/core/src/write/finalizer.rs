//! Writes the finalizers of the reconciled object: by JSON patch with a test on its
//! `resourceVersion`, never by an apply, which would remove the finalizers of others.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Action, Run, Stop,
    leave::{MAX_ATTEMPTS, merged},
    live::{named, resource_version, uid},
};
use crate::{
    contract,
    outcome::{Finalizers, Plan},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Add,
    Remove,
}

impl Run<'_> {
    pub(super) async fn add_finalizers(&mut self, plan: &Plan) {
        self.finalizers(plan, Step::Add).await;
    }

    pub(super) async fn remove_finalizers(&mut self, plan: &Plan) {
        self.finalizers(plan, Step::Remove).await;
    }

    async fn finalizers(&mut self, plan: &Plan, step: Step) {
        let Some(finalizers) = &plan.finalizers else { return };
        if let Err(stop) = self.write_finalizers(finalizers, step).await {
            let reconciled = &self.context.reconciled.reference;
            self.stopped(contract::Action::Finalize, reconciled, stop);
        }
    }

    async fn write_finalizers(&mut self, finalizers: &Finalizers, step: Step) -> Result<(), Stop> {
        let of = &self.context.reconciled.reference;
        for round in 1.. {
            let Some(object) = self.latest.clone() else { return Ok(()) };
            let held = held(&object);
            let next = next(&held, finalizers, step);
            if next == held {
                return Ok(());
            }
            let resource = self.resource(of).await?;
            let version = resource_version(&object).unwrap_or_default();
            let operations = vec![
                json!({"op": "test", "path": "/metadata/resourceVersion", "value": version}),
                json!({"op": "add", "path": "/metadata/finalizers", "value": next}),
            ];
            match self.send(self.json_patch(&resource, of, operations), of).await {
                Ok(answer) => {
                    self.keep_finalized(&answer.body, &next);
                    return Ok(());
                }
                Err(refusal) if matches!(refusal.code, 404 | 409 | 422) && round < MAX_ATTEMPTS => {
                    // An object with another uid is not the one that was reconciled.
                    let live =
                        self.live(&resource, of).await?.filter(|live| uid(live) == uid(&object));
                    let is_current =
                        live.as_ref().is_some_and(|live| resource_version(live) == Some(version));
                    if is_current {
                        return Err(Stop::of(refusal, of));
                    }
                    self.latest = live;
                }
                Err(refusal) => return Err(Stop::of(refusal, of)),
            }
        }
        Ok(())
    }

    fn keep_finalized(&mut self, answer: &Value, next: &[String]) {
        let of = &self.context.reconciled.reference;
        let is_gone = next.is_empty()
            && answer.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null());
        if is_gone {
            self.writer.stores.deleted(
                &of.kind,
                of.namespace.as_deref(),
                &of.name,
                uid(answer),
                self.context.key,
            );
            self.latest = None;
        } else {
            let finalizers = json!({"metadata": {"finalizers": next}});
            self.store(of, answer, &Arc::new(merged(named(of, uid(answer)), finalizers)));
        }
        self.changed(Action::Finalizers, of, answer.clone());
    }
}

pub(super) fn held(object: &Value) -> Vec<String> {
    let held =
        object.pointer("/metadata/finalizers").and_then(Value::as_array).into_iter().flatten();
    held.filter_map(Value::as_str).map(str::to_owned).collect()
}

pub(super) fn next(held: &[String], finalizers: &Finalizers, step: Step) -> Vec<String> {
    let mut next = held.to_vec();
    match step {
        Step::Add => {
            next.extend(finalizers.wanted.iter().filter(|name| !held.contains(name)).cloned());
        }
        Step::Remove => next.retain(|name| !finalizers.released.contains(name)),
    }
    next
}
