//! What may stand in a manifest.

use serde_json::{Map, Value};

use super::{Fault, Part, each, has};
use crate::{
    Kind, Manifest, ObjectRef, Verbs, WriteRule,
    testing::{
        cluster::Resource,
        identity::{reference_of, text},
        path::{Path, Step},
        place::sent_fields,
    },
};

/// What names the objects.
pub(super) fn heads(list: &str, manifests: &[Manifest]) -> Result<Vec<(ObjectRef, Value)>, Fault> {
    let head = |(index, manifest): (usize, &Manifest)| {
        let refuse = |fault: String| (format!("{list}[{index}].object"), None, fault);
        let object: Value = serde_json::from_str(&manifest.object)
            .map_err(|error| refuse(format!("not JSON: {error}")))?;
        for pointer in ["/apiVersion", "/kind", "/metadata/name"] {
            if text(&object, pointer).is_empty() {
                let field = pointer.trim_start_matches('/').replace('/', ".");
                return Err(refuse(format!("`{field}`: is required")));
            }
        }
        let to = ObjectRef { cluster: manifest.cluster.clone(), ..reference_of(&object) };
        Ok((to, object))
    };
    manifests.iter().enumerate().map(head).collect()
}

/// The kinds that a definition among the applied objects will be serving.
pub(super) fn defined(object: &Value) -> Vec<Resource> {
    if text(object, "/kind") != "CustomResourceDefinition" {
        return Vec::new();
    }
    let versions = object.pointer("/spec/versions").and_then(Value::as_array);
    let resource = |version: &Value| Resource {
        kind: Kind::new(
            text(object, "/spec/group"),
            text(version, "/name"),
            text(object, "/spec/names/kind"),
        ),
        plural: text(object, "/spec/names/plural").to_owned(),
        namespaced: text(object, "/spec/scope") == "Namespaced",
        status: version.pointer("/subresources/status").is_some(),
    };
    versions.into_iter().flatten().map(resource).collect()
}

/// What may not stand in a manifest, and where it belongs.
const REFUSED: [(&str, &str); 5] = [
    ("/status", "a status is written by `status` of the outcome, of the reconciled object only"),
    (
        "/metadata/finalizers",
        "finalizers are written by `finalizers` of the outcome, of the reconciled object only",
    ),
    ("/metadata/managedFields", "the API server writes it"),
    (
        "/metadata/generateName",
        "an object is named by the processor, so that a crash does not make a second one",
    ),
    ("/metadata/deletionTimestamp", "objects are deleted by `delete` of the outcome"),
];

pub(super) fn refuse_fields(object: &Value, part: Part) -> Result<(), String> {
    let is_there = |(pointer, _): &&(&str, &str)| object.pointer(pointer).is_some();
    if let Some((pointer, why)) = REFUSED.iter().find(is_there) {
        let field = pointer.trim_start_matches('/').replace('/', ".");
        return Err(format!("`{field}` is refused: {why}"));
    }
    if part == Part::Patch && object.pointer("/metadata/ownerReferences").is_some() {
        let why = "an object of others is not given an owner";
        return Err(format!("`metadata.ownerReferences` is refused: {why}"));
    }
    for key in ["uid", "resourceVersion"] {
        let held = object.pointer(&format!("/metadata/{key}"));
        if held.is_some_and(|held| held.as_str().is_none_or(str::is_empty)) {
            return Err(format!("`metadata.{key}`: a text that is not empty"));
        }
    }
    Ok(())
}

