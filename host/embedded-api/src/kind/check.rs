//! Validation of the objects of a resource, and warnings about them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Form, Resource, Scale, ScaleSelector};
use crate::{
    builtin::{
        edit::{at, items, text},
        validate, warn,
    },
    crd,
    field_error::{FieldError, FieldPath},
    name::{self, MetadataRules, NameRule},
    structural::Write,
};

impl Resource {
    /// Validates a new object, including its metadata.
    pub(crate) fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        match &self.form {
            Form::BuiltIn(definition) => validate::create(definition, self.namespaced, object),
            Form::Custom(custom) => {
                let wrong = self.validate_type(object);
                if !wrong.is_empty() {
                    return wrong;
                }
                let found = self.validate_metadata(object);
                let write = Write { object, old: None, status: false };
                let scale = self.scale.iter().flat_map(|scale| {
                    spec_of_scale(scale, object).into_iter().chain(status_of_scale(scale, object))
                });
                custom.schema.validate(write, found, scale.collect(), &mut Vec::new())
            }
            Form::Untyped => self.validate_metadata(object),
        }
    }

    /// Validates an update; `found` are the errors of its metadata. Errors of unchanged values that
    /// rules find go to `doubts`.
    pub(crate) fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        subresource: Option<&str>,
        found: Vec<FieldError>,
        doubts: &mut Vec<String>,
    ) -> Vec<FieldError> {
        let mut found = found;
        match &self.form {
            Form::BuiltIn(definition) => {
                let objects = (new, old);
                found.extend(validate::update(definition, self.namespaced, objects, subresource));
                found
            }
            Form::Custom(custom) => {
                let wrong = self.validate_type(new);
                if !wrong.is_empty() {
                    found.extend(wrong);
                    return found;
                }
                let status = subresource == Some("status");
                let write = Write { object: new, old: Some(old), status };
                let scale = self.scale.iter().flat_map(|scale| {
                    let spec = spec_of_scale(scale, new).filter(|_| !status);
                    spec.into_iter().chain(status_of_scale(scale, new))
                });
                custom.schema.validate(write, found, scale.collect(), doubts)
            }
            Form::Untyped => found,
        }
    }

    /// Returns the warnings about an object that is stored.
    pub(crate) fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        match &self.form {
            Form::BuiltIn(definition) if *definition == validate::CRD => crd::warnings(new),
            Form::BuiltIn(definition) => warn::warnings(definition, new, old),
            Form::Custom(_) | Form::Untyped => {
                let had = old.map_or(&[][..], finalizers);
                let fresh: BTreeSet<_> = finalizers(new)
                    .iter()
                    .filter(|finalizer| !had.contains(finalizer))
                    .filter_map(Value::as_str)
                    .collect();
                fresh.into_iter().flat_map(doubts_of_finalizer).collect()
            }
        }
    }

    fn validate_metadata(&self, object: &Value) -> Vec<FieldError> {
        let rules = MetadataRules {
            name: NameRule::Subdomain,
            namespaced: self.namespaced,
            qualified_finalizers: false,
        };
        name::validate_metadata(&object["metadata"], rules, &FieldPath::new("metadata"))
    }

    /// Validates that a custom object has the kind and version of the resource.
    fn validate_type(&self, object: &Value) -> Vec<FieldError> {
        let expected = [("kind", self.kind.clone()), ("apiVersion", self.api_version())];
        let wrong = expected.into_iter().filter(|(key, expected)| text(object, key) != expected);
        let errors = wrong.map(|(key, expected)| {
            FieldError::invalid(key, text(object, key), format!("must be {expected}"))
        });
        errors.collect()
    }
}

fn finalizers(object: &Value) -> &[Value] {
    items(at(object, &["metadata", "finalizers"]))
}

/// Returns warnings about a finalizer of a custom resource, which should have a domain and a path.
fn doubts_of_finalizer(finalizer: &str) -> Vec<String> {
    const KNOWN: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];
    let mut faults = name::is_qualified_name(finalizer);
    if !finalizer.contains('/') && !KNOWN.contains(&finalizer) {
        let path = if finalizer.contains('.') { " including a path (/)" } else { "" };
        faults.push(format!(
            "prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers"
        ));
    }
    let texts =
        faults.into_iter().map(|fault| format!("metadata.finalizers: \"{finalizer}\": {fault}"));
    texts.collect()
}

