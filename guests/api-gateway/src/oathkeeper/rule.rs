//! The `CustomResourceDefinition` of Oathkeeper's rules.

use serde_json::{Value, json};

pub(super) const NAME: &str = "rules.oathkeeper.ory.sh";

/// Returns the definition.
pub(super) fn definition() -> Value {
    let text = |description: &str| json!({"type": "string", "description": description});
    let handler = |description: &str| {
        json!({
            "type": "object", "description": description, "required": ["handler"],
            "properties": {
                "handler": text("The name of the handler."),
                "config": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "description": "The configuration of the handler.",
                },
            },
        })
    };
    let list = |items: Value| json!({"type": "array", "items": items});
    let name = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
    let url = r"^(?:https?:\/\/)?(?:[^@\/\n]+@)?(?:www\.)?([^:\/\n]+)";
    let spec = json!({
        "match": {
            "type": "object", "description": "The requests to which the rule applies.",
            "required": ["url", "methods"],
            "properties": {
                "url": text("The URL, with regular expressions in angle brackets."),
                "methods": list(text("An HTTP method.")),
            },
        },
        "upstream": {
            "type": "object", "description": "The server to which requests are forwarded.",
            "required": ["url"],
            "properties": {
                "url": {"type": "string", "minLength": 3, "maxLength": 256, "pattern": url},
                "stripPath": text("The beginning of the path that is left out."),
                "preserveHost": {"type": "boolean"},
            },
        },
        "authenticators": list(handler("Tells who sends a request.")),
        "authorizer": handler("Tells whether the sender may."),
        "mutators": list(handler("Changes a request before it is forwarded.")),
        "configMapName": {"type": "string", "minLength": 1, "maxLength": 253, "pattern": name},
    });
    let validation = json!({
        "type": "object",
        "properties": {"valid": {"type": "boolean"}, "validationError": {"type": "string"}},
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": "oathkeeper.ory.sh",
            "scope": "Namespaced",
            "names": {"kind": "Rule", "listKind": "RuleList", "plural": "rules", "singular": "rule"},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object", "description": "A rule of Ory Oathkeeper.",
                    "properties": {
                        "apiVersion": {"type": "string"},
                        "kind": {"type": "string"},
                        "metadata": {"type": "object"},
                        "spec": {"type": "object", "required": ["match"], "properties": spec},
                        "status": {"type": "object", "properties": {"validation": validation}},
                    },
                }},
            }],
        },
    })
}
