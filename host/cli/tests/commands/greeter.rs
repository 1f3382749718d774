//! A small guest in a folder of its own, whose sources a test changes.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::root;

/// A guest that says a text, unless its configuration has another.
const SOURCE: &str = r#"use std::collections::BTreeMap;

use mortise_sdk::{
    Description, Failure, Host, Outcome, Processor, Reconciler, Request, Selection, Verbs,
    kubernetes::{ConfigMap, Namespace},
    object::Metadata,
};

struct Greeter;

impl Processor for Greeter {
    type Config = BTreeMap<String, String>;

    fn describe(_config: &Self::Config) -> Result<Description, String> {
        Ok(Description::new("NAME", "0.1.0")
            .reconciles(Reconciler::new("namespaces", Selection::of::<Namespace>().labels("greet=yes")))
            .writes(Selection::of::<ConfigMap>(), Verbs::CREATE | Verbs::UPDATE))
    }

    fn reconcile(request: &Request, config: &Self::Config, _host: &Host) -> Result<Outcome, Failure> {
        let Some(namespace) = request.object::<Namespace>()? else { return Ok(Outcome::new()) };
        let greeting = ConfigMap {
            metadata: Metadata::new("NAME").namespace(&namespace.metadata.name),
            data: [("text".to_owned(), config.get("text").map_or("TEXT", |text| text).to_owned())].into(),
            ..ConfigMap::default()
        };
        Ok(Outcome::new().apply(&greeting))
    }
}

mortise_sdk::export!(Greeter);
"#;

/// The guest's folder, removed at the end.
pub(crate) struct Greeter {
    folder: tempfile::TempDir,
    name: String,
}

impl Greeter {
    /// A guest that says a text. Its name is that of a file in the folder that all builds share, so
    /// no two tests may use the same one.
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let sdk = root().join("guests/sdk").canonicalize().unwrap();
        write(
            "Cargo.toml",
            &format!(
                "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n[lib]\ncrate-type = [\"cdylib\"]\n\
                 [dependencies]\nmortise-sdk = {{ path = \"{}\" }}\n[package.metadata.mortise]\nexamples = \"examples\"\n\
                 # Quickly built: this one is not measured.\n[profile.release]\nopt-level = 0\n",
                sdk.display()
            ),
        );
        // The versions that are there already.
        std::fs::copy(root().join("Cargo.lock"), folder.path().join("Cargo.lock")).unwrap();
        let namespace = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: shop\n  labels: {greet: \"yes\"}\n";
        write("examples/namespace.yaml", namespace);
        let guest = Self { folder, name: name.to_owned() };
        guest.say(text);
        guest
    }

    /// Adds a program that `mortise dev` runs beside it: a script of a shell.
    pub(crate) fn with_companion(self, script: &str) -> Self {
        let (file, path) = (self.folder().join("companion.sh"), self.folder().join("Cargo.toml"));
        std::fs::write(file, script).unwrap();
        let companion =
            "[package.metadata.mortise.dev]\ncompanion = { run = [\"sh\", \"companion.sh\"] }\n";
        let manifest = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, manifest + companion).unwrap();
        self
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Saves a version that says another text.
    pub(crate) fn say(&self, text: &str) {
        self.save(&SOURCE.replace("NAME", &self.name).replace("TEXT", text));
    }

    /// Saves a version with a processor of another name.
    pub(crate) fn rename(&self, name: &str) {
        self.save(&SOURCE.replace("NAME", name));
    }

    /// Saves a source.
    pub(crate) fn save(&self, source: &str) {
        let path = self.folder().join("src/lib.rs");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, source).unwrap();
    }
}

/// Lets guests be built into a folder that stays, so that the SDK is built once.
pub(crate) fn with_target(command: &mut Command) -> &mut Command {
    command.env("CARGO_TARGET_DIR", PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("greeters"))
}
