//! The layout of a component in a registry, as other tools use it: an OCI image manifest with a
//! configuration that lists the component's imports and exports, and one layer, the component.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::IgnoredAny};

use super::{Digest, Error};

/// The media type of the manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// The media type of an image index.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The media type of a component's configuration.
pub const CONFIG: &str = "application/vnd.wasm.config.v0+json";
/// The media type of the component.
pub const LAYER: &str = "application/wasm";
/// The media types of manifests and of image indexes, for the `Accept` header.
pub(super) const ACCEPTED: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json";

/// The annotations of a manifest.
pub mod annotation {
    /// The name of the file.
    pub const TITLE: &str = "org.opencontainers.image.title";
    /// The version that the component declares.
    pub const VERSION: &str = "org.opencontainers.image.version";
    /// The purpose of the component.
    pub const DESCRIPTION: &str = "org.opencontainers.image.description";
    /// The revision of the sources.
    pub const REVISION: &str = "org.opencontainers.image.revision";
    /// The permissions that the processor declares, as JSON.
    pub const PERMISSIONS: &str = "dev.mortise.permissions";
}

/// Annotations of a manifest.
pub type Annotations = BTreeMap<String, String>;

/// A descriptor of a blob or a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    pub media_type: String,
    /// The digest of its bytes.
    pub digest: Digest,
    /// The number of its bytes.
    pub size: u64,
    /// The artifact type, in lists of referrers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// Further annotations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
}

/// An image manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The version of the schema: 2.
    pub schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// The artifact type, if it is not the media type of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// The configuration.
    pub config: Descriptor,
    pub layers: Vec<Descriptor>,
    /// The manifest to which this one refers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Descriptor>,
    /// Further annotations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
}

/// An image index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    /// The version of the schema: 2.
    pub schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    #[serde(default)]
    pub manifests: Vec<Descriptor>,
}

/// The configuration of a component.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    created: &'static str,
    architecture: &'static str,
    os: &'static str,
    layer_digests: Vec<Digest>,
    component: Component,
}

#[derive(Debug, Serialize)]
struct Component {
    exports: Vec<String>,
    imports: Vec<String>,
}

/// A component that can be pushed.
#[derive(Debug, Clone)]
pub struct Artifact {
    /// The bytes of the manifest; their digest is the artifact's.
    pub manifest: Vec<u8>,
    /// The configuration's bytes.
    pub config: Vec<u8>,
    /// The descriptor of the configuration.
    pub config_descriptor: Descriptor,
    /// The descriptor of the component.
    pub layer: Descriptor,
}

/// The parts of a component in a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    /// The component.
    pub layer: Descriptor,
    /// The annotations of the manifest.
    pub annotations: Annotations,
}

// === impl Descriptor ===

impl Descriptor {
    /// Returns the descriptor of these bytes.
    pub fn of(media_type: &str, bytes: &[u8]) -> Self {
        let (digest, size) = (Digest::of(bytes), bytes.len() as u64);
        Self {
            media_type: media_type.to_owned(),
            digest,
            size,
            artifact_type: None,
            annotations: None,
        }
    }
}

// === impl Artifact ===

impl Artifact {
    /// Builds the artifact of a component. Equal components and annotations have equal digests.
    ///
    /// # Errors
    ///
    /// Fails for annotations that cannot be written as JSON, which does not happen.
    pub fn build(
        layer: Descriptor,
        (imports, exports): (Vec<String>, Vec<String>),
        annotations: Annotations,
    ) -> serde_json::Result<Self> {
        let config = serde_json::to_vec(&Config {
            // Tools require a time; the current time would change the digest of equal components.
            created: "1970-01-01T00:00:00Z",
            architecture: "wasm",
            os: "wasip2",
            layer_digests: vec![layer.digest],
            component: Component { exports, imports },
        })?;
        let config_descriptor = Descriptor::of(CONFIG, &config);
        let manifest = serde_json::to_vec(&Manifest {
            schema_version: 2,
            media_type: Some(MANIFEST.to_owned()),
            artifact_type: None,
            config: config_descriptor.clone(),
            layers: vec![layer.clone()],
            subject: None,
            annotations: (!annotations.is_empty()).then_some(annotations),
        })?;
        Ok(Self { manifest, config, config_descriptor, layer })
    }

    /// Returns the digest of the manifest.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.manifest)
    }
}

/// A manifest that names others.
#[derive(Deserialize)]
struct List {
    #[serde(rename = "manifests")]
    _manifests: IgnoredAny,
}

