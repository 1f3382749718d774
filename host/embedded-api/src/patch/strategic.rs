//! Strategic merge patch: a merge patch for built-in kinds that merges lists by keys, as their
//! schemas declare.
//!
//! Directives in the patch: `$patch` (`replace`, `delete`) in maps and list items, `$retainKeys`,
//! `$deleteFromPrimitiveList/<list>` and `$setElementOrder/<list>`.

mod order;

use serde_json::{Map as Object, Value};

use self::order::Order;
use super::{PatchError, merge::without_nulls};
use crate::{
    go::Plain,
    schema::{Map, Schema, Shape, Strategy, Type},
};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// Returns the object of a built-in kind with the patch merged into it.
pub(crate) fn strategic(
    object: &Value,
    patch: &Value,
    schema: &Schema,
) -> Result<Value, PatchError> {
    let not_a_patch = || PatchError::BadRequest("a strategic merge patch is an object".to_owned());
    let patch = patch.as_object().ok_or_else(not_a_patch)?.clone();
    let object = object.as_object().cloned().unwrap_or_default();
    merge_maps(object, patch, schema.root().map()).map(Value::Object)
}

type Entries = Object<String, Value>;

/// Merges `patch` into `original`, whose declared fields are those of `type_`.
fn merge_maps(
    mut original: Entries,
    mut patch: Entries,
    type_: Option<&Map>,
) -> Result<Entries, PatchError> {
    match patch.get(PATCH).map(Value::as_str) {
        None => {}
        Some(Some("replace")) => {
            patch.remove(PATCH);
            return Ok(patch);
        }
        Some(Some("delete")) => return Ok(Entries::new()),
        Some(_) => return Err(unknown_directive(&Value::Object(patch))),
    }
    retain_keys(&mut original, &mut patch)?;
    merge_ordered_lists(&mut original, &mut patch, type_)?;
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix(DELETE_FROM) {
            delete_from(&mut original, list, &value);
        } else if value.is_null() {
            original.remove(&key);
        } else {
            let merged = match original.remove(&key) {
                Some(there) => Some(merge_field(there, value, &key, type_)?),
                None => without_directives(without_nulls(value)),
            };
            original.extend(merged.map(|merged| (key, merged)));
        }
    }
    Ok(original)
}

fn merge_field(
    there: Value,
    value: Value,
    key: &str,
    type_: Option<&Map>,
) -> Result<Value, PatchError> {
    let field = type_.map(|map| map.type_of_present(key));
    match (there, value) {
        (Value::Object(there), Value::Object(value)) => {
            let declared = type_.and_then(|map| map.field(key));
            if declared.is_some_and(|field| field.strategy.replace) {
                return Ok(Value::Object(value));
            }
            merge_maps(there, value, field.and_then(Type::map)).map(Value::Object)
        }
        (Value::Array(there), Value::Array(value)) => {
            merge_lists(there, value, field).map(Value::Array)
        }
        (_, value) => Ok(without_nulls(value)),
    }
}

/// Carries out `$retainKeys`: only these keys of the original stay; the patch may set no others.
fn retain_keys(original: &mut Entries, patch: &mut Entries) -> Result<(), PatchError> {
    let Some(directive) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let invalid = || PatchError::BadRequest("invalid patch format of retainKeys".to_owned());
    let retained = directive.as_array().ok_or_else(invalid)?;
    let is_retained = |key: &str| retained.iter().any(|name| name == key);
    let sets_another = patch.iter().any(|(key, value)| {
        let is_directive = key.starts_with(DELETE_FROM) || key.starts_with(ORDER);
        !value.is_null() && !is_directive && !is_retained(key)
    });
    if sets_another {
        return Err(invalid());
    }
    original.retain(|key, _| is_retained(key));
    Ok(())
}

/// Carries out `$deleteFromPrimitiveList`: removes these values from the list, and the list if they
/// are null. Values of another type, or for a field that is no list, have no effect.
fn delete_from(original: &mut Entries, list: &str, values: &Value) {
    if values.is_null() {
        original.remove(list);
    }
    let items = original.get_mut(list).and_then(Value::as_array_mut);
    if let (Some(items), Some(values)) = (items, values.as_array()) {
        items.retain(|item| !values.contains(item));
    }
}

