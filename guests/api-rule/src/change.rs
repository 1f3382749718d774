//! What has to happen so that the objects of an APIRule are as they should be.

use std::collections::BTreeMap;

use mortise_sdk::{Deletion, Kind, Manifest, ObjectRef, Outcome, derived_name, object::Metadata};
use serde::Serialize;
use serde_json::Value;

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
pub(crate) struct Desired<S> {
    pub(crate) namespace: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) spec: S,
}

/// How the objects of one kind are compared.
pub(crate) struct Comparison<'a, E, D> {
    pub(crate) rule: &'a ApiRule,
    pub(crate) kind: Kind,
    /// By what an existing object is told from others; none if it cannot be the one that is meant.
    pub(crate) key_of_existing: E,
    /// By what one that should be is.
    pub(crate) key_of_desired: D,
    /// Leaves existing objects alone that are not matched.
    pub(crate) keep_others: bool,
}

impl<E, D> Comparison<'_, E, D> {
    /// The changes that lead from one set of objects to the other. Of several with one key the last one counts.
    pub(crate) fn changes<S>(&self, existing: Vec<Existing>, desired: Vec<Desired<S>>) -> Vec<Change>
    where
        S: Serialize,
        E: Fn(&Existing) -> Option<String>,
        D: Fn(&Desired<S>) -> String,
    {
        let mut wanted: BTreeMap<String, Desired<S>> = BTreeMap::new();
        for object in desired {
            wanted.insert((self.key_of_desired)(&object), object);
        }
        let mut others = Vec::new();
        let mut changes = Vec::new();
        for object in existing {
            match (self.key_of_existing)(&object).and_then(|key| wanted.remove(&key)) {
                Some(desired) => changes.push(self.update(&object, &desired)),
                None => others.push(object),
            }
        }
        for (key, desired) in wanted {
            let name = self.name(&key, &desired.namespace);
            // Its key was lost (somebody took the labels off), its name was not.
            let lost = others.iter().position(|other| {
                other.metadata.name == name && other.metadata.namespace.as_ref() == Some(&desired.namespace)
            });
            changes.push(match lost {
                Some(index) => self.update(&others.remove(index), &desired),
                None => Change::Create(self.manifest(&name, &desired)),
            });
        }
        if !self.keep_others {
            changes.extend(deletions(&self.kind, others));
        }
        changes
    }

    fn name(&self, key: &str, namespace: &str) -> String {
        derived_name(&self.rule.metadata.name, &[self.rule.namespace(), &self.kind.kind, namespace, key])
    }

    fn manifest<S: Serialize>(&self, name: &str, desired: &Desired<S>) -> Manifest {
        #[derive(Serialize)]
        struct Object<'a, S> {
            metadata: Metadata,
            spec: &'a S,
        }
        let mut metadata = Metadata::new(name).namespace(&desired.namespace);
        metadata.labels.clone_from(&desired.labels);
        Manifest::with_kind(&self.kind, &Object { metadata, spec: &desired.spec })
    }

    fn update<S: Serialize>(&self, existing: &Existing, desired: &Desired<S>) -> Change {
        let mut manifest = self.manifest(&existing.metadata.name, desired);
        let former = existing.metadata.labels.keys().filter(|label| !desired.labels.contains_key(*label));
        manifest.absent.extend(former.map(|label| member("metadata.labels", label)));
        let spec = serde_json::to_value(&desired.spec).unwrap_or_default();
        add_absent(&existing.spec, &spec, "spec", &mut manifest.absent);
        Change::Update(manifest)
    }
}

/// Deletes objects, unless that is under way.
pub(crate) fn deletions(kind: &Kind, objects: Vec<Existing>) -> impl Iterator<Item = Change> {
    objects.into_iter().filter(|object| !object.metadata.is_deleted()).map(|object| Change::Delete {
        reference: ObjectRef::new(kind.clone(), object.metadata.namespace.as_deref(), object.metadata.name),
        uid: object.metadata.uid,
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
    let plain = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if plain { format!("{path}.{key}") } else { format!("{path}[\"{key}\"]") }
}

#[cfg(test)]
mod tests;
