//! JSON patch (RFC 6902), as in the library of kube-apiserver: `replace` of an absent key adds it,
//! indexes may count from the end, and the root cannot be replaced.

use serde_json::{Map, Value};

use super::PatchError;
use crate::fields::equal;

/// The most operations in a patch, as in kube-apiserver.
const MAX_OPERATIONS: usize = 10_000;

/// Returns the object after these operations.
pub(crate) fn json(object: &Value, patch: &Value) -> Result<Value, PatchError> {
    let not_a_patch = || PatchError::BadRequest("a JSON patch is a list of operations".to_owned());
    let operations = patch.as_array().ok_or_else(not_a_patch)?;
    if operations.iter().any(|operation| !operation.is_object()) {
        return Err(not_a_patch());
    }
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooLarge { most: MAX_OPERATIONS, got: operations.len() });
    }
    let mut patched = object.clone();
    for operation in operations.iter().filter_map(Value::as_object) {
        carry_out(&mut patched, operation).map_err(PatchError::Rejected)?;
    }
    Ok(patched)
}

fn carry_out(document: &mut Value, operation: &Map<String, Value>) -> Result<(), String> {
    let text = |key: &str| {
        let text = operation.get(key).and_then(Value::as_str);
        text.ok_or_else(|| format!("operation without `{key}`"))
    };
    let value = || operation.get("value").cloned().unwrap_or_default();
    match text("op")? {
        "add" => add(document, text("path")?, value()),
        "remove" => remove(document, text("path")?).map(drop),
        "replace" => replace(document, text("path")?, value()),
        "move" => {
            let moved = remove(document, text("from")?)?;
            add(document, text("path")?, moved)
        }
        "copy" => {
            let copied = get(document, text("from")?)?;
            add(document, text("path")?, copied)
        }
        "test" => {
            let path = text("path")?;
            let found = get(document, path)?;
            if equal(&found, &value()) { Ok(()) } else { Err(format!("testing `{path}` failed")) }
        }
        other => Err(format!("unexpected operation `{other}`")),
    }
}

/// Returns the container that a path leads to, and the key in it.
fn parent<'a>(document: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), String> {
    let missing = || format!("the object is missing the path `{path}`");
    let (parents, last) = path.rsplit_once('/').ok_or_else(missing)?;
    let mut container = document;
    for part in parents.split('/').skip(1) {
        let key = unescaped(part);
        container = match container {
            Value::Object(map) => map.get_mut(&key),
            Value::Array(items) => position(&key, items.len()).and_then(|at| items.get_mut(at)),
            _ => None,
        }
        .ok_or_else(missing)?;
    }
    if !container.is_object() && !container.is_array() {
        return Err(missing());
    }
    Ok((container, unescaped(last)))
}

fn unescaped(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// Returns the position of an index in a list of this length; negative indexes count from the end.
fn position(index: &str, length: usize) -> Option<usize> {
    let index: isize = index.parse().ok()?;
    let at = if index < 0 { index.checked_add_unsigned(length)? } else { index };
    usize::try_from(at).ok()
}

/// Returns the value at a path; null for an absent key.
fn get(document: &mut Value, path: &str) -> Result<Value, String> {
    let (container, key) = parent(document, path)?;
    match container {
        Value::Array(items) => position(&key, items.len())
            .and_then(|at| items.get(at).cloned())
            .ok_or_else(|| format!("no index `{key}`")),
        other => Ok(other.get(&key).cloned().unwrap_or_default()),
    }
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    let (container, key) = parent(document, path)?;
    match container {
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let at = position(&key, items.len() + 1).filter(|at| *at <= items.len());
            items.insert(at.ok_or_else(|| format!("no index `{key}`"))?, value);
        }
        other => set(other, key, value),
    }
    Ok(())
}

fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    let (container, key) = parent(document, path)?;
    match container {
        Value::Array(items) => {
            let at = position(&key, items.len()).and_then(|at| items.get_mut(at));
            *at.ok_or_else(|| format!("no index `{key}`"))? = value;
        }
        other => set(other, key, value),
    }
    Ok(())
}

fn set(container: &mut Value, key: String, value: Value) {
    if let Some(map) = container.as_object_mut() {
        map.insert(key, value);
    }
}

fn remove(document: &mut Value, path: &str) -> Result<Value, String> {
    let (container, key) = parent(document, path)?;
    match container {
        Value::Array(items) => {
            let at = position(&key, items.len()).filter(|at| *at < items.len());
            Ok(items.remove(at.ok_or_else(|| format!("no index `{key}`"))?))
        }
        other => other
            .as_object_mut()
            .and_then(|map| map.remove(&key))
            .ok_or_else(|| format!("unable to remove nonexistent key `{key}`")),
    }
}
