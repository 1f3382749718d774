//! Schemas of which no version is served, or that name a conversion webhook: ours makes no
//! definition of them.

use serde_json::{Value, json};

use super::{
    super::{
        format::Side,
        state::{EXTENSIONS, GROUP, Key, State},
    },
    Facts,
    objects::summarize,
};
use crate::goldens::scenario::{conditions_mut, text};

/// A new schema without a served version, or with a webhook, is refused, and the binding says so.
pub(super) fn schemas_that_serve_nothing_are_refused(facts: &Facts<'_>, expected: &mut State) {
    let serves = |schema: &Value| {
        let versions = schema.pointer("/spec/versions").and_then(Value::as_array);
        let is_served = versions.into_iter().flatten().any(|version| version["served"] != false);
        is_served && text(schema, "/spec/conversion/strategy") != "Webhook"
    };
    let schemas: Vec<Key> = expected
        .iter()
        .filter(|(key, schema)| key.is(Side::P, GROUP, "BoundSchema") && !serves(schema))
        .map(|(key, _)| key.clone())
        .collect();
    for schema in schemas {
        let is_its = |key: &Key| key.group == EXTENSIONS && key.name == schema.name;
        let Some(made) = expected.keys().find(|key| is_its(key)).cloned() else { continue };
        let owner = expected[&made].pointer("/metadata/ownerReferences/0/name");
        let Some(owner) = owner.and_then(Value::as_str).map(str::to_owned) else { continue };
        if facts.is_there(&made) {
            continue;
        }
        expected.remove(&made);
        if let Some(fields) = expected.get_mut(&schema).and_then(Value::as_object_mut) {
            fields.remove("status");
        }
        for (key, object) in expected.iter_mut().filter(|(key, _)| key.name == owner) {
            if key.is(Side::C, GROUP, "APIServiceBinding") {
                refuse(object, &schema.name);
            } else if key.is(Side::P, GROUP, "APIServiceExport") {
                is_unknown(object, &owner);
            }
        }
    }
}

fn refuse(binding: &mut Value, schema: &str) {
    if let Some(Value::Array(conditions)) = binding.pointer_mut("/status/conditions") {
        conditions.retain(|of| of["type"] != "SchemaInSync");
    }
    for connected in conditions_mut(binding).filter(|of| of["type"] == "Connected") {
        *connected = json!({
            "type": "Connected", "status": "False", "severity": "Error",
            "reason": "CustomResourceDefinitionCreateFailed",
            "message": format!("CustomResourceDefinition {schema} cannot be created: "),
        });
    }
    summarize(binding);
}

fn is_unknown(export: &mut Value, binding: &str) {
    for of in conditions_mut(export).filter(|of| text(of, "/type") == "ConsumerInSync") {
        *of = json!({
            "type": "ConsumerInSync", "status": "False", "severity": "Info", "reason": "Unknown",
            "message": format!("APIServiceBinding {binding} in the consumer cluster does not have a SchemaInSync condition."),
        });
    }
}
