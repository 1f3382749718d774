//! The objects that the library makes, with the labels that the original gives them.

use std::collections::BTreeMap;

use istio::{
    api::ISTIO_NAMESPACE,
    installed::{self, COMPONENT_LABEL},
};
use mortise_sdk::Kind;
use serde_json::{Map, Value, json};

use crate::{Cluster, Rendering, kind::WRITTEN};

/// The name of the `IstioOperator`, which owns all objects.
const OPERATOR: &str = "default-operator";
const OWNER: &str = "install.operator.istio.io/owning-resource";
const OWNER_NAMESPACE: &str = "install.operator.istio.io/owning-resource-namespace";
const MANAGED: &str = "operator.istio.io/managed";
const VERSION: &str = "operator.istio.io/version";
const REVISION: &str = "istio.io/rev";

/// A component of Istio.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Component {
    pub(crate) name: String,
    pub(crate) objects: Vec<Value>,
}

/// Renders an `IstioOperator`.
///
/// # Errors
///
/// Fails with the library's message, or if it makes something that the processor does not declare.
pub(crate) fn render<R: Rendering>(
    operator: &Value,
    cluster: Option<&Cluster>,
    release: &str,
) -> Result<Vec<Component>, String> {
    let rendered = R::render(&operator.to_string(), cluster)?;
    rendered
        .components
        .iter()
        .map(|component| {
            let mut objects = Vec::new();
            for manifest in &component.manifests {
                let named = |error| format!("{} {}: {error}", manifest.kind, manifest.name);
                // A text may end with the beginning of another, empty document.
                let documents: Vec<Value> = serde_saphyr::from_multiple(&manifest.content)
                    .map_err(|error| named(error.to_string()))?;
                for object in documents.into_iter().filter(|document| !document.is_null()) {
                    check(&object)?;
                    objects.push(labelled(object, &component.name, release));
                }
            }
            Ok(Component { name: component.name.clone(), objects })
        })
        .collect()
}

/// Checks that an object may be written.
fn check(object: &Value) -> Result<(), String> {
    let (kind, namespace) = (kind_of(object), namespace_of(object));
    if WRITTEN.iter().any(|written| written.holds(&kind, namespace)) {
        return Ok(());
    }
    let place = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
    Err(format!(
        "the library makes {} {} {place}{}, which this version of the processor does not write",
        kind.api_version(),
        kind.kind,
        name_of(object)
    ))
}

/// Adds the labels of the installer, and that of the module.
fn labelled(mut object: Value, component: &str, release: &str) -> Value {
    let owned = json!({"metadata": {"labels": {
        MANAGED: "Reconcile",
        COMPONENT_LABEL: component,
        VERSION: release,
        OWNER: OPERATOR,
        OWNER_NAMESPACE: ISTIO_NAMESPACE,
        REVISION: "default",
    }}});
    add(&mut object, owned);
    let kind = kind_of(&object);
    let is_labelled = installed::KINDS
        .iter()
        .any(|(group, _, name)| (*group, *name) == (kind.group.as_str(), kind.kind.as_str()));
    if is_labelled {
        add(&mut object, installed::label_patch(&kind.kind));
    }
    // Schemas are stored as they are.
    if kind.kind != "CustomResourceDefinition" {
        complete(&mut object);
    }
    object
}

/// Writes an object as the API server stores it: nulls and empty variables are left out, and there
/// are the defaults inside of values that one manager owns as a whole. Otherwise each new host would
/// apply the object once more.
fn complete(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            if let Some(Value::Object(field)) = map.get_mut("fieldRef") {
                field.entry("apiVersion").or_insert_with(|| "v1".into());
            }
            if map.contains_key("apiGroups") && map.contains_key("operations") {
                map.entry("scope").or_insert_with(|| "*".into());
            }
            if map.len() == 2 && map.contains_key("name") && map.get("value") == Some(&"".into()) {
                map.remove("value");
            }
            map.values_mut().for_each(complete);
        }
        Value::Array(items) => items.iter_mut().for_each(complete),
        _ => {}
    }
}

/// Adds maps to maps; all else is replaced.
pub(crate) fn add(value: &mut Value, more: Value) {
    match more {
        Value::Object(more) => {
            if !value.is_object() {
                *value = Map::new().into();
            }
            let Value::Object(map) = value else { return };
            for (key, more) in more {
                add(map.entry(key).or_insert(Value::Null), more);
            }
        }
        other => *value = other,
    }
}

/// Returns the selector of all objects that the original, or this processor, has installed.
pub(crate) fn installed_by_us() -> String {
    format!(
        "{COMPONENT_LABEL},{MANAGED}=Reconcile,{OWNER}={OPERATOR},{OWNER_NAMESPACE}={ISTIO_NAMESPACE},{REVISION}=default"
    )
}

/// Returns whether an object was installed by somebody else than the original, judged by its
/// labels: it is of no component, or does not belong to the `IstioOperator` of the original, as
/// that of another one or of a release of Helm does not.
pub(crate) fn is_of_others(labels: &BTreeMap<String, String>) -> bool {
    let has = |key, value| labels.get(key).is_some_and(|found| found == value);
    !labels.contains_key(COMPONENT_LABEL)
        || !has(OWNER, OPERATOR)
        || !has(OWNER_NAMESPACE, ISTIO_NAMESPACE)
}

pub(crate) fn kind_of(object: &Value) -> Kind {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("apiVersion").rsplit_once('/').unwrap_or(("", text("apiVersion")));
    Kind::new(group, version, text("kind"))
}

pub(crate) fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn namespace_of(object: &Value) -> Option<&str> {
    object.pointer("/metadata/namespace").and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_written_as_the_api_server_stores_them() {
        let mut object = json!({
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"annotations": null},
            "rules": [
                {"apiGroups": ["a"], "operations": ["CREATE"]},
                {"apiGroups": ["a"], "operations": ["CREATE"], "scope": "Cluster"},
            ],
            // A rule of a Role.
            "others": [{"apiGroups": ["a"], "verbs": ["get"]}],
            "env": [
                {"name": "EMPTY", "value": ""},
                {"name": "SET", "value": "x"},
                {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ],
            "data": {"name": "a", "value": "", "more": ""},
        });
        complete(&mut object);
        assert_eq!(
            object,
            json!({
                "kind": "ValidatingWebhookConfiguration",
                "metadata": {},
                "rules": [
                    {"apiGroups": ["a"], "operations": ["CREATE"], "scope": "*"},
                    {"apiGroups": ["a"], "operations": ["CREATE"], "scope": "Cluster"},
                ],
                "others": [{"apiGroups": ["a"], "verbs": ["get"]}],
                "env": [
                    {"name": "EMPTY"},
                    {"name": "SET", "value": "x"},
                    {"name": "POD", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
                ],
                "data": {"name": "a", "value": "", "more": ""},
            })
        );
    }
}
