//! The root of a schema beside a status subresource: keywords that would be lost when the status is
//! validated by itself are refused.

use serde_json::{Map, Value};

use super::text;
use crate::field_error::{FieldError, FieldPath, Shown, go_json};

/// The fields of schemas, in the order of Kubernetes' internal type: the key, the name in that
/// type, whether the root may have the field, and the JSON of its zero value.
const FIELDS: [(&str, &str, bool, &str); 44] = [
    ("id", "ID", false, "\"\""),
    ("$schema", "Schema", false, "\"\""),
    ("$ref", "Ref", false, "null"),
    ("description", "Description", true, "\"\""),
    ("type", "Type", true, "\"\""),
    ("nullable", "Nullable", false, "false"),
    ("format", "Format", true, "\"\""),
    ("title", "Title", true, "\"\""),
    ("default", "Default", false, "null"),
    ("maximum", "Maximum", true, "null"),
    ("exclusiveMaximum", "ExclusiveMaximum", true, "false"),
    ("minimum", "Minimum", true, "null"),
    ("exclusiveMinimum", "ExclusiveMinimum", true, "false"),
    ("maxLength", "MaxLength", true, "null"),
    ("minLength", "MinLength", true, "null"),
    ("pattern", "Pattern", true, "\"\""),
    ("maxItems", "MaxItems", true, "null"),
    ("minItems", "MinItems", true, "null"),
    ("uniqueItems", "UniqueItems", true, "false"),
    ("multipleOf", "MultipleOf", true, "null"),
    ("enum", "Enum", false, "null"),
    ("maxProperties", "MaxProperties", false, "null"),
    ("minProperties", "MinProperties", false, "null"),
    ("required", "Required", true, "null"),
    ("items", "Items", true, "null"),
    ("allOf", "AllOf", false, "null"),
    ("oneOf", "OneOf", false, "null"),
    ("anyOf", "AnyOf", false, "null"),
    ("not", "Not", false, "null"),
    ("properties", "Properties", true, "null"),
    ("additionalProperties", "AdditionalProperties", false, "null"),
    ("patternProperties", "PatternProperties", false, "null"),
    ("dependencies", "Dependencies", false, "null"),
    ("additionalItems", "AdditionalItems", false, "null"),
    ("definitions", "Definitions", false, "null"),
    ("externalDocs", "ExternalDocs", true, "null"),
    ("example", "Example", true, "null"),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields", true, "null"),
    ("x-kubernetes-embedded-resource", "XEmbeddedResource", false, "false"),
    ("x-kubernetes-int-or-string", "XIntOrString", false, "false"),
    ("x-kubernetes-list-map-keys", "XListMapKeys", false, "null"),
    ("x-kubernetes-list-type", "XListType", false, "null"),
    ("x-kubernetes-map-type", "XMapType", false, "null"),
    ("x-kubernetes-validations", "XValidations", true, "null"),
];

/// Returns the first error of the root, if any.
pub(super) fn check(root: &Map<String, Value>, path: &FieldPath<'_>) -> Option<FieldError> {
    for (key, _, allowed, absent) in FIELDS {
        let value = root.get(key).map_or_else(|| absent.to_owned(), go_json);
        if value == absent {
            continue;
        }
        if key == "type" && text(root, "type") != "object" {
            let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
            return Some(FieldError::invalid(path.child("type"), text(root, "type"), detail));
        }
        if !allowed {
            let names: Vec<&str> = FIELDS
                .iter()
                .filter(|(_, _, allowed, _)| *allowed)
                .map(|(_, name, _, _)| *name)
                .collect();
            let detail = format!(
                "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
                names.join(" ")
            );
            return Some(FieldError::invalid(path, Shown::Raw(shown(root)), detail));
        }
    }
    None
}

/// Returns a schema as Kubernetes prints it.
fn shown(schema: &Map<String, Value>) -> String {
    let nested = |value: &Value| value.as_object().map_or_else(|| go_json(value), shown);
    let fields = FIELDS.iter().map(|(key, name, _, absent)| {
        let value = match (*key, schema.get(*key)) {
            (_, None | Some(Value::Null)) => (*absent).to_owned(),
            ("properties" | "patternProperties" | "definitions", Some(Value::Object(map))) => {
                let mut entries: Vec<_> = map.iter().collect();
                entries.sort_by_key(|(name, _)| name.as_str());
                let entries = entries.into_iter().map(|(name, value)| {
                    format!("{}:{}", go_json(&name.as_str().into()), nested(value))
                });
                format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
            }
            ("allOf" | "anyOf" | "oneOf", Some(Value::Array(several))) => {
                format!("[{}]", several.iter().map(nested).collect::<Vec<_>>().join(","))
            }
            ("not", Some(value)) => nested(value),
            ("items", Some(value)) => {
                format!("{{\"Schema\":{},\"JSONSchemas\":null}}", nested(value))
            }
            ("additionalProperties", Some(Value::Bool(allowed))) => {
                format!("{{\"Allows\":{allowed},\"Schema\":null}}")
            }
            ("additionalProperties", Some(value)) => {
                format!("{{\"Allows\":true,\"Schema\":{}}}", nested(value))
            }
            (_, Some(value)) => go_json(value),
        };
        format!("\"{name}\":{value}")
    });
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}
