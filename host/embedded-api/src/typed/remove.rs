//! Removal of fields from a value.

use serde_json::{Map as Object, Value};

use super::item_element;
use crate::{
    fields::{Element, Node, Set},
    schema::{List, Map, Shape, Type},
};

/// Returns `value` without the fields in `gone`; null for a map or list that becomes empty.
pub(crate) fn remove(value: Value, gone: &Set, type_: &Type) -> Value {
    match (type_.shape(&value), value) {
        (Shape::Scalar(_), value) => value,
        (Shape::List(list, false), Value::Array(items)) => remove_items(items, gone, list),
        (Shape::Map(map, false), Value::Object(object)) => remove_keys(object, gone, map),
        (Shape::List(..) | Shape::Map(..), _) => Value::Null,
    }
}

fn remove_items(items: Vec<Value>, gone: &Set, list: &List) -> Value {
    let left = items.into_iter().filter_map(|item| {
        let node = item_element(list, &item).ok().and_then(|element| gone.get(&element));
        left_over(item, node, &list.items)
    });
    let left: Vec<Value> = left.collect();
    if left.is_empty() { Value::Null } else { Value::Array(left) }
}

fn remove_keys(object: Object<String, Value>, gone: &Set, map: &Map) -> Value {
    let left = object.into_iter().filter_map(|(key, value)| {
        let node = gone.get(&Element::field(&key));
        let value = left_over(value, node, map.type_of_present(&key))?;
        Some((key, value))
    });
    let left: Object<String, Value> = left.collect();
    if left.is_empty() { Value::Null } else { Value::Object(left) }
}

/// Returns a field or item without the fields of `node`; `None` if it is removed as a whole.
fn left_over(value: Value, node: Option<&Node>, type_: &Type) -> Option<Value> {
    match node {
        None => Some(value),
        Some(node) if node.is_member() => None,
        Some(node) => Some(remove(value, node.children(), type_)),
    }
}
