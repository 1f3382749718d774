//! Builders for what `reconcile` returns: an outcome with its manifests, deletions and events, or a
//! failure.

use std::time::Duration;

use serde::Serialize;

use crate::{
    Deletion, Event, EventType, Failure, Kind, Manifest, Mode, Object, ObjectRef, Outcome,
    Propagation, Request, Requeue, Retry, Selection, Start, object,
};

/// Returns a duration in the contract's unit, milliseconds. A duration that does not fit (584
/// million years) becomes the longest.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Outcome {
    /// Creates an outcome that writes nothing and runs the object again after the reconciler's
    /// resync.
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
            start: Vec::new(),
            note: None,
        }
    }

    /// Adds an object to create or to update with server-side apply.
    ///
    /// A field that a later outcome no longer holds is given up. An object that a later outcome no
    /// longer applies stays, unless [`Outcome::prune`] or [`Outcome::delete`] removes it.
    #[must_use]
    pub fn apply(mut self, manifest: impl Into<Manifest>) -> Self {
        self.apply.push(manifest.into());
        self
    }

    /// Adds a part of an object that belongs to others, such as an annotation.
    ///
    /// The part is written with server-side apply and never creates the object: if there is no such
    /// object, the write fails with 404. A part that a later outcome no longer patches stays as it
    /// was written.
    #[must_use]
    pub fn patch(mut self, manifest: impl Into<Manifest>) -> Self {
        self.patch.push(manifest.into());
        self
    }

    /// Adds a Pod to evict. If a disruption budget refuses the eviction, the next request says so
    /// in `failed_writes`, with code 429.
    #[must_use]
    pub fn evict(mut self, deletion: Deletion) -> Self {
        self.evict.push(deletion);
        self
    }

    /// Adds an object to delete. An object that is gone already is no failure.
    #[must_use]
    pub fn delete(mut self, deletion: Deletion) -> Self {
        self.delete.push(deletion);
        self
    }

    /// Deletes the objects of this selection that were applied for the reconciled object and that
    /// `apply` no longer holds. The selection must have labels or conditions of
    /// [`Selection::matching`].
    #[must_use]
    pub fn prune(mut self, selection: Selection) -> Self {
        self.prune.push(selection);
        self
    }

    /// Sets the status of the reconciled object, or the part of the status that this processor
    /// owns.
    #[must_use]
    pub fn status(mut self, request: &Request, status: &impl Serialize) -> Self {
        self.status = Some(status_object(&request.ref_, status));
        self
    }

    /// Adds an event, on the reconciled object unless [`Event::on`] names another one.
    #[must_use]
    pub fn event(mut self, event: Event) -> Self {
        self.events.push(event);
        self
    }

    /// Leaves a text of up to 1 KiB for the next run of the object, which gets it as
    /// `Request::note`.
    ///
    /// The host keeps it in memory only, and may forget it at any time: a processor must be right
    /// without it. An outcome without a note drops the former one.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// Runs the object again after this time, counted from the end of the run.
    #[must_use]
    pub fn requeue_after(mut self, after: Duration) -> Self {
        self.requeue = Requeue::After(milliseconds(after));
        self
    }

    /// Runs the object again only when an object or list that it read changes.
    #[must_use]
    pub fn requeue_never(mut self) -> Self {
        self.requeue = Requeue::Never;
        self
    }

    /// Sets the finalizers that the reconciled object should have, out of those that the reconciler
    /// declares. Without this call its finalizers stay as they are; finalizers of others always do.
    #[must_use]
    pub fn finalizers<S: Into<String>>(mut self, finalizers: impl IntoIterator<Item = S>) -> Self {
        self.finalizers = Some(finalizers.into_iter().map(Into::into).collect());
        self
    }

    /// Runs an on-demand reconciler for the objects of a selection, which is within the declared
    /// one. A selection that no object's outcome starts any more is stopped.
    #[must_use]
    pub fn start(mut self, reconciler: impl Into<String>, of: Selection) -> Self {
        self.start.push(Start { reconciler: reconciler.into(), of });
        self
    }
}

impl Default for Outcome {
    fn default() -> Self {
        Self::new()
    }
}

impl Manifest {
    /// Creates a manifest from an object whose type names its kind.
    ///
    /// # Panics
    ///
    /// If the object does not serialise to a JSON object, for example because a map has keys that
    /// are not strings.
    pub fn of<T: Object + Serialize>(object: &T) -> Self {
        Self::text(object::to_json(&T::kind(), object))
    }

    /// Creates a manifest from an object of a kind that its Rust type does not name.
    ///
    /// # Panics
    ///
    /// In the same cases as [`Manifest::of`].
    pub fn with_kind(kind: &Kind, object: &impl Serialize) -> Self {
        Self::text(object::to_json(kind, object))
    }

    /// Creates a manifest from a JSON value, which must hold apiVersion, kind and metadata.name.
    pub fn json(object: &serde_json::Value) -> Self {
        Self::text(object.to_string())
    }

