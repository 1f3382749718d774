//! Deletion and its consequences: finalizers, dependents of owners, contents of namespaces and of
//! CRDs.
//!
//! kube-apiserver marks and removes objects; its controllers do the rest in the background. Here
//! the rest is done before the request ends, in the same order, so that watches see the same
//! events.

mod aggregate;
mod budget;
mod claim;
mod contents;
#[cfg(test)]
mod tests;

pub(crate) use budget::is_ready;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    Failure,
    kind::Resource,
    request::{DeleteOptions, Propagation},
    state::{EXTENSIONS, State, time_text},
    status::Named,
    storage::{Image, Owner, Place, TableId, metadata_mut},
    verbs::internal_update,
};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// The result of a deletion.
#[derive(Debug)]
pub(crate) enum Deleted {
    /// The object was removed; holds its last state.
    Gone(Arc<Image>),
    /// The object stays, marked for deletion by this request or an earlier one.
    Kept(Arc<Image>),
}

/// The parameters of a deletion.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deletion<'a> {
    pub(crate) resource: &'a Arc<Resource>,
    pub(crate) options: &'a DeleteOptions,
    pub(crate) now: Timestamp,
}

/// The owners of an object, grouped by state.
#[derive(Debug, Default)]
struct Owners {
    /// Owners that exist, and owners that cannot be looked up: their kind is not served, or it is
    /// namespaced and the object is not.
    solid: Vec<Owner>,
    /// Owners that do not exist.
    absent: Vec<Owner>,
    /// Owners that wait for the deletion of their dependents.
    waiting: Vec<Owner>,
}

// === impl Deletion ===

impl Deletion<'_> {
    fn check_preconditions(&self, image: &Image) -> Result<(), Failure> {
        let Self { resource, options, .. } = self;
        let head = &image.head;
        let named = Named::new(&resource.storage_group, &resource.kind, &head.name);
        if let Some(uid) = options.uid.as_ref().filter(|uid| **uid != head.uid) {
            let why = format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted \
                 and then recreated",
                head.uid
            );
            return Err(Failure::conflict(named, &why));
        }
        if let Some(version) =
            options.resource_version.as_ref().filter(|version| **version != head.resource_version)
        {
            let why = format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The \
                 object might have been modified",
                head.resource_version
            );
            return Err(Failure::conflict(named, &why));
        }
        Ok(())
    }

    /// Returns the finalizers of an object that is to be deleted; those of the garbage collector
    /// follow from the options.
    fn finalizers(&self, image: &Image) -> Vec<String> {
        let has = |name| image.head.has_finalizer(name);
        let (orphans, waits) = if self.resource.plural == "events" {
            return image.head.finalizers().to_vec();
        } else if let Some(orphans) = self.options.orphan_dependents {
            (orphans, false)
        } else {
            match self.options.propagation {
                Some(Propagation::Orphan) => (true, false),
                Some(Propagation::Foreground) => (false, true),
                Some(Propagation::Background) => (false, false),
                None => (has(ORPHAN), has(FOREGROUND) && !has(ORPHAN)),
            }
        };
        let is_collectors = |name: &str| name == ORPHAN || name == FOREGROUND;
        let mut finalizers: Vec<String> = image
            .head
            .finalizers()
            .iter()
            .filter(|finalizer| !is_collectors(finalizer))
            .cloned()
            .collect();
        finalizers.extend(orphans.then(|| ORPHAN.to_owned()));
        finalizers.extend(waits.then(|| FOREGROUND.to_owned()));
        finalizers
    }

    /// Returns the grace period of a pod in seconds (0 for a pod that does not run on a node);
    /// `None` for all other kinds.
    fn grace(&self, object: &Value) -> Option<i64> {
        if !self.resource.group.is_empty() || self.resource.plural != "pods" {
            return None;
        }
        let of_pod = object
            .pointer("/spec/terminationGracePeriodSeconds")
            .and_then(Value::as_i64)
            .unwrap_or(0);
        let on_node = object
            .pointer("/spec/nodeName")
            .and_then(Value::as_str)
            .is_some_and(|node| !node.is_empty());
        let phase = object.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
        let period = self.options.grace_period.unwrap_or(of_pod);
        let period = if period < 0 { 1 } else { period };
        Some(if on_node && !matches!(phase, "Failed" | "Succeeded") { period } else { 0 })
    }
}

// === impl State ===