fn spec_of_scale(scale: &Scale, object: &Value) -> Option<FieldError> {
    replicas(&scale.spec_replicas, object)
}

fn status_of_scale(scale: &Scale, object: &Value) -> Vec<FieldError> {
    let selector = match &scale.selector {
        ScaleSelector::Text(keys) => match found(keys, object) {
            Some(value) if !value.is_string() && !value.is_null() => {
                Some(FieldError::invalid(path(keys), "", accessor_error(keys, value, "string")))
            }
            _ => None,
        },
        ScaleSelector::None | ScaleSelector::Labels => None,
    };
    replicas(&scale.status_replicas, object).into_iter().chain(selector).collect()
}

/// Validates that replicas are an integer in the range of 32 bits, and not negative.
fn replicas(keys: &[String], object: &Value) -> Option<FieldError> {
    let value = found(keys, object).filter(|value| !value.is_null())?;
    let Some(number) = value.as_i64() else {
        return Some(FieldError::invalid(path(keys), 0, accessor_error(keys, value, "int64")));
    };
    let fault = match number {
        ..0 => "should be a non-negative integer",
        _ if number > i64::from(i32::MAX) => "should be less than or equal to 2147483647",
        _ => return None,
    };
    Some(FieldError::invalid(path(keys), number, fault))
}

fn found<'a>(keys: &[String], object: &'a Value) -> Option<&'a Value> {
    keys.iter().try_fold(object, |value, key| value.get(key))
}

fn path(keys: &[String]) -> String {
    format!(".{}", keys.join("."))
}

fn accessor_error(keys: &[String], value: &Value, wanted: &str) -> String {
    let kind = match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    format!("{} accessor error: {shown} is of the type {kind}, expected {wanted}", path(keys))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::kind::Registry;

    fn registry() -> Registry {
        let mut registry = Registry::new();
        registry.set_crd(&json!({
            "metadata": {"name": "widgets.example.dev"},
            "spec": {
                "group": "example.dev", "scope": "Namespaced",
                "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                    "subresources": {"scale": {
                        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector",
                    }},
                }],
            },
            "status": {"conditions": [{"type": "Established", "status": "True"}]},
        }));
        registry
    }

    fn widget(more: &Value) -> Value {
        let mut widget = json!({"apiVersion": "example.dev/v1", "kind": "Widget", "metadata": {"name": "a", "namespace": "ns"}});
        for (key, value) in more.as_object().unwrap() {
            widget[key] = value.clone();
        }
        widget
    }

    #[test]
    fn fields_read_by_the_scale_subresource_are_validated() {
        let registry = registry();
        let resource = registry.find("example.dev", "v1", "widgets").unwrap();
        let cases = [
            (json!({"spec": {"replicas": 2}}), vec![]),
            (
                json!({"spec": {"replicas": -1}}),
                vec![".spec.replicas: Invalid value: -1: should be a non-negative integer"],
            ),
            (
                json!({"status": {"replicas": "x", "selector": 5}}),
                vec![
                    ".status.replicas: Invalid value: 0: .status.replicas accessor error: x is of the type string, expected int64",
                    ".status.selector: Invalid value: \"\": .status.selector accessor error: 5 is of the type int64, expected string",
                ],
            ),
            (json!({"kind": "Gadget"}), vec!["kind: Invalid value: \"Gadget\": must be Widget"]),
        ];
        for (more, expected) in cases {
            let errors = resource.validate_create(&widget(&more));
            let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(texts, expected, "{more}");
        }
    }

    #[test]
    fn new_finalizers_without_a_domain_are_doubtful() {
        let registry = registry();
        let resource = registry.find("example.dev", "v1", "widgets").unwrap();
        let old = widget(&json!({"metadata": {"finalizers": ["known"]}}));
        let new = widget(
            &json!({"metadata": {"finalizers": ["known", "plain", "example.dev/hold", "a.b"]}}),
        );
        let warnings = resource.warnings(&new, Some(&old));
        let expected = [
            "metadata.finalizers: \"a.b\": prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers",
            "metadata.finalizers: \"plain\": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers",
        ];
        assert_eq!(warnings, expected);
    }
}
