//! Merge patch (RFC 7386).

use serde_json::Value;

use super::PatchError;

/// Returns the object with the patch merged into it: null removes, maps merge, all else is
/// replaced.
pub(crate) fn merge(object: &Value, patch: &Value) -> Result<Value, PatchError> {
    if !patch.is_object() {
        return Err(PatchError::BadRequest("a merge patch is an object".to_owned()));
    }
    let mut merged = object.clone();
    lay_over(&mut merged, patch);
    Ok(merged)
}

fn lay_over(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    target.remove(key);
                } else if let Some(there) = target.get_mut(key).filter(|there| !there.is_null()) {
                    lay_over(there, value);
                } else {
                    target.insert(key.clone(), without_nulls(value.clone()));
                }
            }
        }
        (target, patch) => *target = without_nulls(patch.clone()),
    }
}

/// Returns a value without the keys that hold null; items of lists stay.
pub(super) fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| (key, without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        scalar => scalar,
    }
}
