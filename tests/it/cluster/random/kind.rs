//! The kinds of the random sequences.

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// A kind, with the schema of its objects.
#[derive(Debug, Clone)]
pub(super) struct Kind {
    /// The group, empty for the core group.
    pub(super) group: String,
    pub(super) versions: Vec<String>,
    /// The kind's name as in the field `kind` of objects.
    pub(super) name: String,
    pub(super) plural: String,
    /// The schema of the fields beside `apiVersion`, `kind` and `metadata`.
    pub(super) schema: Value,
    /// True if the kind has the subresource `status`.
    pub(super) has_status: bool,
    /// True if the kind has the subresource `scale`, in its first version.
    pub(super) has_scale: bool,
}

/// A built-in kind as written in shapes.yaml.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Shape {
    api_version: String,
    kind: String,
    plural: String,
    #[serde(default)]
    required: Vec<String>,
    properties: Map<String, Value>,
}

// === impl Kind ===

impl Kind {
    /// Returns `group/version`, or the version alone in the core group.
    pub(super) fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() { version.to_owned() } else { format!("{}/{version}", self.group) }
    }

    /// Returns the path of the objects of a namespace.
    pub(super) fn collection(&self, version: &str, namespace: &str) -> String {
        let root = if self.group.is_empty() { "/api/" } else { "/apis/" };
        format!("{root}{}/namespaces/{namespace}/{}", self.api_version(version), self.plural)
    }
}

impl From<Shape> for Kind {
    fn from(shape: Shape) -> Self {
        let (group, version) =
            shape.api_version.rsplit_once('/').unwrap_or(("", &shape.api_version));
        Self {
            group: group.to_owned(),
            versions: vec![version.to_owned()],
            has_status: shape.properties.contains_key("status"),
            has_scale: ["Deployment", "StatefulSet"].contains(&shape.kind.as_str()),
            schema: json!({"required": shape.required, "properties": shape.properties}),
            name: shape.kind,
            plural: shape.plural,
        }
    }
}

/// Returns the kinds that both servers have built in.
pub(super) fn built_in() -> Vec<Kind> {
    let shapes: Vec<Shape> =
        serde_saphyr::from_str(include_str!("shapes.yaml")).expect("shapes.yaml holds shapes");
    shapes.into_iter().map(Kind::from).collect()
}

/// Returns the CRDs of the custom kinds.
pub(super) fn definitions() -> Vec<Value> {
    serde_saphyr::from_multiple(include_str!("crds.yaml")).expect("crds.yaml holds CRDs")
}

/// Returns the kinds that the CRDs define.
pub(super) fn custom() -> Vec<Kind> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = |definition: &Value| {
        let spec = &definition["spec"];
        let versions = spec["versions"].as_array().cloned().unwrap_or_default();
        let first = versions.first().cloned().unwrap_or_default();
        Kind {
            group: text(&spec["group"]),
            versions: versions.iter().map(|version| text(&version["name"])).collect(),
            name: text(&spec["names"]["kind"]),
            plural: text(&spec["names"]["plural"]),
            schema: first["schema"]["openAPIV3Schema"].clone(),
            has_status: first["subresources"]["status"].is_object(),
            has_scale: first["subresources"]["scale"].is_object(),
        }
    };
    definitions().iter().map(kind).collect()
}
