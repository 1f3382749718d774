//! The files of a new guest in Python or TypeScript: a folder with a `mortise.toml`, its sources,
//! and copies of the language's SDK and of the contract, so that it needs no checkout of this
//! repository.

use super::{
    example,
    render::{self, Files, MAP, fill},
    subject::{Origin, Subject},
};

/// A language whose guests are built without Cargo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    Python,
    TypeScript,
}

macro_rules! repository {
    ($path:literal) => {
        ($path, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../", $path)))
    };
}

const CONTRACT: [(&str, &str); 9] = [
    repository!("wit/admission.wit"),
    repository!("wit/clock.wit"),
    repository!("wit/cluster.wit"),
    repository!("wit/conversion.wit"),
    repository!("wit/log.wit"),
    repository!("wit/outbound.wit"),
    repository!("wit/reconciliation.wit"),
    repository!("wit/types.wit"),
    repository!("wit/world.wit"),
];

const PYTHON: [(&str, &str); 3] = [
    repository!("guests/sdk-python/build.py"),
    repository!("guests/sdk-python/mortise_sdk/__init__.py"),
    repository!("guests/sdk-python/mortise_sdk/names.py"),
];

const TYPESCRIPT: [(&str, &str); 5] = [
    repository!("guests/sdk-typescript/build.mjs"),
    repository!("guests/sdk-typescript/src/contract.d.ts"),
    repository!("guests/sdk-typescript/src/index.ts"),
    repository!("guests/sdk-typescript/src/lines.ts"),
    repository!("guests/sdk-typescript/src/names.ts"),
];

// The guests of this repository have the versions that its tests use.
const REQUIREMENTS: (&str, &str) = repository!("guests/secret-copy-python/requirements.txt");
const PACKAGE: (&str, &str) = repository!("guests/secret-copy-typescript/package.json");
const LOCK: (&str, &str) = repository!("guests/secret-copy-typescript/package-lock.json");
const TSCONFIG: (&str, &str) = repository!("guests/secret-copy-typescript/tsconfig.json");

/// The parts of the code that depend on the origin of the kind.
struct Parts {
    object: &'static str,
    selection: &'static str,
    text: &'static str,
    status: &'static str,
}

// === impl Language ===

impl Language {
    /// Returns the files of a new guest.
    pub(super) fn files(self, name: &str, subject: &Subject) -> Files {
        let own = self.own();
        let shared = shared(subject)
            .into_iter()
            .chain([("README.md".to_owned(), include_str!("template/files/README.md"))]);
        let values = self.values(name, subject);
        let filled = shared.chain(own.map(|(path, text)| (path.to_owned(), text)));
        let mut files: Files =
            filled.map(|(path, text)| (path.into(), fill(text, &values))).collect();
        let example = example::yaml(subject, name);
        for path in [format!("examples/{name}.yaml"), "cases/example/objects.yaml".to_owned()] {
            files.insert(path.into(), fill(&example, &values));
        }
        for (path, text) in self.copied() {
            let below = path.split_once('/').map_or(path, |(_, below)| below);
            let below = below.strip_prefix(self.sdk()).unwrap_or(path);
            files.insert(format!("sdk/{below}").into(), text.to_owned());
        }
        files.extend(self.locked(name).map(|(path, text)| (path.into(), text)));
        files
    }

    /// Returns the sentence about installing the tools.
    pub(super) fn tools(self) -> &'static str {
        match self {
            Self::Python => "its first build installs the tools of requirements.txt with pip",
            Self::TypeScript => "its first build installs the tools of package-lock.json with npm",
        }
    }

    fn sdk(self) -> &'static str {
        match self {
            Self::Python => "sdk-python/",
            Self::TypeScript => "sdk-typescript/",
        }
    }

    /// Returns the files of the SDK and of the contract by their paths in this repository.
    fn copied(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let sdk: &[_] = match self {
            Self::Python => &PYTHON,
            Self::TypeScript => &TYPESCRIPT,
        };
        sdk.iter().chain(&CONTRACT).copied()
    }

    /// Returns the templates of the language.
    fn own(self) -> [(&'static str, &'static str); 3] {
        match self {
            Self::Python => [
                ("src/app.py", include_str!("template/files/python/app.py")),
                ("mortise.toml", include_str!("template/files/python/mortise.toml")),
                (".gitignore", "/.build\n__pycache__\n"),
            ],
            Self::TypeScript => [
                ("src/index.ts", include_str!("template/files/typescript/index.ts")),
                ("mortise.toml", include_str!("template/files/typescript/mortise.toml")),
                (".gitignore", "/.build\n/node_modules\n"),
            ],
        }
    }

    /// Returns the files from which the language's package manager installs the tools.
    fn locked(self, name: &str) -> impl Iterator<Item = (&'static str, String)> {
        let named = |text: &str| {
            text.replace("\"name\": \"secret-copy\"", &format!("\"name\": \"{name}\""))
        };
        let files = match self {
            Self::Python => vec![("requirements.txt", REQUIREMENTS.1.to_owned())],
            Self::TypeScript => vec![
                ("package.json", named(PACKAGE.1)),
                ("package-lock.json", named(LOCK.1)),
                ("tsconfig.json", TSCONFIG.1.replace("../sdk-typescript", "./sdk")),
            ],
        };
        files.into_iter()
    }

    fn values(self, name: &str, subject: &Subject) -> Vec<(&'static str, String)> {
        let kind = &subject.kind;
        let is_own = subject.origin == Origin::Own;
        let parts = self.parts(is_own);
        let about = if is_own {
            format!("Reconciles {} objects: the text of each is kept in a ConfigMap.", kind.kind)
        } else {
            format!(
                "Looks after {} objects that carry the label `{name}=yes`: each gets a ConfigMap.",
                kind.kind
            )
        };
        let (source, lock) = match self {
            Self::Python => ("src/app.py", "`requirements.txt`"),
            Self::TypeScript => ("src/index.ts", "`package-lock.json`"),
        };
        let row = "| the definition of the kind | `crds/` |\n";
        let mut values = vec![
            ("about", about),
            ("type", parts.object.to_owned()),
            ("selection", parts.selection.to_owned()),
            ("text", parts.text.to_owned()),
            ("status", parts.status.to_owned()),
            ("source", source.to_owned()),
            ("lock", lock.to_owned()),
            ("crds-row", if is_own { row } else { "" }.to_owned()),
            ("map", MAP.to_owned()),
        ];
        values.extend(render::names(name, subject));
        values
    }

    fn parts(self, is_own: bool) -> Parts {
        match (self, is_own) {
            (Self::Python, true) => Parts {
                object: "",
                selection: "Selection(RECONCILED)",
                text: "object[\"spec\"][\"text\"]",
                status: "    outcome.status(request, {\"configMap\": metadata[\"name\"]})\n",
            },
            (Self::Python, false) => Parts {
                object: "",
                selection: "Selection(RECONCILED, labels=\"{{package}}=yes\", fields=[\"metadata\"])",
                text: "f\"This is {object['metadata']['name']}\"",
                status: "",
            },
            (Self::TypeScript, true) => Parts {
                object: "{ spec: { text: string } }",
                selection: "{ kind: reconciled }",
                text: "object.spec.text",
                status: "  outcome.status(request, { configMap: metadata.name });\n",
            },
            (Self::TypeScript, false) => Parts {
                object: "object",
                selection: "{ kind: reconciled, labels: \"{{package}}=yes\", fields: [\"metadata\"] }",
                text: "`This is ${object.metadata.name}`",
                status: "",
            },
        }
    }
}

