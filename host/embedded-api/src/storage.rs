//! The objects: what is there now, what changed lately, and who is notified of it.
//!
//! An object is kept as compact JSON without `apiVersion` and `kind` (an [`Image`]), so it takes little memory, is shown in any
//! version of its kind without parsing, and a watch sends bytes that exist already. There is one revision counter for all; each
//! table (one stored resource) remembers its last changes for watches and for lists of the past. Two indexes spare walks: objects
//! by uid, and dependents by the uid of their owner.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

mod table;

#[cfg(test)]
mod tests;

pub(crate) use table::{Compacted, Event, Table};

/// The revision before the first write. Watches from version 1 are too old, as on a server that has started.
const FIRST_REVISION: u64 = 1_000;

/// One stored object.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    /// The JSON object without `apiVersion` and `kind`.
    body: Bytes,
    pub(crate) head: Head,
    /// Under which description of its kind it was written (`Resource::stamp`); 0 if under none.
    pub(crate) stamp: u64,
}

/// What is asked often of an object, without parsing it.
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

/// The labels of an object, in the order of their keys: a map of a few texts would take more memory than they do.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "Option<BTreeMap<Box<str>, Option<Box<str>>>>")]
pub(crate) struct Labels(Box<[(Box<str>, Box<str>)]>);

/// One owner reference.
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

/// A stored resource: all its versions share one table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TableId {
    pub(crate) group: Arc<str>,
    pub(crate) plural: Arc<str>,
}

/// Where an object is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) table: TableId,
    /// `namespace/name`, or the name alone for cluster-scoped kinds. Lists are in the order of the bytes of these.
    pub(crate) key: Arc<str>,
}

/// All objects.
#[derive(Debug)]
pub(crate) struct Storage {
    revision: u64,
    /// How many events each table remembers.
    history: usize,
    tables: BTreeMap<TableId, Table>,
    /// When tables were dropped: what happened before is forgotten, also if there is a table of this name again.
    dropped: HashMap<TableId, u64>,
    uids: HashMap<String, Place>,
    dependents: HashMap<String, BTreeSet<Place>>,
}

/// What is null in metadata that were applied is as if it were not there.
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
        // Without the room that the text had to grow in.
        Self { body: Bytes::from(json_text(object).into_boxed_slice()), head, stamp }
    }

    /// The JSON text without `apiVersion` and `kind`.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Appends the JSON text of the object as one of this version and kind.
    pub(crate) fn write(&self, api_version: &str, kind: &str, to: &mut Vec<u8>) {
        to.extend_from_slice(b"{\"apiVersion\":\"");
        to.extend_from_slice(api_version.as_bytes());
        to.extend_from_slice(b"\",\"kind\":\"");
        to.extend_from_slice(kind.as_bytes());
        to.extend_from_slice(b"\",");
        to.extend_from_slice(self.body.get(1..).unwrap_or_default());
    }

    /// The object without `apiVersion` and `kind`.
    pub(crate) fn bare(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The object as one of this version and kind.
    pub(crate) fn value(&self, api_version: &str, kind: &str) -> Value {
        let mut object = self.bare();
        if let Some(fields) = object.as_object_mut() {
            fields.insert("apiVersion".to_owned(), Value::from(api_version));
            fields.insert("kind".to_owned(), Value::from(kind));
        }
        object
    }

    /// The same with another resource version: how a watch shows what is gone.
    pub(crate) fn at_revision(&self, revision: u64) -> Self {
        Self::new(&mut self.bare(), revision, self.stamp)
    }

    /// The same object as it would be: the answer to a dry run.
    pub(crate) fn as_if(&self, object: &mut Value) -> Self {
        Self::new(object, self.revision(), self.stamp)
    }

    /// The revision of the write that made it.
    pub(crate) fn revision(&self) -> u64 {
        self.head.resource_version.parse().unwrap_or_default()
    }
}

/// A value as compact JSON. (`Value::to_string` takes longer: it goes through the formatter.)
pub(crate) fn json_text(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).expect("a JSON value can be written")
}

/// The metadata of an object, made if it is not there.
pub(crate) fn metadata_mut(object: &mut Map<String, Value>) -> &mut Map<String, Value> {
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    metadata.as_object_mut().expect("it was made an object above")
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

    /// The namespace (empty for cluster-scoped kinds) and the name.
    pub(crate) fn namespace_and_name(&self) -> (&str, &str) {
        self.key.split_once('/').unwrap_or(("", &self.key))
    }
}

/// The key of an object within its table.
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

    /// The revision of the last write of all.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn table(&self, id: &TableId) -> Option<&Table> {
        self.tables.get(id)
    }

    /// The table, made if it is new.
    pub(crate) fn table_mut(&mut self, id: &TableId) -> &mut Table {
        if !self.tables.contains_key(id) {
            let known_from = self.dropped.get(id).copied().unwrap_or(FIRST_REVISION);
            self.tables.insert(id.clone(), Table::new(known_from, self.history));
        }
        self.tables.get_mut(id).expect("it was made above")
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = (&TableId, &Table)> {
        self.tables.iter()
    }

    pub(crate) fn get(&self, place: &Place) -> Option<&Arc<Image>> {
        self.tables.get(&place.table)?.get(&place.key)
    }

    /// Where the object with this uid is.
    pub(crate) fn by_uid(&self, uid: &str) -> Option<&Place> {
        self.uids.get(uid)
    }

    /// The objects that name this uid as an owner.
    pub(crate) fn dependents(&self, uid: &str) -> impl Iterator<Item = &Place> {
        self.dependents.get(uid).into_iter().flatten()
    }

    /// Stores an object, which gets the next revision. `object` becomes what is stored: `apiVersion` and `kind` are taken out.
    pub(crate) fn put(&mut self, place: &Place, object: &mut Value, stamp: u64) -> Arc<Image> {
        self.revision += 1;
        let image = Arc::new(Image::new(object, self.revision, stamp));
        let revision = self.revision;
        let previous = self.table_mut(&place.table).put(&place.key, image.clone(), revision);
        self.reindex(place, previous.as_deref().map(|image| &image.head), Some(&image.head));
        image
    }

    /// Removes an object: the image as it was, or `None` if it was not there.
    pub(crate) fn remove(&mut self, place: &Place) -> Option<Arc<Image>> {
        let table = self.tables.get_mut(&place.table)?;
        let previous = table.remove(&place.key, self.revision + 1)?;
        self.revision += 1;
        self.reindex(place, Some(&previous.head), None);
        Some(previous)
    }

    /// Forgets a table with all that it holds, without events; its watches end.
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
