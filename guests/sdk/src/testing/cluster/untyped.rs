//! Definitions of kinds without a schema.

use serde_json::{Value, json};

use crate::Kind;

/// Returns a definition without a schema for a namespaced kind: unknown fields are preserved, and
/// lists are atomic.
pub(super) fn definition(kind: &Kind, versions: &[String]) -> Value {
    let plural = plural(&kind.kind);
    let versions: Vec<Value> = versions
        .iter()
        .enumerate()
        .map(|(index, name)| {
            json!({
                "name": name, "served": true, "storage": index == 0, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            })
        })
        .collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{}", kind.group),
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": kind.group, "scope": "Namespaced", "versions": versions,
            "names": {
                "kind": kind.kind, "listKind": format!("{}List", kind.kind), "plural": plural,
                "singular": kind.kind.to_lowercase(),
            },
        },
    })
}

/// Returns the plural of an English noun, as Kubernetes' own tools form it.
fn plural(kind: &str) -> String {
    let word = kind.to_lowercase();
    let is_vowel = |letter: char| "aeiou".contains(letter);
    if ["s", "x", "z", "ch", "sh"].iter().any(|ending| word.ends_with(ending)) {
        return format!("{word}es");
    }
    match word.strip_suffix('y') {
        Some(stem) if !stem.ends_with(is_vowel) => format!("{stem}ies"),
        _ => format!("{word}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plurals_are_those_of_kubernetes() {
        for (kind, expected) in [
            ("VirtualService", "virtualservices"),
            ("Gateway", "gateways"),
            ("AuthorizationPolicy", "authorizationpolicies"),
            ("Ingress", "ingresses"),
            ("Patch", "patches"),
            ("Key", "keys"),
        ] {
            assert_eq!(plural(kind), expected);
        }
    }
}
