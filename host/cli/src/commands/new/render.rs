//! Renders the files of a new guest from the templates.

use std::{collections::BTreeMap, fmt::Write as _, path::PathBuf};

use super::{
    Sdk, example,
    subject::{Origin, Subject, camel_case},
    workspace::Workspace,
};

/// File contents by their paths in the guest's folder.
pub(super) type Files = BTreeMap<PathBuf, String>;

/// The name that `derived_name` gives to the `ConfigMap` of the object `example`.
pub(super) const MAP: &str = "example-krmxk";

/// The names of types in the templates: a kind with such a name gets another Rust name.
pub(super) const USED: &[&str] = &[
    "Config",
    "ConfigMap",
    "Debug",
    "Default",
    "Description",
    "Deserialize",
    "Err",
    "Failure",
    "Host",
    "JsonSchema",
    "Metadata",
    "NoConfig",
    "None",
    "Object",
    "Ok",
    "Option",
    "Outcome",
    "OwnerReference",
    "Processor",
    "Reconciler",
    "Request",
    "Result",
    "Selection",
    "Self",
    "Serialize",
    "Some",
    "Spec",
    "Status",
    "String",
    "Stub",
    "Value",
    "Verbs",
];

/// The part of Cargo.toml for a guest outside of a workspace.
const ALONE: &str = "
[workspace]

[profile.release]
strip = \"debuginfo\"
";

/// Returns the files of a new guest.
pub(super) fn files(
    name: &str,
    subject: &Subject,
    workspace: Option<&Workspace>,
    sdk: &Sdk,
) -> Files {
    let mut files: Vec<(String, &str)> =
        vec![("Cargo.toml".into(), include_str!("template/package.toml"))];
    let example = example::yaml(subject, name);
    let objects = [format!("examples/{name}.yaml"), "cases/example/objects.yaml".to_owned()];
    files.extend(objects.map(|path| (path, example.as_str())));
    let crd = format!("crds/{}.{}.yaml", subject.plural, subject.kind.group);
    match subject.origin {
        Origin::Own => files.extend([
            ("README.md".into(), include_str!("template/own/README.md")),
            ("src/lib.rs".into(), include_str!("template/own/lib.rs")),
            ("src/tests.rs".into(), include_str!("template/own/tests.rs")),
            ("cases/example/expected.yaml".into(), include_str!("template/own/expected.yaml")),
            (crd, include_str!("template/own/crd.yaml")),
        ]),
        Origin::BuiltIn { .. } => files.extend([
            ("README.md".into(), include_str!("template/built-in/README.md")),
            ("src/lib.rs".into(), include_str!("template/built-in/lib.rs")),
            ("src/tests.rs".into(), include_str!("template/built-in/tests.rs")),
            ("cases/example/expected.yaml".into(), include_str!("template/built-in/expected.yaml")),
        ]),
    }
    if workspace.is_none() {
        files.push((".gitignore".into(), "/target\n"));
    }
    let values = values(name, subject, workspace, sdk);
    files.into_iter().map(|(path, text)| (path.into(), fill(text, &values))).collect()
}

/// Returns the values of the templates' `{{words}}`.
fn values(
    name: &str,
    subject: &Subject,
    workspace: Option<&Workspace>,
    sdk: &Sdk,
) -> Vec<(&'static str, String)> {
    let is_own = subject.origin == Origin::Own;
    let [dependencies, tests] = dependencies(is_own, workspace, sdk);
    let rest = match workspace {
        None => ALONE,
        Some(workspace) if workspace.has_lints() => "\n[lints]\nworkspace = true\n",
        Some(_) => "",
    };
    let mut values = names(name, subject);
    values.extend([
        ("type", type_name(&subject.kind.kind)),
        ("processor", format!("{}Processor", camel_case(name))),
        ("map", MAP.to_owned()),
        ("dependencies", dependencies),
        ("dev-dependencies", tests),
        ("rest", rest.to_owned()),
    ]);
    values
}

/// Returns the values that the templates of all languages have.
pub(super) fn names(name: &str, subject: &Subject) -> Vec<(&'static str, String)> {
    let kind = &subject.kind;
    let is_own = subject.origin == Origin::Own;
    vec![
        ("package", name.to_owned()),
        ("group", kind.group.clone()),
        ("version", kind.version.clone()),
        ("kind", kind.kind.clone()),
        ("singular", kind.kind.to_lowercase()),
        ("plural", subject.plural.clone()),
        ("api-version", subject.api_version()),
        ("crds", if is_own { "crds = [\"crds\"]\n" } else { "" }.to_owned()),
    ]
}

/// Returns the name of the Rust type of a kind.
fn type_name(kind: &str) -> String {
    if USED.contains(&kind) { format!("{kind}Object") } else { kind.to_owned() }
}

/// Returns the lines for `[dependencies]` and for `[dev-dependencies]`. Dependencies that the
/// workspace has are inherited from the workspace.
fn dependencies(is_own: bool, workspace: Option<&Workspace>, sdk: &Sdk) -> [String; 2] {
    let sdk = match sdk {
        Sdk::Path(path) => {
            format!("{{ path = {} }}", toml_edit::Value::from(path.to_string_lossy().as_ref()))
        }
        Sdk::Version(version) => format!("\"{version}\""),
    };
    let line = |text: &mut String, name: &str, alone: &str, shared: &str| {
        let is_shared = workspace.is_some_and(|workspace| workspace.has_dependency(name));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name} = {}", if is_shared { shared } else { alone });
    };
    let shared = "{ workspace = true }";
    let (mut needed, mut tests) = (String::new(), String::new());
    line(&mut needed, "mortise-sdk", &sdk, shared);
    if is_own {
        line(&mut needed, "schemars", "\"1\"", shared);
    }
    let derive = "features = [\"derive\"] }";
    let alone = format!("{{ version = \"1\", {derive}");
    line(&mut needed, "serde", &alone, &format!("{{ workspace = true, {derive}"));
    line(&mut tests, "serde_json", "\"1\"", shared);
    [needed, tests]
}

/// Returns the text with each `{{word}}` replaced by its value.
pub(super) fn fill(text: &str, values: &[(&'static str, String)]) -> String {
    values.iter().fold(text.to_owned(), |text, (word, value)| {
        text.replace(&format!("{{{{{word}}}}}"), value)
    })
}

#[cfg(test)]
mod tests;
