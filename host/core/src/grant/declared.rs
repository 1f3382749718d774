//! A declared selection.

use std::{
    fmt::{self, Display},
    sync::Arc,
};

use serde_json::Value;

use super::{Invalid, malformed, text::write_place};
use crate::{
    contract::{Kind, ObjectRef, Selection, display_kind},
    labels::LabelSelector,
    path::Path,
};

/// A declared selection, parsed.
#[derive(Debug)]
pub struct Declared {
    pub kind: Arc<Kind>,
    namespace: Option<String>,
    name: Option<String>,
    labels: LabelSelector,
    /// The label selector as it was written.
    shown_labels: String,
    matching: Vec<(Path, String)>,
}

/// The wildcard for every kind of a group, for every group, and in `matching` for any value.
pub(crate) const ANY: &str = "*";

impl Declared {
    pub fn parse(place: &str, of: &Selection) -> Result<Self, Invalid> {
        if !of.cluster.is_empty() {
            return Err(Invalid::OtherCluster {
                place: format!("{place}.cluster"),
                cluster: of.cluster.clone(),
            });
        }
        let kind = &of.kind;
        if kind.kind.is_empty()
            || kind.version.is_empty()
            || (kind.group == ANY && kind.kind != ANY)
        {
            let reason = "a kind has a version and a name; group `*` stands beside kind `*` only";
            return Err(malformed(format!("{place}.kind"), &display_kind(kind), reason));
        }
        let labels = LabelSelector::parse(&of.labels).map_err(|error| {
            malformed(format!("{place}.labels"), &of.labels, &error.to_string())
        })?;
        let path = |field: &str, text: &String| {
            text.parse().map_err(|error: crate::path::Invalid| {
                malformed(format!("{place}.{field}"), text, &error.to_string())
            })
        };
        let matching = of.matching.iter().map(|(key, value)| Ok((path("matching", key)?, value)));
        let matching = matching.collect::<Result<Vec<_>, Invalid>>()?.into_iter();
        Ok(Self {
            kind: Arc::clone(kind),
            namespace: of.namespace.clone(),
            name: of.name.clone(),
            labels,
            shown_labels: of.labels.clone(),
            // `*` only requests an index, and does not restrict the selection.
            matching: matching
                .filter(|(_, value)| *value != ANY)
                .map(|(path, value)| (path, value.clone()))
                .collect(),
        })
    }

    /// Returns whether the selection is of a kind.
    pub fn is_of(&self, kind: &Kind) -> bool {
        matches_kind(&self.kind, kind)
    }

    /// Returns whether the object is in the selection by its kind and names alone.
    pub fn could_hold(&self, object: &ObjectRef) -> bool {
        object.cluster.is_empty()
            && matches_kind(&self.kind, &object.kind)
            && self
                .namespace
                .as_ref()
                .is_none_or(|namespace| Some(namespace) == object.namespace.as_ref())
            && self.name.as_ref().is_none_or(|name| *name == object.name)
    }

    /// Returns whether the selection has no condition on labels and fields.
    pub fn unconditional(&self) -> bool {
        self.labels.is_empty() && self.matching.is_empty()
    }

    /// Returns whether an object of a fitting kind and name has the labels and fields of the
    /// selection.
    pub fn holds(&self, object: &Value) -> bool {
        self.labels.matches_object(object)
            && self.matching.iter().all(|(path, wanted)| path.holds(object, wanted))
    }

    /// Returns whether every object of `narrower` is in this selection, judged by the two
    /// selections alone: `narrower` must contain the labels and the `matching` of this one.
    /// `labels` are those of `narrower`.
    pub fn covers(&self, narrower: &Selection, labels: &LabelSelector) -> bool {
        // The cheapest checks come first: most declarations are of another kind.
        narrower.cluster.is_empty()
            && matches_kind(&self.kind, &narrower.kind)
            && self
                .namespace
                .as_ref()
                .is_none_or(|namespace| Some(namespace) == narrower.namespace.as_ref())
            && self.name.as_ref().is_none_or(|name| Some(name) == narrower.name.as_ref())
            && self.labels.covers(labels)
            && self.matching.iter().all(|(path, value)| {
                let path = path.to_string();
                narrower.matching.iter().any(|(key, wanted)| wanted == value && *key == path)
            })
    }
}

impl Display for Declared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", display_kind(&self.kind))?;
        write_place(formatter, self.namespace.as_deref(), self.name.as_deref())?;
        if !self.labels.is_empty() {
            write!(formatter, " with labels `{}`", self.shown_labels)?;
        }
        for (path, value) in &self.matching {
            write!(formatter, " with `{path}` = `{value}`")?;
        }
        Ok(())
    }
}

pub(crate) fn matches_kind(declared: &Kind, kind: &Kind) -> bool {
    // The kind's name comes first: it tells most kinds apart.
    (declared.kind == kind.kind || declared.kind == ANY)
        && (declared.group == kind.group || declared.group == ANY)
        && (declared.version == kind.version || declared.version == ANY || declared.group == ANY)
}
