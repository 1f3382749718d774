//! The entries of `metadata.managedFields`.

use serde_json::{Map, Value};

use super::Writer;
use crate::fields::{InvalidFields, Set};

/// The most managers of updates that an object has; older ones are merged into one.
const MAX_UPDATE_MANAGERS: usize = 10;
const ANCIENT: &str = "ancient-changes";

/// The operation of a manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

/// The fields of one manager.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) operation: Operation,
    pub(super) manager: String,
    pub(super) api_version: String,
    pub(super) subresource: String,
    /// The time of the last change; `None` for an applier that changed nothing.
    pub(super) time: Option<String>,
    pub(super) set: Set,
}

/// The managers of an object.
#[derive(Debug, Clone, Default)]
pub(super) struct Entries(Vec<Entry>);

/// The error of entries that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidEntries {
    /// The value is no list of objects.
    #[error("managedFields is a list of objects")]
    Shape,

    /// The operation is neither an apply nor an update.
    #[error("operation must be `Apply` or `Update`")]
    Operation,

    /// The version of the fields is missing.
    #[error("apiVersion must not be empty")]
    ApiVersion,

    /// The fields are not `FieldsV1`.
    #[error("fieldsType of managedFields entry {0} is not `FieldsV1`")]
    FieldsType(usize),

    /// The fields themselves cannot be parsed.
    #[error("error decoding the fields of managedFields entry {0}")]
    Fields(usize, #[source] InvalidFields),
}

// === impl Entry ===

impl Entry {
    /// Returns whether the entry is that of this manager: an applier is the same in each version.
    pub(super) fn is(&self, operation: Operation, writer: &Writer<'_>) -> bool {
        self.operation == operation
            && self.manager == writer.manager
            && self.subresource == writer.subresource
            && (operation == Operation::Apply || self.api_version == writer.api_version)
    }

    fn read(index: usize, entry: &Value) -> Result<Self, InvalidEntries> {
        let entry = entry.as_object().ok_or(InvalidEntries::Shape)?;
        let text = |key| entry.get(key).and_then(Value::as_str);
        let operation = match text("operation") {
            Some("Apply") => Operation::Apply,
            Some("Update") => Operation::Update,
            _ => return Err(InvalidEntries::Operation),
        };
        let api_version = text("apiVersion").filter(|version| !version.is_empty());
        let api_version = api_version.ok_or(InvalidEntries::ApiVersion)?.to_owned();
        if text("fieldsType") != Some("FieldsV1") {
            return Err(InvalidEntries::FieldsType(index));
        }
        let fields = entry.get("fieldsV1").map(Set::from_json);
        let set = fields.unwrap_or_else(|| Ok(Set::default()));
        Ok(Self {
            operation,
            manager: text("manager").unwrap_or_default().to_owned(),
            api_version,
            subresource: text("subresource").unwrap_or_default().to_owned(),
            time: text("time").map(str::to_owned),
            set: set.map_err(|error| InvalidEntries::Fields(index, error))?,
        })
    }

    fn write(self) -> Value {
        let operation = match self.operation {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        };
        let mut entry = Map::new();
        let mut put = |key: &str, value: Value| entry.insert(key.to_owned(), value);
        put("apiVersion", self.api_version.into());
        put("fieldsType", "FieldsV1".into());
        put("fieldsV1", self.set.to_json().into());
        put("manager", self.manager.into());
        put("operation", operation.into());
        if !self.subresource.is_empty() {
            put("subresource", self.subresource.into());
        }
        if let Some(time) = self.time {
            put("time", time.into());
        }
        Value::Object(entry)
    }
}

// === impl Entries ===

impl Entries {
    /// Reads `metadata.managedFields`; an absent value is empty.
    pub(super) fn read(managed_fields: Option<&Value>) -> Result<Self, InvalidEntries> {
        let list = match managed_fields {
            None | Some(Value::Null) => return Ok(Self::default()),
            Some(list) => list.as_array().ok_or(InvalidEntries::Shape)?,
        };
        let mut entries = Self(Vec::with_capacity(list.len() + 1));
        for (index, entry) in list.iter().enumerate() {
            let entry = Entry::read(index, entry)?;
            // If a manager has two entries, the last one counts.
            entries.0.retain(|other| !other.is(entry.operation, &entry.as_writer()));
            entries.0.push(entry);
        }
        Ok(entries)
    }

