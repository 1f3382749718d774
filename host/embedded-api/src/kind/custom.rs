//! A served version of a custom resource, as its CRD describes it.

use std::sync::Arc;

use serde_json::Value;

use super::{Scale, ScaleSelector, by_priority};
use crate::{
    builtin::edit::{at, items, text},
    structural::CustomSchema,
};

/// The properties of a version that only custom resources have.
#[derive(Debug)]
pub(crate) struct CustomVersion {
    /// The name of the CRD.
    pub(crate) crd: String,
    pub(crate) schema: Arc<CustomSchema>,
    /// The `openAPIV3Schema`, unchanged.
    pub(crate) open_api: Value,
    /// The schema of the storage version; `None` if that is this version, or has the same schema.
    pub(crate) storage_schema: Option<Arc<CustomSchema>>,
    /// The columns of `additionalPrinterColumns`.
    pub(crate) columns: Vec<Column>,
    /// The fields that selectors may name, such as `spec.color`.
    pub(crate) selectable: Vec<String>,
    pub(crate) deprecation: Option<String>,
    /// True if the CRD is being deleted: no object may be created.
    pub(crate) terminating: bool,
    /// A number that changes when the schema of any version changes.
    pub(crate) stamp: u64,
}

// === impl CustomVersion ===

impl CustomVersion {
    /// Returns the schema of the stored objects.
    pub(super) fn stored_schema(&self) -> &CustomSchema {
        self.storage_schema.as_ref().unwrap_or(&self.schema)
    }
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) format: String,
    pub(crate) description: String,
    pub(crate) priority: i64,
    pub(crate) json_path: String,
}

/// Returns the columns of a version's table, except for the name.
pub(super) fn columns(version: &Value) -> Vec<Column> {
    let columns = items(&version["additionalPrinterColumns"]);
    if columns.is_empty() {
        let description = "CreationTimestamp is a timestamp representing the server time when this object was created.";
        return vec![Column {
            name: "Age".to_owned(),
            kind: "date".to_owned(),
            format: String::new(),
            description: description.to_owned(),
            priority: 0,
            json_path: ".metadata.creationTimestamp".to_owned(),
        }];
    }
    columns.iter().map(column).collect()
}

fn column(column: &Value) -> Column {
    let name = text(column, "name");
    let description = match text(column, "description") {
        "" => format!(
            "Custom resource definition column (in JSONPath format): {}",
            text(column, "jsonPath")
        ),
        description => description.to_owned(),
    };
    Column {
        name: name.to_owned(),
        kind: text(column, "type").to_owned(),
        format: text(column, "format").to_owned(),
        description,
        priority: column["priority"].as_i64().unwrap_or(0),
        json_path: text(column, "jsonPath").to_owned(),
    }
}

/// Returns the warning of a deprecated version: its own, or one that names the version to use.
pub(super) fn deprecation(crd: &Value, version: &Value) -> Option<String> {
    if version["deprecated"] != true {
        return None;
    }
    if let Some(warning) = version["deprecationWarning"].as_str() {
        return Some(warning.to_owned());
    }
    let (group, kind) = (text(&crd["spec"], "group"), text(at(crd, &["spec", "names"]), "kind"));
    let name = text(version, "name");
    let warning = format!("{group}/{name} {kind} is deprecated");
    let better = items(at(crd, &["spec", "versions"]))
        .iter()
        .filter(|other| other["served"] == true && other["deprecated"] != true)
        .map(|other| text(other, "name"))
        .filter(|other| by_priority(other, name).is_lt())
        .min_by(|left, right| by_priority(left, right));
    match better {
        Some(better) => Some(format!("{warning}; use {group}/{better} {kind}")),
        None => Some(warning),
    }
}

/// Returns `subresources.scale` of a version.
pub(super) fn scale(version: &Value) -> Option<Scale> {
    let scale = at(version, &["subresources", "scale"])
        .as_object()
        .map(|_| at(version, &["subresources", "scale"]))?;
    let selector = match text(scale, "labelSelectorPath") {
        "" => ScaleSelector::None,
        path => ScaleSelector::Text(keys(path)),
    };
    Some(Scale {
        spec_replicas: keys(text(scale, "specReplicasPath")),
        status_replicas: keys(text(scale, "statusReplicasPath")),
        selector,
    })
}

/// Returns the keys of a path such as `.spec.replicas`.
pub(super) fn keys(path: &str) -> Vec<String> {
    path.split('.').filter(|key| !key.is_empty()).map(str::to_owned).collect()
}
