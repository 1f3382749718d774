//! Field sets: the fields of an object that a manager owns.
//!
//! A [`Set`] is a tree of path elements. Its JSON form is the `FieldsV1` of `managedFields`; its
//! text form is that of the messages of conflicts (`.spec.ports[port=80,protocol="TCP"].name`). The
//! algebra is that of structured-merge-diff's `fieldpath`: a field and its children are separate
//! members.

mod element;
mod json;
#[cfg(test)]
mod tests;

pub(crate) use element::{Element, compare_values, equal};
pub(crate) use json::InvalidFields;

use std::{cmp::Ordering, sync::Arc};

use serde_json::{Map, Value};

/// A path below the root of an object.
pub(crate) type Path = [Element];

/// A set of fields of one object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Set {
    /// The nodes, sorted by element; no node is empty.
    nodes: Vec<Node>,
}

/// A path element that is a member of the set, or leads to members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    element: Element,
    member: bool,
    children: Set,
}

// === impl Node ===

impl Node {
    /// Returns the node of a field, with the nodes below it; `member`: true if the field itself is
    /// in the set.
    pub(crate) fn new(element: Element, member: bool, children: Set) -> Self {
        Self { element, member, children }
    }

    fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }

    pub(crate) fn element(&self) -> &Element {
        &self.element
    }

    /// Returns whether the field itself is in the set.
    pub(crate) fn is_member(&self) -> bool {
        self.member
    }

    /// Returns the members of the set below the field.
    pub(crate) fn children(&self) -> &Set {
        &self.children
    }
}

// === impl Set ===

impl Set {
    /// Returns the set of paths that consist of field names only.
    pub(crate) fn of_names(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for names in paths {
            let path: Vec<Element> = names.iter().map(|name| Element::field(name)).collect();
            set.insert(&path);
        }
        set
    }

    /// Returns the set of these nodes, in any order; no two nodes may have the same element.
    pub(crate) fn from_nodes(mut nodes: Vec<Node>) -> Self {
        nodes.retain(|node| !node.is_empty());
        if !nodes.is_sorted_by(|a, b| a.element <= b.element) {
            nodes.sort_by(|a, b| a.element.cmp(&b.element));
        }
        Self { nodes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the nodes, sorted by element.
    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Adds a path without its parents. The root itself is not added: no manager owns it.
    pub(crate) fn insert(&mut self, path: &Path) {
        let Some((first, rest)) = path.split_first() else { return };
        let at = match self.nodes.binary_search_by(|node| node.element.cmp(first)) {
            Ok(at) => at,
            Err(at) => {
                self.nodes.insert(at, Node::new(first.clone(), false, Self::default()));
                at
            }
        };
        let node = self.nodes.get_mut(at).expect("a node was found or made there");
        if rest.is_empty() {
            node.member = true;
        } else {
            node.children.insert(rest);
        }
    }

    /// Returns the node of an element of the first level.
    pub(crate) fn get(&self, element: &Element) -> Option<&Node> {
        let at = self.nodes.binary_search_by(|node| node.element.cmp(element)).ok()?;
        self.nodes.get(at)
    }

    /// Returns the members of either set.
    pub(crate) fn union(self, other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        let mut nodes = Vec::with_capacity(self.nodes.len().max(other.nodes.len()));
        let (mut left, mut right) =
            (self.nodes.into_iter().peekable(), other.nodes.into_iter().peekable());
        loop {
            let order = match (left.peek(), right.peek()) {
                (Some(a), Some(b)) => a.element.cmp(&b.element),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return Self { nodes },
            };
            let from_left = if order.is_le() { left.next() } else { None };
            let from_right = if order.is_ge() { right.next() } else { None };
            nodes.extend(match (from_left, from_right) {
                (Some(a), Some(b)) => Some(Node {
                    element: a.element,
                    member: a.member || b.member,
                    children: a.children.union(b.children),
                }),
                (one, other) => one.or(other),
            });
        }
    }

    /// Returns the members of both sets.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        self.combine(other, &|node, other| {
            let other = other?;
            Some(Node {
                element: node.element.clone(),
                member: node.member && other.member,
                children: node.children.intersection(&other.children),
            })
        })
    }

    /// Returns the members of `self` that are not in `other`; fields below a member of `other`
    /// stay.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        self.combine(other, &|node, other| {
            let Some(other) = other else { return Some(node.clone()) };
            Some(Node {
                element: node.element.clone(),
                member: node.member && !other.member,
                children: node.children.difference(&other.children),
            })
        })
    }

    /// Returns the members of `self` that are neither in `other` nor below a member of `other`.
    pub(crate) fn recursive_difference(&self, other: &Self) -> Self {
        self.combine(other, &|node, other| match other {
            None => Some(node.clone()),
            Some(other) if other.member => None,
            Some(other) => Some(Node {
                element: node.element.clone(),
                member: node.member,
                children: node.children.recursive_difference(&other.children),
            }),
        })
    }

    /// Combines each node of `self` with the node of `other` that has the same element, if any.
    fn combine(&self, other: &Self, with: &dyn Fn(&Node, Option<&Node>) -> Option<Node>) -> Self {
        let mut others = other.nodes.iter().peekable();
        let mut nodes = Vec::new();
        for node in &self.nodes {
            while others.next_if(|other| other.element < node.element).is_some() {}
            let other = others.peek().filter(|other| other.element == node.element).copied();
            nodes.extend(with(node, other).filter(|node| !node.is_empty()));
        }
        Self { nodes }
    }

    /// Returns whether all members of `self` are in `other`.
    pub(crate) fn is_subset(&self, other: &Self) -> bool {
        self.nodes.iter().all(|node| {
            other.get(&node.element).is_some_and(|other| {
                (!node.member || other.member) && node.children.is_subset(&other.children)
            })
        })
    }

    /// Returns all paths in the set: the members of a level before those below them.
    pub(crate) fn paths(&self) -> Vec<Vec<Element>> {
        let mut paths = Vec::new();
        self.collect_paths(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect_paths(&self, prefix: &mut Vec<Element>, paths: &mut Vec<Vec<Element>>) {
        for node in self.nodes.iter().filter(|node| node.member) {
            paths.push([prefix.as_slice(), std::slice::from_ref(&node.element)].concat());
        }
        for node in &self.nodes {
            prefix.push(node.element.clone());
            node.children.collect_paths(prefix, paths);
            prefix.pop();
        }
    }

    /// Parses `FieldsV1`.
    pub(crate) fn from_json(fields: &Value) -> Result<Self, InvalidFields> {
        json::read(fields)
    }

    /// Returns the set as `FieldsV1`.
    pub(crate) fn to_json(&self) -> Map<String, Value> {
        json::write(self)
    }
}

/// Returns the text of a path in the messages of conflicts.
pub(crate) fn path_text(path: &Path) -> String {
    path.iter().map(Element::to_string).collect()
}

/// The key of a list item.
pub(crate) type Key = Arc<Vec<(String, Value)>>;
