//! The `CustomResourceDefinition`s, made from the table of kinds.

use serde_json::{Map, Value, json};

use crate::kind::{ALL, Conditions, Entity, Field, Schema, Shape, Type};

/// Returns the definitions of all kinds.
pub fn crds() -> Vec<Value> {
    ALL.into_iter().map(definition).collect()
}

fn definition(entity: &Entity) -> Value {
    let of = &entity.definition;
    let columns: Vec<Value> = of.columns.iter().map(column).collect();
    let mut names = json!({
        "categories": of.categories,
        "kind": entity.kind,
        "listKind": format!("{}List", entity.kind),
        "plural": entity.plural,
        "singular": entity.kind.to_lowercase(),
    });
    if !of.short.is_empty() {
        names["shortNames"] = json!(of.short);
    }
    let mut version = json!({
        "name": entity.version,
        "served": true,
        "storage": true,
        "schema": {"openAPIV3Schema": schema_of(entity)},
        "additionalPrinterColumns": columns,
    });
    version["subresources"] =
        if of.conditions.is_some() { json!({"status": {}}) } else { json!({}) };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{}", entity.plural, entity.group)},
        "spec": {
            "group": entity.group,
            "names": names,
            "scope": if entity.is_cluster_scoped { "Cluster" } else { "Namespaced" },
            "versions": [version],
        },
    })
}

fn column((name, of, path, priority): &(&str, &str, &str, u8)) -> Value {
    let mut column = json!({"name": name, "type": of, "jsonPath": path});
    if *priority > 0 {
        column["priority"] = json!(priority);
    }
    column
}

/// Returns the schema of whole objects.
fn schema_of(entity: &Entity) -> Value {
    let of = &entity.definition;
    let mut schema = object(entity.root);
    schema["description"] = of.about.into();
    for field in ["apiVersion", "kind"] {
        schema["properties"][field] = json!({"type": "string"});
    }
    schema["properties"]["metadata"] = json!({"type": "object"});
    if !entity.spec.is_empty() {
        let mut spec = object(entity.spec);
        add_rules(&mut spec, of.spec_rules);
        schema["properties"]["spec"] = spec;
    }
    if let Some(conditions) = of.conditions {
        schema["properties"]["status"] = status(entity, conditions);
    }
    if !of.required.is_empty() {
        schema["required"] = json!(of.required);
    }
    add_rules(&mut schema, of.rules);
    schema
}

fn status(entity: &Entity, of: Conditions) -> Value {
    let first = json!([{
        "lastTransitionTime": "1970-01-01T00:00:00Z",
        "message": "Waiting for controller",
        "reason": "Pending",
        "status": "Unknown",
        "type": of.first,
    }]);
    let mut status = object(entity.definition.status);
    let mut list = conditions();
    match (of.first, of.is_default_of_status) {
        ("", _) => {}
        (_, true) => status["default"] = json!({"conditions": first}),
        (_, false) => list["default"] = first,
    }
    if of.is_nonempty {
        list["minItems"] = json!(1);
    }
    if of.is_required {
        status["required"] = json!(["conditions"]);
    }
    status["properties"]["conditions"] = list;
    if entity.api.is_some() && !entity.is_native() {
        status["properties"]["konnect"] = ids(entity);
    }
    status
}

/// Returns the schema of `status.konnect`.
fn ids(entity: &Entity) -> Value {
    let text = |longest: u32| json!({"type": "string", "maxLength": longest});
    let mut fields = json!({
        "controlPlaneID": {"type": "string"},
        "id": text(256),
        "organizationID": text(256),
        "serverURL": text(512),
    });
    for reference in entity.references.iter().filter(|reference| reference.is_stored) {
        let id = json!({"type": "string"});
        fields[reference.id] = match reference.shape {
            Shape::Object => id,
            Shape::Objects | Shape::Names => {
                json!({"type": "array", "items": id, "x-kubernetes-list-type": "set"})
            }
        };
    }
    json!({"type": "object", "properties": fields})
}

/// Returns the schema of a list of conditions, as Kubernetes has them.
fn conditions() -> Value {
    let fields = json!({
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "message": {"type": "string", "maxLength": 32768},
        "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
        "reason": {
            "type": "string", "minLength": 1, "maxLength": 1024,
            "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        },
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "type": {
            "type": "string", "maxLength": 316,
            "pattern": concat!(
                r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?",
                r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
            ),
        },
    });
    json!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": fields,
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        },
        "maxItems": 8,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    })
}