/// Carries out `$setElementOrder`: merges the lists that it names, and puts them into that order.
fn merge_ordered_lists(
    original: &mut Entries,
    patch: &mut Entries,
    type_: Option<&Map>,
) -> Result<(), PatchError> {
    let directives: Vec<String> =
        patch.keys().filter(|key| key.starts_with(ORDER)).cloned().collect();
    for directive in directives {
        let Some(wanted) = patch.remove(&directive) else { continue };
        let key = directive.strip_prefix(ORDER).unwrap_or_default();
        let field = type_.map(|map| map.type_of_present(key));
        let strategy = list_strategy(field);
        let order = Order::new(strategy.and_then(|strategy| strategy.key.as_deref()));
        let list = |value: Value| match value {
            Value::Array(items) => Ok(items),
            other => Err(order::wrong_type("[]interface {}", &other)),
        };
        let wanted = list(wanted)?;
        let there = original.remove(key).map(list).transpose()?;
        let change = patch.remove(key).map(list).transpose()?;
        order.check(change.as_deref().unwrap_or_default(), &wanted)?;
        let before = there.clone().unwrap_or_default();
        let merged = match (there, change) {
            (None, None) => continue,
            (Some(there), None) => there,
            (None, Some(change)) => change.into_iter().filter_map(without_directives).collect(),
            (Some(there), Some(change)) => merge_lists(there, change, field)?,
        };
        let sorted = order.sorted(merged, &wanted, &before)?;
        original.insert(key.to_owned(), Value::Array(sorted));
    }
    Ok(())
}

fn list_strategy(type_: Option<&Type>) -> Option<&Strategy> {
    match type_?.shape(&Value::Array(Vec::new())) {
        Shape::List(list, _) => Some(&list.strategy),
        Shape::Scalar(_) | Shape::Map(..) => None,
    }
}

fn merge_lists(
    there: Vec<Value>,
    change: Vec<Value>,
    type_: Option<&Type>,
) -> Result<Vec<Value>, PatchError> {
    let Some(strategy) = list_strategy(type_).filter(|strategy| strategy.merge) else {
        return Ok(change);
    };
    if there.is_empty() && change.is_empty() {
        return Ok(there);
    }
    let mut all = there.iter().chain(&change);
    if all.clone().any(Value::is_array) {
        return Err(PatchError::Rejected("lists of lists are not supported".to_owned()));
    }
    let maps = all.clone().filter(|item| item.is_object()).count();
    if maps == 0 {
        let mut merged = there.clone();
        change.iter().filter(|item| !there.contains(item)).for_each(|item| {
            if !merged.contains(item) {
                merged.push(item.clone());
            }
        });
        return Order::new(None).sorted(merged, &change, &there);
    }
    if !all.all(Value::is_object) {
        return Err(PatchError::Unclassified("list element types are not identical".to_owned()));
    }
    let Some(key) = strategy.key.as_deref() else {
        return Err(PatchError::Unclassified("cannot merge lists without merge key".to_owned()));
    };
    merge_keyed(there, change, key, type_.and_then(Type::items).and_then(Type::map))
}

/// Merges lists of maps that `key` identifies.
fn merge_keyed(
    mut there: Vec<Value>,
    change: Vec<Value>,
    key: &str,
    item_type: Option<&Map>,
) -> Result<Vec<Value>, PatchError> {
    let mut plain = Vec::with_capacity(change.len());
    let mut replaces = false;
    for item in change {
        match item.get(PATCH).map(Value::as_str) {
            None => plain.push(item),
            Some(Some("replace")) => replaces = true,
            Some(Some("delete")) => {
                let gone = item.get(key).ok_or_else(|| order::no_key(&item, key))?;
                there.retain(|other| other.get(key) != Some(gone));
            }
            Some(Some("merge")) => {
                let message = "merging lists cannot yet be specified in the patch";
                return Err(PatchError::Unclassified(message.to_owned()));
            }
            Some(_) => return Err(unknown_directive(&item)),
        }
    }
    if replaces {
        return Ok(plain);
    }
    let mut merged = there.clone();
    for item in &plain {
        let value = item.get(key).ok_or_else(|| order::no_key(item, key))?;
        match merged.iter_mut().find(|other| other.get(key) == Some(value)) {
            Some(Value::Object(same)) => {
                let item = item.as_object().cloned().unwrap_or_default();
                *same = merge_maps(std::mem::take(same), item, item_type)?;
            }
            _ => merged.extend(without_directives(item.clone())),
        }
    }
    Order::new(Some(key)).sorted(merged, &plain, &there)
}

/// Returns a part of the patch for which the original has no value; `None` if the part is a
/// deletion.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(mut map) => {
            if map.remove(PATCH).is_some_and(|directive| directive == "delete") {
                return None;
            }
            let is_directive = |key: &str| {
                key == RETAIN_KEYS || key.starts_with(DELETE_FROM) || key.starts_with(ORDER)
            };
            let kept = map.into_iter().filter(|(key, _)| !is_directive(key));
            let kept = kept.filter_map(|(key, value)| Some((key, without_directives(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => {
            Some(Value::Array(items.into_iter().filter_map(without_directives).collect()))
        }
        scalar => Some(scalar),
    }
}

fn unknown_directive(map: &Value) -> PatchError {
    let directive = map.get(PATCH).unwrap_or(&Value::Null);
    let message = format!("unknown patch type: {} in map: {}", Plain(directive), Plain(map));
    PatchError::Unclassified(message)
}
