//! A declared selection.

use std::{
    collections::BTreeSet,
    fmt::{self, Display},
    str::FromStr as _,
    sync::Arc,
};

use serde_json::Value;

use super::{Invalid, malformed, text::write_place};
use crate::{
    contract::{Kind, ObjectRef, Selection, display_kind},
    labels::LabelSelector,
    path::Path,
    store::Query,
};

/// A declared selection, parsed.
#[derive(Debug)]
pub struct Declared {
    pub kind: Arc<Kind>,
    /// The criteria, without the paths of which any value matches.
    pub query: Query,
    /// The paths in `matching`, also those of any value: each needs an index.
    pub indexed: BTreeSet<Path>,
    /// The label selector as it was written.
    shown_labels: String,
}

/// The wildcard for every kind of a group, for every group, for every cluster, and in `matching` for
/// any value.
pub(crate) const ANY: &str = "*";

impl Declared {
    pub fn parse(place: &str, of: &Selection) -> Result<Self, Invalid> {
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
        let path = |(key, value)| match Path::from_str(key) {
            Ok(path) => Ok((path, value)),
            Err(error) => Err(malformed(format!("{place}.matching"), key, &error.to_string())),
        };
        let matching = of.matching.iter().map(|(key, value)| path((key, value.as_str())));
        let matching = matching.collect::<Result<Vec<_>, Invalid>>()?;
        let indexed = matching.iter().map(|(path, _)| path.clone()).collect();
        // `*` only requests an index, and does not restrict the selection.
        let restricting = matching.into_iter().filter(|(_, value)| *value != ANY);
        Ok(Self {
            kind: Arc::clone(kind),
            query: Query::of(of, labels, restricting),
            indexed,
            shown_labels: of.labels.clone(),
        })
    }

    /// Returns whether the selection is of a kind.
    pub fn is_of(&self, kind: &Kind) -> bool {
        matches_kind(&self.kind, kind)
    }

    /// Returns whether the object is in the selection by its kind and names alone.
    pub fn could_hold(&self, object: &ObjectRef) -> bool {
        matches_kind(&self.kind, &object.kind)
            && self.is_at(object.namespace.as_deref(), Some(&object.name))
    }

    /// Returns whether the selection has no condition on labels and fields.
    pub fn unconditional(&self) -> bool {
        self.query.labels().is_empty() && self.query.matching().next().is_none()
    }

    /// Returns whether an object of a fitting kind and name has the labels and fields of the
    /// selection.
    pub fn holds(&self, object: &Value) -> bool {
        self.query.labels().matches_object(object)
            && self.query.matching().all(|(path, wanted)| path.holds(object, wanted))
    }

    /// Returns whether every object of `narrower` is in this selection, judged by the two
    /// selections alone: `narrower` must contain the labels and the `matching` of this one.
    /// `labels` are those of `narrower`.
    pub fn covers(&self, narrower: &Selection, labels: &LabelSelector) -> bool {
        // The cheapest checks come first: most declarations are of another kind.
        matches_kind(&self.kind, &narrower.kind)
            && self.is_at(narrower.namespace.as_deref(), narrower.name.as_deref())
            && self.query.labels().covers(labels)
            && self.query.matching().all(|(path, value)| {
                let path = path.to_string();
                narrower.matching.iter().any(|(key, wanted)| wanted == value && *key == path)
            })
    }

    /// Returns whether all objects of this namespace and name fit; `None`: of all.
    fn is_at(&self, namespace: Option<&str>, name: Option<&str>) -> bool {
        let fits = |declared: Option<&str>, of: Option<&str>| declared.is_none() || declared == of;
        fits(self.query.namespace.as_deref(), namespace) && fits(self.query.name.as_deref(), name)
    }
}

impl Display for Declared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", display_kind(&self.kind))?;
        write_place(formatter, self.query.namespace.as_deref(), self.query.name.as_deref())?;
        if !self.query.labels().is_empty() {
            write!(formatter, " with labels `{}`", self.shown_labels)?;
        }
        for (path, value) in self.query.matching() {
            write!(formatter, " with `{path}` = `{value}`")?;
        }
        Ok(())
    }
}

pub(crate) fn matches_kind(declared: &Kind, kind: &Kind) -> bool {
    // The kind's name comes first: it tells most kinds apart.
    (declared.kind == kind.kind || declared.kind == ANY)
        && (declared.cluster == kind.cluster || &*declared.cluster == ANY)
        && (declared.group == kind.group || declared.group == ANY)
        && (declared.version == kind.version || declared.version == ANY || declared.group == ANY)
}