fn object(fields: &[Field]) -> Value {
    let properties: Map<String, Value> =
        fields.iter().map(|field| (field.name.to_owned(), schema(&field.schema))).collect();
    let required: Vec<&str> =
        fields.iter().filter(|field| field.is_required).map(|field| field.name).collect();
    let mut object = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    object
}

fn schema(of: &Schema) -> Value {
    let mut schema = match of.of {
        Type::Any => json!({}),
        Type::Plain(name, "") => json!({"type": name}),
        Type::Plain(name, format) => json!({"type": name, "format": format}),
        Type::Object(fields) => object(fields),
        Type::List(items) => json!({"type": "array", "items": self::schema(items)}),
        Type::Map(values) => {
            json!({"type": "object", "additionalProperties": self::schema(values)})
        }
    };
    for (keyword, text) in of.keywords {
        schema[*keyword] = match *keyword {
            "enum" => text.split('|').collect(),
            // A text that is no JSON fails the test that compares with the original.
            _ => serde_json::from_str(text).unwrap_or_else(|_| (*text).into()),
        };
    }
    add_rules(&mut schema, of.rules);
    schema
}

fn add_rules(schema: &mut Value, rules: &[(&str, &str)]) {
    if !rules.is_empty() {
        let rules = rules.iter().map(|(message, rule)| json!({"message": message, "rule": rule}));
        schema["x-kubernetes-validations"] = rules.collect();
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs, path::Path};

    use super::*;

    /// Kong's definitions, without descriptions.
    fn originals() -> BTreeMap<String, Value> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/konnect/crds");
        let files = fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("cannot read `{}`: {error}", folder.display()));
        let files = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
        let definitions = files.map(|text| serde_saphyr::from_str::<Value>(&text).unwrap());
        definitions
            .map(|definition| {
                let kind = definition["spec"]["names"]["kind"].as_str().unwrap().to_owned();
                (kind, definition)
            })
            .collect()
    }

    /// Removes descriptions, and sorts lists whose order means nothing.
    fn normalise(schema: &mut Value) {
        match schema {
            Value::Object(fields) => {
                if fields.get("description").is_some_and(Value::is_string) {
                    fields.remove("description");
                }
                if let Some(Value::Array(required)) = fields.get_mut("required") {
                    required.sort_by_key(Value::to_string);
                }
                fields.values_mut().for_each(normalise);
            }
            Value::Array(list) => list.iter_mut().for_each(normalise),
            _ => {}
        }
    }

    #[test]
    fn definitions_are_those_of_the_original() {
        let mut originals = originals();
        // KonnectExtension is left out: it is a part of the operator of data planes.
        assert!(originals.remove("KonnectExtension").is_some());
        // The deprecated version of control planes is left out: a webhook would have to convert it.
        let versions = originals.get_mut("KonnectGatewayControlPlane").unwrap();
        let versions = versions["spec"]["versions"].as_array_mut().unwrap();
        assert_eq!(versions.remove(0)["name"], "v1alpha1");
        // There are no other differences.
        let mut ours: BTreeMap<String, Value> = crds()
            .into_iter()
            .map(|crd| (crd["spec"]["names"]["kind"].as_str().unwrap().to_owned(), crd))
            .collect();
        ours.values_mut().chain(originals.values_mut()).for_each(normalise);
        let kinds = |of: &BTreeMap<String, Value>| of.keys().cloned().collect::<Vec<_>>();
        assert_eq!(kinds(&ours), kinds(&originals));
        for (kind, original) in originals {
            assert_eq!(difference("", &ours[&kind], &original), None, "{kind}");
        }
    }

    /// Returns the first path at which two values differ, with what is there.
    fn difference(path: &str, ours: &Value, original: &Value) -> Option<String> {
        if let (Value::Array(left), Value::Array(right)) = (ours, original)
            && left.len() == right.len()
        {
            let mut pairs = left.iter().zip(right).enumerate();
            return pairs
                .find_map(|(at, (left, right))| difference(&format!("{path}/{at}"), left, right));
        }
        let (Value::Object(left), Value::Object(right)) = (ours, original) else {
            return (ours != original).then(|| format!("{path}\n{ours}\n{original}"));
        };
        left.keys().chain(right.keys()).find_map(|key| {
            let of = |fields: &Map<String, Value>| fields.get(key).cloned().unwrap_or_default();
            difference(&format!("{path}/{key}"), &of(left), &of(right))
        })
    }
}
