//! The modules of a Processor: their files or images, and the artifacts read from there.

use std::fmt;

use super::{
    api::{self, ProcessorSpec},
    fault::Fault,
    module::{FOLDER, Stamp as FileStamp},
};
use crate::{
    oci::{
        Digest, Reference,
        signature::{PublicKey, Verified},
    },
    reason::Reason,
    wasm::Content,
};

/// The origin of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// A file in the folder of modules.
    Path(String),
    /// An artifact in a registry.
    Image(Reference),
}

/// The identity of a source's content: it changes if the bytes or a required signature change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stamp {
    /// The stamps of a file and of its signature, if any.
    File(FileStamp, Option<FileStamp>),
    /// The digest of the manifest.
    Image(Digest),
}

/// A module that was read and verified: it may be loaded.
#[derive(Debug, Clone)]
pub(super) struct ReadModule {
    pub(super) content: Content,
    pub(super) digest: Digest,
    pub(super) stamp: Stamp,
    /// The required keys by which it is signed.
    pub(super) verified: Verified,
    /// The artifact that it comes from, with the digest of its manifest.
    pub(super) image: Option<Reference>,
}

// === impl Source ===

impl Source {
    /// Returns the name of the module in policies: registry and repository, or its path below
    /// `/modules/`.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Path(path) => format!("{FOLDER}{}", path.strip_prefix(FOLDER).unwrap_or(path)),
            Self::Image(reference) => reference.name(),
        }
    }

    /// Returns the artifact, if it is one.
    pub(super) fn image(&self) -> Option<&Reference> {
        match self {
            Self::Path(_) => None,
            Self::Image(reference) => Some(reference),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => to.write_str(path),
            Self::Image(reference) => reference.fmt(to),
        }
    }
}

/// Returns the source of the module, and then those of the libraries. Fails if the spec names no
/// module.
pub(super) fn sources(spec: &ProcessorSpec) -> Result<Vec<Source>, Fault> {
    let modules = std::iter::once(("spec".to_owned(), &spec.module));
    let libraries = spec.libraries.iter().map(|library| (library.field(), &library.module));
    modules.chain(libraries).map(|(field, module)| source(&field, module)).collect()
}

fn source(field: &str, module: &api::Module) -> Result<Source, Fault> {
    match (&module.image, &module.path) {
        (Some(image), _) => image.parse().map(Source::Image).map_err(|error| {
            Fault::new(Reason::ImageInvalid, format!("{field}.module.image: {error}"))
        }),
        (None, Some(path)) => Ok(Source::Path(path.clone())),
        (None, None) => {
            let message = format!(
                "{field}.module names no module: give {field}.module.image or {field}.module.path"
            );
            Err(Fault::new(Reason::ModuleNotNamed, message))
        }
    }
}

/// Returns the keys whose signatures a spec requires; `None` if it requires none.
pub(super) fn keys(spec: &ProcessorSpec) -> Result<Option<Vec<PublicKey>>, Fault> {
    let Some(verification) = &spec.verification else { return Ok(None) };
    let key = |(at, pem): (usize, &String)| {
        PublicKey::parse(pem).map_err(|error| {
            Fault::new(
                Reason::VerificationInvalid,
                format!("spec.verification.keys[{at}]: {error}"),
            )
        })
    };
    let keys: Vec<PublicKey> =
        verification.keys.iter().enumerate().map(key).collect::<Result<_, _>>()?;
    if keys.is_empty() {
        let message = "spec.verification.keys is empty: name a key, or leave spec.verification out";
        return Err(Fault::new(Reason::VerificationInvalid, message));
    }
    Ok(Some(keys))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(rest: &Value) -> ProcessorSpec {
        let mut spec = json!({"module": {"path": "a.wasm"}, "serviceAccountName": "a"});
        spec.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        serde_json::from_value(spec).unwrap()
    }

    fn named(rest: &Value) -> Vec<String> {
        sources(&spec(rest)).unwrap().iter().map(Source::name).collect()
    }

    #[test]
    fn a_module_is_a_file_or_an_artifact_and_has_one_name() {
        let library = json!({"interface": "a:b/c", "module": {"image": "example.com/c:1"}});
        let cases = [
            (json!({}), vec!["/modules/a.wasm"]),
            (json!({"module": {"path": "/modules/a/b.wasm"}}), vec!["/modules/a/b.wasm"]),
            (json!({"module": {"image": "example.com/a/b:1"}}), vec!["example.com/a/b"]),
            (json!({"libraries": [library]}), vec!["/modules/a.wasm", "example.com/c"]),
        ];
        for (rest, expected) in cases {
            assert_eq!(named(&rest), expected, "{rest}");
        }
    }

    #[test]
    fn faults_of_sources_and_keys_name_the_field_of_the_spec() {
        let library =
            |module: Value| json!({"libraries": [{"interface": "a:b/c", "module": module}]});
        let pem = "-----BEGIN PUBLIC KEY-----\nAA==\n-----END PUBLIC KEY-----\n";
        let cases = [
            (json!({"module": {}}), Reason::ModuleNotNamed, "spec.module names no module: give "),
            (
                json!({"module": {"image": "a"}}),
                Reason::ImageInvalid,
                "spec.module.image: `a` names no registry",
            ),
            (
                library(json!({})),
                Reason::ModuleNotNamed,
                "spec.libraries[a:b/c].module names no module",
            ),
            (
                library(json!({"image": "c/d"})),
                Reason::ImageInvalid,
                "spec.libraries[a:b/c].module.image: `c/d`",
            ),
            (
                json!({"verification": {"keys": []}}),
                Reason::VerificationInvalid,
                "spec.verification.keys is empty",
            ),
            (
                json!({"verification": {"keys": [pem]}}),
                Reason::VerificationInvalid,
                "spec.verification.keys[0]: ",
            ),
        ];
        for (rest, reason, message) in cases {
            let spec = spec(&rest);
            let fault = sources(&spec).and_then(|_| keys(&spec)).unwrap_err();
            assert_eq!(fault.reason, reason, "{}", fault.message);
            assert!(fault.message.starts_with(message), "{}", fault.message);
        }
        assert_eq!(keys(&spec(&json!({}))), Ok(None));
    }
}
