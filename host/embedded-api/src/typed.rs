//! Typed values: server-side apply's operations on objects.
//!
//! The rules are those of structured-merge-diff's `typed` package: the fields that a value has,
//! merging two values, comparing them, and removing fields. Everything here is a function of
//! values, types and sets of fields.

mod compare;
mod merge;
mod reconcile;
mod remove;
#[cfg(test)]
mod tests;
mod validate;

pub(crate) use compare::{Comparison, compare};
pub(crate) use merge::merge;
pub(crate) use reconcile::reconcile;
pub(crate) use remove::remove;
pub(crate) use validate::validate;

use serde_json::Value;

use crate::{
    fields::{Element, Node, Set},
    schema::{List, Map, Relation, Shape, Type},
};

/// Returns the fields of a value: those that an applier of the value owns.
pub(crate) fn fields(value: &Value, type_: &Type) -> Set {
    match (type_.shape(value), value) {
        (Shape::List(list, false), Value::Array(items)) => list_fields(items, list),
        (Shape::Map(map, false), Value::Object(object)) => {
            let each = object.iter();
            Set::from_nodes(each.map(|(key, value)| map_field(key, value, map)).collect())
        }
        _ => Set::default(),
    }
}

/// Returns whether a value is owned as a whole.
fn is_leaf(value: &Value, type_: &Type) -> bool {
    matches!(type_.shape(value), Shape::Scalar(_) | Shape::List(_, true) | Shape::Map(_, true))
}

fn map_field(key: &str, value: &Value, map: &Map) -> Node {
    let type_ = map.type_of_present(key);
    let empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
    let member = empty || map.field(key).is_none() || is_leaf(value, type_);
    Node::new(Element::field(key), member, fields(value, type_))
}

fn list_fields(items: &[Value], list: &List) -> Set {
    let mut keyed: Vec<(Element, &Value)> =
        items.iter().filter_map(|item| Some((item_element(list, item).ok()?, item))).collect();
    keyed.sort_by(|(a, _), (b, _)| a.cmp(b));
    let nodes = keyed.chunk_by(|(a, _), (b, _)| a == b).filter_map(|same| match same {
        [(element, item)] => Some(Node::new(element.clone(), true, fields(item, &list.items))),
        // Items that occur twice are owned as one.
        [(element, _), ..] => Some(Node::new(element.clone(), true, Set::default())),
        [] => None,
    });
    Set::from_nodes(nodes.collect())
}

/// Returns the element that identifies an item in its list.
///
/// # Errors
/// Returns the reason for which the item cannot be identified.
fn item_element(list: &List, item: &Value) -> Result<Element, String> {
    match &list.relation {
        Relation::Map(keys) => keyed_element(list, keys, item),
        Relation::Set | Relation::Atomic => match item {
            Value::Object(_) => {
                Err("associative list without keys has an element that's a map type".to_owned())
            }
            Value::Array(_) => {
                Err("not supported: associative list with lists as elements".to_owned())
            }
            Value::Null => {
                Err("associative list without keys has an element that's an explicit null"
                    .to_owned())
            }
            scalar => Ok(Element::value(scalar.clone())),
        },
    }
}

fn keyed_element(list: &List, keys: &[String], item: &Value) -> Result<Element, String> {
    let item = match item {
        Value::Object(item) => item,
        Value::Null => {
            return Err("associative list with keys may not have a null element".to_owned());
        }
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let default = |key: &str| list.items.map()?.field(key)?.default();
    let found = keys.iter().filter_map(|key| {
        item.get(key).or_else(|| default(key)).map(|value| (key.clone(), value.clone()))
    });
    let found: Vec<(String, Value)> = found.collect();
    if found.is_empty() {
        let quoted: Vec<String> = keys.iter().map(|key| format!("\"{key}\"")).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] \
             (and doesn't have default values for any key fields)",
            quoted.join(" ")
        ));
    }
    Ok(Element::key(found))
}

/// Returns the set with each declared field added that has members below it.
pub(crate) fn with_named_fields(set: &Set, type_: &Type) -> Set {
    named_fields(set, Some(type_))
}

fn named_fields(set: &Set, type_: Option<&Type>) -> Set {
    let map = type_.and_then(Type::map);
    let nodes = set.nodes().iter().map(|node| {
        let (declared, below) = match node.element() {
            Element::Field(name) => (
                map.is_some_and(|map| map.field(name).is_some()),
                map.and_then(|map| map.type_of(name)),
            ),
            Element::Key(_) => (false, type_.and_then(Type::items)),
            Element::Value(_) | Element::Index(_) => (false, None),
        };
        let member = node.is_member() || (declared && !node.children().is_empty());
        Node::new(node.element().clone(), member, named_fields(node.children(), below))
    });
    Set::from_nodes(nodes.collect())
}
