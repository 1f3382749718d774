//! Sets of fields that were written under another schema.

use std::cell::OnceCell;

use serde_json::Value;

use super::fields;
use crate::fields::{Element, Path, Set};
use crate::schema::{Shape, Type};

/// The set as the schema sees it now: what became atomic is one field, what is atomic no more is all that the object has there.
/// `None` if nothing is to change.
pub(crate) fn reconcile(set: &Set, live: &Value, type_: &Type) -> Option<Set> {
    let mut walker = Walker {
        live,
        root: type_,
        all: OnceCell::new(),
        path: Vec::new(),
        gone: Set::default(),
        new: Set::default(),
    };
    walker.visit(Some(set), false, type_);
    if walker.gone.is_empty() && walker.new.is_empty() {
        return None;
    }
    Some(set.recursive_difference(&walker.gone).union(walker.new))
}

struct Walker<'a> {
    live: &'a Value,
    root: &'a Type,
    /// All fields of `live`.
    all: OnceCell<Set>,
    path: Vec<Element>,
    gone: Set,
    new: Set,
}

impl Walker<'_> {
    /// `whole`: the field is in the set, and nothing below it.
    fn visit(&mut self, below: Option<&Set>, whole: bool, type_: &Type) {
        let below = below.filter(|set| !set.is_empty());
        match type_.first_shape() {
            Shape::Scalar(_) => return,
            Shape::List(_, true) | Shape::Map(_, true) => {
                if !whole && below.is_some() {
                    self.gone.insert(&self.path);
                    self.new.insert(&self.path);
                }
                return;
            }
            Shape::List(_, false) | Shape::Map(_, false) if whole => {
                let granular = self.granular();
                self.new = std::mem::take(&mut self.new).union(granular);
            }
            Shape::List(_, false) | Shape::Map(_, false) => {}
        }
        for node in below.into_iter().flat_map(Set::nodes) {
            let Some(inner) = type_below(type_, node.element()) else { continue };
            self.path.push(node.element().clone());
            let whole = node.is_member() && node.children().is_empty();
            self.visit(Some(node.children()), whole, inner);
            self.path.pop();
        }
    }

    /// All that the object has at this path.
    fn granular(&self) -> Set {
        below_path(self.all.get_or_init(|| fields(self.live, self.root)), &self.path)
    }
}

fn below_path(all: &Set, path: &Path) -> Set {
    let mut set = Set::of(path);
    if let Some(below) = all.below(path) {
        set = set.union(Set::nested(path, below.clone()));
    }
    set
}

fn type_below<'a>(type_: &'a Type, element: &Element) -> Option<&'a Type> {
    match (type_.first_shape(), element) {
        (Shape::Map(map, _), Element::Field(name)) => map.type_of(name),
        (Shape::List(list, _), _) => Some(&list.items),
        _ => None,
    }
}
