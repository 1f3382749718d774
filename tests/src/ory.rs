//! The definition of Ory Oathkeeper's `Rule`, which no guest of ours installs yet: the fields and
//! limits of `rules.oathkeeper.ory.sh` as the Kyma API Gateway operator installs it.

use serde_json::{Value, json};

/// Returns the definition.
pub fn definition() -> Value {
    let handler = json!({
        "type": "object",
        "required": ["handler"],
        "properties": {
            "handler": {"type": "string"},
            "config": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        },
    });
    let handlers = json!({"type": "array", "items": handler});
    let spec = json!({
        "type": "object",
        "required": ["match"],
        "properties": {
            "authenticators": handlers,
            "authorizer": handler,
            "mutators": handlers,
            "match": {
                "type": "object",
                "required": ["methods", "url"],
                "properties": {
                    "methods": {"type": "array", "items": {"type": "string"}},
                    "url": {"type": "string"},
                },
            },
            "upstream": {
                "type": "object",
                "required": ["url"],
                "properties": {
                    "url": {
                        "type": "string", "minLength": 3, "maxLength": 256,
                        "pattern": r"^(?:https?:\/\/)?(?:[^@\/\n]+@)?(?:www\.)?([^:\/\n]+)",
                    },
                    "stripPath": {"type": "string"},
                    "preserveHost": {"type": "boolean"},
                },
            },
            "configMapName": {
                "type": "string", "minLength": 1, "maxLength": 253,
                "pattern": r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
            },
        },
    });
    let validation = json!({
        "type": "object",
        "properties": {"valid": {"type": "boolean"}, "validationError": {"type": "string"}},
    });
    let status = json!({"type": "object", "properties": {"validation": validation}});
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": status}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "rules.oathkeeper.ory.sh"},
        "spec": {
            "group": "oathkeeper.ory.sh",
            "scope": "Namespaced",
            "names": {
                "kind": "Rule", "listKind": "RuleList", "plural": "rules", "singular": "rule",
            },
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}