/// Parses the manifest of a component.
///
/// # Errors
///
/// Fails for any other manifest, and names its kind.
pub fn parse(manifest: &[u8]) -> Result<Parts, Error> {
    let none = |found: String| Err(Error::NotWasm { found });
    // Not parsed into a tree, which would take many times the memory of a hostile text.
    if serde_json::from_slice::<IgnoredAny>(manifest).is_err() {
        return none("its manifest is no JSON".to_owned());
    }
    if serde_json::from_slice::<List>(manifest).is_ok() {
        return none("it is a list of images for several platforms".to_owned());
    }
    let Ok(manifest) = serde_json::from_slice::<Manifest>(manifest) else {
        return none("its manifest is not that of an image".to_owned());
    };
    let config = &manifest.config.media_type;
    if config != CONFIG {
        return none(format!("its configuration is `{}`{}", shown(config), kind_of(config)));
    }
    let [layer] = manifest.layers.as_slice() else {
        return none(format!("it has {} layers", manifest.layers.len()));
    };
    if layer.media_type != LAYER {
        return none(format!("its layer is `{}`", shown(&layer.media_type)));
    }
    let annotations = manifest.annotations.unwrap_or_default();
    Ok(Parts { layer: layer.clone(), annotations })
}

/// Names the kind of an artifact by its configuration, if the kind is well known.
fn kind_of(config: &str) -> &'static str {
    match config {
        "application/vnd.oci.image.config.v1+json"
        | "application/vnd.docker.container.image.v1+json" => ", so it is an image of a container",
        "application/vnd.cncf.helm.config.v1+json" => ", so it is a Helm chart",
        _ => "",
    }
}

/// Truncates a registry's text to fit into a message.
pub(super) fn shown(text: &str) -> String {
    const MAX_TEXT_CHARACTERS: usize = 200;
    let plain = |sign: char| if sign.is_control() { ' ' } else { sign };
    let mut shown: String = text.chars().take(MAX_TEXT_CHARACTERS).map(plain).collect();
    if text.chars().nth(MAX_TEXT_CHARACTERS).is_some() {
        shown.push('…');
    }
    shown.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn artifact() -> Artifact {
        let annotations = [(annotation::VERSION.to_owned(), "1.0.0".to_owned())].into();
        let names = (vec!["wasi:io/poll@0.2.6".to_owned()], vec!["a:b/c".to_owned()]);
        Artifact::build(Descriptor::of(LAYER, b"component"), names, annotations).unwrap()
    }

    #[test]
    fn a_component_is_laid_out_as_other_tools_read_it() {
        let artifact = artifact();
        let config: serde_json::Value = serde_json::from_slice(&artifact.config).unwrap();
        let expected = json!({
            "created": "1970-01-01T00:00:00Z", "architecture": "wasm", "os": "wasip2",
            "layerDigests": [Digest::of(b"component").to_string()],
            "component": {"exports": ["a:b/c"], "imports": ["wasi:io/poll@0.2.6"]},
        });
        assert_eq!(config, expected);
        let manifest: serde_json::Value = serde_json::from_slice(&artifact.manifest).unwrap();
        let expected = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {
                "mediaType": "application/vnd.wasm.config.v0+json",
                "digest": Digest::of(&artifact.config).to_string(),
                "size": artifact.config.len(),
            },
            "layers": [{
                "mediaType": "application/wasm", "digest": Digest::of(b"component").to_string(), "size": 9,
            }],
            "annotations": {"org.opencontainers.image.version": "1.0.0"},
        });
        assert_eq!(manifest, expected);
    }

    #[test]
    fn a_built_manifest_parses_to_the_same_layer_and_annotations() {
        let artifact = artifact();
        let parts = parse(&artifact.manifest).unwrap();
        assert_eq!(parts.layer, artifact.layer);
        assert_eq!(parts.annotations[annotation::VERSION], "1.0.0");
    }

    #[test]
    fn a_manifest_of_another_kind_is_refused_with_the_reason() {
        let of = |change: &dyn Fn(&mut serde_json::Value)| {
            let mut manifest = serde_json::from_slice(&artifact().manifest).unwrap();
            change(&mut manifest);
            serde_json::to_vec(&manifest).unwrap()
        };
        let oci = "application/vnd.oci.image.config.v1+json";
        let cases = [
            (b"<html>".to_vec(), "its manifest is no JSON"),
            (b"{}".to_vec(), "its manifest is not that of an image"),
            (of(&|it| it["manifests"] = json!([])), "a list of images for several platforms"),
            (of(&|it| it["config"]["mediaType"] = oci.into()), "so it is an image of a container"),
            (of(&|it| it["config"]["mediaType"] = "a\nb".into()), "its configuration is `a b`"),
            (of(&|it| it["layers"] = json!([])), "it has 0 layers"),
            (of(&|it| it["layers"][0]["mediaType"] = "a/b".into()), "its layer is `a/b`"),
            (of(&|it| it["layers"][0]["digest"] = "sha256:x".into()), "not that of an image"),
        ];
        for (manifest, expected) in cases {
            let message = parse(&manifest).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
            assert!(message.contains("one layer `application/wasm` is accepted"), "{message}");
        }
    }
}
