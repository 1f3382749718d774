//! Deletion of namespaces and CRDs: they are removed after the objects that they hold.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{Deleted, Deletion, FOREGROUND, ORPHAN, Propagation, Remains};
use crate::{
    builtin::edit::{at, child, items, remove, set},
    crd,
    state::{EXTENSIONS, State, time_text},
    storage::{Image, Place, TableId, metadata_mut},
    verbs::{internal_update, update_as},
};

/// The finalizer in the spec of a namespace that waits for its contents.
const OWN: &str = "kubernetes";
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

// === impl State ===

impl State {
    /// Marks a namespace as terminating; its contents are deleted when the deletion is settled.
    pub(super) fn delete_namespace(
        &mut self,
        place: &Place,
        image: &Arc<Image>,
        deletion: &Deletion<'_>,
    ) -> Deleted {
        let mut namespace = State::plain_view(deletion.resource, image);
        let holds = namespace
            .pointer("/spec/finalizers")
            .and_then(Value::as_array)
            .is_some_and(|list| !list.is_empty());
        if image.head.is_deleting() && !holds && image.head.finalizers().is_empty() {
            return self.finish(place, image.clone(), deletion);
        }
        if image.head.is_deleting() {
            return Deleted::Kept(image.clone());
        }
        let finalizers = deletion.finalizers(image);
        if let Some(fields) = namespace.as_object_mut() {
            let metadata = metadata_mut(fields);
            metadata.insert("deletionTimestamp".to_owned(), Value::from(time_text(deletion.now)));
            super::set_finalizers(metadata, &finalizers);
            let status = fields.entry("status").or_insert_with(|| json!({}));
            if let Some(status) = status.as_object_mut() {
                status.insert("phase".to_owned(), Value::from("Terminating"));
            }
        }
        if deletion.options.dry_run {
            return Deleted::Kept(Arc::new(
                image.as_if(&mut deletion.resource.to_stored(namespace)),
            ));
        }
        Deleted::Kept(self.commit(deletion.resource, place, namespace))
    }

    /// Deletes the contents of a terminating namespace; takes the finalizer of Kubernetes from the
    /// namespace if nothing remains, which removes it if there is no other. A namespace that has no
    /// finalizer in its spec already is left as it is: it goes when it is deleted once more.
    pub(super) fn end_namespace(&mut self, place: &Place, now: Timestamp) {
        let Some(image) = self.storage.get(place).cloned() else { return };
        if items(at(&image.bare(), &["spec", "finalizers"])).is_empty() {
            return;
        }
        let prefix = format!("{}/", place.key);
        for content in self.contents(&place.key) {
            if self.storage.get(&content).is_some_and(|image| !image.head.is_deleting()) {
                self.delete_as_controller(&content, Propagation::Background, now);
            }
        }
        // Consequences of the deletions of contents (dependents, orphans) are settled before the
        // remaining objects are counted.
        while let Some(position) =
            self.pending.iter().position(|pending| pending.key.starts_with(&prefix))
        {
            if let Some(content) = self.pending.remove(position) {
                self.settle_one(&content, now);
            }
        }
        let mut remains = Remains::default();
        for content in self.contents(&place.key) {
            if let Some(image) = self.storage.get(&content) {
                remains.add(&content.table, image);
            }
        }
        let conditions = conditions(&remains, now);
        let is_held = image
            .head
            .finalizers()
            .iter()
            .any(|finalizer| finalizer != ORPHAN && finalizer != FOREGROUND);
        internal_update(self, place, "status", now, |namespace| {
            set_conditions(namespace, &conditions);
        });
        if !remains.is_empty() {
            return;
        }
        internal_update(self, place, "finalize", now, |namespace| {
            let others: Vec<Value> = items(at(namespace, &["spec", "finalizers"]))
                .iter()
                .filter(|finalizer| *finalizer != OWN)
                .cloned()
                .collect();
            if let Some(spec) = child(namespace, "spec") {
                if others.is_empty() {
                    remove(spec, "finalizers");
                } else {
                    set(spec, "finalizers", others);
                }
            }
            if !is_held && let Some(fields) = namespace.as_object_mut() {
                metadata_mut(fields).remove("finalizers");
            }
        });
    }

    /// Returns the places of the objects of a namespace.
    fn contents(&self, namespace: &str) -> Vec<Place> {
        let mut places = Vec::new();
        for (id, table) in self.storage.tables() {
            let keys = table.list(namespace, None).map(|(key, _)| key);
            places.extend(keys.map(|key| Place { table: id.clone(), key: key.clone() }));
        }
        places
    }

    /// Marks a CRD as terminating; its objects are deleted when the deletion is settled.
    pub(super) fn delete_crd(
        &mut self,
        place: &Place,
        image: &Arc<Image>,
        deletion: &Deletion<'_>,
    ) -> Deleted {
        if image.head.is_deleting() {
            return Deleted::Kept(image.clone());
        }
        let mut object = State::plain_view(deletion.resource, image);
        let mut finalizers = image.head.finalizers().to_vec();
        if !image.head.has_finalizer(CLEANUP) {
            finalizers.push(CLEANUP.to_owned());
        }
        if let Some(fields) = object.as_object_mut() {
            let metadata = metadata_mut(fields);
            metadata.insert("deletionTimestamp".to_owned(), Value::from(time_text(deletion.now)));
            super::set_finalizers(metadata, &finalizers);
        }
        let text =
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
        set_crd_condition(&mut object, "True", "InstanceDeletionPending", text, deletion.now);
        if deletion.options.dry_run {
            return Deleted::Kept(Arc::new(image.as_if(&mut deletion.resource.to_stored(object))));
        }
        let image = self.commit(deletion.resource, place, object.clone());
        self.registry.set_crd(&object);
        Deleted::Kept(image)
    }

