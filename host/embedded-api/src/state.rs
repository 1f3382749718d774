//! The state of the server: the kinds, the objects, and the objects to settle after a write.

use std::{collections::VecDeque, sync::Arc};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    Failure,
    answer::Shown,
    chance::Chance,
    kind::{Form, Registry, Resource, api_version},
    storage::{Image, Owner, Place, Storage, TableId, check_size, metadata_mut},
};

/// The API group of `CustomResourceDefinition`.
pub(crate) const EXTENSIONS: &str = "apiextensions.k8s.io";

/// The state behind one lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) registry: Registry,
    pub(crate) storage: Storage,
    /// Objects to settle before the request ends: their owners, dependents or contents may have
    /// changed.
    pub(crate) pending: VecDeque<Place>,
    pub(crate) chance: Chance,
}

/// Returns a time as objects show it: RFC 3339 with seconds.
pub(crate) fn time_text(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

// === impl State ===

impl State {
    pub(crate) fn new(history: usize, chance: Chance) -> Self {
        Self {
            registry: Registry::new(),
            storage: Storage::new(history),
            pending: VecDeque::new(),
            chance,
        }
    }

    /// Returns the table of a resource, the same for all its versions.
    pub(crate) fn table_of(resource: &Resource) -> TableId {
        let (group, plural) = resource.storage_key();
        TableId::new(group, plural)
    }

    pub(crate) fn place_of(resource: &Resource, namespace: &str, name: &str) -> Place {
        Place::new(Self::table_of(resource), namespace, name)
    }

    pub(crate) fn namespace_place(name: &str) -> Place {
        Place::new(TableId::new("", "namespaces"), "", name)
    }

    /// Returns the resource of a table, in the version in which its objects are stored.
    pub(crate) fn resource_of(&self, table: &TableId) -> Option<&Arc<Resource>> {
        self.registry.stored(&table.group, &table.plural)
    }

    /// Returns a stored object as this version of its kind shows it.
    ///
    /// # Errors
    /// Fails if the object cannot be converted.
    pub(crate) fn show(resource: &Arc<Resource>, image: &Arc<Image>) -> Result<Shown, Failure> {
        if resource.shows_as_stored(image.stamp) {
            return Ok(Shown::Image { image: image.clone(), resource: resource.clone() });
        }
        Ok(Self::shown(resource, Self::view(resource, image)?))
    }

    /// Returns stored objects as this version of their kind shows them.
    ///
    /// # Errors
    /// Fails as a whole if one of the objects cannot be converted.
    pub(crate) fn show_all(
        resource: &Arc<Resource>,
        images: &[Arc<Image>],
    ) -> Result<Vec<Shown>, Failure> {
        if !resource.is_converted() {
            return images.iter().map(|image| Self::show(resource, image)).collect();
        }
        let stored = images.iter().map(|image| Self::stored(resource, image)).collect();
        let objects = resource.convert_from_stored(stored)?;
        Ok(objects.into_iter().map(|object| Self::shown(resource, object)).collect())
    }

    /// Returns an object of this version as answers show it.
    pub(crate) fn shown(resource: &Resource, mut object: Value) -> Shown {
        resource.complete(&mut object);
        Shown::Value(object)
    }

    /// Returns a stored object as answers show it at this path: at a subresource, as it is stored.
    ///
    /// # Errors
    /// Fails if the object cannot be converted.
    pub(crate) fn show_at(
        resource: &Arc<Resource>,
        image: &Arc<Image>,
        subresource: Option<&str>,
    ) -> Result<Shown, Failure> {
        match subresource {
            Some(_) => Self::view(resource, image).map(Shown::Value),
            None => Self::show(resource, image),
        }
    }

    /// Returns an object of this version as answers show it at this path, as if it were stored: at
    /// a subresource of a built-in kind, unchanged.
    ///
    /// # Errors
    /// Fails if the object cannot be converted.
    pub(crate) fn shown_at(
        resource: &Resource,
        object: Value,
        subresource: Option<&str>,
    ) -> Result<Shown, Failure> {
        if resource.is_custom() {
            let stored = resource.convert_to_stored(object)?;
            let mut read = resource.convert_from_stored(vec![stored])?;
            return Ok(Shown::Value(read.pop().unwrap_or_default()));
        }
        Ok(match subresource {
            Some(_) => Shown::Value(object),
            None => Self::shown(resource, object),
        })
    }

    /// Returns a stored object in this version: the object that a write finds.
    ///
    /// # Errors
    /// Fails if the object cannot be converted.
    pub(crate) fn view(resource: &Resource, image: &Image) -> Result<Value, Failure> {
        if !resource.is_converted() {
            return Ok(Self::plain_view(resource, image));
        }
        let objects = resource.convert_from_stored(vec![Self::stored(resource, image)])?;
        Ok(objects.into_iter().next().unwrap_or_default())
    }

    /// Returns a stored object without a conversion by webhooks: the object that a controller of
    /// the API finds. [`State::commit`] stores it.
    pub(crate) fn plain_view(resource: &Resource, image: &Image) -> Value {
        let stored = Self::stored(resource, image);
        if resource.shows_as_stored(image.stamp) && resource.version == resource.storage_version {
            return stored;
        }
        resource.to_version(stored)
    }

    fn stored(resource: &Resource, image: &Image) -> Value {
        image.value(&resource.storage_api_version(), &resource.kind)
    }

    /// Returns an object in another version of its kind; see `EmbeddedApi::in_version`.
    pub(crate) fn in_version(&self, object: &Value, version: &str) -> Result<Value, Failure> {
        let from = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let group = from.rsplit_once('/').map_or("", |(group, _)| group);
        let mut renamed = object.clone();
        if let Some(fields) = renamed.as_object_mut() {
            fields.insert("apiVersion".to_owned(), Value::from(api_version(group, version)));
        }
        let to = self.kind_of(&renamed)?;
        if renamed == *object || !to.has_conversion() {
            return Ok(renamed);
        }
        let stored = if from == to.storage_api_version() {
            object.clone()
        } else {
            self.kind_of(object)?.convert_to_stored(object.clone())?
        };
        let objects = to.convert_from_stored(vec![stored])?;
        Ok(objects.into_iter().next().unwrap_or_default())
    }

    /// Stores an object of [`State::plain_view`], and queues the objects that the write affects.
    pub(crate) fn commit(
        &mut self,
        resource: &Resource,
        place: &Place,
        object: Value,
    ) -> Arc<Image> {
        self.put(resource, place, resource.to_stored(object), resource.stamp())
    }

    /// Stores an object of this version under a stamp ([`Resource::stamp`]): 0 for an object that
    /// lacks defaults, which are added when it is read.
    ///
    /// # Errors
    /// Fails if the object cannot be converted, or is too large.
    pub(crate) fn commit_as(
        &mut self,
        resource: &Resource,
        place: &Place,
        object: Value,
        stamp: u64,
    ) -> Result<Arc<Image>, Failure> {
        let stored = resource.convert_to_stored(object)?;
        if let Form::Custom(_) = resource.form {
            let Resource { storage_group, plural, .. } = resource;
            let key = format!("/registry/{storage_group}/{plural}/{}", place.key);
            let before = self.storage.get(place).map(|image| image.revision());
            check_size(&stored, &key, before)?;
        }
        Ok(self.put(resource, place, stored, stamp))
    }

    fn put(
        &mut self,
        resource: &Resource,
        place: &Place,
        mut stored: Value,
        stamp: u64,
    ) -> Arc<Image> {
        let previous = self.storage.get(place).cloned();
        let stamp = resource.stamp_of(&stored, stamp);
        let image = self.storage.put(place, &mut stored, stamp);
        Self::record_committed(resource, previous.as_deref(), Some(&stored));
        let refers_anew =
            previous.as_ref().map(|previous| previous.head.owners()).unwrap_or_default()
                != image.head.owners();
        let number =
            |pointer: &str| stored.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
        let is_budget = resource.plural == "poddisruptionbudgets"
            && number("/metadata/generation") != number("/status/observedGeneration");
        if refers_anew || is_budget || image.head.is_deleting() {
            self.pending.push_back(place.clone());
        }
        if let Some(previous) = previous.filter(|_| refers_anew) {
            self.record_unblocked(previous.head.owners(), image.head.owners());
        }
        self.record_pod(resource, &image);
        self.record_role(resource, place);
        image
    }

    /// Removes an object, and queues the objects that the deletion affects. Returns the last image.
    pub(crate) fn take(&mut self, resource: &Resource, place: &Place) -> Option<Arc<Image>> {
        let image = self.storage.remove(place)?;
        Self::record_committed(resource, Some(&image), None);
        self.record_pod(resource, &image);
        self.record_role(resource, place);
        if (resource.group.as_str(), resource.plural.as_str())
            == (EXTENSIONS, "customresourcedefinitions")
        {
            self.registry.remove_crd(&image.bare());
            if let Some((plural, group)) = place.key.split_once('.') {
                self.storage.drop_table(&TableId::new(group, plural));
            }
        }
        let dependents: Vec<Place> = self.storage.dependents(&image.head.uid).cloned().collect();
        self.pending.extend(dependents);
        for owner in image.head.owners() {
            self.pending.extend(self.storage.by_uid(&owner.uid).cloned());
        }
        let namespace = image.head.namespace();
        if !namespace.is_empty() {
            self.record_if_deleting(Self::namespace_place(namespace));
        }
        if resource.is_custom() {
            let name = format!("{}.{}", resource.plural, resource.group);
            self.record_if_deleting(Place::new(
                TableId::new(EXTENSIONS, "customresourcedefinitions"),
                "",
                &name,
            ));
        }
        Some(image)
    }

    /// Queues the owners whose deletion an object does not block any more.
    fn record_unblocked(&mut self, before: &[Owner], after: &[Owner]) {
        let blocks = |owner: &Owner| {
            after.iter().any(|other| other.uid == owner.uid && other.block_owner_deletion)
        };
        let freed = before.iter().filter(|owner| owner.block_owner_deletion && !blocks(owner));
        self.pending.extend(freed.filter_map(|owner| self.storage.by_uid(&owner.uid).cloned()));
    }

    /// Queues the budgets and the ending claims that a changed pod may affect.
    fn record_pod(&mut self, resource: &Resource, image: &Image) {
        if resource.group.is_empty() && resource.plural == "pods" {
            let budgets = self.budgets_of(image.head.namespace());
            self.pending.extend(budgets);
            let claims = self.ending_claims(image.head.namespace());
            self.pending.extend(claims);
        }
    }

    /// Queues a cluster role after a change of any: settling one of them computes all aggregated
    /// ones.
    fn record_role(&mut self, resource: &Resource, place: &Place) {
        if resource.plural == "clusterroles" {
            let table = self.storage.table(&place.table);
            let first = table.and_then(|table| table.all().next()).map(|(key, _)| key.clone());
            self.pending.extend(first.map(|key| Place { table: place.table.clone(), key }));
        }
    }

    fn record_if_deleting(&mut self, place: Place) {
        if self.storage.get(&place).is_some_and(|image| image.head.is_deleting())
            && !self.pending.contains(&place)
        {
            self.pending.push_back(place);
        }
    }

    /// Updates the addresses in use after a Service was written or removed.
    fn record_committed(resource: &Resource, old: Option<&Image>, new: Option<&Value>) {
        if resource.group.is_empty() && resource.plural == "services" {
            resource.committed(old.map(Image::bare).as_ref(), new);
        }
    }

    /// Adds the `ServiceAccount` `default`, which every namespace has, as the controller of
    /// Kubernetes does.
    pub(crate) fn add_service_account(&mut self, namespace: &str, now: Timestamp) {
        let Some(resource) = self.registry.find("", "v1", "serviceaccounts").cloned() else {
            return;
        };
        let place = Self::place_of(&resource, namespace, "default");
        if self.storage.get(&place).is_none() {
            let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}});
            self.insert(&resource, &place, account, now);
        }
    }

    /// Adds a new namespace, active and with its service account.
    pub(crate) fn add_namespace(&mut self, name: &str, now: Timestamp) {
        let Some(resource) = self.registry.find("", "v1", "namespaces").cloned() else { return };
        let namespace = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        });
        self.insert(&resource, &Self::namespace_place(name), namespace, now);
        self.add_service_account(name, now);
    }

    /// Stores an object of [`State::plain_view`] unchanged, but with a uid and a creation time if
    /// it has none.
    pub(crate) fn insert(
        &mut self,
        resource: &Resource,
        place: &Place,
        mut object: Value,
        now: Timestamp,
    ) {
        if let Some(fields) = object.as_object_mut() {
            let metadata = metadata_mut(fields);
            metadata.entry("uid").or_insert_with(|| Value::from(self.chance.uid()));
            metadata.entry("creationTimestamp").or_insert_with(|| Value::from(time_text(now)));
        }
        let mut stored = resource.to_stored(object);
        let previous = self.storage.get(place).cloned();
        self.storage.put(place, &mut stored, 0);
        Self::record_committed(resource, previous.as_deref(), Some(&stored));
    }
}
