//! The conversion of APIRules between their versions, as the API server asks for it.
//!
//! Objects may be partial: the API server also converts the parts that a field manager owns. So
//! only an object of another kind, an unknown version and a spec that is none are errors. An
//! error refuses all objects of a request, so what people can write into annotations is none.
//!
//! All conversions go through v2alpha1, the stored version. An object that is converted to another
//! version and back is as it was, with three exceptions: empty lists are dropped on the way from
//! v2, an object of v1beta1 that has rules in v2 becomes one of v2, and v1beta1 does not have the
//! states Processing and Deleting.
//!
//! | module | holds |
//! | --- | --- |
//! | `v1beta1` | the conversion from and to v1beta1, as a whole |
//! | `rule` | the conversion of v1beta1's access rules |
//! | `gateway` | the names of gateways |

mod gateway;
mod rule;
mod v1beta1;

use serde_json::{Map, Value};

use crate::annotation::{self, ORIGINAL_VERSION};

pub(crate) const GROUP: &str = "gateway.kyma-project.io";
pub(crate) const KIND: &str = "APIRule";
const V1BETA1: &str = annotation::V1BETA1;
const V2ALPHA1: &str = "v2alpha1";
const V2: &str = "v2";
/// The versions that can be converted into each other.
pub const VERSIONS: [&str; 3] = [V1BETA1, V2ALPHA1, V2];

/// Converts an APIRule to a version.
///
/// # Errors
///
/// Fails with a message that names the object, in the cases that the module names.
pub fn convert(object: &Value, to: &str) -> Result<Value, String> {
    let from = version_of(object)?;
    known(to)?;
    if from == to {
        return Ok(object.clone());
    }
    let stored = match from {
        V1BETA1 => v1beta1::to_stored(object),
        V2 => from_v2(object),
        _ => Ok(object.clone()),
    };
    let converted = stored.and_then(|stored| match to {
        V1BETA1 => v1beta1::from_stored(&stored),
        V2 => to_v2(&stored),
        _ => Ok(stored),
    });
    converted.map_err(|message| format!("{}: {message}", name_of(object)))
}

/// Returns the version of an APIRule.
fn version_of(object: &Value) -> Result<&'static str, String> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    match text("apiVersion").split_once('/') {
        Some((GROUP, version)) if text("kind") == KIND => known(version),
        _ => Err(format!(
            "an object of apiVersion `{}` and kind `{}`: only `{KIND}` of `{GROUP}` is converted",
            text("apiVersion"),
            text("kind")
        )),
    }
}

fn known(version: &str) -> Result<&'static str, String> {
    VERSIONS.into_iter().find(|known| *known == version).ok_or_else(|| {
        format!("version `{version}` of `{KIND}` is unknown: there are {}", VERSIONS.join(", "))
    })
}

fn name_of(object: &Value) -> String {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    format!("`{KIND} {}/{}`", text("/metadata/namespace"), text("/metadata/name"))
}

/// Converts from v2, in which the object was written.
fn from_v2(object: &Value) -> Result<Value, String> {
    let mut stored = in_version(object, V2ALPHA1);
    if let Some(spec) = stored.get_mut("spec") {
        drop_empty(spec);
    }
    let has_rules = |spec: &Value| spec.pointer("/spec/rules/0").is_some();
    let is_written_in_v2 = match annotation_of(object, ORIGINAL_VERSION) {
        None => true,
        Some(version) => version == V1BETA1 && has_rules(object),
    };
    if is_written_in_v2 {
        set_annotation(&mut stored, ORIGINAL_VERSION, Some(V2))?;
    }
    Ok(stored)
}

/// Converts to v2. An object that was written in v1beta1 and has no gateway gets all but its rules
/// from its spec in that version.
fn to_v2(stored: &Value) -> Result<Value, String> {
    let mut object = in_version(stored, V2);
    let has = |member: &str| stored.pointer(member).is_some_and(|value| !value.is_null());
    if annotation_of(stored, ORIGINAL_VERSION) != Some(V1BETA1) || has("/spec/gateway") {
        return Ok(object);
    }
    let exposure =
        v1beta1::annotated(stored).map(|spec| v1beta1::exposure(&spec, namespace_of(stored)));
    if let Some(Ok(mut exposure)) = exposure {
        if !has("/spec/corsPolicy") {
            exposure.remove("corsPolicy");
        }
        members(&mut object, "spec")?.extend(exposure);
    }
    Ok(object)
}

/// Returns an object in another version, with nothing else changed.
fn in_version(object: &Value, version: &str) -> Value {
    let mut object = object.clone();
    if let Some(members) = object.as_object_mut() {
        members.insert("apiVersion".to_owned(), format!("{GROUP}/{version}").into());
    }
    object
}

fn namespace_of(object: &Value) -> &str {
    object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn annotation_of<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/annotations")?.get(key)?.as_str()
}

/// Sets an annotation, or takes it away.
pub(crate) fn set_annotation(
    object: &mut Value,
    key: &str,
    value: Option<&str>,
) -> Result<(), String> {
    if value.is_none() && annotation_of(object, key).is_none() {
        return Ok(());
    }
    let metadata = members(object, "metadata")?;
    let annotations = metadata.entry("annotations").or_insert_with(|| Map::new().into());
    let annotations =
        annotations.as_object_mut().ok_or("metadata.annotations must be an object")?;
    match value {
        Some(value) => annotations.insert(key.to_owned(), value.into()),
        None => annotations.remove(key),
    };
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    Ok(())
}

/// Returns the members of an object in an object, which is added if it is not there.
fn members<'a>(object: &'a mut Value, key: &str) -> Result<&'a mut Map<String, Value>, String> {
    let object = object.as_object_mut().ok_or("it must be an object")?;
    let inner = object.entry(key).or_insert_with(|| Map::new().into());
    if inner.is_null() {
        *inner = Map::new().into();
    }
    inner.as_object_mut().ok_or_else(|| format!("{key} must be an object"))
}

/// Drops what the original leaves out of a spec in v2: nulls, and lists and maps that are empty,
/// where they are not required.
fn drop_empty(value: &mut Value) {
    const REQUIRED: [&str; 4] = ["hosts", "rules", "methods", "authorizers"];
    const MAPS: [&str; 2] = ["cookies", "headers"];
    match value {
        Value::Object(members) => members.retain(|key, value| {
            drop_empty(value);
            match value {
                Value::Null => false,
                Value::Array(list) => !list.is_empty() || REQUIRED.contains(&key.as_str()),
                Value::Object(map) => !map.is_empty() || !MAPS.contains(&key.as_str()),
                _ => true,
            }
        }),
        Value::Array(list) => list.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