/// Returns the templates that all languages share.
fn shared(subject: &Subject) -> Vec<(String, &'static str)> {
    let expected = "cases/example/expected.yaml".to_owned();
    let Origin::Own = subject.origin else {
        return vec![(expected, include_str!("template/built-in/expected.yaml"))];
    };
    let crd = include_str!("template/own/crd.yaml");
    // The first line says that Rust types generate it.
    let crd = crd.split_once('\n').map_or(crd, |(_, rest)| rest);
    vec![
        (expected, include_str!("template/own/expected.yaml")),
        (format!("crds/{}.{}.yaml", subject.plural, subject.kind.group), crd),
    ]
}

#[cfg(test)]
mod tests {
    use mortise_core::contract::Kind;

    use super::*;

    #[test]
    fn a_guest_holds_all_that_it_is_built_of() {
        let kind = Kind::home("a.b", "v1", "Thing");
        let own = Subject { kind, plural: "things".into(), origin: Origin::Own };
        let map = Kind::home("", "v1", "ConfigMap");
        let origin = Origin::BuiltIn { namespaced: true };
        let built_in = Subject { kind: map, plural: "configmaps".into(), origin };
        for language in [Language::Python, Language::TypeScript] {
            for subject in [&own, &built_in] {
                let files = language.files("greeter", subject);
                for (path, text) in &files {
                    assert!(!text.contains("{{"), "{path:?} has words that were not filled in");
                }
                let holds = |path: &str| files.contains_key(std::path::Path::new(path));
                assert!(holds("sdk/wit/world.wit") && holds("mortise.toml"), "{:?}", files.keys());
                assert_eq!(holds("crds/things.a.b.yaml"), subject.origin == Origin::Own);
            }
        }
    }

    #[test]
    fn the_copies_are_complete() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let copied = |language: Language| language.copied().map(|(path, _)| path);
        for language in [Language::Python, Language::TypeScript] {
            let sdk = format!("guests/{}", language.sdk());
            for folder in [sdk.as_str(), "wit"] {
                let entries = walkdir::WalkDir::new(root.join(folder)).into_iter();
                for entry in entries.map(Result::unwrap).filter(|entry| entry.path().is_file()) {
                    let path = entry.path().strip_prefix(&root).unwrap();
                    let is_code = path.extension().is_some_and(|ending| ending != "md");
                    let is_there = copied(language).any(|copy| path == copy);
                    assert!(is_there || !is_code, "{path:?} is not copied into new guests");
                }
            }
        }
    }
}
