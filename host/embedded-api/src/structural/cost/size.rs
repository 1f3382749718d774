//! The largest sizes of values that a schema allows.

use super::{
    super::{Node, Type, convert},
    Flavor,
};

/// The largest size of a request, in bytes.
pub(super) const MAX_REQUEST_BYTES: u64 = 3 * 1024 * 1024;

/// A place in the schema that rules can reach.
#[derive(Debug, Clone, Copy)]
pub(super) enum Declared<'a> {
    Node {
        node: &'a Node,
        resource: bool,
    },
    /// The metadata of a resource.
    Metadata,
    /// The name or kind of a resource: an unbounded text.
    Text,
    /// A key of a map; the API server assumes that keys have no size.
    Key,
}

impl<'a> Declared<'a> {
    fn node(node: &'a Node) -> Self {
        Self::Node { node, resource: node.embedded }
    }

    /// Returns a field, by the name that rules write.
    pub(super) fn field(self, name: &str) -> Option<Self> {
        match self {
            Self::Metadata => Some(Self::Text),
            Self::Node { resource: true, .. } if name == "metadata" => Some(Self::Metadata),
            Self::Node { resource: true, .. } if matches!(name, "kind" | "apiVersion") => {
                Some(Self::Text)
            }
            Self::Node { node, .. } => {
                let mut fields = node.properties.iter();
                let field = fields
                    .find(|(field, _)| convert::escape(field).as_deref() == Some(name))
                    .map(|(_, node)| node);
                field.or(node.values()).map(Self::node)
            }
            Self::Text | Self::Key => None,
        }
    }

    /// Returns the elements over which macros iterate: items, or keys.
    pub(super) fn iterated(self) -> Option<Self> {
        let Self::Node { node, .. } = self else { return None };
        match node.values() {
            Some(_) => Some(Self::Key),
            None => node.items.as_deref().map(Self::node),
        }
    }

    /// Returns the elements that indexing returns: items, or values.
    pub(super) fn value(self) -> Option<Self> {
        let Self::Node { node, .. } = self else { return None };
        node.values().or(node.items.as_deref()).map(Self::node)
    }

    pub(super) fn flavor(self) -> Flavor {
        match self {
            Self::Metadata => Flavor::Fields,
            Self::Text | Self::Key => Flavor::Text,
            Self::Node { node, .. } if node.int_or_string => Flavor::Unknown,
            Self::Node { node, .. } => match node.kind {
                Some(Type::Object) => Flavor::Fields,
                Some(Type::Array) => Flavor::List,
                Some(Type::String) if !is_time(node) => Flavor::Text,
                Some(_) => Flavor::Plain,
                None => Flavor::Unknown,
            },
        }
    }

    /// Returns the largest number of characters, items or entries of the value; 0 for values
    /// without such parts.
    pub(super) fn most_elements(self) -> u64 {
        let Self::Node { node, .. } = self else {
            return if matches!(self, Self::Text) { MAX_REQUEST_BYTES - 2 } else { 0 };
        };
        let limits = &node.limits;
        match node.kind {
            _ if node.int_or_string => {
                limits.length.most.map_or(MAX_REQUEST_BYTES - 2, |most| most as u64 * 4)
            }
            Some(Type::Array) => limits.items.most.map_or_else(
                || {
                    (MAX_REQUEST_BYTES - 2)
                        / (node.items.as_deref().map_or(0, |items| Self::node(items).least_size())
                            + 1)
                },
                |most| most as u64,
            ),
            Some(Type::Object) => node.values().map_or(0, |values| {
                let unbounded = (MAX_REQUEST_BYTES - 2) / (Self::node(values).least_size() + 6);
                limits.properties.most.map_or(unbounded, |most| most as u64)
            }),
            Some(Type::String) => text_elements(node),
            _ => 0,
        }
    }

    /// Returns the smallest size of a value in bytes.
    pub(super) fn least_size(self) -> u64 {
        let Self::Node { node, .. } = self else { return 2 };
        match node.kind {
            _ if node.int_or_string => 1,
            Some(Type::Object) if node.values().is_none() => {
                let needed = node.properties.iter().filter(|(name, child)| {
                    child.default.is_none() && node.limits.required.contains(name)
                });
                2 + needed
                    .map(|(name, child)| name.len() as u64 + Self::node(child).least_size() + 4)
                    .sum::<u64>()
            }
            Some(Type::String) => match node.limits.format.as_deref() {
                Some("duration") => 4,
                Some("date") => 12,
                Some("date-time") => 22,
                _ => 2,
            },
            Some(Type::Boolean) => 4,
            Some(Type::Integer | Type::Number) => 1,
            Some(Type::Object | Type::Array) | None => 2,
        }
    }
}

fn is_time(node: &Node) -> bool {
    matches!(node.limits.format.as_deref(), Some("duration" | "date" | "date-time"))
}

fn text_elements(node: &Node) -> u64 {
    let most = node.limits.length.most.map(|most| most as u64);
    match node.limits.format.as_deref() {
        Some("byte") => most.unwrap_or(MAX_REQUEST_BYTES - 2),
        Some("duration") => 32,
        Some("date") => 12,
        Some("date-time") => 37,
        _ => most.map_or_else(
            || listed_elements(node).unwrap_or(MAX_REQUEST_BYTES - 2),
            |most| most * 4,
        ),
    }
}

fn listed_elements(node: &Node) -> Option<u64> {
    node.limits.one_of_values.iter().map(|value| value.as_str().map_or(0, str::len) as u64).max()
}