    /// Returns the entries as `metadata.managedFields`, in the order of Kubernetes.
    pub(super) fn write(mut self) -> Value {
        self.0.sort_by(|a, b| a.order().cmp(&b.order()));
        Value::Array(self.0.into_iter().map(Entry::write).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Entry> {
        self.0.iter()
    }

    pub(super) fn iter_mut(&mut self) -> std::slice::IterMut<'_, Entry> {
        self.0.iter_mut()
    }

    /// Keeps the entries for which `which` returns true.
    pub(super) fn retain(&mut self, which: impl FnMut(&Entry) -> bool) {
        self.0.retain(which);
    }

    /// Removes and returns the entry of this manager.
    pub(super) fn take(&mut self, operation: Operation, writer: &Writer<'_>) -> Option<Entry> {
        let at = self.0.iter().position(|entry| entry.is(operation, writer))?;
        Some(self.0.swap_remove(at))
    }

    /// Adds `set` to the fields of the writer, with its time.
    pub(super) fn add(&mut self, operation: Operation, writer: &Writer<'_>, set: Set) {
        let before = self.take(operation, writer).map(|entry| entry.set).unwrap_or_default();
        self.0.push(Entry {
            operation,
            manager: writer.manager.to_owned(),
            api_version: writer.api_version.to_owned(),
            subresource: writer.subresource.to_owned(),
            // kube-apiserver drops the time when a scale is written.
            time: (writer.subresource != "scale").then(|| writer.now.to_owned()),
            set: before.union(set),
        });
    }

    /// Merges the oldest updates of each version into one entry, while there are too many.
    pub(super) fn merge_ancient(&mut self) {
        self.0.retain(|entry| !entry.set.is_empty());
        let is_update = |entry: &&Entry| entry.operation == Operation::Update;
        let mut excess =
            self.0.iter().filter(is_update).count().saturating_sub(MAX_UPDATE_MANAGERS);
        if excess == 0 {
            return;
        }
        self.0.sort_by(|a, b| a.order().cmp(&b.order()));
        let mut left: Vec<Entry> = Vec::with_capacity(self.0.len());
        // The positions of the first entry of each version in `left`.
        let mut firsts: Vec<usize> = Vec::new();
        for entry in std::mem::take(&mut self.0) {
            let is_update = entry.operation == Operation::Update;
            let first = firsts.iter().copied().find_map(|at| {
                let first = left.get(at)?;
                (first.api_version == entry.api_version).then_some(at)
            });
            match first.and_then(|at| left.get_mut(at)) {
                Some(bucket) if is_update && excess > 0 => {
                    ANCIENT.clone_into(&mut bucket.manager);
                    bucket.subresource.clear();
                    bucket.time = entry.time;
                    bucket.set = std::mem::take(&mut bucket.set).union(entry.set);
                    excess -= 1;
                }
                _ => {
                    if is_update && first.is_none() {
                        firsts.push(left.len());
                    }
                    left.push(entry);
                }
            }
        }
        self.0 = left;
    }
}

impl Entry {
    fn as_writer(&self) -> Writer<'_> {
        Writer {
            manager: &self.manager,
            api_version: &self.api_version,
            subresource: &self.subresource,
            now: self.time.as_deref().unwrap_or_default(),
        }
    }

    fn order(&self) -> (Operation, Option<&str>, &str, &str, &str) {
        let time = self.time.as_deref();
        (self.operation, time, &self.manager, &self.api_version, &self.subresource)
    }
}

/// Returns whether two lists of `managedFields` have the same entries, in any order and apart from
/// their times.
pub(super) fn same_but_times(a: &Value, b: &Value) -> bool {
    let timeless = |list: &Value| {
        let entries = list.as_array().into_iter().flatten().filter_map(Value::as_object);
        let kept = entries.map(|entry| {
            let mut entry = entry.clone();
            entry.remove("time");
            Value::Object(entry)
        });
        let mut kept: Vec<Value> = kept.collect();
        kept.sort_by(crate::fields::compare_values);
        kept
    };
    let length = |list: &Value| list.as_array().map(Vec::len);
    length(a) == length(b) && timeless(a) == timeless(b)
}
