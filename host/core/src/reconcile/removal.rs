//! Decides what a run does with its object, also while the processor is being removed.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::Value;

use super::{
    Planned, Reconciler, Removal, Turn,
    carry_out::{Answered, again},
    course::{Course, Round},
};
use crate::{
    contract::ObjectRef,
    grant::DeclaredReconciler,
    outcome::{Finalizers, Plan},
    queue::{Again, Cause, Done, Key},
    reads,
    store::Entry,
};

/// The annotation that pauses the reconciles of an object while it is `true`.
const PAUSED: &str = "mortise.dev/paused";

/// The requeue delay of a key that waits for finalizers of on-demand reconcilers: no event tells
/// that the last one is removed.
const HELD_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The failed attempts after which a processor that is being released is not asked any more which
/// selections a key starts. With the queue's back-off these are 20 seconds, in which watches that
/// have just been opened, also on other clusters, have their lists.
const MAX_FAILED_ASKS: u32 = 12;

/// The decision about the reconciled object.
pub(super) enum Decision {
    /// The object is left as it is, for this reason.
    Leave(String),
    /// The processor's finalizers are removed from the object.
    Release(Option<Value>),
    /// The processor is called for the selections that it starts, and nothing else is done. Holds
    /// the same as `Call`.
    Ask(Option<String>, Option<Value>),
    /// The object is left until on-demand reconcilers have removed their finalizers.
    Wait,
    /// The processor is called. Holds the JSON passed to it, and the whole object from the store;
    /// `None` if the object is gone. While the processor is being removed, both have a
    /// `deletionTimestamp`.
    Call(Option<String>, Option<Value>),
}

impl Reconciler {
    pub(super) fn decide(&self, key: &Key, known: reads::ReconciledObject) -> Decision {
        // An object that has left the selection is still reconciled while it holds one of the
        // reconciler's finalizers; then it counts as gone.
        let there = known.selected || known.held;
        let entry = known.entry.filter(|_| there);
        let (object, value) = match &entry {
            Some(entry) => (known.json, Some(entry.value())),
            None => (None, None),
        };
        let removal = self.version.settings.removal;
        if removal.is_some() && !known.held {
            return Decision::Leave("not reconciled: its processor is being deleted".to_owned());
        }
        if removal == Some(Removal::Release) {
            return match self.waits_for_started(key) {
                None => Decision::Ask(object, value),
                Some(true) => Decision::Wait,
                Some(false) => Decision::Release(value),
            };
        }
        if entry.as_deref().is_some_and(is_paused) {
            return Decision::Leave(format!("paused by the annotation {PAUSED}"));
        }
        if removal.is_none() {
            return Decision::Call(object, value);
        }
        let now = (self.parts.now)();
        let given = object.and_then(|json| serde_json::from_str(&json).ok());
        let given = given.map(|given| deleted(given, now).to_string());
        Decision::Call(given, value.map(|value| deleted(value, now)))
    }

    /// Returns whether the finalizers of a key must stay until those of on-demand reconcilers are
    /// removed; `None` if it is not known which of these the key has started.
    fn waits_for_started(&self, key: &Key) -> Option<bool> {
        let mut on_demand = self.version.grant.reconcilers().iter().filter(|of| of.spec.on_demand);
        let can_hold = on_demand.any(|of| !of.spec.finalizers.is_empty());
        if !can_hold || key.reconciler().is_on_demand() {
            return Some(false);
        }
        let started = self.parts.dispatch.started(key.processor());
        if !started.lock().has_asked(key) {
            return None;
        }
        let stores = self.parts.dispatch.stores();
        let is_held =
            |of: &Arc<DeclaredReconciler>| of.holding(stores).is_none_or(|held| !held.is_empty());
        Some(self.reconcilers.started().iter().any(is_held))
    }

    /// Returns the keys of the objects that hold one of the processor's finalizers; `None` as long
    /// as not all of these objects are known.
    pub fn holding(&self, processor: &Arc<str>) -> Option<Vec<Key>> {
        let (mut holding, stores) = (Vec::new(), self.parts.dispatch.stores());
        for of in self.reconcilers.all() {
            let held = of.holding(stores)?;
            let key =
                |entry: &Arc<Entry>| Key::new(processor, &of.id, entry.namespace(), entry.name());
            holding.extend(held.iter().map(key));
        }
        Some(holding)
    }

