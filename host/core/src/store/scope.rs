//! The scope of a watch, and the fields and indexes that its store keeps.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{place::NamespacedName, query::Query};
use crate::{
    contract::Selection,
    labels::LabelSelector,
    path::{Fields, Path, Segment},
};

/// The objects of a kind that one watch selects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope {
    /// The namespace; `None` for all namespaces.
    pub namespace: Option<String>,
    /// The name; `None` for all names.
    pub name: Option<String>,
    /// A label selector; an empty one selects all objects, one that does not parse selects none.
    pub labels: String,
}

/// The fields and indexes that a store of a kind must keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The fields to be kept.
    pub fields: Fields,
    /// The paths to be indexed.
    pub matching: BTreeSet<Path>,
    /// True if processors write the kind: the digests of our own fields are computed from whole
    /// objects, which the watch must then deliver.
    pub written: bool,
}

// === impl Scope ===

impl Scope {
    /// Returns the scope of a selection, without the conditions on fields.
    pub fn of(of: &Selection) -> Self {
        Self { namespace: of.namespace.clone(), name: of.name.clone(), labels: of.labels.clone() }
    }

    /// Returns whether an object is in the scope.
    pub fn holds(&self, object: &Value) -> bool {
        self.may_hold(&NamespacedName::of(object))
            && (self.labels.is_empty()
                || LabelSelector::parse(&self.labels)
                    .is_ok_and(|selector| selector.matches_object(object)))
    }

    /// Returns whether the object of this namespace and name is in the scope with some labels.
    pub(super) fn may_hold(&self, place: &NamespacedName) -> bool {
        self.namespace.as_deref().is_none_or(|wanted| *wanted == *place.namespace)
            && self.name.as_deref().is_none_or(|wanted| *wanted == *place.name)
    }

    /// Returns whether all objects that a query can find are in the scope.
    pub fn covers(&self, query: &Query) -> bool {
        let covers = |mine: &Option<String>, theirs: Option<&str>| {
            mine.is_none() || mine.as_deref() == theirs
        };
        covers(&self.namespace, query.namespace.as_deref())
            && covers(&self.name, query.name.as_deref())
            && (self.labels.is_empty()
                || LabelSelector::parse(&self.labels)
                    .is_ok_and(|selector| selector.covers(query.labels())))
    }

    /// Returns whether all objects of another scope are in this one.
    pub fn covers_scope(&self, other: &Self) -> bool {
        let covers =
            |mine: &Option<String>, theirs: &Option<String>| mine.is_none() || mine == theirs;
        let labels = |text: &str| LabelSelector::parse(text).ok();
        covers(&self.namespace, &other.namespace)
            && covers(&self.name, &other.name)
            && (self.labels.is_empty()
                || labels(&self.labels)
                    .zip(labels(&other.labels))
                    .is_some_and(|(mine, theirs)| mine.covers(&theirs)))
    }
}

// === impl Wanted ===

impl Wanted {
    /// Returns the union of all; `None` if there are none.
    pub fn union_of<'a>(all: impl IntoIterator<Item = &'a Self>) -> Option<Self> {
        let all: Vec<&Self> = all.into_iter().collect();
        (!all.is_empty()).then(|| Self {
            fields: Fields::union_of(all.iter().map(|wanted| &wanted.fields)),
            matching: all.iter().flat_map(|wanted| &wanted.matching).cloned().collect(),
            written: all.iter().any(|wanted| wanted.written),
        })
    }

    /// Keeps the fields of the paths that are not among `indexed`, in place of an index.
    #[must_use]
    pub(crate) fn with_places(mut self, indexed: &BTreeSet<&Path>) -> Self {
        let others: Vec<Path> =
            self.matching.extract_if(.., |path| !indexed.contains(path)).collect();
        if !others.is_empty() {
            self.fields = self.fields.union(&Fields::of(others));
        }
        self
    }

    /// Returns the number of kept and indexed paths.
    pub fn paths(&self) -> usize {
        self.fields.paths().count() + self.matching.len()
    }

    /// Returns the union of both.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self {
            fields: self.fields.union(&other.fields),
            matching: self.matching.union(&other.matching).cloned().collect(),
            written: self.written || other.written,
        }
    }

    /// Returns whether a metadata-only watch delivers all kept fields.
    pub fn is_metadata_only(&self) -> bool {
        let is_metadata = |path: &Path| matches!(path.segments().first(), Some(Segment::Key(key)) if **key == *"metadata");
        let bare = Fields::metadata_only();
        !self.written
            && !self.fields.is_whole()
            && self
                .fields
                .paths()
                .chain(&self.matching)
                .all(|path| is_metadata(path) || bare.covers(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(namespace: &str, name: &str, labels: &str) -> Scope {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Scope { namespace: some(namespace), name: some(name), labels: labels.into() }
    }

    #[test]
    fn a_scope_covers_those_that_see_no_more() {
        let cases = [
            (scope("", "", ""), scope("a", "x", "l=1"), true),
            (scope("a", "", ""), scope("", "", ""), false),
            (scope("a", "", ""), scope("a", "x", ""), true),
            (scope("a", "x", ""), scope("b", "x", ""), false),
            (scope("", "", "l"), scope("", "", "l=1"), true),
            (scope("", "", "l=1"), scope("", "", "l"), false),
            (scope("", "", "l=1"), scope("a", "", "no selector"), false),
        ];
        for (outer, inner, covers) in cases {
            assert_eq!(outer.covers_scope(&inner), covers, "{outer:?} {inner:?}");
        }
    }

    #[test]
    fn metadata_alone_is_watched_only_where_nothing_else_is_wanted() {
        let wanted = |fields: &[&str], matching: &[&str], written| Wanted {
            fields: Fields::parse(fields).unwrap(),
            matching: matching.iter().map(|path| path.parse().unwrap()).collect(),
            written,
        };
        let cases = [
            (wanted(&["metadata.labels"], &["metadata.ownerReferences[].uid"], false), true),
            (wanted(&["metadata.labels"], &["spec.a"], false), false),
            (wanted(&["metadata.labels"], &[], true), false),
            (wanted(&["metadata.name", "kind"], &[], false), true),
            (wanted(&["spec.a"], &[], false), false),
            (wanted(&[], &[], false), false),
        ];
        for (wanted, expected) in cases {
            assert_eq!(wanted.is_metadata_only(), expected, "{wanted:?}");
        }
    }
}
