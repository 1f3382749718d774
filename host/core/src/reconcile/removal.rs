//! Decides what a run does with its object, also while the processor is being removed.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    Planned, Reconciler, Removal, Turn,
    carry_out::again,
    course::{Course, Round},
};
use crate::{
    contract::ObjectRef,
    outcome::{Finalizers, Plan},
    queue::{Done, Key},
    reads,
    store::Entry,
};

/// The annotation that pauses the reconciles of an object while it is `true`.
const PAUSED: &str = "mortise.dev/paused";

/// The decision about the reconciled object.
pub(super) enum Decision {
    /// The object is left as it is, for this reason.
    Leave(String),
    /// The processor's finalizers are removed from the object.
    Release(Option<Value>),
    /// The processor is called. Holds the JSON passed to it, and the whole object from the store;
    /// `None` if the object is gone. While the processor is being removed, both have a
    /// `deletionTimestamp`.
    Call(Option<String>, Option<Value>),
}

impl Reconciler {
    pub(super) fn decide(&self, known: reads::ReconciledObject) -> Decision {
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
            return Decision::Release(value);
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

    /// Returns the keys of the objects that hold one of the processor's finalizers; `None` as long
    /// as not all of these objects are known.
    pub fn holding(&self, processor: &std::sync::Arc<str>) -> Option<Vec<Key>> {
        let holding = self.version.grant.holding(self.parts.dispatch.stores())?;
        let keys = holding
            .iter()
            .map(|(of, entry)| Key::new(processor, of, entry.namespace(), entry.name()));
        Some(keys.collect())
    }

    /// Returns the objects that hold a finalizer that `former` declares and this version does not;
    /// see [`Grant::abandoned`].
    ///
    /// [`Grant::abandoned`]: crate::grant::Grant::abandoned
    pub fn abandoned(&self, former: &Self) -> Vec<(String, ObjectRef)> {
        self.version.grant.abandoned(&former.version.grant, self.parts.dispatch.stores())
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
            answer: Ok(Planned { plan, retry: None }),
            carried,
            notes: Vec::new(),
        };
        Course { first: Some(first), ..Course::ended(done) }
    }
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
