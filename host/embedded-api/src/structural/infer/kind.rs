//! The types of expressions.

use std::fmt;

use super::super::{Additional, Node, Type, convert, limit::Limits, prune::META_FIELDS};

/// The type of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind<'a> {
    /// A type known only when the expression is evaluated.
    Dyn,
    /// The type after a reported error; its consequences are not reported.
    Faulty,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Timestamp,
    Duration,
    Type,
    List(Box<Kind<'a>>),
    Map(Box<Kind<'a>>, Box<Kind<'a>>),
    Optional(Box<Kind<'a>>),
    /// An object with the fields of a schema; with the fields of all resources, too, if it is a
    /// resource.
    Object(Shape<'a>),
    /// The metadata of a resource, of which only the name is visible.
    Metadata,
    /// A type of a library.
    Opaque(&'static str),
    /// Any type, in signatures: the same type for the same letter.
    Any(char),
}

/// The schema that an object follows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape<'a> {
    node: &'a Node,
    resource: bool,
}

// === impl Kind ===

impl<'a> Kind<'a> {
    /// Returns the type of values of a schema; `None` for those that are invisible to rules.
    pub(super) fn of(node: &'a Node, resource: bool) -> Option<Self> {
        if node.int_or_string
            || (node.nullable && !matches!(node.kind, None | Some(Type::Object | Type::Array)))
        {
            return Some(Self::Dyn);
        }
        Some(match node.kind? {
            Type::Array => {
                let items = node.items.as_deref()?;
                Self::List(Box::new(Self::of(items, false)?))
            }
            Type::Object => match &node.additional {
                Additional::Values(values) => {
                    Self::Map(Box::new(Self::Text), Box::new(Self::of(values, false)?))
                }
                _ => Self::Object(Shape { node, resource: resource || node.embedded }),
            },
            Type::String => Self::of_text(&node.limits),
            Type::Integer => Self::Int,
            Type::Number => Self::Double,
            Type::Boolean => Self::Bool,
        })
    }

    fn of_text(limits: &Limits) -> Self {
        match limits.format.as_deref() {
            Some("byte") => Self::Bytes,
            Some("duration") => Self::Duration,
            Some("date" | "date-time" | "datetime") => Self::Timestamp,
            _ => Self::Text,
        }
    }

    /// Returns whether the type can be anything.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Dyn | Self::Faulty)
    }

    fn can_be_null(&self) -> bool {
        matches!(
            self,
            Self::Null
                | Self::Object(_)
                | Self::Metadata
                | Self::Opaque(_)
                | Self::Timestamp
                | Self::Duration
                | Self::Optional(_)
        )
    }
}

impl PartialEq for Shape<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.node, other.node)
    }
}

impl fmt::Display for Kind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(item) => write!(f, "list({item})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Optional(inner) => write!(f, "optional_type({inner})"),
            Self::Any(letter) => write!(f, "{letter}"),
            Self::Opaque(name) => f.write_str(name),
            Self::Dyn | Self::Faulty => f.write_str("dyn"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::Text => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Duration => f.write_str("duration"),
            Self::Type => f.write_str("type"),
            Self::Object(_) | Self::Metadata => f.write_str("object"),
        }
    }
}

// === impl Shape ===

impl<'a> Shape<'a> {
    /// Returns the type of a field, by the name that rules write.
    pub(super) fn field(self, name: &str) -> Option<Kind<'a>> {
        let is_meta = self.resource && META_FIELDS.contains(&name);
        if is_meta {
            return Some(if name == "metadata" { Kind::Metadata } else { Kind::Text });
        }
        let (_, node) = self
            .node
            .properties
            .iter()
            .find(|(property, _)| convert::escape(property).as_deref() == Some(name))?;
        Kind::of(node, false)
    }
}

/// Returns the common type of two types, if they have one.
pub(super) fn join<'a>(one: &Kind<'a>, other: &Kind<'a>) -> Option<Kind<'a>> {
    if one.is_open() || other.is_open() {
        return Some(if *one == Kind::Faulty || *other == Kind::Faulty {
            Kind::Faulty
        } else {
            Kind::Dyn
        });
    }
    match (one, other) {
        (Kind::Null, kind) | (kind, Kind::Null) if kind.can_be_null() => Some(kind.clone()),
        (Kind::List(one), Kind::List(other)) => Some(Kind::List(Box::new(join(one, other)?))),
        (Kind::Map(key, value), Kind::Map(other_key, other_value)) => {
            Some(Kind::Map(Box::new(join(key, other_key)?), Box::new(join(value, other_value)?)))
        }
        (Kind::Optional(one), Kind::Optional(other)) => {
            Some(Kind::Optional(Box::new(join(one, other)?)))
        }
        (one, other) => (one == other).then(|| one.clone()),
    }
}

/// Returns the common type of all types; `Kind::Dyn` if they differ, or if there are none.
pub(super) fn common(kinds: Vec<Kind<'_>>) -> Kind<'_> {
    kinds
        .into_iter()
        .map(Some)
        .reduce(|one, other| join(&one?, &other?))
        .flatten()
        .unwrap_or(Kind::Dyn)
}