/// Whether all that a manifest holds may be written.
pub(super) fn refuse_undeclared(
    object: &Value,
    rules: &[&WriteRule],
    verbs: Verbs,
) -> Result<(), String> {
    let sent = sent_fields(object);
    if sent.as_object().is_some_and(Map::is_empty) {
        return Ok(());
    }
    for verb in each(verbs) {
        let with = || rules.iter().filter(|rule| has(rule.verbs, verb));
        if with().any(|rule| rule.fields.is_empty()) {
            continue;
        }
        let paths: Vec<Path> = with()
            .flat_map(|rule| &rule.fields)
            .filter_map(|field| Path::parse(field).ok())
            .collect();
        let steps: Vec<&[Step]> = paths.iter().map(Path::steps).collect();
        if let Some(field) = outside(&sent, &steps, String::new()) {
            return Err(format!("`{field}` is not declared; {}", declared_fields(rules)));
        }
    }
    Ok(())
}

/// The first place that none of the paths covers.
fn outside(value: &Value, allowed: &[&[Step]], place: String) -> Option<String> {
    if allowed.iter().any(|path| path.is_empty()) {
        return None;
    }
    let below = |selects: &dyn Fn(&Step) -> bool| -> Vec<&[Step]> {
        let split = allowed.iter().filter_map(|path| path.split_first());
        split.filter(|(step, _)| selects(step)).map(|(_, rest)| rest).collect()
    };
    match value {
        Value::Object(map) if !map.is_empty() && !allowed.is_empty() => {
            map.iter().find_map(|(key, held)| {
                let dot = if place.is_empty() { "" } else { "." };
                let is_key = |step: &Step| matches!(step, Step::Key(wanted) if wanted == key);
                outside(held, &below(&is_key), format!("{place}{dot}{key}"))
            })
        }
        Value::Array(items) if !items.is_empty() && !allowed.is_empty() => {
            items.iter().enumerate().find_map(|(index, item)| {
                let below = below(&|step| step.is_item(item));
                outside(&without_keys(item, allowed), &below, format!("{place}[{index}]"))
            })
        }
        _ => Some(place),
    }
}

/// The key by which a path selects a list's element may be sent along.
fn without_keys(item: &Value, allowed: &[&[Step]]) -> Value {
    let mut item = item.clone();
    if let Some(map) = item.as_object_mut() {
        for step in allowed.iter().filter_map(|path| path.first()) {
            if let Step::Item(pairs) = step {
                map.retain(|key, _| !pairs.iter().any(|(named, _)| named == key));
            }
        }
    }
    item
}

fn declared_fields(rules: &[&WriteRule]) -> String {
    let fields: Vec<String> =
        rules.iter().flat_map(|rule| &rule.fields).map(|field| format!("`{field}`")).collect();
    format!("declared fields: {}", fields.join("; "))
}

/// `leave` or `absent`, parsed.
pub(super) fn paths(
    texts: &[String],
    rules: &[&WriteRule],
    part: Part,
) -> Result<Vec<Path>, String> {
    let parse = |text: &String| {
        let path = Path::parse(text)?;
        let keys: Vec<&str> = path
            .steps()
            .iter()
            .map_while(|step| if let Step::Key(key) = step { Some(key.as_str()) } else { None })
            .collect();
        let refused = match keys.as_slice() {
            ["apiVersion" | "kind" | "metadata"]
            | [
                "metadata",
                "name" | "namespace" | "uid" | "resourceVersion" | "managedFields",
                ..,
            ] => "it names the object",
            ["status", ..] => "a status is written by `status` of the outcome",
            ["metadata", "finalizers", ..] => {
                "finalizers are written by `finalizers` of the outcome"
            }
            ["metadata", "ownerReferences", ..] if part == Part::Patch => {
                "the owners of an object of others are left alone"
            }
            _ => "",
        };
        if !refused.is_empty() {
            return Err(format!("`{text}` is refused: {refused}"));
        }
        let may = |field: &String| Path::parse(field).is_ok_and(|field| field.covers(&path));
        let is_declared =
            rules.iter().any(|rule| rule.fields.is_empty() || rule.fields.iter().any(may));
        if is_declared {
            Ok(path)
        } else {
            Err(format!("`{text}` is not declared; {}", declared_fields(rules)))
        }
    };
    texts.iter().map(parse).collect()
}