    /// Creates a manifest from JSON text, which must hold apiVersion, kind and metadata.name.
    pub fn text(object: String) -> Self {
        Self {
            cluster: String::new(),
            object,
            mode: Mode::Apply,
            leave: Vec::new(),
            absent: Vec::new(),
        }
    }

    /// Creates the object if it does not exist, and leaves it alone if it does.
    #[must_use]
    pub fn create_only(mut self) -> Self {
        self.mode = Mode::Create;
        self
    }

    /// Adds a path that is sent when the object is created, and left alone afterwards.
    #[must_use]
    pub fn leave(mut self, path: impl Into<String>) -> Self {
        self.leave.push(path.into());
        self
    }

    /// Adds a path that is removed from the object, no matter who set it.
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
    /// Creates a deletion. Objects that the deleted object owns are deleted afterwards, in the
    /// background.
    pub fn new(reference: ObjectRef) -> Self {
        Self {
            ref_: reference,
            uid: None,
            propagation: Propagation::Background,
            grace_period: None,
        }
    }

    /// Deletes the object only if it has this uid: a later object of the same name stays.
    #[must_use]
    pub fn uid(mut self, uid: impl Into<String>) -> Self {
        self.uid = Some(uid.into());
        self
    }

    /// Sets the propagation policy, which decides about owned objects.
    #[must_use]
    pub fn propagation(mut self, propagation: Propagation) -> Self {
        self.propagation = propagation;
        self
    }

    /// Sets the grace period in seconds. The default is that of the kind.
    #[must_use]
    pub fn grace_period(mut self, seconds: u32) -> Self {
        self.grace_period = Some(seconds);
        self
    }
}

impl Event {
    /// Creates an event of type Normal on the reconciled object. `reason` is one word in
    /// `CamelCase`, for machines; `message` is for people.
    pub fn normal(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            on: None,
            event_type: EventType::Normal,
            reason: reason.into(),
            message: message.into(),
        }
    }

    /// Creates an event of type Warning on the reconciled object; otherwise as [`Event::normal`].
    pub fn warning(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { event_type: EventType::Warning, ..Self::normal(reason, message) }
    }

    /// Puts the event on this object instead of the reconciled one.
    #[must_use]
    pub fn on(mut self, reference: ObjectRef) -> Self {
        self.on = Some(reference);
        self
    }
}

impl Failure {
    /// Creates a failure that the host retries with exponential back-off.
    pub fn new(message: impl Into<String>) -> Self {
        let (message, events) = (message.into(), Vec::new());
        Self { message, status: None, events, retry: Retry::BackOff, note: None }
    }

    /// Sets the status that is written along with the failure.
    #[must_use]
    pub fn status(mut self, request: &Request, status: &impl Serialize) -> Self {
        self.status = Some(status_object(&request.ref_, status));
        self
    }

    /// Adds an event that is written along with the failure.
    #[must_use]
    pub fn event(mut self, event: Event) -> Self {
        self.events.push(event);
        self
    }

    /// Leaves a text for the next run of the object, as [`Outcome::note`] does.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// Retries after this time, or earlier if an object or list that was read changes.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry = Retry::After(milliseconds(after));
        self
    }

    /// Retries only when an object or list that was read changes.
    #[must_use]
    pub fn retry_on_change(mut self) -> Self {
        self.retry = Retry::OnChange;
        self
    }
}

/// Returns the JSON text of an object that holds only its name, its namespace and a status.
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
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::{kubernetes::ConfigMap, object::Metadata};

    /// Read as texts, so that the test needs no tool of a language.
    #[test]
    fn each_field_of_an_outcome_has_a_method_in_three_languages() {
        let guests = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let read = |path: &str| std::fs::read_to_string(guests.join(path)).unwrap();
        let sources = [
            ("self.", read("sdk/src/outcome.rs")),
            ("_record.", read("sdk-python/mortise_sdk/__init__.py")),
            ("this.record.", read("sdk-typescript/src/index.ts")),
        ];
        let records = read("sdk-typescript/src/contract.d.ts");
        let guides = [read("sdk-python/README.md"), read("sdk-typescript/README.md")];
        let outcome = serde_json::to_value(Outcome::new()).unwrap();
        let fields = outcome.as_object().unwrap().keys();
        let mut count = 0;
        for field in fields {
            count += 1;
            for (access, source) in &sources {
                assert!(source.contains(&format!("{access}{field}")), "{access}{field}");
            }
            let record = [": ", "?: "].map(|colon| records.contains(&format!(" {field}{colon}")));
            assert!(record.contains(&true), "{field} in contract.d.ts");
            let method = format!("`{}", field.trim_end_matches('s'));
            assert!(guides.iter().all(|guide| guide.contains(&method)), "{method} in the READMEs");
        }
        assert!(count >= 9, "{outcome}");
    }

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
