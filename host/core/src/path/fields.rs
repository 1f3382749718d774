//! Sets of paths, and the part of an object that they select.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::LazyLock,
};

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::{Map, Value};

use super::{Pairs, Path, Segment, holds_all};

/// The fields that are in every answer, asked for or not.
const ALWAYS: [&[&str]; 8] = [
    &["apiVersion"],
    &["kind"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "uid"],
    &["metadata", "deletionTimestamp"],
    &["metadata", "generation"],
    &["metadata", "resourceVersion"],
];

/// Fields of `metadata` whose change alone does not count as a change.
pub(crate) const NOT_COUNTED: [&str; 2] = ["generation", "resourceVersion"];

/// The most pairs of steps `[key=value,…]` with which each element of a list is compared when an
/// object is stored. An object of 1.5 MB has more than 100,000 elements.
const MAX_CONDITIONS: usize = 64;

/// A set of paths: the fields that a reader asks for, or may ask for. No set selects
/// `metadata.managedFields`.
#[derive(Clone, Debug)]
pub struct Fields {
    /// The paths as they were given; empty for whole objects.
    paths: BTreeSet<Path>,
    root: Node,
    /// The number of different pairs of all steps `[key=value,…]`.
    conditions: usize,
}

/// The extent of the selected fields that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extent {
    /// The whole selection.
    Shown,
    /// The selected fields that count as a change: not `metadata.generation` and
    /// `metadata.resourceVersion`.
    Counted,
    /// The same as `Counted`, without `status`.
    WithoutStatus,
}

/// The part of a value that was selected; borrows it.
#[derive(Clone, Debug, PartialEq)]
pub enum Part<'a> {
    Whole(&'a Value),
    /// Some entries of a map.
    Map(Vec<(&'a str, Self)>),
    /// Some elements of a list.
    List(Vec<Self>),
}

/// The paths as a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    /// True if everything from here on is selected.
    whole: bool,
    keys: BTreeMap<Box<str>, Node>,
    each: Option<Box<Node>>,
    elements: Vec<(Pairs, Node)>,
}

// === impl Fields ===

impl PartialEq for Fields {
    fn eq(&self, other: &Self) -> bool {
        self.paths == other.paths
    }
}

impl Eq for Fields {}

impl std::hash::Hash for Fields {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.paths.hash(state);
    }
}

impl Fields {
    /// Creates the set that selects whole objects.
    pub fn whole() -> Self {
        let root = Node { whole: true, ..Node::default() };
        Self { paths: BTreeSet::new(), root, conditions: 0 }
    }

    /// Returns the set that selects no more than the fields that are in every answer.
    pub fn metadata_only() -> &'static Self {
        static METADATA_ONLY: LazyLock<Fields> = LazyLock::new(|| {
            Fields::of(ALWAYS.iter().filter_map(|keys| Path::from_keys(keys.iter().copied())))
        });
        &METADATA_ONLY
    }

    /// Creates the set of these paths; if there are none, it selects whole objects (as the contract
    /// has it).
    pub fn of(paths: impl IntoIterator<Item = Path>) -> Self {
        let paths: BTreeSet<Path> = paths.into_iter().collect();
        if paths.is_empty() {
            return Self::whole();
        }
        let mut root = Node::default();
        for path in &paths {
            root.add(path.segments());
        }
        for keys in ALWAYS {
            root.add_keys(keys);
        }
        let conditions = root.conditions();
        Self { paths, root, conditions }
    }

    /// Parses paths from texts.
    pub fn parse<T: AsRef<str>>(texts: &[T]) -> Result<Self, super::Invalid> {
        let paths: Result<Vec<Path>, _> = texts.iter().map(|text| text.as_ref().parse()).collect();
        paths.map(Self::of)
    }

    /// Returns whether everything is selected.
    pub fn is_whole(&self) -> bool {
        self.root.whole
    }

    /// Returns the paths; none if everything is selected.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter()
    }

    /// Returns the set that selects what either set selects.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::union_of([self, other])
    }

    /// Returns the set that selects what any of the sets selects; whole objects if there are none.
    pub fn union_of<'a>(sets: impl IntoIterator<Item = &'a Self> + Clone) -> Self {
        if sets.clone().into_iter().any(Self::is_whole) {
            return Self::whole();
        }
        Self::of(sets.into_iter().flat_map(|set| &set.paths).cloned())
    }

    /// Returns the number by which the time of selecting the fields from JSON is multiplied, beside
    /// that of parsing it: each element of a list is compared with each pair of a step
    /// `[key=value,…]`.
    pub(crate) fn cost(&self) -> usize {
        1 + self.conditions
    }

    /// Returns a set that selects at least as much, with few steps `[key=value,…]`: those with more
    /// than [`MAX_CONDITIONS`] pairs become `[]`.
    #[must_use]
    pub(crate) fn with_few_conditions(self) -> Self {
        if self.conditions <= MAX_CONDITIONS {
            return self;
        }
        let each = |path: Path| {
            Path::from_segments(path.segments().iter().map(|segment| match segment {
                Segment::Where(_) => Segment::Each,
                Segment::Key(_) | Segment::Each => segment.clone(),
            }))
        };
        let with_compared =
            |path: Path| path.compared().collect::<Vec<_>>().into_iter().chain([path]);
        Self::of(self.paths.into_iter().flat_map(with_compared).filter_map(each))
    }

    /// Returns whether everything that the path can find is selected. Any set selects the fields
    /// that are in every answer.
    pub fn covers(&self, path: &Path) -> bool {
        self.root.covers(path.segments())
    }

    /// Returns whether everything that `other` selects is selected.
    pub fn covers_all(&self, other: &Self) -> bool {
        if other.is_whole() { self.is_whole() } else { self.first_missing(other).is_none() }
    }

    /// Returns the first path of `other` that is not selected, if any.
    pub fn first_missing<'a>(&self, other: &'a Self) -> Option<&'a Path> {
        other.paths.iter().find(|path| !self.covers(path))
    }

    pub(super) fn root(&self) -> &Node {
        &self.root
    }

    /// Returns the part of an object that is selected.
    pub fn select<'a>(&self, object: &'a Value, extent: Extent) -> Part<'a> {
        let Value::Object(entries) = object else { return Part::Whole(object) };
        let all = |name: &str| self.root.whole || self.root.keys.contains_key(name);
        let entries = entries.iter().filter(|(name, _)| all(name)).filter_map(|(name, value)| {
            let part = match (name.as_str(), extent) {
                ("status", Extent::WithoutStatus) => None,
                ("metadata", _) => self.root.child(name).select_metadata(value, extent),
                _ => self.root.child(name).select(value),
            };
            part.map(|part| (name.as_str(), part))
        });
        Part::Map(entries.collect())
    }

    /// Returns a copy of the part of an object that is selected.
    pub fn project(&self, object: &Value) -> Value {
        self.select(object, Extent::Shown).to_value()
    }

    /// Returns whether two versions of an object differ in what is selected. Being there or not is
    /// a difference.
    pub fn differ(&self, old: Option<&Value>, new: Option<&Value>, extent: Extent) -> bool {
        match (old, new) {
            (None, None) => false,
            (Some(old), Some(new)) => self.select(old, extent) != self.select(new, extent),
            _ => true,
        }
    }
}

