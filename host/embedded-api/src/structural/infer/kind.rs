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
    /// A type without parameters: a scalar, or one of a library.
    Named(&'static str),
    List(Box<Kind<'a>>),
    Map(Box<Kind<'a>>, Box<Kind<'a>>),
    Optional(Box<Kind<'a>>),
    /// An object with the fields of a schema; with the fields of all resources, too, if it is a
    /// resource.
    Object(Shape<'a>),
    /// The metadata of a resource, of which only the name is visible.
    Metadata,
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
    pub(super) const NULL: Self = Self::Named("null");
    pub(super) const BOOL: Self = Self::Named("bool");
    pub(super) const INT: Self = Self::Named("int");
    pub(super) const DOUBLE: Self = Self::Named("double");
    pub(super) const UINT: Self = Self::Named("uint");
    pub(super) const TEXT: Self = Self::Named("string");
    pub(super) const BYTES: Self = Self::Named("bytes");
    pub(super) const TIMESTAMP: Self = Self::Named("timestamp");
    pub(super) const DURATION: Self = Self::Named("duration");
    pub(super) const TYPE: Self = Self::Named("type");

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
                    Self::Map(Box::new(Self::TEXT), Box::new(Self::of(values, false)?))
                }
                _ => Self::Object(Shape { node, resource: resource || node.embedded }),
            },
            Type::String => Self::of_text(&node.limits),
            Type::Integer => Self::INT,
            Type::Number => Self::DOUBLE,
            Type::Boolean => Self::BOOL,
        })
    }

    fn of_text(limits: &Limits) -> Self {
        match limits.format.as_deref() {
            Some("byte") => Self::BYTES,
            Some("duration") => Self::DURATION,
            Some("date" | "date-time" | "datetime") => Self::TIMESTAMP,
            _ => Self::TEXT,
        }
    }

    /// Returns whether the type can be anything.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Dyn | Self::Faulty)
    }

    fn can_be_null(&self) -> bool {
        match self {
            // Those of libraries have a name with a dot.
            Self::Named(name) => {
                matches!(*name, "null" | "timestamp" | "duration") || name.contains('.')
            }
            Self::Object(_) | Self::Metadata | Self::Optional(_) => true,
            _ => false,
        }
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
            Self::Named(name) => f.write_str(name),
            Self::Dyn | Self::Faulty => f.write_str("dyn"),
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
            return Some(if name == "metadata" { Kind::Metadata } else { Kind::TEXT });
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
        (&Kind::NULL, kind) | (kind, &Kind::NULL) if kind.can_be_null() => Some(kind.clone()),
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
