//! The storage: current objects, recent changes, and the notification of watches.
//!
//! An object is kept as compact JSON without `apiVersion` and `kind` (an [`Image`]): it takes
//! little memory, is shown in any version of its kind without parsing, and a watch sends bytes that
//! exist already. All tables share one revision counter; each table (one stored resource) keeps its
//! last changes for watches and for lists of the past. Two indexes avoid scans: objects by uid, and
//! dependents by the uid of their owner.

mod size;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use size::check as check_size;
pub(crate) use table::{Compacted, Event, Table};

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// The revision before the first write. Watches from version 1 are too old, as on a server that has
/// started.
const FIRST_REVISION: u64 = 1_000;

/// A stored object.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    /// The JSON object without `apiVersion` and `kind`.
    body: Bytes,
    pub(crate) head: Head,
    /// The stamp of the description of its kind under which the object was written
    /// (`Resource::stamp`); 0 if under none.
    pub(crate) stamp: u64,
}

/// The metadata that is read often, available without parsing the object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Head {
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) labels: Labels,
    pub(crate) finalizers: Option<Vec<String>>,
    pub(crate) deletion_timestamp: Option<String>,
    pub(crate) owner_references: Option<Vec<Owner>>,
}

/// The labels of an object, sorted by key: a map of a few texts would take more memory than the
/// texts do.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "Option<BTreeMap<Box<str>, Option<Box<str>>>>")]
pub(crate) struct Labels(Box<[(Box<str>, Box<str>)]>);

/// An owner reference.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Owner {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) block_owner_deletion: bool,
}

/// The identity of a stored resource: all its versions share one table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TableId {
    pub(crate) group: Arc<str>,
    pub(crate) plural: Arc<str>,
}

/// The table of an object, and its key there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) table: TableId,
    /// The key: `namespace/name`, or the name alone for cluster-scoped kinds. Lists are in the
    /// order of the keys' bytes.
    pub(crate) key: Arc<str>,
}

/// The tables of all resources, with their revision and indexes.
#[derive(Debug)]
pub(crate) struct Storage {
    revision: u64,
    /// The number of events that each table keeps.
    history: usize,
    tables: BTreeMap<TableId, Table>,
    /// The revisions at which tables were dropped: events from before are forgotten, even if a
    /// table of this name exists again.
    dropped: HashMap<TableId, u64>,
    uids: HashMap<String, Place>,
    dependents: HashMap<String, BTreeSet<Place>>,
}

/// Deserializes null as the default: null in applied metadata counts as absent.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

// === impl Image ===

impl Image {
    fn new(object: &mut Value, revision: u64, stamp: u64) -> Self {
        if let Some(fields) = object.as_object_mut() {
            fields.remove("apiVersion");
            fields.remove("kind");
            metadata_mut(fields)
                .insert("resourceVersion".to_owned(), Value::String(revision.to_string()));
        }
        let head =
            object.get("metadata").map(Head::deserialize).and_then(Result::ok).unwrap_or_default();
        // The boxed slice has no spare capacity, unlike the text that grew.
        Self { body: Bytes::from(json_text(object).into_boxed_slice()), head, stamp }
    }

    /// Returns the JSON text without `apiVersion` and `kind`.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Appends the JSON text of the object, with this version and kind.
    pub(crate) fn write(&self, api_version: &str, kind: &str, to: &mut Vec<u8>) {
        to.extend_from_slice(b"{\"apiVersion\":\"");
        to.extend_from_slice(api_version.as_bytes());
        to.extend_from_slice(b"\",\"kind\":\"");
        to.extend_from_slice(kind.as_bytes());
        to.extend_from_slice(b"\",");
        to.extend_from_slice(self.body.get(1..).unwrap_or_default());
    }

    /// Returns the object without `apiVersion` and `kind`.
    pub(crate) fn bare(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Returns the object with this version and kind.
    pub(crate) fn value(&self, api_version: &str, kind: &str) -> Value {
        let mut object = self.bare();
        if let Some(fields) = object.as_object_mut() {
            fields.insert("apiVersion".to_owned(), Value::from(api_version));
            fields.insert("kind".to_owned(), Value::from(kind));
        }
        object
    }

    /// Returns the image with another resource version, as a watch shows a deleted object.
    pub(crate) fn at_revision(&self, revision: u64) -> Self {
        Self::new(&mut self.bare(), revision, self.stamp)
    }

    /// Returns an image of `object` with this image's revision and stamp: the answer to a dry run.
    pub(crate) fn as_if(&self, object: &mut Value) -> Self {
        Self::new(object, self.revision(), self.stamp)
    }

    /// Returns the revision of the write that made the image.
    pub(crate) fn revision(&self) -> u64 {
        self.head.resource_version.parse().unwrap_or_default()
    }
}

/// Returns a value as compact JSON. (`Value::to_string` takes longer: it uses the formatter.)
pub(crate) fn json_text(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).expect("a JSON value can be written")
}

/// Returns the metadata of an object, added if it is absent.
pub(crate) fn metadata_mut(object: &mut Map<String, Value>) -> &mut Map<String, Value> {
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    metadata.as_object_mut().expect("the metadata is an object by now")
}

// === impl Head ===

impl Head {
    pub(crate) fn owners(&self) -> &[Owner] {
        self.owner_references.as_deref().unwrap_or_default()
    }

    pub(crate) fn finalizers(&self) -> &[String] {
        self.finalizers.as_deref().unwrap_or_default()
    }

