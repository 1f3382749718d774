//! The deletion of a binding: objects at the provider, finalizers at home, CRDs, binding.

use super::{
    Definition, Duration, Error, Event, Export, FINALIZER, Failure, Outcome, Place, Run, Selection,
    Starts, find, start, time,
};
use mortise_sdk::{Deletion, ObjectRef};
use serde_json::Value;

use crate::{
    exports::{CONSUMER_IN_SYNC, NOT_BOUND},
    link::{WITHOUT_PROVIDER, is_without_provider},
    mark,
    objects::WAITING,
};

/// The time after which deleted definitions are looked for.
const AGAIN: Duration = Duration::from_secs(1);
/// The time that objects may take to go before the binding says that it waits for them.
const TOLD_AFTER: Duration = Duration::from_secs(10);
/// The reason to wait while objects at home are held. Their own events say more.
const HELD: &str = "the provider does not answer, or keeps them; see the events of the objects";
/// The longest time for which a deleted binding waits until its export says that it is not bound.
const MAX_WAIT: Duration = Duration::from_mins(1);

impl Run<'_> {
    /// Takes back what the binding has brought about, and then lets it go.
    pub(super) fn dismantle(self, place: Option<&Place>) -> Result<Outcome, Failure> {
        let is_held = self.binding.metadata.finalizers.iter().any(|held| held == FINALIZER);
        if !is_held {
            return Ok(Outcome::new());
        }
        let definitions = Definition::owned_by(self.host, &self.binding)?;
        let place = place.filter(|_| !is_without_provider(&self.binding));
        let share = start::share(self.host, &self.binding)?;
        let starts = || Starts::new(&definitions, self.config, share);
        let mut outcome = Outcome::new();
        let mut export = None;
        if let Some(place) = place {
            outcome = start::place(outcome, place);
            match self.shared(place, starts(), outcome.clone()) {
                Ok((started, found)) => (outcome, export) = (started, found),
                Err(error) => {
                    return Ok(self.waiting(starts().end(outcome).0, &error.to_string()));
                }
            }
        } else {
            outcome = starts().end(outcome).0;
            if !is_without_provider(&self.binding) && self.holds_objects(&definitions)? {
                return Ok(self.waiting(outcome, "its kubeconfig cannot be used"));
            }
        }
        if self.holds_objects(&definitions)? {
            return Ok(match self.left_of(TOLD_AFTER) {
                Some(left) => self.end(outcome.requeue_after(left)),
                None => self.waiting(outcome, HELD),
            });
        }
        // Before the definitions, with which the claims stop: copies of shared objects go meanwhile.
        if let Some(left) = export.as_ref().and_then(|export| self.left(export)) {
            return Ok(self.end(outcome.requeue_after(left)));
        }
        if !definitions.is_empty() {
            let outcome = definitions.into_iter().fold(outcome, delete);
            // A definition without objects is gone at once, and own deletions trigger nothing.
            return Ok(self.end(outcome.requeue_after(AGAIN)));
        }
        Ok(outcome.finalizers::<&str>([]))
    }

    fn shared(
        &self,
        place: &Place,
        starts: Starts,
        outcome: Outcome,
    ) -> Result<(Outcome, Option<Export>), Error> {
        let fields = ["spec", "status.conditions"];
        let export: Option<Export> = place.get(self.host, &self.binding.metadata.name, &fields)?;
        let outcome = match &export {
            Some(export) => self.start_shared(place, &export.spec, starts, outcome)?.0,
            None => starts.end(outcome).0,
        };
        Ok((outcome, export))
    }

    /// Tells that the provider keeps the binding from going.
    fn waiting(self, outcome: Outcome, message: &str) -> Outcome {
        let message = format!(
            "objects at the provider cannot be deleted now: {message}; the annotation \
             `{WITHOUT_PROVIDER}: \"true\"` lets the binding go without"
        );
        let outcome = outcome.event(Event::warning(WAITING, message));
        self.end(outcome.requeue_after(Duration::from_secs(30)))
    }

    /// Reads whether an object of the kinds still holds the finalizer.
    fn holds_objects(&self, definitions: &[Definition]) -> Result<bool, Error> {
        for kind in definitions.iter().filter_map(Definition::served_kind) {
            let of = Selection::new(kind)
                .matching("metadata.finalizers[]", mark::FINALIZER)
                .fields(["metadata.finalizers"]);
            match self.host.objects::<Value>(&of, 1).next() {
                None => {}
                Some(Err(error)) if error.is_unknown_kind() => {}
                Some(held) => return held.map(|_| true),
            }
        }
        Ok(false)
    }

    /// Returns the time that is left for the export to say that it is not bound any more; `None` if
    /// it has, or has had enough time.
    fn left(&self, export: &Export) -> Option<Duration> {
        let told = find(&export.status.conditions, CONSUMER_IN_SYNC);
        if told.is_none_or(|condition| condition.reason == NOT_BOUND) {
            return None;
        }
        self.left_of(MAX_WAIT)
    }

    /// Returns what is left of a time that begins with the deletion of the binding.
    fn left_of(&self, time: Duration) -> Option<Duration> {
        let since = self.binding.metadata.deletion_timestamp.as_deref().and_then(time::parse)?;
        let waited = Duration::from_millis(self.host.now().saturating_sub(since));
        time.checked_sub(waited).filter(|left| !left.is_zero())
    }
}

fn delete(outcome: Outcome, definition: Definition) -> Outcome {
    let metadata = definition.metadata;
    if metadata.is_deleted() {
        return outcome;
    }
    let of = ObjectRef::of::<Definition>(None, metadata.name);
    outcome.delete(Deletion::new(of).uid(metadata.uid.unwrap_or_default()))
}
