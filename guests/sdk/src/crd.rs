//! `CustomResourceDefinition`s made from Rust types, for the folder `crds/` (not in a component).
//!
//! The Rust type of a whole object holds `spec` and `status`; this module adds apiVersion, kind and
//! metadata. The schema comes from `schemars` and is made structural: all subschemas are inlined,
//! and `null` and formats that Kubernetes does not know are removed. Defaults that are empty (`0`,
//! `false`, an empty text, list or map) are removed too.

use std::{collections::BTreeMap, fs, path::Path};

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::{Kind, Object};

/// A `CustomResourceDefinition` under construction.
pub struct Definition {
    group: String,
    kind: String,
    plural: String,
    scope: &'static str,
    categories: Vec<String>,
    versions: Vec<Value>,
    conversion: Option<Value>,
}

/// A column that `kubectl get` prints.
pub struct Column {
    /// The heading of the column.
    pub name: &'static str,
    /// The type of the value: `string`, `integer`, `date`, …
    pub column_type: &'static str,
    /// The `JSONPath` of the value in an object, such as `.status.state`.
    pub json_path: &'static str,
}

impl Definition {
    /// Creates a definition of a namespaced kind without versions. The version in `kind` is not
    /// used: add versions with [`Definition::version`].
    pub fn new(kind: &Kind, plural: &str) -> Self {
        Self {
            group: kind.group.clone(),
            kind: kind.kind.clone(),
            plural: plural.to_owned(),
            scope: "Namespaced",
            categories: Vec::new(),
            versions: Vec::new(),
            conversion: None,
        }
    }

    /// Makes the kind cluster-scoped.
    #[must_use]
    pub fn cluster_scoped(mut self) -> Self {
        self.scope = "Cluster";
        self
    }

    /// Adds a category, a name under which `kubectl get` lists objects of several kinds.
    #[must_use]
    pub fn category(mut self, category: &str) -> Self {
        self.categories.push(category.to_owned());
        self
    }

    /// Adds a served version with a status subresource.
    ///
    /// `schema` describes whole objects, as [`object_schema`] returns it. Exactly one version of a
    /// definition must be `stored`.
    #[must_use]
    pub fn version(mut self, name: &str, stored: bool, schema: &Value, columns: &[Column]) -> Self {
        let columns: Vec<Value> = columns.iter().map(Column::json).collect();
        self.versions.push(json!({
            "name": name,
            "served": true,
            "storage": stored,
            "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}},
            "additionalPrinterColumns": columns,
        }));
        self
    }

    /// Stops the version that was added last from being served: it is defined, and nobody can read
    /// or write it.
    #[must_use]
    pub fn not_served(self) -> Self {
        self.of_last_version([("served", false.into())])
    }

    /// Makes the API server warn those who use the version that was added last.
    #[must_use]
    pub fn deprecated(self, warning: &str) -> Self {
        self.of_last_version([("deprecated", true.into()), ("deprecationWarning", warning.into())])
    }

    fn of_last_version<const N: usize>(mut self, fields: [(&str, Value); N]) -> Self {
        if let Some(version) = self.versions.last_mut().and_then(Value::as_object_mut) {
            version.extend(fields.map(|(field, value)| (field.to_owned(), value)));
        }
        self
    }

    /// Sets `spec.conversion`, which says how objects are converted from one version to another.
    #[must_use]
    pub fn conversion(mut self, conversion: Value) -> Self {
        self.conversion = Some(conversion);
        self
    }

    /// Returns the `CustomResourceDefinition` object.
    pub fn build(self) -> Value {
        let mut spec = json!({
            "group": self.group,
            "names": {
                "kind": self.kind,
                "listKind": format!("{}List", self.kind),
                "plural": self.plural,
                "singular": self.kind.to_lowercase(),
                "categories": self.categories,
            },
            "scope": self.scope,
            "versions": self.versions,
        });
        if let (Some(conversion), Some(spec)) = (self.conversion, spec.as_object_mut()) {
            spec.insert("conversion".to_owned(), conversion);
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{}.{}", self.plural, self.group)},
            "spec": spec,
        })
    }
}

impl Column {
    fn json(&self) -> Value {
        json!({"name": self.name, "type": self.column_type, "jsonPath": self.json_path})
    }
}

/// Returns the definition of a namespaced kind with one version. The schema of that version is the
/// schema of `T`, which is the Rust type of whole objects.
pub fn definition<T: Object + JsonSchema>(plural: &str, columns: &[Column]) -> Value {
    Definition::new(&T::kind(), plural)
        .version(T::VERSION, true, &object_schema::<T>(), columns)
        .build()
}

