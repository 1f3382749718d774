//! A selection in the form in which it is compared with stored objects.

use serde_json::Value;

use super::entry::{Entry, path_key};
use super::hashed::{self, HashedSelector, Space};
use super::named::Named;
use crate::contract::Selection;
use crate::labels::LabelSelector;
use crate::path::Path;

/// The criteria of a selection, without its kind and fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Query {
    /// The namespace; `None` for all namespaces, empty for cluster-scoped objects.
    pub(crate) namespace: Option<Box<str>>,
    pub(crate) name: Option<Box<str>>,
    pub(super) selector: LabelSelector,
    labels: HashedSelector,
    matching: Box<[Condition]>,
}

/// A text that an object must hold at a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Condition {
    path: Path,
    value: Box<str>,
    /// The path's half of the term.
    key: u64,
    term: u64,
}

// === impl Query ===

impl Query {
    /// Parses a selection; the error message says which part does not parse.
    pub fn new(selection: &Selection) -> Result<Self, String> {
        let selector =
            LabelSelector::parse(&selection.labels).map_err(|invalid| invalid.to_string())?;
        let condition = |(path, value): &(String, String)| {
            let path: Path =
                path.parse().map_err(|invalid: crate::path::Invalid| invalid.to_string())?;
            let key = path_key(&path);
            Ok(Condition {
                key,
                term: hashed::term(key, value),
                value: value.as_str().into(),
                path,
            })
        };
        let matching: Result<Box<[Condition]>, String> =
            selection.matching.iter().map(condition).collect();
        Ok(Self {
            namespace: selection.namespace.as_deref().map(Into::into),
            name: selection.name.as_deref().map(Into::into),
            labels: HashedSelector::new(&selector),
            selector,
            matching: matching?,
        })
    }

    /// Creates a query for one object.
    pub fn object(namespace: Option<&str>, name: &str) -> Self {
        Self::within(Some(namespace.unwrap_or_default()), Some(name))
    }

    /// Creates a query for all objects of a namespace (`None`: of all namespaces), or for the one
    /// of this name.
    pub(crate) fn within(namespace: Option<&str>, name: Option<&str>) -> Self {
        Self {
            namespace: namespace.map(Into::into),
            name: name.map(Into::into),
            labels: HashedSelector::new(&LabelSelector::default()),
            selector: LabelSelector::default(),
            matching: Box::default(),
        }
    }

    /// Returns the query narrowed to the object with this namespace and name.
    pub(crate) fn narrowed(&self, namespace: Option<&str>, name: &str) -> Self {
        let (namespace, name) = (Some(namespace.unwrap_or_default().into()), Some(name.into()));
        Self { namespace, name, ..self.clone() }
    }

    /// Returns the query for the same namespace and name, without its labels and paths.
    pub(crate) fn anywhere(&self) -> Self {
        let selector = LabelSelector::default();
        let (labels, matching) = (HashedSelector::new(&selector), Box::default());
        Self { selector, labels, matching, ..self.clone() }
    }

    /// Returns whether an object is selected. A path that is not indexed is looked up in the
    /// object's JSON.
    pub fn matches(&self, entry: &Entry) -> bool {
        self.name.as_deref().is_none_or(|name| entry.is_called(name))
            && self.namespace.as_deref().is_none_or(|namespace| entry.is_within(namespace))
            && self.labels.matches(|key| entry.label_term(key))
            && self.holds_all(entry)
    }

    /// Returns whether an object would be selected with a manifest laid over it. At each path the
    /// former values count too, also those of list elements that the manifest replaces.
    pub(crate) fn would_match(&self, old: Option<&Entry>, sent: &Value) -> bool {
        let named = Named::of(sent);
        let (namespace, name) = named.place();
        let sent_label =
            |key: u64| named.label_terms().find(|(held, _)| *held == key).map(|(_, term)| term);
        let label = |key| sent_label(key).or_else(|| old.and_then(|old| old.label_term(key)));
        let holds = |condition: &Condition| {
            let held = old.is_some_and(|old| Self::holds(condition, old, &mut None));
            held || condition.path.holds(sent, &condition.value)
        };
        self.name.as_deref().is_none_or(|wanted| wanted == name)
            && self.namespace.as_deref().is_none_or(|wanted| wanted == namespace)
            && self.labels.matches(label)
            && self.matching.iter().all(holds)
    }

    /// Returns the label selector.
    pub(crate) fn labels(&self) -> &LabelSelector {
        &self.selector
    }

    /// Returns the paths, each with the text that objects must hold there.
    pub(crate) fn matching(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.matching.iter().map(|condition| (&condition.path, &*condition.value))
    }

    /// Returns terms that each selected object has, with the key under which they are indexed.
    pub(crate) fn terms(&self) -> impl Iterator<Item = (u64, u64)> {
        self.matching
            .iter()
            .map(|condition| (condition.key, condition.term))
            .chain(self.labels.equalities())
    }

    /// Returns whether a key is a path's half of a term (rather than a label's).
    pub(super) fn is_of_path(&self, key: u64) -> bool {
        self.matching.iter().any(|condition| condition.key == key)
    }

    /// Returns the key and term of the name, if the query has one.
    pub(super) fn name_term(&self) -> Option<(u64, u64)> {
        let key = hashed::key(Space::Place, "name");
        self.name.as_deref().map(|name| (key, hashed::term(key, name)))
    }

    fn holds_all(&self, entry: &Entry) -> bool {
        let mut parsed: Option<Value> = None;
        self.matching.iter().all(|condition| Self::holds(condition, entry, &mut parsed))
    }

    fn holds(condition: &Condition, entry: &Entry, parsed: &mut Option<Value>) -> bool {
        if entry.shape().indexes(condition.key) {
            return entry.matching_terms().any(|term| term == condition.term);
        }
        condition.path.holds(parsed.get_or_insert_with(|| entry.value()), &condition.value)
    }
}
