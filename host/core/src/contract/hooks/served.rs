//! The versions of a kind that are served because a component converts them.

use serde_json::Value;

use crate::contract::{Kind, display_kind, hooks::Hooks};

/// Sets `served` for the versions of a `CustomResourceDefinition` that a component converts: the
/// definition may be written for API servers without a conversion webhook. Returns the versions
/// that were not served, as `KIND GROUP/VERSION`.
pub fn serve_converted(definition: &mut Value, hooks: &Hooks) -> Vec<String> {
    let text = |pointer: &str| definition.pointer(pointer)?.as_str().map(str::to_owned);
    let (group, kind) = (text("/spec/group"), text("/spec/names/kind"));
    let (Some(group), Some(kind)) = (group, kind) else { return Vec::new() };
    let Some(of) = hooks.converted(&group, &kind) else { return Vec::new() };
    let versions = definition.pointer_mut("/spec/versions").and_then(Value::as_array_mut);
    let mut served = Vec::new();
    for version in versions.into_iter().flatten().filter_map(Value::as_object_mut) {
        let name = version.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let is_unserved = version.get("served") != Some(&Value::Bool(true));
        if is_unserved && of.versions.contains(&name) {
            version.insert("served".to_owned(), true.into());
            let of = Kind::home(group.clone(), name, kind.clone());
            served.push(display_kind(&of));
        }
    }
    served
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::contract::hooks::Converted;

    #[test]
    fn versions_that_are_converted_are_served() {
        let version = |name: &str, served: bool| json!({"name": name, "served": served});
        let mut definition = json!({"spec": {
            "group": "example.com", "names": {"kind": "Rule"},
            "versions": [version("v1", true), version("v2", false), version("v0", false)],
        }});
        let before = definition.clone();
        assert_eq!(serve_converted(&mut definition, &Hooks::default()), Vec::<String>::new());
        assert_eq!(definition, before);
        let versions = vec!["v1".to_owned(), "v2".to_owned()];
        let of = Converted { group: "example.com".into(), kind: "Rule".into(), versions };
        let hooks = Hooks { conversions: vec![of], admission: Vec::new() };
        assert_eq!(serve_converted(&mut definition, &hooks), ["Rule example.com/v2"]);
        assert_eq!(
            definition["spec"]["versions"],
            json!([version("v1", true), version("v2", true), version("v0", false)])
        );
        assert_eq!(serve_converted(&mut json!({"kind": "Pod"}), &hooks), Vec::<String>::new());
    }
}
