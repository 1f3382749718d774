//! Builders for what `reconcile` returns.

use std::time::Duration;

use serde::Serialize;

use crate::{
    Deletion, Event, EventType, Failure, Kind, Manifest, Mode, Object, ObjectRef, Outcome,
    Propagation, Request, Requeue, Retry, Selection, object,
};

/// A contract duration; one too long for it (584 million years) is the longest.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Outcome {
    /// Nothing to write, and run again after the reconciler's resync.
    pub fn new() -> Self {
        Self {
            apply: Vec::new(),
            patch: Vec::new(),
            evict: Vec::new(),
            delete: Vec::new(),
            prune: Vec::new(),
            status: None,
            events: Vec::new(),
            requeue: Requeue::ByDefault,
            finalizers: None,
            children: Vec::new(),
        }
    }

    /// Adds an object as it shall be.
    #[must_use]
    pub fn apply(mut self, manifest: impl Into<Manifest>) -> Self {
        self.apply.push(manifest.into());
        self
    }

    /// Adds a part of an object that belongs to somebody else.
    #[must_use]
    pub fn patch(mut self, manifest: impl Into<Manifest>) -> Self {
        self.patch.push(manifest.into());
        self
    }

    /// Adds a Pod to evict.
    #[must_use]
    pub fn evict(mut self, deletion: Deletion) -> Self {
        self.evict.push(deletion);
        self
    }

    /// Adds an object to delete.
    #[must_use]
    pub fn delete(mut self, deletion: Deletion) -> Self {
        self.delete.push(deletion);
        self
    }

    /// Deletes what this selection holds, was applied for the reconciled object and is not in `apply`.
    #[must_use]
    pub fn prune(mut self, selection: Selection) -> Self {
        self.prune.push(selection);
        self
    }

    /// Sets the status of the reconciled object.
    #[must_use]
    pub fn status(mut self, request: &Request, status: &impl Serialize) -> Self {
        self.status = Some(status_object(&request.ref_, status));
        self
    }

    /// Adds an event.
    #[must_use]
    pub fn event(mut self, event: Event) -> Self {
        self.events.push(event);
        self
    }

    /// Runs again after this time.
    #[must_use]
    pub fn requeue_after(mut self, after: Duration) -> Self {
        self.requeue = Requeue::After(milliseconds(after));
        self
    }

    /// Runs again only when something that was read changes.
    #[must_use]
    pub fn requeue_never(mut self) -> Self {
        self.requeue = Requeue::Never;
        self
    }

    /// The finalizers wanted now, of those that the reconciler declares.
    #[must_use]
    pub fn finalizers<S: Into<String>>(mut self, finalizers: impl IntoIterator<Item = S>) -> Self {
        self.finalizers = Some(finalizers.into_iter().map(Into::into).collect());
        self
    }
}

impl Default for Outcome {
    fn default() -> Self {
        Self::new()
    }
}

impl Manifest {
    /// An object to apply. Its apiVersion and kind come from its type.
    ///
    /// # Panics
    ///
    /// If it does not serialise to a JSON object (a map whose keys are not strings).
    pub fn of<T: Object + Serialize>(object: &T) -> Self {
        Self::text(object::to_json(&T::kind(), object))
    }

    /// An object to apply of a kind that its Rust type does not name.
    ///
    /// # Panics
    ///
    /// As [`Manifest::of`].
    pub fn with_kind(kind: &Kind, object: &impl Serialize) -> Self {
        Self::text(object::to_json(kind, object))
    }

    /// An object to apply, with apiVersion, kind and metadata.name in it.
    pub fn json(object: &serde_json::Value) -> Self {
        Self::text(object.to_string())
    }

    /// An object to apply, as JSON text.
    pub fn text(object: String) -> Self {
        Self {
            cluster: String::new(),
            object,
            mode: Mode::Apply,
            leave: Vec::new(),
            absent: Vec::new(),
        }
    }

    /// Made if it is not there, left alone if it is.
    #[must_use]
    pub fn create_only(mut self) -> Self {
        self.mode = Mode::Create;
        self
    }

    /// Adds a path that is sent when the object is made, and left alone afterwards.
    #[must_use]
    pub fn leave(mut self, path: impl Into<String>) -> Self {
        self.leave.push(path.into());
        self
    }

