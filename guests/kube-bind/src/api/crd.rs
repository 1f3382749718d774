//! The `CustomResourceDefinition`s.

use mortise_sdk::{
    Object,
    crd::{Definition, object_schema},
};
use schemars::JsonSchema;
use serde_json::{Value, json};

use super::{
    Binding, BoundSchema, Bundle, ClusterBinding, Export, ExportRequest, ServiceNamespace, VERSION,
    schema::GROUP_PATTERN,
};

const READY: (&str, &str, &str) =
    ("Ready", "string", r#".status.conditions[?(@.type=="Ready")].status"#);
/// The place of the schema in a definition.
const SCHEMA: &str = "/spec/versions/0/schema/openAPIV3Schema";
const AGE: (&str, &str, &str) = ("Age", "date", ".metadata.creationTimestamp");

/// Returns the definitions of all kinds.
pub fn definitions() -> Vec<Value> {
    let binding = [
        json!({"name": "Provider", "type": "string", "jsonPath": ".status.providerPrettyName"}),
        json!({"name": "Resources", "type": "string", "priority": 1, "jsonPath": r".metadata.annotations.kube-bind\.io/resources"}),
        column(READY),
        json!({"name": "Message", "type": "string", "jsonPath": r#".status.conditions[?(@.type=="Ready")].message"#}),
        column(AGE),
    ];
    let established = json!({"name": "Established", "type": "string", "priority": 5, "jsonPath": r#".status.conditions[?(@.type=="Established")].status"#});
    let heartbeat = [
        json!({"name": "Konnector Version", "type": "string", "jsonPath": ".status.konnectorVersion"}),
        json!({"name": "Last Heartbeat", "type": "date", "jsonPath": ".status.lastHeartbeatTime"}),
        column(READY),
        column(AGE),
    ];
    let namespace = json!({"name": "Namespace", "type": "string", "jsonPath": ".status.namespace"});
    let mut request = definition::<ExportRequest>(
        "apiserviceexportrequests",
        None,
        &[column(READY), column(AGE)],
    );
    set(&mut request, &format!("{SCHEMA}/properties/status"), "default", json!({}));
    let mut cluster_binding = definition::<ClusterBinding>("clusterbindings", None, &heartbeat);
    let rule = json!([{"message": "cluster binding name should be cluster", "rule": r#"self.metadata.name == "cluster""#}]);
    set(&mut cluster_binding, SCHEMA, "x-kubernetes-validations", rule);
    vec![
        cluster_scoped(definition::<Binding>("apiservicebindings", Some("sb"), &binding)),
        cluster_scoped(definition::<Bundle>("apiservicebindingbundles", Some("sbb"), &binding)),
        definition::<Export>("apiserviceexports", None, &[established, column(AGE)]),
        request,
        definition::<ServiceNamespace>("apiservicenamespaces", None, &[namespace, column(AGE)]),
        definition::<BoundSchema>("boundschemas", Some("bs"), &[column(AGE)]),
        cluster_binding,
    ]
}

fn column((name, column_type, path): (&str, &str, &str)) -> Value {
    json!({"name": name, "type": column_type, "jsonPath": path})
}

fn definition<T: Object + JsonSchema>(
    plural: &str,
    short_name: Option<&str>,
    columns: &[Value],
) -> Value {
    let mut schema = object_schema::<T>();
    add_group_default(&mut schema);
    let mut definition = Definition::new(&T::kind(), plural)
        .category("kube-bindings")
        .version(VERSION, true, &schema, &[])
        .build();
    set(&mut definition, "/spec/versions/0", "additionalPrinterColumns", columns.into());
    if let Some(short_name) = short_name {
        set(&mut definition, "/spec/names", "shortNames", json!([short_name]));
    }
    definition
}

fn cluster_scoped(mut definition: Value) -> Value {
    set(&mut definition, "/spec", "scope", "Cluster".into());
    definition
}

/// Sets a field of a part of a definition.
fn set(definition: &mut Value, part: &str, field: &str, value: Value) {
    if let Some(part) = definition.pointer_mut(part).and_then(Value::as_object_mut) {
        part.insert(field.to_owned(), value);
    }
}

/// Makes the empty text the default of each API group: the SDK drops defaults that are empty.
fn add_group_default(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("pattern").is_some_and(|pattern| pattern == GROUP_PATTERN) {
                fields.insert("default".to_owned(), "".into());
            }
            fields.values_mut().for_each(add_group_default);
        }
        Value::Array(items) => items.iter_mut().for_each(add_group_default),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn without_descriptions(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                // A field of that name has a schema, the description of a schema is a text.
                fields.retain(|key, value| key != "description" || !value.is_string());
                fields.values_mut().for_each(without_descriptions);
            }
            Value::Array(items) => items.iter_mut().for_each(without_descriptions),
            _ => {}
        }
    }

    #[test]
    fn the_kinds_have_the_original_names_schemas_defaults_and_rules() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let goldens = std::env::var_os("MORTISE_GOLDENS");
        let goldens = root.join(goldens.unwrap_or_else(|| "tests/goldens".into()));
        let folder = goldens.join("kube-bind/crds");
        for mut definition in definitions() {
            without_descriptions(&mut definition);
            let name = definition["metadata"]["name"].as_str().unwrap().to_owned();
            let text = std::fs::read_to_string(folder.join(format!("{name}.yaml"))).unwrap();
            let original: Value = serde_saphyr::from_str(&text).unwrap();
            for part in ["group", "names", "scope"] {
                assert_eq!(definition["spec"][part], original["spec"][part], "{name}: {part}");
            }
            let versions = original["spec"]["versions"].as_array().unwrap();
            let version = versions.iter().find(|version| version["name"] == VERSION).unwrap();
            assert_eq!(&definition["spec"]["versions"][0], version, "{name}");
        }
    }
}