impl State {
    /// Deletes an object, or marks it for deletion. [`State::settle`] does what follows from that.
    pub(crate) fn delete(
        &mut self,
        place: &Place,
        deletion: &Deletion<'_>,
    ) -> Result<Deleted, Failure> {
        let resource = deletion.resource;
        let Some(image) = self.storage.get(place).cloned() else {
            let (_, name) = place.namespace_and_name();
            return Err(Failure::not_found(Named::new(&resource.group, &resource.plural, name)));
        };
        deletion.check_preconditions(&image)?;
        match (resource.group.as_str(), resource.plural.as_str()) {
            ("", "namespaces") => return Ok(self.delete_namespace(place, &image, deletion)),
            (EXTENSIONS, "customresourcedefinitions") => {
                return Ok(self.delete_crd(place, &image, deletion));
            }
            _ => {}
        }
        let mut object = State::plain_view(resource, &image);
        let mut finalizers = deletion.finalizers(&image);
        let was_deleting = image.head.is_deleting();
        let given = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
        let grace = match (deletion.grace(&object), was_deleting) {
            (Some(_), true) => {
                let given = given.unwrap_or_default();
                let asked =
                    deletion.options.grace_period.map(|asked| if asked < 0 { 1 } else { asked });
                match asked.filter(|asked| *asked < given) {
                    Some(shorter) => Some(shorter),
                    None => return Ok(Deleted::Kept(image)),
                }
            }
            (grace, _) => grace,
        };
        if was_deleting && grace.is_none() && given.is_none() {
            finalizers = image.head.finalizers().to_vec();
        }
        if finalizers.is_empty() && grace.is_none() {
            return Ok(self.finish(place, image, deletion));
        }
        mark(&mut object, &finalizers, grace, deletion.now);
        let stays = !finalizers.is_empty() || grace.is_some_and(|grace| grace > 0);
        let kept = if object == State::plain_view(resource, &image) {
            image
        } else if deletion.options.dry_run {
            Arc::new(image.as_if(&mut resource.to_stored(object)))
        } else {
            self.commit(resource, place, object)
        };
        if stays { Ok(Deleted::Kept(kept)) } else { Ok(self.finish(place, kept, deletion)) }
    }

    fn finish(&mut self, place: &Place, image: Arc<Image>, deletion: &Deletion<'_>) -> Deleted {
        if !deletion.options.dry_run {
            self.take(deletion.resource, place);
        }
        Deleted::Gone(image)
    }

    /// Settles pending objects, and those that become pending meanwhile, until none is left.
    pub(crate) fn settle(&mut self, now: Timestamp) {
        while let Some(place) = self.pending.pop_front() {
            self.settle_one(&place, now);
        }
    }

    /// Settles what follows from a write of the object at `place`.
    pub(crate) fn after_write(&mut self, resource: &Resource, place: &Place, now: Timestamp) {
        if resource.is_namespace() {
            let is_new = self.storage.get(place).is_some_and(|image| !image.head.is_deleting());
            if is_new {
                self.add_service_account(&place.key, now);
            }
        }
        if (resource.group.as_str(), resource.plural.as_str())
            == (EXTENSIONS, "customresourcedefinitions")
        {
            self.serve_crd(place, now);
        }
        self.settle(now);
    }

    fn settle_one(&mut self, place: &Place, now: Timestamp) {
        let Some(image) = self.storage.get(place).cloned() else { return };
        let head = &image.head;
        if head.is_deleting() {
            if head.has_finalizer(ORPHAN) {
                self.orphan_dependents(place, &image, now);
            } else if head.has_finalizer(FOREGROUND) {
                self.wait_for_dependents(place, &image, now);
            }
            match (&*place.table.group, &*place.table.plural) {
                ("", "namespaces") => self.end_namespace(place, now),
                (EXTENSIONS, "customresourcedefinitions") => self.end_crd(place, now),
                ("", "persistentvolumeclaims") => self.release_claim(place, &image, now),
                ("", "persistentvolumes") => self.release_volume(place, &image, now),
                _ => {}
            }
            return;
        }
        if place.table == aggregate::table() {
            self.aggregate_roles(now);
        }
        if place.table == budget::table() {
            self.count_budget(place, now);
        }
        if head.owners().is_empty() {
            return;
        }
        let owners = self.owners_of(&image);
        if owners.absent.is_empty() && owners.waiting.is_empty() {
            return;
        }
        if !owners.solid.is_empty() {
            let gone: BTreeSet<String> = owners
                .absent
                .iter()
                .chain(&owners.waiting)
                .map(|owner| owner.uid.clone())
                .collect();
            internal_update(self, place, "", now, |object| drop_owners(object, &gone));
            return;
        }
        let has_dependents = self.storage.dependents(&head.uid).next().is_some();
        let waits = !owners.waiting.is_empty() && has_dependents;
        let propagation = if waits {
            Propagation::Foreground
        } else if head.has_finalizer(ORPHAN) {
            Propagation::Orphan
        } else if head.has_finalizer(FOREGROUND) {
            Propagation::Foreground
        } else {
            Propagation::Background
        };
        self.delete_as_controller(place, propagation, now);
    }