    /// Adds a path that is removed, whoever set it.
    #[must_use]
    pub fn absent(mut self, path: impl Into<String>) -> Self {
        self.absent.push(path.into());
        self
    }
}

impl<T: Object + Serialize> From<&T> for Manifest {
    fn from(object: &T) -> Self {
        Self::of(object)
    }
}

impl Deletion {
    /// Deletes an object, and in the background what it owns.
    pub fn new(reference: ObjectRef) -> Self {
        Self {
            ref_: reference,
            uid: None,
            propagation: Propagation::Background,
            grace_period: None,
        }
    }

    /// Only if it is the one with this uid.
    #[must_use]
    pub fn uid(mut self, uid: impl Into<String>) -> Self {
        self.uid = Some(uid.into());
        self
    }

    /// By another of Kubernetes' propagation policies.
    #[must_use]
    pub fn propagation(mut self, propagation: Propagation) -> Self {
        self.propagation = propagation;
        self
    }

    /// With this many seconds of grace.
    #[must_use]
    pub fn grace_period(mut self, seconds: u32) -> Self {
        self.grace_period = Some(seconds);
        self
    }
}

impl Event {
    /// An event of type Normal on the reconciled object.
    pub fn normal(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            on: None,
            event_type: EventType::Normal,
            reason: reason.into(),
            message: message.into(),
        }
    }

    /// An event of type Warning on the reconciled object.
    pub fn warning(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { event_type: EventType::Warning, ..Self::normal(reason, message) }
    }

    /// On another object.
    #[must_use]
    pub fn on(mut self, reference: ObjectRef) -> Self {
        self.on = Some(reference);
        self
    }
}

impl Failure {
    /// A reconcile that could not be done, tried again with exponential back-off.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), status: None, events: Vec::new(), retry: Retry::BackOff }
    }

    /// Sets the status that goes with it.
    #[must_use]
    pub fn status(mut self, request: &Request, status: &impl Serialize) -> Self {
        self.status = Some(status_object(&request.ref_, status));
        self
    }

    /// Adds an event.
    #[must_use]
    pub fn event(mut self, event: Event) -> Self {
        self.events.push(event);
        self
    }

    /// Tries again after this time, or when something that was read changes.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry = Retry::After(milliseconds(after));
        self
    }

    /// Tries again only when something that was read changes.
    #[must_use]
    pub fn retry_on_change(mut self) -> Self {
        self.retry = Retry::OnChange;
        self
    }
}

/// The least that names an object, and a status.
fn status_object(reference: &ObjectRef, status: &impl Serialize) -> String {
    #[derive(Serialize)]
    struct Named<'a, S> {
        metadata: Identity<'a>,
        status: &'a S,
    }
    #[derive(Serialize)]
    struct Identity<'a> {
        name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<&'a str>,
    }
    let kind: &Kind = &reference.kind;
    let metadata = Identity { name: &reference.name, namespace: reference.namespace.as_deref() };
    object::to_json(kind, &Named { metadata, status })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{kubernetes::ConfigMap, object::Metadata};

    #[test]
    fn an_applied_object_names_its_kind() {
        let map = ConfigMap { metadata: Metadata::new("a").namespace("b"), ..ConfigMap::default() };
        let outcome = Outcome::new()
            .apply(&map)
            .apply(Manifest::of(&map).create_only().leave("data.x").absent("data.y"));
        let object: serde_json::Value = serde_json::from_str(&outcome.apply[0].object).unwrap();
        let expected = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}});
        assert_eq!(object, expected);
        assert_eq!(outcome.apply[0].mode, Mode::Apply);
        assert_eq!(outcome.apply[1].mode, Mode::Create);
        assert_eq!(
            (&outcome.apply[1].leave[..], &outcome.apply[1].absent[..]),
            (&["data.x".to_owned()][..], &["data.y".to_owned()][..])
        );
    }

    #[test]
    fn a_status_goes_with_the_name_of_the_reconciled_object() {
        let kind = Kind::new("example.com", "v1", "Thing");
        let request = crate::testing::request(ObjectRef::new(kind, Some("b"), "a"));
        let failure = Failure::new("no").status(&request, &json!({"state": "Error"}));
        let object: serde_json::Value = serde_json::from_str(&failure.status.unwrap()).unwrap();
        let expected = json!({
            "apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a", "namespace": "b"}, "status": {"state": "Error"},
        });
        assert_eq!(object, expected);
    }
}
