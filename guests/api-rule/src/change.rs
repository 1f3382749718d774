//! The comparison of existing and desired objects of an APIRule, and the changes that it needs.

use std::collections::BTreeMap;

use mortise_sdk::{Deletion, Error, Kind, Manifest, ObjectRef, Outcome, object::Metadata};
use serde::Serialize;
use serde_json::{Value, value::RawValue};

use crate::{
    api::ApiRule,
    existing::{self, Existing},
};

/// A change of one object.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Creates an object.
    Create(Manifest),
    /// Updates an existing object. Its spec and labels are replaced: fields and labels that are not
    /// in the manifest are listed in `absent`.
    Update(Manifest),
    /// Deletes an object.
    Delete {
        /// The object.
        reference: ObjectRef,
        /// The uid of the object that was read, if known; a later object of the same name stays.
        uid: Option<String>,
    },
}

/// A desired object.
pub(crate) struct Desired {
    /// The key that identifies the object among those of its kind.
    pub(crate) key: String,
    pub(crate) namespace: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) spec: Box<RawValue>,
}

/// The existing and the desired objects of one kind.
pub(crate) struct Comparison<'a> {
    pub(crate) rule: &'a ApiRule,
    pub(crate) kind: Kind,
    /// The existing objects with their keys; the key is `None` if the object lacks the fields that
    /// a key is made of.
    pub(crate) existing: Vec<(Option<String>, Existing)>,
    pub(crate) desired: Vec<Desired>,
    /// Finds a desired object that is missing in `existing` because its labels were changed; mostly
    /// by its name.
    pub(crate) lost: &'a Lost<'a>,
}

/// Finds the existing object for a desired one, and for the name that is made for it, whatever its
/// labels say.
pub(crate) type Lost<'a> = dyn Fn(&Desired, &str) -> Result<Option<Existing>, Error> + 'a;

impl Comparison<'_> {
    /// Returns the changes from the existing to the desired objects. If several desired objects
    /// have one key, the last one counts.
    ///
    /// An object whose name is made for another APIRule is left to that APIRule, even if its labels
    /// name this one.
    pub(crate) fn changes(self) -> Result<Vec<Change>, Error> {
        let mut wanted: BTreeMap<String, Desired> = BTreeMap::new();
        for object in self.desired {
            wanted.insert(object.key.clone(), object);
        }
        let mut others = Vec::new();
        let mut changes = Vec::new();
        for (key, object) in self.existing {
            if key.as_deref().is_some_and(|key| is_for_another(self.rule, &self.kind, key, &object))
            {
                continue;
            }
            match key.and_then(|key| wanted.remove(&key)) {
                Some(desired) => changes.push(update(&self.kind, &object, &desired)),
                None => others.push(object),
            }
        }
        for desired in wanted.into_values() {
            let rule = (self.rule.namespace(), self.rule.metadata.name.as_str());
            let name = existing::name_for(rule, &self.kind, &desired.namespace, &desired.key);
            // The labels that make up the key were removed; name and owner labels still fit.
            let keyless = others.iter().position(|other| {
                other.metadata.name == name
                    && other.metadata.namespace.as_ref() == Some(&desired.namespace)
            });
            let lost = match keyless {
                Some(index) => Some(others.remove(index)),
                None => (self.lost)(&desired, &name)?,
            };
            changes.push(match lost {
                Some(object) => update(&self.kind, &object, &desired),
                None => Change::Create(manifest(&self.kind, &name, &desired)),
            });
        }
        changes.extend(deletions(&self.kind, others));
        Ok(changes)
    }
}

/// Returns whether the name of an object is made for another APIRule, in the namespace of the
/// object or of this APIRule.
fn is_for_another(rule: &ApiRule, kind: &Kind, key: &str, object: &Existing) -> bool {
    let Some(own_namespace) = object.metadata.namespace.as_deref() else { return false };
    let Some((other, _)) = object.metadata.name.rsplit_once('-') else { return false };
    let is_for = |namespace: &str| {
        existing::name_for((namespace, other), kind, own_namespace, key) == object.metadata.name
    };
    other != rule.metadata.name && (is_for(own_namespace) || is_for(rule.namespace()))
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
    // In most cases nothing has changed, and the API server writes fields in the same order.
    if let Some(spec) = existing.spec.as_deref().filter(|spec| spec.get() != desired.spec.get()) {
        add_absent(&parse(spec), &parse(&desired.spec), "spec", &mut manifest.absent);
    }
    Change::Update(manifest)
}

/// Returns deletions of these objects, except of those that are being deleted already.
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

/// Adds changes to an outcome, as manifests and deletions.
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

/// Adds the paths of fields that exist and are not desired. Lists are replaced as a whole, so only
/// maps are compared field by field.
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
