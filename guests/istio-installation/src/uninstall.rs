//! The outcome for an Istio resource that is being deleted.

use istio::{api::ISTIO_NAMESPACE, blocking, condition};
use mortise_sdk::{
    Deletion, Event, Host, Level, ObjectRef, Outcome, Propagation, Selection,
    kubernetes::Namespace, object::Metadata,
};
use serde::Deserialize;

use crate::{
    describe::{LABELS, within},
    install,
    kind::WRITTEN,
    render,
    run::{Run, Stop},
    status::Summary,
};

/// The description while people's objects block the deletion, as the original gives it.
const BLOCKED: &str = "There are Istio resources that block deletion. Please take a look at kyma-system/istio-controller-manager logs to see more information about the warning";
/// The most objects that are named in an event, and in the log.
const MAX_LISTED_OBJECTS: usize = 10;

/// An object of which only the metadata matters.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    metadata: Metadata,
}

/// Returns the outcome for a resource that is being deleted.
pub(crate) fn uninstall(run: &Run) -> Result<Outcome, Stop> {
    let outcome = run.with_status(Outcome::new(), Summary::deleting());
    if !run.holds_finalizer() {
        return Ok(outcome.requeue_never());
    }
    let namespace: Option<Namespace> = run.host.get(None, ISTIO_NAMESPACE, &["metadata.name"])?;
    // With the namespace the rights in it go, so nothing is read there any more.
    let namespace = namespace.filter(|namespace| !namespace.metadata.is_deleted());
    if namespace.is_some() && install::is_of_others(run)? {
        return Ok(outcome.finalizers::<&str>([]));
    }
    let blockers = blockers(run)?;
    if !blockers.is_empty() {
        return Ok(blocked(&blockers, run));
    }
    let deletions = deletions(run.host, namespace.is_some())?;
    if !deletions.is_empty() {
        return Ok(deletions.into_iter().fold(outcome, Outcome::delete));
    }
    let outcome = match namespace {
        Some(namespace) => {
            let reference = ObjectRef::of::<Namespace>(None, ISTIO_NAMESPACE);
            outcome.delete(deletion(reference, &namespace.metadata))
        }
        None => outcome,
    };
    Ok(outcome.finalizers::<&str>([]))
}

/// Returns people's objects of Istio's kinds, in words.
fn blockers(run: &Run) -> Result<Vec<String>, Stop> {
    let mut blockers = Vec::new();
    for kind in blocking::kinds() {
        let of = Selection::new(kind.clone()).fields(LABELS);
        let found: Vec<Named> = match run.host.list(&of) {
            Err(error) if error.is_unknown_kind() => continue,
            found => found?,
        };
        for Named { metadata } in found {
            let namespace = metadata.namespace.as_deref().unwrap_or_default();
            if blocking::blocks(&kind.kind, namespace, &metadata.name, &metadata.labels) {
                blockers.push(format!("{} {namespace}/{}", kind.kind, metadata.name));
            }
        }
    }
    Ok(blockers)
}

fn blocked(blockers: &[String], run: &Run) -> Outcome {
    for blocker in blockers.iter().take(MAX_LISTED_OBJECTS) {
        run.host.log(Level::Warn, "blocks the deletion", &[("object", blocker)]);
    }
    let named: Vec<&str> = blockers.iter().take(MAX_LISTED_OBJECTS).map(String::as_str).collect();
    let more = blockers.len().saturating_sub(MAX_LISTED_OBJECTS);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let message = format!("the deletion is blocked by {}{more}", named.join(", "));
    let event = Event::warning(condition::DANGLING.name, message);
    run.with_status(Outcome::new().event(event), Summary::warning(condition::DANGLING, BLOCKED))
}

/// Returns the deletions of all that the original or this processor has installed, but for the
/// namespace. What is being deleted already is not waited for; without the namespace that is all in
/// it.
fn deletions(host: &Host, has_namespace: bool) -> Result<Vec<Deletion>, Stop> {
    let labels = render::installed_by_us();
    let mut deletions = Vec::new();
    for kind in WRITTEN {
        let namespaces = kind.namespaces().iter();
        for namespace in namespaces.filter(|of| has_namespace || **of != Some(ISTIO_NAMESPACE)) {
            let of = within(Selection::new(kind.kind()), *namespace).labels(&labels).fields(LABELS);
            let found: Vec<Named> = match host.list(&of) {
                Err(error) if error.is_unknown_kind() => continue,
                found => found?,
            };
            let found = found.into_iter().filter(|found| !found.metadata.is_deleted());
            deletions.extend(found.map(|Named { metadata }| {
                let namespace = metadata.namespace.as_deref();
                deletion(ObjectRef::new(kind.kind(), namespace, &metadata.name), &metadata)
            }));
        }
    }
    Ok(deletions)
}

fn deletion(reference: ObjectRef, metadata: &Metadata) -> Deletion {
    let deletion = Deletion::new(reference).propagation(Propagation::Foreground);
    match &metadata.uid {
        Some(uid) => deletion.uid(uid),
        None => deletion,
    }
}
