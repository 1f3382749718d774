//! A JSON document that is built once and then only read, and its nodes.

use std::{cmp::Ordering, ops::Range};

use serde::{Serialize, Serializer};
use serde_json::Number;

use super::{Form, Json};

/// An object of the API as JSON, held in a few pieces of memory instead of one for each text and
/// map: listed and watched objects are read once, when they arrive. Sets of fields (`fieldsV1` of
/// `metadata.managedFields`) are texts in it: they are as long as the rest of most objects, and
/// many objects have the same ones ([`crate::own_fields::FieldSets`]).
#[derive(Clone, Default)]
pub struct Document {
    /// The bytes of the keys and texts, one after the other.
    pub(super) texts: String,
    /// The items of lists and the entries of maps. Those of one list or map are adjacent; those of
    /// a map are ordered by key.
    pub(super) children: Vec<Child>,
    pub(super) root: Held,
}

/// A value in a document.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    document: &'a Document,
    held: &'a Held,
}

/// An item of a list or an entry of a map.
#[derive(Clone)]
pub(super) struct Child {
    /// The key of an entry; empty in a list.
    pub(super) key: Span,
    pub(super) held: Held,
}

#[derive(Clone, Default)]
pub(super) enum Held {
    #[default]
    Null,
    Bool(bool),
    Number(Number),
    Text(Span),
    List(Span),
    Map(Span),
}

/// A range of bytes in the texts, or of children.
#[derive(Clone, Copy, Default)]
pub(super) struct Span {
    start: u32,
    end: u32,
}

// === impl Document ===

impl Document {
    /// Returns the outermost value.
    pub fn root(&self) -> Node<'_> {
        self.node(&self.root)
    }

    fn node<'a>(&'a self, held: &'a Held) -> Node<'a> {
        Node { document: self, held }
    }

    fn text(&self, span: Span) -> &str {
        self.texts.get(span.range()).unwrap_or_default()
    }

    fn children(&self, span: Span) -> &[Child] {
        self.children.get(span.range()).unwrap_or_default()
    }
}

// === impl Node ===

impl<'a> Json<'a> for Node<'a> {
    fn form(self) -> Form<'a> {
        match self.held {
            Held::Null => Form::Null,
            Held::Bool(held) => Form::Bool(*held),
            Held::Number(number) => Form::Number(number),
            Held::Text(span) => Form::Text(self.document.text(*span)),
            Held::List(span) => Form::List(span.len()),
            Held::Map(span) => Form::Map(span.len()),
        }
    }

    fn entries(self) -> impl Iterator<Item = (&'a str, Self)> {
        let Self { document, held } = self;
        let span = if let Held::Map(span) = held { *span } else { Span::default() };
        let entry = |child: &'a Child| (document.text(child.key), document.node(&child.held));
        document.children(span).iter().map(entry)
    }

    fn items(self) -> impl Iterator<Item = Self> {
        let Self { document, held } = self;
        let span = if let Held::List(span) = held { *span } else { Span::default() };
        document.children(span).iter().map(|child| document.node(&child.held))
    }

    fn get(self, key: &str) -> Option<Self> {
        let Held::Map(span) = self.held else { return None };
        let children = self.document.children(*span);
        let order = |child: &Child| -> Ordering { self.document.text(child.key).cmp(key) };
        let child = children.get(children.binary_search_by(order).ok()?)?;
        Some(self.document.node(&child.held))
    }
}

impl Serialize for Node<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.form() {
            Form::Null => serializer.serialize_unit(),
            Form::Bool(held) => serializer.serialize_bool(held),
            Form::Number(number) => number.serialize(serializer),
            Form::Text(text) => serializer.serialize_str(text),
            Form::List(_) => serializer.collect_seq(self.items()),
            Form::Map(_) => serializer.collect_map(self.entries()),
        }
    }
}

// === impl Span ===

impl Span {
    /// Creates a span; `None` if the range ends beyond 4 GiB of texts, or as many children.
    pub(super) fn new(range: Range<usize>) -> Option<Self> {
        let (start, end) = (u32::try_from(range.start).ok()?, u32::try_from(range.end).ok()?);
        Some(Self { start, end })
    }

    pub(super) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    fn len(self) -> usize {
        self.range().len()
    }
}