    /// Deletes the objects of a terminating CRD; if none remains, removes the CRD, which is no
    /// longer served.
    pub(super) fn end_crd(&mut self, place: &Place, now: Timestamp) {
        let Some((plural, group)) = place.key.split_once('.') else { return };
        let table = TableId::new(group, plural);
        for content in self.all_of(&table) {
            if self.storage.get(&content).is_some_and(|image| !image.head.is_deleting()) {
                self.delete_as_controller(&content, Propagation::Background, now);
            }
        }
        if !self.all_of(&table).is_empty() {
            let text = "CustomResource deletion is in progress";
            internal_update(self, place, "status", now, |object| {
                set_crd_condition(object, "True", "InstanceDeletionInProgress", text, now);
            });
            return;
        }
        internal_update(self, place, "", now, |object| super::drop_finalizer(object, CLEANUP));
        if self.storage.get(place).is_none() {
            self.serve_group(group, now);
        }
    }

    fn all_of(&self, table: &TableId) -> Vec<Place> {
        let objects = self.storage.table(table).into_iter().flat_map(crate::storage::Table::all);
        objects.map(|(key, _)| Place { table: table.clone(), key: key.clone() }).collect()
    }

    /// Serves the kind that a CRD describes, and writes its status: accepted names and conditions.
    pub(crate) fn serve_crd(&mut self, place: &Place, now: Timestamp) {
        let Some(image) = self.storage.get(place).cloned() else { return };
        let Some(resource) = self.resource_of(&place.table).cloned() else { return };
        let mut object = State::plain_view(&resource, &image);
        if let Some(settled) = crd::settle(&object, &self.registry, &time_text(now)) {
            object = settled;
            update_as(self, place, ["apiserver", "status"], now, |crd| {
                if let Some(fields) = crd.as_object_mut() {
                    let status = object.get("status").cloned();
                    fields.extend(status.map(|status| ("status".to_owned(), status)));
                }
            });
        }
        self.registry.set_crd(&object);
    }

    /// Serves the CRDs of a group again: names that they were refused may be free now.
    fn serve_group(&mut self, group: &str, now: Timestamp) {
        let definitions = TableId::new(EXTENSIONS, "customresourcedefinitions");
        let suffix = format!(".{group}");
        for place in self.all_of(&definitions) {
            if place.key.strip_suffix(&suffix).is_some_and(|plural| !plural.contains('.')) {
                self.serve_crd(&place, now);
            }
        }
    }
}

/// Returns the conditions of a terminating namespace.
fn conditions(remains: &Remains, now: Timestamp) -> Vec<Value> {
    let condition = |kind: &str, holds: bool, reason: &str, message: String| {
        let status = if holds { "True" } else { "False" };
        json!({"type": kind, "status": status, "lastTransitionTime": time_text(now), "reason": reason, "message": message})
    };
    let left = remains.tables.iter().map(|(TableId { group, plural }, count)| {
        format!("{plural}.{group} has {count} resource instances")
    });
    let held = remains
        .finalizers
        .iter()
        .map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"));
    let (left, held): (Vec<String>, Vec<String>) = (left.collect(), held.collect());
    let text = |begin: &str, parts: &[String], none: &str| {
        if parts.is_empty() { none.to_owned() } else { format!("{begin}{}", parts.join(", ")) }
    };
    let left_text =
        text("Some resources are remaining: ", &left, "All content successfully removed");
    let held_begin = "Some content in the namespace has finalizers remaining: ";
    let held_text = text(held_begin, &held, "All content-preserving finalizers finished");
    let reason = |parts: &[String], some: &'static str, none: &'static str| {
        if parts.is_empty() { none } else { some }
    };
    let discovered = "All resources successfully discovered";
    let parsed = "All legacy kube types successfully parsed";
    let deleted = "All content successfully deleted, may be waiting on finalization";
    vec![
        condition(
            "NamespaceDeletionDiscoveryFailure",
            false,
            "ResourcesDiscovered",
            discovered.to_owned(),
        ),
        condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            false,
            "ParsedGroupVersions",
            parsed.to_owned(),
        ),
        condition("NamespaceDeletionContentFailure", false, "ContentDeleted", deleted.to_owned()),
        condition(
            "NamespaceContentRemaining",
            !left.is_empty(),
            reason(&left, "SomeResourcesRemain", "ContentRemoved"),
            left_text,
        ),
        condition(
            "NamespaceFinalizersRemaining",
            !held.is_empty(),
            reason(&held, "SomeFinalizersRemain", "ContentHasNoFinalizers"),
            held_text,
        ),
    ]
}

/// Sets conditions; a condition with the same status, reason and message keeps its time.
pub(super) fn set_conditions(object: &mut Value, conditions: &[Value]) {
    let Some(fields) = object.as_object_mut() else { return };
    let status = fields.entry("status").or_insert_with(|| Value::Object(Map::new()));
    let Some(status) = status.as_object_mut() else { return };
    let list = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else { return };
    let same = |a: &Value, b: &Value| {
        ["status", "reason", "message"].iter().all(|key| a.get(key) == b.get(key))
    };
    for condition in conditions {
        match list.iter_mut().find(|present| present.get("type") == condition.get("type")) {
            Some(present) if same(present, condition) => {}
            Some(present) => *present = condition.clone(),
            None => list.push(condition.clone()),
        }
    }
}

fn set_crd_condition(
    object: &mut Value,
    status: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let time = time_text(now);
    let condition = json!({
        "type": "Terminating", "status": status, "lastTransitionTime": time, "reason": reason, "message": message,
    });
    set_conditions(object, &[condition]);
}
