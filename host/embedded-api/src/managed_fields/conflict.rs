//! The errors of applies, with the conflicts between managers.

use std::collections::BTreeMap;

use serde_json::Value;

use super::entries::{Entry, InvalidEntries, Operation};
use crate::{
    fields::{Set, path_text},
    status::{Cause, Failure},
};

/// The error of a refused apply.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    /// The request itself is invalid: 400.
    #[error("{0}")]
    BadRequest(String),

    /// The applied object does not fit its kind: 500, as in Kubernetes.
    #[error("{0}")]
    Typed(String),

    /// The live object's managers cannot be read: 500.
    #[error("failed to decode managed fields: {0}")]
    Managers(#[from] InvalidEntries),

    /// Other managers own these fields with other values: 409.
    #[error("{}", message(.0))]
    Conflicts(Vec<Conflict>),
}

/// A field that another manager owns with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// The key by which Kubernetes sorts managers.
    order: String,
    /// The text of the manager, such as `"name" using v1`.
    manager: String,
    path: String,
}

// === impl Conflict ===

impl Conflict {
    /// Returns the conflicts with one manager.
    pub(super) fn all<'a>(entry: &'a Entry, set: &Set) -> impl Iterator<Item = Self> + use<'a> {
        let manager = manager_text(entry);
        let order = identifier(entry);
        set.paths().into_iter().map(move |path| Self {
            order: order.clone(),
            manager: manager.clone(),
            path: path_text(&path),
        })
    }
}

impl From<ApplyError> for Failure {
    fn from(error: ApplyError) -> Self {
        let message = error.to_string();
        match error {
            ApplyError::BadRequest(_) => Self::bad_request(message),
            ApplyError::Typed(_) | ApplyError::Managers(_) => Self::unclassified(message),
            ApplyError::Conflicts(conflicts) => {
                let causes = conflicts.into_iter().map(|conflict| Cause {
                    reason: "FieldManagerConflict".to_owned(),
                    message: format!("conflict with {}", conflict.manager),
                    field: conflict.path,
                });
                Self::apply_conflict(message, causes.collect())
            }
        }
    }
}

/// Returns the key by which Kubernetes sorts managers: a manager as JSON, without its fields and
/// its time, and an applier without its version.
fn identifier(entry: &Entry) -> String {
    let (operation, version) = match entry.operation {
        Operation::Apply => ("Apply", ""),
        Operation::Update => ("Update", entry.api_version.as_str()),
    };
    let parts = [
        ("manager", entry.manager.as_str()),
        ("operation", operation),
        ("apiVersion", version),
        ("subresource", &entry.subresource),
    ];
    let parts = parts.iter().filter(|(_, text)| !text.is_empty());
    let parts: Vec<String> =
        parts.map(|(key, text)| format!("\"{key}\":{}", Value::from(*text))).collect();
    format!("{{{}}}", parts.join(","))
}

fn manager_text(entry: &Entry) -> String {
    let mut text = format!("{:?}", entry.manager);
    if !entry.subresource.is_empty() {
        text.extend([" with subresource ", &format!("{:?}", entry.subresource)]);
    }
    if entry.operation == Operation::Update {
        text.extend([" using ", &entry.api_version]);
    }
    text
}

fn message(conflicts: &[Conflict]) -> String {
    if let [only] = conflicts {
        return format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            only.manager, only.path
        );
    }
    let mut by_manager: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for conflict in conflicts {
        let paths = by_manager.entry((&conflict.order, &conflict.manager)).or_default();
        paths.push(format!("- {}", conflict.path));
    }
    let parts = by_manager
        .iter()
        .flat_map(|((_, manager), paths)| {
            std::iter::once(format!("conflicts with {manager}:")).chain(paths.iter().cloned())
        })
        .collect::<Vec<_>>();
    format!("Apply failed with {} conflicts: {}", conflicts.len(), parts.join("\n"))
}
