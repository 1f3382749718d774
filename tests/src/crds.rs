//! Writes the folder `crds/`, and what the charts in `deploy/` hold of the kind Processor, from the
//! Rust types, and checks that they are up to date.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use mortise_host::operator::api::definition::processors;
use mortise_sdk::crd::{Column, definition};
use serde_json::{Value, json};

/// The first line of every file.
const HEAD: &str =
    "# Written by `cargo crds` from the Rust types; a test fails if the two differ.\n";

/// The definition of Processors in the chart of the host.
const CHART_DEFINITION: &str = "chart/files/processors.mortise.dev.yaml";
/// The schema of the values of the chart of a processor.
const CHART_SCHEMA: &str = "chart-processor/values.schema.json";
/// The field of a Processor's spec that the chart sets.
const ACCOUNT: &str = "serviceAccountName";

/// Returns the definitions that the workspace's packages own.
fn definitions() -> Vec<Value> {
    let mut definitions = vec![
        api_gateway_module::api::definition(),
        api_rule::api::definition(),
        external_gateway::api::definition(),
        istio::api::definition(),
        processors(),
        rate_limit::api::definition(),
        secret_copies(),
    ];
    definitions.extend(konnect::crds());
    definitions.extend(kube_bind::api::definitions());
    definitions
}

fn secret_copies() -> Value {
    let column = |name, column_type, json_path| Column { name, column_type, json_path };
    definition::<secret_copy::SecretCopy>(
        "secretcopies",
        &[
            column("Secret", "string", ".spec.secret"),
            column("Copies", "integer", ".status.copies"),
            column("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status"),
        ],
    )
}

/// Returns the path of `crds/` in this checkout.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crds")
}

/// Returns the path of `deploy/` in this checkout.
pub fn deploy() -> PathBuf {
    folder().join("../deploy")
}

/// Returns the definition of Processors for the chart of the host, which keeps it when the host is
/// uninstalled.
fn kept() -> anyhow::Result<String> {
    let mut definition = processors();
    let metadata = definition.pointer_mut("/metadata").and_then(Value::as_object_mut);
    let metadata = metadata.context("the definition has no metadata")?;
    metadata.insert("annotations".to_owned(), json!({"helm.sh/resource-policy": "keep"}));
    text_of(&definition)
}

/// Returns the schema of the chart of a processor with the up-to-date schema of `spec`.
fn with_spec(text: &str) -> anyhow::Result<String> {
    let mut schema: Value =
        serde_json::from_str(text).context("the schema of the chart is not JSON")?;
    let place = schema.pointer_mut("/properties/spec").context("the schema lacks `spec`")?;
    *place = spec_of_values(&processors())?;
    Ok(serde_json::to_string_pretty(&schema)? + "\n")
}

/// Returns the schema of a Processor's spec, without the account, which the chart names.
fn spec_of_values(definition: &Value) -> anyhow::Result<Value> {
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    let mut spec = definition.pointer(spec).context("no schema of the spec")?.clone();
    let properties = spec.get_mut("properties").and_then(Value::as_object_mut);
    let properties = properties.context("the spec has no properties")?;
    properties.remove(ACCOUNT).context("the spec names no account")?;
    let required = spec.get_mut("required").and_then(Value::as_array_mut);
    required.context("the spec requires nothing")?.retain(|name| name != ACCOUNT);
    close(&mut spec);
    Ok(spec)
}

/// Refuses unknown fields, as the API server does, and removes the extensions of Kubernetes.
fn close(schema: &mut Value) {
    if let Value::Object(fields) = schema {
        if fields.contains_key("properties") {
            fields.insert("additionalProperties".to_owned(), false.into());
        }
        fields.retain(|key, _| !key.starts_with("x-kubernetes-"));
        for (key, value) in fields.iter_mut() {
            match value {
                Value::Object(properties) if key == "properties" => {
                    properties.values_mut().for_each(close);
                }
                _ => close(value),
            }
        }
    }
}

/// Returns the files in `deploy/` to write: paths within it, and their text.
fn charts() -> anyhow::Result<BTreeMap<PathBuf, String>> {
    let schema = fs::read_to_string(deploy().join(CHART_SCHEMA))?;
    let schema = with_spec(&schema).with_context(|| format!("cannot complete {CHART_SCHEMA}"))?;
    Ok([(CHART_DEFINITION.into(), kept()?), (CHART_SCHEMA.into(), schema)].into())
}

fn text_of(definition: &Value) -> anyhow::Result<String> {
    Ok(format!("{HEAD}{}", serde_saphyr::to_string(definition)?))
}

/// Returns the files to write: paths within the folder, and their text.
pub fn files() -> anyhow::Result<BTreeMap<PathBuf, String>> {
    let file = |definition: Value| {
        let text = |pointer| {
            definition
                .pointer(pointer)
                .and_then(Value::as_str)
                .context("a definition without a name")
        };
        let path =
            Path::new(text("/spec/group")?).join(format!("{}.yaml", text("/metadata/name")?));
        Ok((path, text_of(&definition)?))
    };
    definitions().into_iter().map(file).collect()
}

/// Writes all files.
pub fn write() -> anyhow::Result<()> {
    for (folder, files) in [(folder(), files()?), (deploy(), charts()?)] {
        for (path, text) in files {
            let path = folder.join(path);
            let parent = path.parent().context("a file is in a folder")?;
            fs::create_dir_all(parent)
                .with_context(|| format!("cannot make the folder {}", parent.display()))?;
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crds_folder_matches_the_rust_types() {
        let mut found = BTreeMap::new();
        for group in fs::read_dir(folder()).unwrap() {
            for file in fs::read_dir(group.unwrap().path()).unwrap() {
                let path = file.unwrap().path();
                let text = fs::read_to_string(&path).unwrap();
                found.insert(path.strip_prefix(folder()).unwrap().to_owned(), text);
            }
        }
        assert!(
            found == files().unwrap(),
            "crds/ differs from the Rust types: run `cargo crds` and look at what it changes"
        );
    }

    #[test]
    fn the_charts_hold_the_kind_processor_as_the_types_say() {
        for (path, text) in charts().unwrap() {
            let found = fs::read_to_string(deploy().join(&path)).unwrap();
            assert!(
                found == text,
                "deploy/{} differs from the Rust types: run `cargo crds` and look at what it changes",
                path.display()
            );
        }
    }

    #[test]
    fn the_values_of_a_processor_refuse_unknown_fields_but_in_its_config() {
        let spec = spec_of_values(&processors()).unwrap();
        assert_eq!(spec["required"], json!(["module"]));
        assert_eq!(spec["properties"].get(ACCOUNT), None);
        let is_closed = |pointer| spec.pointer(pointer).unwrap().get("additionalProperties");
        for pointer in ["", "/properties/module", "/properties/libraries/items/properties/module"] {
            assert_eq!(is_closed(pointer), Some(&json!(false)), "{pointer}");
        }
        assert_eq!(is_closed("/properties/config"), None);
        assert!(!spec.to_string().contains("x-kubernetes-"));
    }

    #[test]
    fn written_definitions_parse_to_the_same_objects() {
        let read: Result<Vec<Value>, _> =
            files().unwrap().values().map(|text| serde_saphyr::from_str(text)).collect();
        let read = read.unwrap();
        for definition in definitions() {
            assert!(read.contains(&definition), "{}", definition["metadata"]["name"]);
        }
    }
}
