//! A parsed selection, to be matched against stored objects.

use serde_json::Value;

use super::{
    entry::Entry,
    place::NamespacedName,
    term::{Term, hashed},
};
use crate::{
    contract::Selection,
    labels::{LabelSelector, Test},
    path::{Path, Segment},
};

/// The bytes of labels, or of an object's lists, that are searched in the time of one step.
const BYTES_PER_STEP: usize = 64;
/// The steps of looking up a label.
const LABEL_STEPS: usize = 4;

/// The criteria of a selection, without its kind and fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Query {
    /// The namespace; `None` for all namespaces, empty for cluster-scoped objects.
    pub namespace: Option<Box<str>>,
    pub name: Option<Box<str>>,
    labels: LabelSelector,
    matching: Box<[Condition]>,
}

/// A text that an object must hold at a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Condition {
    path: Path,
    value: Box<str>,
    /// The hashed term of path and value.
    term: u64,
}

// === impl Query ===

impl Query {
    /// Parses a selection; the error message names the part that does not parse.
    pub fn new(selection: &Selection) -> Result<Self, String> {
        let labels =
            LabelSelector::parse(&selection.labels).map_err(|invalid| invalid.to_string())?;
        let path = |(path, value): &'_ (String, String)| match path.parse::<Path>() {
            Ok(path) => Ok((path, value.clone())),
            Err(invalid) => Err(invalid.to_string()),
        };
        let matching = selection.matching.iter().map(path).collect::<Result<Vec<_>, _>>()?;
        Ok(Self::of(selection, labels, matching))
    }

    /// Creates a query from a selection whose labels and paths were parsed.
    pub fn of<V: AsRef<str>>(
        selection: &Selection,
        labels: LabelSelector,
        matching: impl IntoIterator<Item = (Path, V)>,
    ) -> Self {
        let condition = |(path, value): (Path, V)| {
            let value = value.as_ref();
            Condition { term: hashed(Term::Path(&path, value)), value: value.into(), path }
        };
        Self {
            namespace: selection.namespace.as_deref().map(Into::into),
            name: selection.name.as_deref().map(Into::into),
            labels,
            matching: matching.into_iter().map(condition).collect(),
        }
    }

    /// Creates a query for one object.
    pub fn object(namespace: Option<&str>, name: &str) -> Self {
        Self::within(Some(namespace.unwrap_or_default()), Some(name))
    }

    /// Creates a query for the objects of a namespace (`None`: of all namespaces), optionally of
    /// one name.
    pub fn within(namespace: Option<&str>, name: Option<&str>) -> Self {
        Self {
            namespace: namespace.map(Into::into),
            name: name.map(Into::into),
            labels: LabelSelector::default(),
            matching: Box::default(),
        }
    }

    /// Returns the query narrowed to the object with this namespace and name.
    #[must_use]
    pub fn narrowed(&self, namespace: Option<&str>, name: &str) -> Self {
        let (namespace, name) = (Some(namespace.unwrap_or_default().into()), Some(name.into()));
        Self { namespace, name, ..self.clone() }
    }

    /// Returns the query for the same namespace and name, without its labels and paths.
    #[must_use]
    pub fn anywhere(&self) -> Self {
        Self::within(self.namespace.as_deref(), self.name.as_deref())
    }

    /// Returns whether an object is selected. A path that is not indexed is looked up in the
    /// object's JSON.
    pub fn matches(&self, entry: &Entry) -> bool {
        self.matches_parsed(entry, &mut None)
    }

    /// Returns whether an object is selected, like [`Query::matches`]. `parsed` is the object's
    /// JSON, which is parsed if that is needed and was not done before.
    pub fn matches_parsed(&self, entry: &Entry, parsed: &mut Option<Value>) -> bool {
        self.is_at(entry.place())
            && self.labels.matches(|key| entry.label(key))
            && self.matching.iter().all(|condition| condition.holds(entry, parsed))
    }

    /// Returns whether the namespace and the name alone select an object.
    pub fn is_by_name(&self) -> bool {
        self.labels.is_empty() && self.matching.is_empty()
    }

    /// Returns the approximate cost of [`Query::matches_parsed`] in steps of some nanoseconds,
    /// without that of parsing the object.
    pub fn cost(&self, entry: &Entry) -> usize {
        if !self.is_at(entry.place()) {
            return 1;
        }
        let label = LABEL_STEPS + entry.label_bytes() / BYTES_PER_STEP;
        let labels = self.labels.requirements().len() * label;
        1 + labels + self.matching.iter().map(|condition| condition.cost(entry)).sum::<usize>()
    }

    /// Returns the number by which the time of looking up the paths in an object's JSON is
    /// multiplied, beside that of parsing it.
    pub(crate) fn pairs_cost(&self) -> usize {
        1 + self.matching.iter().map(|condition| condition.path.pairs()).sum::<usize>()
    }

    /// Returns whether an object would match with a manifest merged into it. At each path, values
    /// from before the merge match too, also those of list elements that the manifest replaces.
    ///
    /// `parsed` is the JSON of `old`, as in [`Query::matches_parsed`].
    pub fn would_match(
        &self,
        old: Option<&Entry>,
        sent: &Value,
        parsed: &mut Option<Value>,
    ) -> bool {
        let labels = sent.pointer("/metadata/labels");
        let sent_label = |key: &str| labels.and_then(|labels| labels.get(key)?.as_str());
        let label = |key: &str| sent_label(key).or_else(|| old.and_then(|old| old.label(key)));
        let mut holds = |condition: &Condition| {
            let held = old.is_some_and(|old| condition.holds(old, parsed));
            held || condition.path.holds(sent, &condition.value)
        };
        self.is_at(&NamespacedName::of(sent))
            && self.labels.matches(label)
            && self.matching.iter().all(&mut holds)
    }

    pub fn labels(&self) -> &LabelSelector {
        &self.labels
    }

    /// Returns the paths, each with the text that objects must hold there.
    pub fn matching(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.matching.iter().map(|condition| (&condition.path, &*condition.value))
    }

    /// Returns terms that each selected object has.
    pub(super) fn terms(&self) -> impl Iterator<Item = Term<'_>> {
        let paths = self.matching().map(|(path, value)| Term::Path(path, value));
        let labels = self.labels.requirements().iter().filter_map(|of| match &of.test {
            Test::In(values) if values.len() == 1 => {
                values.first().map(|value| Term::Label(&of.key, value))
            }
            _ => None,
        });
        paths.chain(labels)
    }

    fn is_at(&self, place: &NamespacedName) -> bool {
        self.name.as_deref().is_none_or(|name| *place.name == *name)
            && self.namespace.as_deref().is_none_or(|namespace| *place.namespace == *namespace)
    }
}