/// The name of the environment variable that makes [`check`] write the definitions before it
/// compares them, if the value is 1.
pub const UPDATE: &str = "MORTISE_UPDATE";

/// Asserts, in a test, that a folder holds exactly these definitions, a file for each.
///
/// With `MORTISE_UPDATE=1` in the environment, the files of the definitions are written first;
/// other files of the folder are not deleted.
///
/// # Panics
///
/// If the files differ from the definitions, or the folder cannot be read or written.
pub fn check(folder: impl AsRef<Path>, definitions: &[Value]) {
    let folder = folder.as_ref();
    let wanted: BTreeMap<String, String> = definitions.iter().map(file).collect();
    if std::env::var_os(UPDATE).is_some_and(|update| update == "1") {
        fs::create_dir_all(folder).expect("the folder can be made");
        for (name, text) in &wanted {
            fs::write(folder.join(name), text).expect("the folder can be written to");
        }
    }
    let entries = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("cannot read `{}`: {error}", folder.display()));
    let found: BTreeMap<String, String> = entries
        .map(|entry| {
            let path = entry.expect("an entry can be read").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (name, fs::read_to_string(&path).expect("a definition is text"))
        })
        .collect();
    let differ: Vec<&String> = wanted
        .keys()
        .chain(found.keys().filter(|name| !wanted.contains_key(*name)))
        .filter(|name| wanted.get(*name) != found.get(*name))
        .collect();
    assert!(
        differ.is_empty(),
        "{differ:?} in `{}` differ from the Rust types: run `{UPDATE}=1 cargo test` and look at what it changes",
        folder.display()
    );
}

/// Returns the file name and the text of a definition.
fn file(definition: &Value) -> (String, String) {
    let name = definition.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let yaml = serde_saphyr::to_string(definition).expect("JSON is YAML");
    let head = format!(
        "# Written from the Rust types by `{UPDATE}=1 cargo test`; a test fails if the two differ.\n"
    );
    (format!("{name}.yaml"), format!("{head}{yaml}"))
}

/// Returns the structural schema of whole objects of type `T`, with apiVersion, kind and metadata.
pub fn object_schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    clean(&mut schema);
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        for (name, kind) in [("apiVersion", "string"), ("kind", "string"), ("metadata", "object")] {
            properties.insert(name.to_owned(), json!({"type": kind}));
        }
    }
    schema
}

/// Formats that `schemars` gives to Rust's integer types and that mean nothing to Kubernetes.
const RUST_FORMATS: [&str; 8] =
    ["uint8", "uint16", "uint32", "uint64", "uint", "int8", "int16", "int"];

fn clean(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else { return };
    for key in ["title", "nullable", "definitions", "$defs", "components"] {
        schema.remove(key);
    }
    if schema.get("default").is_some_and(says_nothing) {
        schema.remove("default");
    }
    if schema
        .get("format")
        .and_then(Value::as_str)
        .is_some_and(|format| RUST_FORMATS.contains(&format))
    {
        schema.remove("format");
    }
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(clean);
    }
    for key in ["items", "additionalProperties", "not"] {
        if let Some(inner) = schema.get_mut(key) {
            clean(inner);
        }
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        if let Some(list) = schema.get_mut(key).and_then(Value::as_array_mut) {
            list.iter_mut().for_each(clean);
        }
    }
    join_variants(schema);
    join_lines(schema);
}

/// Replaces a choice of documented string variants by one `enum`.
///
/// `schemars` writes an enum with documented variants as a `oneOf` of strings, but a structural
/// schema allows no `type` inside of `oneOf`.
fn join_variants(schema: &mut Map<String, Value>) {
    let Some(Value::Array(variants)) = schema.get("oneOf") else { return };
    let texts: Option<Vec<Value>> = variants
        .iter()
        .map(|variant| match variant.get("enum") {
            Some(Value::Array(texts)) if variant.get("type") == Some(&json!("string")) => {
                Some(texts.clone())
            }
            _ => None,
        })
        .collect::<Option<Vec<Vec<Value>>>>()
        .map(|texts| texts.concat());
    if let Some(texts) = texts {
        schema.remove("oneOf");
        schema.insert("type".to_owned(), "string".into());
        schema.insert("enum".to_owned(), texts.into());
    }
}

/// Returns whether a default is an empty value.
///
/// Rust fills such a value in for an absent field; it is not a default of the API, so the schema
/// does not mention it.
fn says_nothing(default: &Value) -> bool {
    match default {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.values().all(says_nothing),
    }
}

