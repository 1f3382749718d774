//! Writes the folder `crds/`, and the definition of Processors in `deploy/install.yaml`, from the
//! Rust types, and checks that they are up to date.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use mortise_host::operator::api::definition::processors;
use mortise_sdk::crd::{Column, definition};
use serde_json::Value;

/// The first line of every file.
const HEAD: &str =
    "# Written by `cargo crds` from the Rust types; a test fails if the two differ.\n";

/// The separator of two documents in a file.
const BETWEEN: &str = "\n---\n";

/// Returns the definitions that the workspace's packages own.
fn definitions() -> Vec<Value> {
    vec![
        api_gateway_module::api::definition(),
        api_rule::api::definition(),
        external_gateway::api::definition(),
        istio::api::definition(),
        processors(),
        rate_limit::api::definition(),
        secret_copies(),
    ]
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

/// Returns the path of the file that installs the host.
pub fn installation() -> PathBuf {
    folder().join("../deploy/install.yaml")
}

/// Returns that file's text with an up-to-date definition of Processors.
fn installed(text: &str) -> anyhow::Result<String> {
    let definition = text_of(&processors())?;
    let mut documents: Vec<&str> = text.split(BETWEEN).collect();
    let place = documents.iter_mut().find(|document| document.starts_with(HEAD));
    *place.context("no document begins with the line of `cargo crds`")? = definition.trim_end();
    Ok(documents.join(BETWEEN))
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
    for (path, text) in files()? {
        let path = folder().join(path);
        let parent = path.parent().context("a file is in a folder")?;
        fs::create_dir_all(parent)
            .with_context(|| format!("cannot make the folder {}", parent.display()))?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    write_installation().with_context(|| format!("cannot write {}", installation().display()))
}

fn write_installation() -> anyhow::Result<()> {
    let text = fs::read_to_string(installation())?;
    Ok(fs::write(installation(), installed(&text)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_what_the_types_say() {
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
    fn the_installation_holds_the_definition_of_processors_as_the_types_say() {
        let text = fs::read_to_string(installation()).unwrap();
        assert!(
            text == installed(&text).unwrap(),
            "deploy/install.yaml differs from the Rust types: run `cargo crds` and look at what it changes"
        );
        let former = text.replace("plural: processors", "plural: others");
        assert!(former != text && installed(&former).unwrap() == text);
    }

    #[test]
    fn what_is_written_reads_as_what_was_meant() {
        let read: Result<Vec<Value>, _> =
            files().unwrap().values().map(|text| serde_saphyr::from_str(text)).collect();
        let read = read.unwrap();
        for definition in definitions() {
            assert!(read.contains(&definition), "{}", definition["metadata"]["name"]);
        }
    }
}