    /// Returns the objects that hold a finalizer that `former` declares and this version does not;
    /// see [`Grant::abandoned`].
    ///
    /// [`Grant::abandoned`]: crate::grant::Grant::abandoned
    pub fn abandoned(&self, former: &Self) -> Vec<(String, ObjectRef)> {
        let former: Vec<_> = former.reconcilers.all().collect();
        let former = former.iter().map(AsRef::as_ref);
        self.version.grant.abandoned(former, self.parts.dispatch.stores())
    }

    /// Takes nothing of an answer but the selections that it starts. `attempt`: the number of failed
    /// runs of the key before this one.
    pub(super) async fn asked(
        &self,
        answered: Answered,
        turn: &mut Turn<'_>,
        attempt: u32,
    ) -> Course {
        let first = self.round(answered, turn, Plan::only_start).await;
        let done = match &first.answer {
            Err(refused) if refused.is_cancelled() => Done::Cancelled,
            Ok(planned) if planned.retry.is_some() && attempt < MAX_FAILED_ASKS => {
                Done::Failure(Again::BackOff)
            }
            Ok(_) | Err(_) => wait(),
        };
        Course { first: Some(first), ..Course::ended(done) }
    }

    /// Removes the finalizers that the processor may have put on the object, and changes nothing
    /// else.
    pub(super) async fn remove_finalizers(&self, turn: &mut Turn<'_>) -> Course {
        let plan = Plan {
            finalizers: Some(Finalizers {
                wanted: Vec::new(),
                released: turn.declared.spec.finalizers.clone(),
            }),
            is_report: true,
            ..Plan::default()
        };
        let carried = self.write(&plan, turn).await;
        let done = if carried.written.failures.is_empty() {
            Done::Success { requeue: None }
        } else {
            Done::Failure(again(carried.written.retry_after))
        };
        let first = Round {
            call: None,
            returned: None,
            message: None,
            answer: Ok(Planned { plan, retry: None, note: None }),
            carried,
            notes: Vec::new(),
        };
        Course { first: Some(first), ..Course::ended(done) }
    }
}

/// Returns the course of a run that waits for the objects of on-demand reconcilers.
pub(super) fn waiting() -> Course {
    let why = "waits until no object holds a finalizer of an on-demand reconciler";
    Course { left: Some(why.to_owned()), ..Course::ended(wait()) }
}

fn wait() -> Done {
    Done::Success { requeue: Some((HELD_RETRY_DELAY, Cause::Requeue)) }
}

/// Returns the object with a `deletionTimestamp` of now, unless it has one.
fn deleted(mut object: Value, now: Timestamp) -> Value {
    let time = object
        .get_mut("metadata")
        .and_then(Value::as_object_mut)
        .map(|metadata| metadata.entry("deletionTimestamp").or_insert(Value::Null));
    if let Some(time) = time.filter(|time| time.is_null()) {
        *time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
    }
    object
}

/// Returns whether the reconciles of an object are paused by its annotation.
pub(super) fn is_paused(object: &Entry) -> bool {
    object.annotation(PAUSED).as_deref() == Some("true")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_existing_deletion_timestamp_is_kept() {
        let now: Timestamp = "2026-01-02T03:04:05.678Z".parse().unwrap();
        let cases = [
            (json!({"name": "a"}), "2026-01-02T03:04:05Z"),
            (json!({"name": "a", "deletionTimestamp": null}), "2026-01-02T03:04:05Z"),
            (
                json!({"name": "a", "deletionTimestamp": "2025-01-01T00:00:00Z"}),
                "2025-01-01T00:00:00Z",
            ),
        ];
        for (metadata, expected) in cases {
            let object = deleted(json!({"metadata": metadata}), now);
            assert_eq!(object["metadata"]["deletionTimestamp"], expected);
        }
    }
}