impl Fields {
    /// Returns whether an object differs from the expected one in a field that was asked for.
    ///
    /// A field that is in every answer does not count if nobody asked for it: the uid of an object
    /// that was just made surprises nobody.
    pub fn surprise(&self, expected: &Value, found: &Value, extent: Extent) -> bool {
        let asked = |object| self.only_asked(self.select(object, extent));
        asked(expected) != asked(found)
    }

    fn only_asked<'a>(&self, part: Part<'a>) -> Part<'a> {
        let Part::Map(entries) = part else { return part };
        let entries = entries.into_iter().filter_map(|(name, part)| match (name, part) {
            ("metadata", Part::Map(of)) => {
                let asked = of.into_iter().filter(|(key, _)| self.asks_for(&["metadata", key]));
                Some((name, Part::Map(asked.collect())))
            }
            (_, part) => self.asks_for(&[name]).then_some((name, part)),
        });
        Part::Map(entries.collect())
    }

    /// Returns whether the field under these keys was asked for, and not only given because it is
    /// in every answer.
    fn asks_for(&self, keys: &[&str]) -> bool {
        !ALWAYS.contains(&keys)
            || self.is_whole()
            || Path::from_keys(keys.iter().copied())
                .is_some_and(|path| self.paths.iter().any(|asked| asked.covers(&path)))
    }
}

