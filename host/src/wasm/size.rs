//! Measures an outcome, and finds the object that exceeds the limit.

use mortise_core::contract::{
    Deletion, Event, Failure, Manifest, Note, ObjectRef, Outcome, Selection,
    bounds::{self, ENTRY},
};
use serde::Deserialize;

use super::{error::Error, limits::Limits};

/// Refuses an outcome, or a failure, whose texts together exceed the limit.
pub(super) fn check(
    processor: &str,
    limits: &Limits,
    returned: &Result<Outcome, Failure>,
) -> Result<(), Error> {
    let size = match returned {
        Ok(outcome) => outcome_size(outcome),
        Err(failure) => failure_size(failure),
    };
    if size <= limits.outcome {
        return Ok(());
    }
    let found = match returned.as_ref().ok().and_then(largest) {
        Some(largest) => format!("it has {size} bytes, most of them in {largest}"),
        None => format!("it has {size} bytes"),
    };
    Err(Error::OutcomeTooLarge { processor: processor.to_owned(), limit: limits.outcome, found })
}

/// Returns the bytes of all texts, and [`ENTRY`] for each entry of a list.
fn outcome_size(outcome: &Outcome) -> usize {
    // Fields by name, so that a new one does not compile until it is counted.
    let Outcome {
        apply,
        patch,
        evict,
        delete,
        prune,
        status,
        events,
        requeue: _,
        finalizers,
        start,
        note,
    } = outcome;
    let manifests = apply.iter().chain(patch).map(manifest_size);
    let deletions = evict.iter().chain(delete).map(deletion_size);
    let start = start.iter().map(|start| start.reconciler.len() + selection_size(&start.of));
    manifests.sum::<usize>()
        + deletions.sum::<usize>()
        + prune.iter().map(selection_size).sum::<usize>()
        + status.as_ref().map_or(0, String::len)
        + events.iter().map(event_size).sum::<usize>()
        + finalizers.as_deref().map_or(0, texts_size)
        + start.sum::<usize>()
        + note.as_ref().map_or(0, Note::bytes)
}

fn failure_size(failure: &Failure) -> usize {
    let Failure { message, status, events, retry: _, note } = failure;
    message.len()
        + status.as_ref().map_or(0, String::len)
        + events.iter().map(event_size).sum::<usize>()
        + note.as_ref().map_or(0, Note::bytes)
}

fn manifest_size(manifest: &Manifest) -> usize {
    let paths = texts_size(&manifest.leave) + texts_size(&manifest.absent);
    ENTRY + manifest.object.len() + manifest.cluster.len() + paths
}

fn deletion_size(deletion: &Deletion) -> usize {
    ENTRY + ref_size(&deletion.ref_) + deletion.uid.as_ref().map_or(0, String::len)
}

fn selection_size(selection: &Selection) -> usize {
    ENTRY + bounds::list_size(selection, None)
}

fn event_size(event: &Event) -> usize {
    let on = event.on.as_ref().map_or(0, ref_size);
    ENTRY + on + event.reason.len() + event.message.len()
}

fn ref_size(named: &ObjectRef) -> usize {
    bounds::get_size(named, &[])
}

fn texts_size(texts: &[String]) -> usize {
    texts.iter().map(|text| ENTRY + text.len()).sum()
}

/// Returns the position of the largest object, and its name if its JSON has one.
fn largest(outcome: &Outcome) -> Option<String> {
    let places = |name: &'static str, manifests: &'_ [Manifest]| {
        let sizes = manifests.iter().map(|manifest| manifest.object.len());
        sizes.enumerate().max_by_key(|(_, size)| *size).map(|(index, size)| (size, name, index))
    };
    let apply = places("apply", &outcome.apply);
    let patch = places("patch", &outcome.patch);
    let status = outcome.status.as_ref().map(|status| (status.len(), "status", 0));
    let (size, place, index) = [apply, patch, status].into_iter().flatten().max()?;
    let manifests = match place {
        "apply" => &outcome.apply,
        "patch" => &outcome.patch,
        _ => return Some(format!("`status` ({size} bytes)")),
    };
    let named = manifests.get(index).map(|manifest| describe(&manifest.object)).unwrap_or_default();
    Some(format!("`{place}[{index}]`{named} ({size} bytes)"))
}

/// The fields that identify an object of a guest; any other JSON does not parse.
#[derive(Deserialize)]
struct Head {
    kind: String,
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    namespace: Option<String>,
    name: String,
}

/// Returns `, Kind namespace/name`, or an empty text if the JSON is not an object of Kubernetes.
fn describe(object: &str) -> String {
    match serde_json::from_str::<Head>(object) {
        Ok(Head { kind, metadata: Metadata { namespace: Some(namespace), name } }) => {
            format!(", {kind} {namespace}/{name}")
        }
        Ok(Head { kind, metadata: Metadata { namespace: None, name } }) => {
            format!(", {kind} {name}")
        }
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests;
