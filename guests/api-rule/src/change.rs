//! What has to happen so that the objects of an APIRule are as they should be.

use std::collections::BTreeMap;

use mortise_sdk::{Deletion, Kind, Manifest, ObjectRef, Outcome, derived_name, object::Metadata};
use serde::Serialize;
use serde_json::{Value, value::RawValue};

use crate::{api::ApiRule, existing::Existing};

/// One change.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// An object that is not there yet.
    Create(Manifest),
    /// An object that is there. Its spec and labels are replaced: what is not in the manifest is in `absent`.
    Update(Manifest),
    /// An object that is there no longer.
    Delete {
        /// Which.
        reference: ObjectRef,
        /// The one that was seen.
        uid: Option<String>,
    },
}

/// An object as it should be.
pub(crate) struct Desired {
    /// By what it is told from others of its kind.
    pub(crate) key: String,
    pub(crate) namespace: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) spec: Box<RawValue>,
}

/// The objects of one kind, as they are and as they should be.
pub(crate) struct Comparison<'a> {
    pub(crate) rule: &'a ApiRule,
    pub(crate) kind: Kind,
    /// With the key of each; none if it cannot be one that is meant.
    pub(crate) existing: Vec<(Option<String>, Existing)>,
    pub(crate) desired: Vec<Desired>,
}

impl Comparison<'_> {
    /// The changes that lead from one to the other. Of several that should be with one key, the last one counts.
    pub(crate) fn changes(self) -> Vec<Change> {
        let mut wanted: BTreeMap<String, Desired> = BTreeMap::new();
        for object in self.desired {
            wanted.insert(object.key.clone(), object);
        }
        let mut others = Vec::new();
        let mut changes = Vec::new();
        for (key, object) in self.existing {
            match key.and_then(|key| wanted.remove(&key)) {
                Some(desired) => changes.push(update(&self.kind, &object, &desired)),
                None => others.push(object),
            }
        }
        for desired in wanted.into_values() {
            let identity =
                [self.rule.namespace(), &self.kind.kind, &desired.namespace, &desired.key];
            let name = derived_name(&self.rule.metadata.name, &identity);
            // Its key was lost (somebody took the labels off), its name was not.
            let lost = others.iter().position(|other| {
                other.metadata.name == name
                    && other.metadata.namespace.as_ref() == Some(&desired.namespace)
            });
            changes.push(match lost {
                Some(index) => update(&self.kind, &others.remove(index), &desired),
                None => Change::Create(manifest(&self.kind, &name, &desired)),
            });
        }
        changes.extend(deletions(&self.kind, others));
        changes
    }
}

fn manifest(kind: &Kind, name: &str, desired: &Desired) -> Manifest {
    #[derive(Serialize)]
    struct Object<'a> {
        metadata: Metadata,
        spec: &'a RawValue,
    }
    let mut metadata = Metadata::new(name).namespace(&desired.namespace);
    metadata.labels.clone_from(&desired.labels);
    Manifest::with_kind(kind, &Object { metadata, spec: &desired.spec })
}

fn update(kind: &Kind, existing: &Existing, desired: &Desired) -> Change {
    let mut manifest = manifest(kind, &existing.metadata.name, desired);
    let former =
        existing.metadata.labels.keys().filter(|label| !desired.labels.contains_key(*label));
    manifest.absent.extend(former.map(|label| member("metadata.labels", label)));
    let parse = |spec: &RawValue| serde_json::from_str::<Value>(spec.get()).unwrap_or_default();
    // Mostly nothing has changed, and the API server writes fields in the same order.
    if let Some(spec) = existing.spec.as_deref().filter(|spec| spec.get() != desired.spec.get()) {
        add_absent(&parse(spec), &parse(&desired.spec), "spec", &mut manifest.absent);
    }
    Change::Update(manifest)
}

/// Deletes objects, unless that is under way.
pub(crate) fn deletions(kind: &Kind, objects: Vec<Existing>) -> impl Iterator<Item = Change> {
    objects.into_iter().filter(|object| !object.metadata.is_deleted()).map(|object| {
        Change::Delete {
            reference: ObjectRef::new(
                kind.clone(),
                object.metadata.namespace.as_deref(),
                object.metadata.name,
            ),
            uid: object.metadata.uid,
        }
    })
}

/// Adds changes to an outcome.
pub(crate) fn carry_out(changes: Vec<Change>, outcome: Outcome) -> Outcome {
    changes.into_iter().fold(outcome, |outcome, change| match change {
        Change::Create(manifest) | Change::Update(manifest) => outcome.apply(manifest),
        Change::Delete { reference, uid } => {
            let deletion = Deletion::new(reference);
            outcome.delete(match uid {
                Some(uid) => deletion.uid(uid),
                None => deletion,
            })
        }
    })
}

/// The paths of what is there and should not be. Lists are replaced as a whole, so only maps are looked into.
fn add_absent(existing: &Value, desired: &Value, path: &str, absent: &mut Vec<String>) {
    let (Value::Object(existing), Value::Object(desired)) = (existing, desired) else { return };
    for (key, value) in existing {
        let path = member(path, key);
        match desired.get(key) {
            Some(desired) => add_absent(value, desired, &path, absent),
            None => absent.push(path),
        }
    }
}

fn member(path: &str, key: &str) -> String {
    let plain =
        key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if plain { format!("{path}.{key}") } else { format!("{path}[\"{key}\"]") }
}

#[cfg(test)]
mod tests;