/// Joins the lines of each paragraph of a description: doc comments are wrapped to the width of the
/// source, descriptions in a schema are not.
fn join_lines(schema: &mut Map<String, Value>) {
    let Some(Value::String(description)) = schema.get_mut("description") else { return };
    let paragraphs: Vec<String> =
        description.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect();
    *description = paragraphs.join("\n\n");
}

#[cfg(test)]
mod tests {
    #![allow(dead_code, reason = "only their schemas are looked at")]

    use std::collections::BTreeMap;

    use super::*;

    /// A thing.
    #[derive(JsonSchema)]
    #[serde(rename_all = "camelCase")]
    struct Thing {
        spec: Spec,
        status: Option<Status>,
    }

    impl Object for Thing {
        const GROUP: &'static str = "example.com";
        const VERSION: &'static str = "v1";
        const KIND: &'static str = "Thing";
    }

    /// What it is,
    /// over two lines.
    #[derive(JsonSchema)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        how_many: Option<u32>,
        #[serde(default)]
        limit: u32,
        #[serde(default = "yes")]
        enforce: bool,
        names: Vec<Option<String>>,
        notes: BTreeMap<String, String>,
    }

    #[derive(JsonSchema)]
    struct Status {
        state: State,
    }

    /// How it is.
    #[derive(JsonSchema)]
    enum State {
        /// All is done.
        Ready,
        /// Not all is done.
        Busy,
    }

    fn yes() -> bool {
        true
    }

    #[test]
    fn a_schema_is_structural() {
        let expected = json!({
            "description": "A thing.",
            "type": "object",
            "properties": {
                "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
                "spec": {
                    "description": "What it is, over two lines.",
                    "type": "object",
                    "properties": {
                        "howMany": {"type": "integer", "minimum": 0},
                        "limit": {"type": "integer", "minimum": 0},
                        "enforce": {"type": "boolean", "default": true},
                        "names": {"type": "array", "items": {"type": "string"}},
                        "notes": {"type": "object", "additionalProperties": {"type": "string"}},
                    },
                    "required": ["names", "notes"],
                },
                "status": {
                    "type": "object",
                    "properties": {"state": {"description": "How it is.", "type": "string", "enum": ["Ready", "Busy"]}},
                    "required": ["state"],
                },
            },
            "required": ["spec"],
        });
        assert_eq!(object_schema::<Thing>(), expected);
    }

    #[test]
    fn a_version_may_be_deprecated_or_not_be_served() {
        let schema = object_schema::<Thing>();
        let definition = Definition::new(&Thing::kind(), "things")
            .version("v1", true, &schema, &[])
            .version("v1beta1", false, &schema, &[])
            .deprecated("use v1")
            .not_served()
            .build();
        let versions = &definition["spec"]["versions"];
        assert_eq!((&versions[0]["served"], versions[0].get("deprecated")), (&json!(true), None));
        assert_eq!(
            (
                &versions[1]["served"],
                &versions[1]["deprecated"],
                &versions[1]["deprecationWarning"]
            ),
            (&json!(false), &json!(true), &json!("use v1"))
        );
    }

    #[test]
    fn a_folder_that_differs_is_told() {
        let folder = std::env::temp_dir().join(format!("mortise-crds-{}", std::process::id()));
        let definition = definition::<Thing>("things", &[]);
        let differs = || {
            let definitions = [definition.clone()];
            let checked = std::panic::catch_unwind(|| check(&folder, &definitions));
            checked.err().map(|panic| *panic.downcast::<String>().unwrap()).unwrap_or_default()
        };
        fs::create_dir_all(&folder).unwrap();
        assert!(differs().contains("things.example.com.yaml"), "{}", differs());
        let (name, text) = file(&definition);
        fs::write(folder.join(&name), &text).unwrap();
        assert_eq!(differs(), "");
        assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), definition);
        fs::write(folder.join("former.yaml"), "").unwrap();
        assert!(differs().contains("former.yaml"), "{}", differs());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_definition_names_what_kubectl_shows() {
        let column = Column { name: "State", column_type: "string", json_path: ".status.state" };
        let definition = Definition::new(&Kind::new("example.com", "", "Thing"), "things")
            .category("all")
            .version("v1", true, &object_schema::<Thing>(), &[column])
            .build();
        assert_eq!(definition["metadata"]["name"], "things.example.com");
        let names = json!({"kind": "Thing", "listKind": "ThingList", "plural": "things", "singular": "thing", "categories": ["all"]});
        assert_eq!(definition["spec"]["names"], names);
        let column = &definition["spec"]["versions"][0]["additionalPrinterColumns"][0];
        assert_eq!(
            column,
            &json!({"name": "State", "type": "string", "jsonPath": ".status.state"})
        );
    }
}