impl fmt::Display for Fields {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_whole() {
            return to.write_str("everything");
        }
        for (at, path) in self.paths.iter().enumerate() {
            write!(to, "{}`{path}`", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

// === impl Node ===

impl Node {
    fn add_keys(&mut self, keys: &[&str]) {
        let mut node = self;
        for key in keys {
            node = node.keys.entry((*key).into()).or_default();
        }
        node.whole = true;
    }

    fn add(&mut self, segments: &[Segment]) {
        let Some((first, rest)) = segments.split_first() else {
            self.whole = true;
            return;
        };
        match first {
            Segment::Key(key) => self.keys.entry(key.clone()).or_default().add(rest),
            Segment::Each => self.each.get_or_insert_default().add(rest),
            Segment::Where(wanted) => {
                let known = self.elements.iter().position(|(held, _)| held == wanted);
                if known.is_none() {
                    let mut node = Self::default();
                    wanted.iter().for_each(|(key, _)| node.add_keys(&[key]));
                    self.elements.push((wanted.clone(), node));
                }
                let last = self.elements.len().saturating_sub(1);
                if let Some((_, node)) = self.elements.get_mut(known.unwrap_or(last)) {
                    node.add(rest);
                }
            }
        }
    }

    /// Returns the number of pairs of all different steps `[key=value,…]`.
    fn conditions(&self) -> usize {
        let pairs = self.elements.iter().map(|(wanted, _)| wanted.len());
        let elements = self.elements.iter().map(|(_, node)| node);
        let below = self.keys.values().chain(self.each.as_deref()).chain(elements);
        pairs.chain(below.map(Self::conditions)).sum()
    }

    fn covers(&self, segments: &[Segment]) -> bool {
        if self.whole {
            return true;
        }
        let Some((first, rest)) = segments.split_first() else { return false };
        let by_each = || self.each.as_ref().is_some_and(|node| node.covers(rest));
        match first {
            Segment::Key(key) => self.keys.get(key).is_some_and(|node| node.covers(rest)),
            Segment::Each => by_each(),
            Segment::Where(wanted) => {
                let held =
                    |held: &[(Box<str>, Box<str>)]| held.iter().all(|pair| wanted.contains(pair));
                by_each()
                    || self.elements.iter().any(|(keys, node)| held(keys) && node.covers(rest))
            }
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Returns whether the node selects elements of a list by what they hold.
    pub(super) fn selects_elements(&self) -> bool {
        !self.elements.is_empty()
    }

    pub(super) fn under(&self, key: &str) -> Option<&Self> {
        self.keys.get(key)
    }

    pub(super) fn each(&self) -> Option<&Self> {
        self.each.as_deref()
    }

    /// Returns the node under a key; of a whole node, the node itself.
    fn child(&self, key: &str) -> &Self {
        self.keys.get(key).filter(|_| !self.whole).unwrap_or(self)
    }

    fn select_metadata<'a>(&self, metadata: &'a Value, extent: Extent) -> Option<Part<'a>> {
        let Value::Object(entries) = metadata else { return self.select(metadata) };
        let counted = |name: &str| extent == Extent::Shown || !NOT_COUNTED.contains(&name);
        let entries = entries
            .iter()
            .map(|(name, value)| (name.as_str(), value))
            .filter(|(name, _)| *name != "managedFields" && counted(name))
            .filter(|(name, _)| self.whole || self.keys.contains_key(*name))
            .filter_map(|(name, value)| Some((name, self.child(name).select(value)?)));
        Some(Part::Map(entries.collect()))
    }

    fn select<'a>(&self, value: &'a Value) -> Option<Part<'a>> {
        select(&[self], value)
    }
}

/// Returns the part of a value that any of the nodes selects; `None` if that is nothing.
pub(super) fn select<'a>(nodes: &[&Node], value: &'a Value) -> Option<Part<'a>> {
    if nodes.iter().any(|node| node.whole) {
        return Some(Part::Whole(value));
    }
    match value {
        Value::Object(entries) => {
            let entry = |(name, value): (&'a String, &'a Value)| {
                let children: Vec<&Node> =
                    nodes.iter().filter_map(|node| node.keys.get(name.as_str())).collect();
                if children.is_empty() {
                    return None;
                }
                Some((name.as_str(), select(&children, value)?))
            };
            let entries: Vec<_> = entries.iter().filter_map(entry).collect();
            (!entries.is_empty()).then_some(Part::Map(entries))
        }
        Value::Array(elements) => {
            let elements: Vec<_> =
                elements.iter().filter_map(|element| select_element(nodes, element)).collect();
            (!elements.is_empty()).then_some(Part::List(elements))
        }
        _ => None,
    }
}

fn select_element<'a>(nodes: &[&Node], element: &'a Value) -> Option<Part<'a>> {
    let mut selecting: Vec<&Node> = nodes.iter().filter_map(|node| node.each.as_deref()).collect();
    for node in nodes {
        selecting.extend(
            node.elements
                .iter()
                .filter(|(wanted, _)| holds_all(wanted, element))
                .map(|(_, node)| node),
        );
    }
    if selecting.is_empty() {
        return None;
    }
    // A reader may count the elements, so one without any of the fields is there all the same.
    let is_empty = || element.is_object().then_some(Part::Map(Vec::new()));
    select(&selecting, element).or_else(is_empty)
}

// === impl Part ===

impl<'a> Part<'a> {
    /// Copies the selected part.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Whole(value) => (*value).clone(),
            Self::Map(entries) => {
                let copy = |(name, part): &(&str, Part<'_>)| ((*name).to_owned(), part.to_value());
                Value::Object(entries.iter().map(copy).collect::<Map<_, _>>())
            }
            Self::List(elements) => Value::Array(elements.iter().map(Part::to_value).collect()),
        }
    }

    /// Returns the entries of a map that was selected in part; none of any other part.
    pub fn entries(&self) -> &[(&'a str, Self)] {
        if let Self::Map(entries) = self { entries } else { &[] }
    }
}

impl Serialize for Part<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Whole(value) => value.serialize(serializer),
            Self::Map(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (name, part) in entries {
                    map.serialize_entry(name, part)?;
                }
                map.end()
            }
            Self::List(elements) => {
                let mut list = serializer.serialize_seq(Some(elements.len()))?;
                for part in elements {
                    list.serialize_element(part)?;
                }
                list.end()
            }
        }
    }
}