// === impl Condition ===

impl Condition {
    /// Returns whether an object holds the text. `parsed` is the object's JSON, parsed if needed.
    fn holds(&self, entry: &Entry, parsed: &mut Option<Value>) -> bool {
        entry.holds(&self.path, self.term).unwrap_or_else(|| {
            self.path.holds(parsed.get_or_insert_with(|| entry.value()), &self.value)
        })
    }

    fn cost(&self, entry: &Entry) -> usize {
        let is_key = |segment: &Segment| matches!(segment, Segment::Key(_));
        match self.path.segments() {
            segments if self.is_indexed(entry) || segments.iter().all(is_key) => segments.len(),
            segments => {
                let lists = entry.json().len() / BYTES_PER_STEP;
                segments.len() + lists * (1 + self.path.pairs())
            }
        }
    }

    fn is_indexed(&self, entry: &Entry) -> bool {
        entry.shape().position(&self.path).is_some()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::{all, matching, object, with};

    #[test]
    fn the_cost_of_lists_without_an_index_grows_with_the_pairs_of_a_path() {
        let list = vec![json!({"a": "1"}); 1_000];
        let entry = Entry::alone(&with(object("Thing", "a", 1), "spec/list", json!(list)));
        let cost = |path| Query::new(&matching(all("Thing"), path, "v")).unwrap().cost(&entry);
        let (each, pairs) = (cost("spec.list[].x"), cost("spec.list[a=1,b=2,c=3].x"));
        assert!((39 * each..=40 * each).contains(&(10 * pairs)), "{each}, {pairs}");
    }
}