    pub(crate) fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers().iter().any(|finalizer| finalizer == name)
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    pub(crate) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }
}

// === impl Labels ===

impl From<Option<BTreeMap<Box<str>, Option<Box<str>>>>> for Labels {
    fn from(labels: Option<BTreeMap<Box<str>, Option<Box<str>>>>) -> Self {
        let labels = labels.into_iter().flatten();
        Self(labels.map(|(key, value)| (key, value.unwrap_or_default())).collect())
    }
}

impl Labels {
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        let place = self.0.binary_search_by(|(known, _)| (**known).cmp(key)).ok()?;
        self.0.get(place).map(|(_, value)| &**value)
    }
}

// === impl TableId, Place ===

impl TableId {
    pub(crate) fn new(group: &str, plural: &str) -> Self {
        Self { group: group.into(), plural: plural.into() }
    }
}

impl Place {
    pub(crate) fn new(table: TableId, namespace: &str, name: &str) -> Self {
        Self { table, key: object_key(namespace, name) }
    }

    /// Returns the namespace (empty for cluster-scoped kinds) and the name.
    pub(crate) fn namespace_and_name(&self) -> (&str, &str) {
        self.key.split_once('/').unwrap_or(("", &self.key))
    }
}

/// Returns the key of an object within its table.
pub(crate) fn object_key(namespace: &str, name: &str) -> Arc<str> {
    if namespace.is_empty() { name.into() } else { format!("{namespace}/{name}").into() }
}

// === impl Storage ===

impl Storage {
    pub(crate) fn new(history: usize) -> Self {
        Self {
            revision: FIRST_REVISION,
            history,
            tables: BTreeMap::new(),
            dropped: HashMap::new(),
            uids: HashMap::new(),
            dependents: HashMap::new(),
        }
    }

    /// Returns the revision of the last write to any table.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn table(&self, id: &TableId) -> Option<&Table> {
        self.tables.get(id)
    }

    /// Returns the table, created if it is new.
    pub(crate) fn table_mut(&mut self, id: &TableId) -> &mut Table {
        if !self.tables.contains_key(id) {
            let known_from = self.dropped.get(id).copied().unwrap_or(FIRST_REVISION);
            self.tables.insert(id.clone(), Table::new(known_from, self.history));
        }
        self.tables.get_mut(id).expect("the table is present by now")
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = (&TableId, &Table)> {
        self.tables.iter()
    }

    pub(crate) fn get(&self, place: &Place) -> Option<&Arc<Image>> {
        self.tables.get(&place.table)?.get(&place.key)
    }

    /// Returns the place of the object with this uid.
    pub(crate) fn by_uid(&self, uid: &str) -> Option<&Place> {
        self.uids.get(uid)
    }

    /// Returns the objects that name this uid as an owner.
    pub(crate) fn dependents(&self, uid: &str) -> impl Iterator<Item = &Place> {
        self.dependents.get(uid).into_iter().flatten()
    }

    /// Stores an object under the next revision. `object` becomes what is stored: `apiVersion` and
    /// `kind` are removed, and `resourceVersion` is set.
    pub(crate) fn put(&mut self, place: &Place, object: &mut Value, stamp: u64) -> Arc<Image> {
        self.revision += 1;
        let image = Arc::new(Image::new(object, self.revision, stamp));
        let revision = self.revision;
        let previous = self.table_mut(&place.table).put(&place.key, image.clone(), revision);
        self.reindex(place, previous.as_deref().map(|image| &image.head), Some(&image.head));
        image
    }

    /// Removes an object. Returns its last image, or `None` if the object does not exist.
    pub(crate) fn remove(&mut self, place: &Place) -> Option<Arc<Image>> {
        let table = self.tables.get_mut(&place.table)?;
        let previous = table.remove(&place.key, self.revision + 1)?;
        self.revision += 1;
        self.reindex(place, Some(&previous.head), None);
        Some(previous)
    }

    /// Removes a table with its objects, without events; its watches end.
    pub(crate) fn drop_table(&mut self, id: &TableId) {
        let Some(table) = self.tables.remove(id) else { return };
        self.dropped.insert(id.clone(), self.revision);
        for (key, image) in table.all() {
            let place = Place { table: id.clone(), key: key.clone() };
            self.reindex(&place, Some(&image.head), None);
        }
    }

    /// Forgets the history: watches and lists from before now are too old.
    pub(crate) fn compact(&mut self) {
        self.revision += 1;
        let revision = self.revision;
        self.tables.values_mut().for_each(|table| table.compact(revision));
    }

    fn reindex(&mut self, place: &Place, old: Option<&Head>, new: Option<&Head>) {
        let uid = |head: Option<&Head>| head.map(|head| head.uid.clone()).unwrap_or_default();
        let (old_uid, new_uid) = (uid(old), uid(new));
        if old_uid != new_uid {
            if self.uids.get(&old_uid) == Some(place) {
                self.uids.remove(&old_uid);
            }
            if !new_uid.is_empty() {
                self.uids.insert(new_uid, place.clone());
            }
        }
        let (old_owners, new_owners) = (owners(old), owners(new));
        if old_owners == new_owners {
            return;
        }
        for owner in old_owners {
            if let Some(places) = self.dependents.get_mut(&owner.uid) {
                places.remove(place);
                if places.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
        for owner in new_owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(place.clone());
        }
    }
}

fn owners(head: Option<&Head>) -> &[Owner] {
    head.map(Head::owners).unwrap_or_default()
}
