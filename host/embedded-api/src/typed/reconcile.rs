//! Adaptation of field sets that were written under another schema.

use crate::{
    fields::{Element, Set},
    schema::{Shape, Type},
};

/// Returns the set by the present schema: a value that became atomic is one field. `None` if
/// nothing changes.
///
/// A value that is not atomic any more stays the one field that it was. So does a map that was
/// applied empty: its applier owns nothing that others add to it (structured-merge-diff,
/// `ReconcileFieldSetWithSchema`, 4.4 to 6.3).
pub(crate) fn reconcile(set: &Set, type_: &Type) -> Option<Set> {
    let mut walker = Walker { path: Vec::new(), atomic: Set::default() };
    walker.visit(Some(set), false, type_);
    if walker.atomic.is_empty() {
        return None;
    }
    Some(set.recursive_difference(&walker.atomic).union(walker.atomic))
}

struct Walker {
    path: Vec<Element>,
    /// The fields that became atomic.
    atomic: Set,
}

impl Walker {
    /// Visits the fields below a path. `whole`: the field is in the set, and no field below it is.
    fn visit(&mut self, below: Option<&Set>, whole: bool, type_: &Type) {
        let below = below.filter(|set| !set.is_empty());
        match type_.first_shape() {
            Shape::Scalar(_) => return,
            Shape::List(_, true) | Shape::Map(_, true) => {
                if !whole && below.is_some() {
                    self.atomic.insert(&self.path);
                }
                return;
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
}

fn type_below<'a>(type_: &'a Type, element: &Element) -> Option<&'a Type> {
    match (type_.first_shape(), element) {
        (Shape::Map(map, _), Element::Field(name)) => map.type_of(name),
        (Shape::List(list, _), _) => Some(&list.items),
        _ => None,
    }
}