    /// Deletes an object as the garbage collector does.
    fn delete_as_controller(&mut self, place: &Place, propagation: Propagation, now: Timestamp) {
        let Some(resource) = self.resource_of(&place.table).cloned() else { return };
        let options = DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() };
        let deletion = Deletion { resource: &resource, options: &options, now };
        match self.delete(place, &deletion) {
            Ok(_) => {}
            // The object was removed together with another one that was settled before.
            Err(failure) if failure.code() == 404 => {}
            Err(fault) => {
                tracing::error!(%fault, key = %place.key, "cannot delete as a controller");
            }
        }
    }

    /// Removes the object from the owner references of its dependents, which stay.
    fn orphan_dependents(&mut self, place: &Place, image: &Image, now: Timestamp) {
        let uid = image.head.uid.clone();
        let dependents: Vec<Place> = self.storage.dependents(&uid).cloned().collect();
        let uids = BTreeSet::from([uid]);
        for dependent in &dependents {
            internal_update(self, dependent, "", now, |object| drop_owners(object, &uids));
        }
        internal_update(self, place, "", now, |object| drop_finalizer(object, ORPHAN));
    }

    /// Deletes the dependents of an object; the object is deleted once no dependent blocks that any
    /// more.
    fn wait_for_dependents(&mut self, place: &Place, image: &Image, now: Timestamp) {
        let uid = &image.head.uid;
        let dependents: Vec<Place> = self.storage.dependents(uid).cloned().collect();
        let blocks = |dependent: &&Place| {
            let owners =
                self.storage.get(dependent).map(|image| image.head.owners()).unwrap_or_default();
            owners.iter().any(|owner| owner.uid == *uid && owner.block_owner_deletion)
        };
        let is_deleting = |dependent: &&Place| {
            self.storage.get(dependent).is_some_and(|image| image.head.is_deleting())
        };
        if !dependents.iter().any(|dependent| blocks(&dependent)) {
            self.pending.extend(dependents);
            internal_update(self, place, "", now, |object| drop_finalizer(object, FOREGROUND));
            return;
        }
        let todo: Vec<Place> =
            dependents.iter().filter(|dependent| !is_deleting(dependent)).cloned().collect();
        self.pending.extend(todo);
    }

    fn owners_of(&self, image: &Image) -> Owners {
        let mut owners = Owners::default();
        for owner in image.head.owners() {
            let (group, version) =
                owner.api_version.rsplit_once('/').unwrap_or(("", &owner.api_version));
            let Some(resource) = self.registry.find_kind(group, version, &owner.kind) else {
                owners.solid.push(owner.clone());
                continue;
            };
            let namespace = if resource.namespaced { image.head.namespace() } else { "" };
            if resource.namespaced && namespace.is_empty() {
                // A cluster-scoped object cannot have an owner in a namespace: Kubernetes ignores
                // the reference.
                owners.solid.push(owner.clone());
                continue;
            }
            let found = self.storage.get(&State::place_of(resource, namespace, &owner.name));
            match found.filter(|found| found.head.uid == owner.uid) {
                None => owners.absent.push(owner.clone()),
                Some(found) if found.head.is_deleting() && found.head.has_finalizer(FOREGROUND) => {
                    owners.waiting.push(owner.clone());
                }
                Some(_) => owners.solid.push(owner.clone()),
            }
        }
        owners
    }
}

/// Marks an object for deletion; the first mark increments its generation.
fn mark(object: &mut Value, finalizers: &[String], grace: Option<i64>, now: Timestamp) {
    let Some(fields) = object.as_object_mut() else { return };
    let metadata = metadata_mut(fields);
    let is_first = metadata.get("deletionTimestamp").is_none_or(Value::is_null);
    if is_first
        && let Some(generation) =
            metadata.get("generation").and_then(Value::as_i64).filter(|generation| *generation > 0)
    {
        metadata.insert("generation".to_owned(), Value::from(generation + 1));
    }
    let period = grace.unwrap_or_default();
    if is_first || grace.is_some() {
        let end = now.checked_add(SignedDuration::from_secs(period)).unwrap_or(now);
        metadata.insert("deletionTimestamp".to_owned(), Value::from(time_text(end)));
    }
    metadata.insert("deletionGracePeriodSeconds".to_owned(), Value::from(period));
    set_finalizers(metadata, finalizers);
}

fn set_finalizers(metadata: &mut serde_json::Map<String, Value>, finalizers: &[String]) {
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".to_owned(), json!(finalizers));
    }
}

fn drop_finalizer(object: &mut Value, name: &str) {
    retain(object, "finalizers", |finalizer| finalizer != name);
}

fn drop_owners(object: &mut Value, uids: &BTreeSet<String>) {
    retain(object, "ownerReferences", |owner| {
        !owner.get("uid").and_then(Value::as_str).is_some_and(|uid| uids.contains(uid))
    });
}

/// Filters a list of the metadata; a list that becomes empty is removed.
fn retain(object: &mut Value, field: &str, keeps: impl Fn(&Value) -> bool) {
    let Some(fields) = object.as_object_mut() else { return };
    let metadata = metadata_mut(fields);
    if let Some(list) = metadata.get_mut(field).and_then(Value::as_array_mut) {
        list.retain(keeps);
        if list.is_empty() {
            metadata.remove(field);
        }
    }
}

/// The number of remaining objects of each table, and the number that each finalizer holds.
#[derive(Debug, Default)]
struct Remains {
    tables: BTreeMap<TableId, usize>,
    finalizers: BTreeMap<String, usize>,
}

// === impl Remains ===

impl Remains {
    fn add(&mut self, table: &TableId, image: &Image) {
        *self.tables.entry(table.clone()).or_default() += 1;
        for finalizer in image.head.finalizers() {
            *self.finalizers.entry(finalizer.clone()).or_default() += 1;
        }
    }

    fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }
}
